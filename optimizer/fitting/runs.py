"""Benchmark runs: load, client, duration and measurements.

All readers return runs; fitting and prediction need no other input.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import log2, sqrt
from typing import NamedTuple

from optimizer.simulation.lengths import LengthDistribution, Lengths

NEARLY_FIXED = 0.005
"""A coefficient of variation below which lengths count as fixed."""


class Arrivals(StrEnum):
    """Arrival process of a client."""

    CONSTANT = "constant"
    """Requests at equal intervals."""
    POISSON = "poisson"
    """Requests with exponential interarrival times."""
    CLOSED = "closed"
    """A constant number of requests in flight."""


CVS = {Arrivals.CONSTANT: 0.0, Arrivals.POISSON: 1.0, Arrivals.CLOSED: 0.0}


class TokenCounts(NamedTuple):
    """Length distribution of prompts or outputs [tokens]."""

    mean: float
    cv: float = 0.0
    """Coefficient of variation."""
    distribution: LengthDistribution = LengthDistribution.UNIFORM

    @classmethod
    def of(cls, mean: float, deviation: float) -> "TokenCounts":
        """Return lengths with a mean and a standard deviation: uniform if possible, otherwise lognormal."""
        cv = deviation / mean if mean > 0 else 0.0
        if cv < NEARLY_FIXED:
            return cls(mean, 0.0, LengthDistribution.FIXED)
        return cls(
            mean,
            cv,
            LengthDistribution.UNIFORM if cv <= 1 / sqrt(3) else LengthDistribution.LOGNORMAL,
        )

    def lengths(self, least: int = 0) -> Lengths:
        """Return the length distribution for the simulator."""
        if self.cv <= 0 or self.distribution is LengthDistribution.FIXED:
            return Lengths(LengthDistribution.FIXED, self.mean, 0.0, least)
        variation = (
            min(sqrt(3) * self.cv, 1.0) if self.distribution is LengthDistribution.UNIFORM else self.cv
        )
        return Lengths(self.distribution, self.mean, variation, least)


class RunMeasurements(NamedTuple):
    """Measured metrics; None if not reported."""

    ttft_ms: float | None = None
    """Median TTFT [ms]."""
    itl_ms: float | None = None
    """Mean ITL over tokens [ms], as benchmarks report it."""
    throughput_rps: float | None = None
    """Throughput of completed requests [requests/s]."""


NOTHING = RunMeasurements()


@dataclass(frozen=True, slots=True)
class BenchmarkRun:
    """One run of a benchmark, from an empty server.

    With a duration, later completions do not count. With a number of requests and no duration, all of them
    count. With neither, it is a steady state.
    """

    prompts: TokenCounts
    answers: TokenCounts
    arrivals: Arrivals
    rate_rps: float | None = None
    """Offered rate [requests/s]; None if the client sends without waiting."""
    duration_s: float | None = None
    """Duration [s]."""
    requests: int | None = None
    """Maximum requests sent; None for no limit."""
    max_in_flight: int | None = None
    """Maximum requests of the client in flight; None for no limit."""
    burst: int = 0
    """Requests sent at once before the client keeps to its rate."""
    arrival_cv: float | None = None
    """Coefficient of variation of the interarrival times; None for that of `arrivals`."""
    think_ms: float = 0.0
    """Pause of a user of a closed loop between requests [ms]."""
    measured: RunMeasurements = NOTHING
    completed: int | None = None
    """Requests completed; metrics over few of them are less certain."""
    source: str = ""
    """File, and run in the file."""

    @property
    def is_steady(self) -> bool:
        """Whether the run is a steady state, without an end."""
        return self.duration_s is None and self.requests is None

    @property
    def is_full(self) -> bool:
        """Whether the client sends without waiting and with more than one request in flight."""
        return self.arrivals is Arrivals.CLOSED and not self.is_alone

    @property
    def cv(self) -> float:
        """Coefficient of variation of the interarrival times."""
        return CVS[self.arrivals] if self.arrival_cv is None else self.arrival_cv

    @property
    def shape(self) -> tuple[int, int]:
        """Prompt and output length rounded to powers of two; runs of a shape have similar lengths."""
        return _rounded(self.prompts.mean), _rounded(self.answers.mean)

    @property
    def is_alone(self) -> bool:
        """Whether only one request is in flight at a time."""
        return self.max_in_flight == 1


def shape_name(shape: tuple[int, int]) -> str:
    """Return the display name of a shape, for example 1024/256."""
    return f"{shape[0]}/{shape[1]}"


def shapes_of(runs: Iterable[BenchmarkRun]) -> list[tuple[int, int]]:
    """Return the shapes of runs, ascending."""
    return sorted({run.shape for run in runs})


def _rounded(tokens: float) -> int:
    return int(2 ** round(log2(max(tokens, 1.0))))
