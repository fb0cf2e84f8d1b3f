"""A batch server between stages, as plain numbers: what a request passes before its batch, and after it."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from optimizer.arrays import FloatArray, frozen
from optimizer.simulation.batches import BatchServer

ALL_JOBS = 0
"""Where any number of requests may be in a line at once."""


class Station(NamedTuple):
    """A stage: workers who serve one request at a time each, in the order in which requests come."""

    before: bool
    """Whether it stands before the batch server, or after it."""
    mean_ms: float
    """Mean time of a request."""
    cv: float
    """Coefficient of variation of that time, which is lognormal."""
    workers: int

    @property
    def most(self) -> float:
        """Requests that it can serve [1/ms]."""
        return self.workers / self.mean_ms

    @classmethod
    def of_row(cls, row: Sequence[float]) -> Self:
        """Read a row of `station_table`."""
        before, mean_ms, cv, workers = row
        return cls(bool(before), mean_ms, cv, int(workers))


class Tandem(NamedTuple):
    """A batch server and the stages of its replica, in the order in which requests pass them."""

    server: BatchServer
    stations: tuple[Station, ...] = ()
    jobs: int = ALL_JOBS
    """Requests that are in the line at once; the others wait before it. `ALL_JOBS`: any number."""

    @property
    def is_server_alone(self) -> bool:
        """Whether there is nothing but the server."""
        return not self.stations and self.jobs == ALL_JOBS

    @property
    def before(self) -> tuple[Station, ...]:
        """The stages before the server."""
        return tuple(station for station in self.stations if station.before)

    @property
    def after(self) -> tuple[Station, ...]:
        """The stages after it."""
        return tuple(station for station in self.stations if not station.before)

    @property
    def slowest(self) -> int | None:
        """The stage that can serve the fewest requests, an index into `stations`; none: the server can."""
        most = [station.most for station in self.stations]
        if not most or min(most) >= self.server.full_rate:
            return None
        return most.index(min(most))

    @property
    def most(self) -> float:
        """Requests that the line can serve [1/ms], however many are in it."""
        return min([self.server.full_rate, *(station.most for station in self.stations)])


def station_table(lines: Sequence[Sequence[Station]]) -> FloatArray:
    """Return the stages of R lines as numbers, shape (R, stages, 4); rows without workers are none."""
    table = np.zeros((len(lines), max(map(len, lines), default=0), 4))
    for row, stations in zip(table, lines, strict=True):
        if stations:
            row[: len(stations)] = stations
    return frozen(table)
