"""Parameters of a dynamic-batching server with stages before and after it, as plain numbers."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from optimizer.arrays import FloatArray, frozen
from optimizer.simulation.batches import BatchServer

ALL_JOBS = 0
"""Value of `jobs` without a limit on the requests inside a tandem."""


class Station(NamedTuple):
    """A stage of a tandem: each worker serves one request at a time, first come, first served."""

    before: bool
    """Whether the stage precedes the server; otherwise it follows."""
    mean_ms: float
    """Mean service time [ms]."""
    cv: float
    """Coefficient of variation of the service time, which is lognormal."""
    workers: int

    @property
    def most(self) -> float:
        """Maximum throughput of the stage [requests/ms]."""
        return self.workers / self.mean_ms

    @classmethod
    def of_row(cls, row: Sequence[float]) -> Self:
        """Build a stage from a row of `station_table`."""
        before, mean_ms, cv, workers = row
        return cls(bool(before), mean_ms, cv, int(workers))


class Tandem(NamedTuple):
    """A dynamic-batching server and the stages before and after it, in order."""

    server: BatchServer
    stations: tuple[Station, ...] = ()
    jobs: int = ALL_JOBS
    """Maximum requests inside the tandem; others wait before it. `ALL_JOBS` means no limit."""

    @property
    def is_server_alone(self) -> bool:
        """Whether the tandem has neither stages nor a limit on jobs."""
        return not self.stations and self.jobs == ALL_JOBS

    @property
    def before(self) -> tuple[Station, ...]:
        """Stages before the server."""
        return tuple(station for station in self.stations if station.before)

    @property
    def after(self) -> tuple[Station, ...]:
        """Stages after the server."""
        return tuple(station for station in self.stations if not station.before)

    @property
    def slowest(self) -> int | None:
        """Index in `stations` of the bottleneck stage; None if the server is the bottleneck."""
        most = [station.most for station in self.stations]
        if not most or min(most) >= self.server.full_rate:
            return None
        return most.index(min(most))

    @property
    def most(self) -> float:
        """Maximum throughput of the tandem without a limit on jobs [requests/ms]."""
        return min([self.server.full_rate, *(station.most for station in self.stations)])


def station_table(lines: Sequence[Sequence[Station]]) -> FloatArray:
    """Return the stages of R tandems as an array, shape (R, stages, 4).

    Rows with zero workers are padding.
    """
    table = np.zeros((len(lines), max(map(len, lines), default=0), 4))
    for row, stations in zip(table, lines, strict=True):
        if stations:
            row[: len(stations)] = stations
    return frozen(table)
