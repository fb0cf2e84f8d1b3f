"""Queueing time at a processing stage with its own workers, and the variability of its departures.

Sources: Allen and Cunneen (mean queueing time with several workers), Kraemer and Langenbach-Belz (arrivals
less variable than Poisson), Whitt, The Queueing Network Analyzer (departures); equations 108–110.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.lattice import (
    Lattice,
    Transform,
    lognormal_excess,
    residual_excess,
    scaled_excess,
)
from optimizer.simulation.tandem import Station

MIN_SCV = 0.2
"""Minimum squared coefficient of variation of service times in the formula for departures (Whitt)."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Queueing at a stage whose requests arrive one by one or in groups."""

    station: Station
    load: float
    """ρ: utilisation of the workers."""
    chance: float
    """Probability that a request must wait for earlier arrivals."""
    stretch: float
    """Factor on the queueing time compared with Poisson arrivals."""
    ahead: FloatArray
    """Probability that j requests of the same group are served before a request; shape (largest group,)."""

    @property
    def before_ms(self) -> float:
        """Mean queueing time behind earlier arrivals [ms]."""
        station = self.station
        residual = station.mean_ms * (1 + station.cv**2) / 2
        return self.chance * self.stretch * residual / (station.workers * (1 - self.load))

    @property
    def group_ms(self) -> float:
        """Mean queueing time behind requests of the same group [ms]."""
        served = self.station.mean_ms / self.station.workers
        return float(self.ahead @ np.arange(len(self.ahead))) * served

    @property
    def mean_ms(self) -> float:
        """Mean time at the stage, including service [ms]."""
        return self.before_ms + self.group_ms + self.station.mean_ms

    def law(self, lattice: Lattice) -> Transform:
        """Return the transform of the time at the stage: queueing plus service (eq. 110)."""
        mean, cv, workers = self.station.mean_ms, self.station.cv, self.station.workers
        law = lattice.law(lognormal_excess(mean, cv))
        if self.chance * self.stretch > 0:
            residual = lattice.law(scaled_excess(residual_excess(mean, cv), self.stretch / workers))
            law = law * (
                1 - self.chance + self.chance * (1 - self.load) * residual / (1 - self.load * residual)
            )
        if len(self.ahead) > 1:
            one = lattice.law(scaled_excess(lognormal_excess(mean, cv), 1 / workers))
            law = law * np.polynomial.polynomial.polyval(one, self.ahead)
        return law


def one_by_one(station: Station, rate: float, arrivals_scv: float) -> Wait:
    """Return the queueing at a stage whose requests arrive one by one.

    Args:
        station: the stage.
        rate: arrival rate [1/ms].
        arrivals_scv: squared coefficient of variation of the interarrival times.
    """
    load = rate / station.most
    chance = erlang_c(station.workers, rate * station.mean_ms)
    return Wait(station, load, chance, _stretch(load, arrivals_scv, station.cv**2), np.ones(1))


def in_groups(station: Station, rate: float, batches: FloatArray, gaps_scv: float) -> Wait:
    """Return the queueing at a stage whose requests arrive in the batches of a server.

    Args:
        station: the stage after the server.
        rate: arrival rate of requests [1/ms].
        batches: distribution of the batch size; shape (B + 1,).
        gaps_scv: squared coefficient of variation of the times between batches.
    """
    load = rate / station.most
    size = np.arange(len(batches))
    mean = float(batches @ size)
    # A batch has a k-th request with probability P(size ≥ k); it waits for k − 1 others.
    position = np.cumsum(batches[::-1])[::-1][1:] / mean
    free = 1 if station.workers == 1 else max(int(station.workers - rate * station.mean_ms), 1)
    ahead = np.zeros(max(len(position) - free, 0) + 1)
    ahead[0] = position[:free].sum()
    ahead[1:] = position[free:]
    if station.workers > 1:
        chance = erlang_c(station.workers, rate * station.mean_ms)
        return Wait(station, load, chance, _stretch(load, 1.0, station.cv**2), ahead)
    # A single worker serves a group like one job.
    scv = (float(batches @ size**2) - mean**2 + mean * station.cv**2) / mean**2
    piece = mean * (1 + scv) / (1 + station.cv**2)
    return Wait(station, load, load, _stretch(load, gaps_scv, scv) * piece, ahead)


def departures_scv(station: Station, rate: float, arrivals_scv: float) -> float:
    """Return the squared coefficient of variation of the interdeparture times of a stage (eq. 109).

    Args:
        station: the stage.
        rate: arrival rate [1/ms].
        arrivals_scv: squared coefficient of variation of the interarrival times.
    """
    load = rate / station.most
    services = (max(station.cv**2, MIN_SCV) - 1) / np.sqrt(station.workers)
    return float(1 + (1 - load**2) * (arrivals_scv - 1) + load**2 * services)


def erlang_c(workers: int, offered: float) -> float:
    """Return the probability that all workers are busy (Erlang C).

    The offered load must be below the number of workers.
    """
    inverse = 1.0  # reciprocal of Erlang B
    for k in range(1, workers + 1):
        inverse = 1 + inverse * k / offered
        if inverse > 1e300:
            return 0.0
    loss = 1 / inverse
    return loss / (1 - offered / workers * (1 - loss))


def _stretch(load: float, arrivals_scv: float, services_scv: float) -> float:
    """Return the factor on queueing times compared with Poisson arrivals (eq. 108)."""
    both = arrivals_scv + services_scv
    if both <= 0:
        return 0.0
    shorter = 1.0
    if arrivals_scv < 1:
        shorter = np.exp(-2 * (1 - load) * (1 - arrivals_scv) ** 2 / (3 * load * both))
    return float(both / (1 + services_scv) * shorter)
