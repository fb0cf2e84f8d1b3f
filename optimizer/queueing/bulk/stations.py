"""How long requests wait at a stage with workers of its own, and how evenly they leave it.

Sources: Allen and Cunneen (the mean wait behind many workers), Kraemer and Langenbach-Belz (behind arrivals
that are more even than Poisson), Whitt, The Queueing Network Analyzer (departures); equations 108–110.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.lattice import Lattice, Transform, lognormal_excess, residual_excess, scaled
from optimizer.simulation.tandem import Station

MIN_SCV = 0.2
"""Squared coefficient of variation that departures take services for at least (Whitt)."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait at a stage at a rate, of requests that come one by one, or in groups."""

    station: Station
    load: float
    """ρ: share of the workers who serve."""
    chance: float
    """That somebody waits at all for those who came before."""
    stretch: float
    """By how much longer than after Poisson arrivals."""
    ahead: FloatArray
    """How likely a request finds j of its own group before it, for whom it waits; shape (groups' most,)."""

    @property
    def before_ms(self) -> float:
        """Mean wait for those who came before."""
        station = self.station
        residual = station.mean_ms * (1 + station.cv**2) / 2
        return self.chance * self.stretch * residual / (station.workers * (1 - self.load))

    @property
    def group_ms(self) -> float:
        """Mean wait for the own group."""
        served = self.station.mean_ms / self.station.workers
        return float(self.ahead @ np.arange(len(self.ahead))) * served

    @property
    def mean_ms(self) -> float:
        """Mean time at the stage, the service in it."""
        return self.before_ms + self.group_ms + self.station.mean_ms

    def law(self, lattice: Lattice) -> Transform:
        """Return the law of that time (eq. 110)."""
        mean, cv, workers = self.station.mean_ms, self.station.cv, self.station.workers
        law = lattice.law(lognormal_excess(mean, cv))
        if self.chance * self.stretch > 0:
            residual = lattice.law(scaled(residual_excess(mean, cv), self.stretch / workers))
            law = law * (
                1 - self.chance + self.chance * (1 - self.load) * residual / (1 - self.load * residual)
            )
        if len(self.ahead) > 1:
            one = lattice.law(scaled(lognormal_excess(mean, cv), 1 / workers))
            law = law * np.polynomial.polynomial.polyval(one, self.ahead)
        return law


def one_by_one(station: Station, rate: float, arrivals_scv: float) -> Wait:
    """Return the wait of requests that come one by one, with gaps of a squared coefficient of variation."""
    load = rate / station.most
    chance = erlang_c(station.workers, rate * station.mean_ms)
    return Wait(station, load, chance, _stretch(load, arrivals_scv, station.cv**2), np.ones(1))


def in_groups(station: Station, rate: float, batches: FloatArray, gaps_scv: float) -> Wait:
    """Return the wait of requests that come in the batches of a server.

    Args:
        station: the stage behind the server.
        rate: requests that come [1/ms].
        batches: how likely a batch of n is, by n; shape (B + 1,).
        gaps_scv: squared coefficient of variation of the times between batches.
    """
    load = rate / station.most
    size = np.arange(len(batches))
    mean = float(batches @ size)
    # The k-th of a batch comes with the chance that a batch has k, and finds all before it but who is served.
    position = np.cumsum(batches[::-1])[::-1][1:] / mean
    free = 1 if station.workers == 1 else max(int(station.workers - rate * station.mean_ms), 1)
    ahead = np.zeros(max(len(position) - free, 0) + 1)
    ahead[0] = position[:free].sum()
    ahead[1:] = position[free:]
    if station.workers > 1:
        chance = erlang_c(station.workers, rate * station.mean_ms)
        return Wait(station, load, chance, _stretch(load, 1.0, station.cv**2), ahead)
    # One worker takes a group as one piece of work.
    scv = (float(batches @ size**2) - mean**2 + mean * station.cv**2) / mean**2
    piece = mean * (1 + scv) / (1 + station.cv**2)
    return Wait(station, load, load, _stretch(load, gaps_scv, scv) * piece, ahead)


def departures_scv(station: Station, rate: float, arrivals_scv: float) -> float:
    """Return how requests leave a stage: the squared coefficient of variation of their gaps (eq. 109)."""
    load = rate / station.most
    services = (max(station.cv**2, MIN_SCV) - 1) / np.sqrt(station.workers)
    return float(1 + (1 - load**2) * (arrivals_scv - 1) + load**2 * services)


def erlang_c(workers: int, offered: float) -> float:
    """Return the chance that all workers serve, at so many services offered at once; below `workers`."""
    inverse = 1.0  # of Erlang's loss formula
    for k in range(1, workers + 1):
        inverse = 1 + inverse * k / offered
        if inverse > 1e300:
            return 0.0
    loss = 1 / inverse
    return loss / (1 - offered / workers * (1 - loss))


def _stretch(load: float, arrivals_scv: float, services_scv: float) -> float:
    """Return by how much waits are longer than after Poisson arrivals (eq. 108)."""
    both = arrivals_scv + services_scv
    if both <= 0:
        return 0.0
    shorter = 1.0
    if arrivals_scv < 1:
        shorter = np.exp(-2 * (1 - load) * (1 - arrivals_scv) ** 2 / (3 * load * both))
    return float(both / (1 + services_scv) * shorter)
