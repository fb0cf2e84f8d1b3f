"""Benchmark runs: load, client, duration and measurements.

Readers convert reports to runs; fitting and prediction need no other input.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import log2, sqrt
from typing import NamedTuple

from optimizer.simulation.lengths import LengthDistribution, Lengths

NEARLY_FIXED = 0.005
"""Coefficient of variation below which lengths count as fixed."""


class Arrivals(StrEnum):
    """Arrival process of a client."""

    CONSTANT = "constant"
    """Requests are sent at equal intervals."""
    POISSON = "poisson"
    """Interarrival times are exponential."""
    CLOSED = "closed"
    """The client keeps a constant number of requests in flight."""


CVS = {Arrivals.CONSTANT: 0.0, Arrivals.POISSON: 1.0, Arrivals.CLOSED: 0.0}


class TokenCounts(NamedTuple):
    """Length distribution of prompts or outputs [tokens]."""

    mean: float
    cv: float = 0.0
    """Coefficient of variation of the lengths."""
    distribution: LengthDistribution = LengthDistribution.UNIFORM
    assumed: bool = False
    """Whether the spread is an assumption, because the report does not state it."""

    @classmethod
    def of(cls, mean: float, deviation: float) -> "TokenCounts":
        """Create a distribution from mean and standard deviation: uniform if possible, else lognormal."""
        cv = deviation / mean if mean > 0 else 0.0
        if cv < NEARLY_FIXED:
            return cls(mean, 0.0, LengthDistribution.FIXED)
        return cls(
            mean,
            cv,
            LengthDistribution.UNIFORM if cv <= 1 / sqrt(3) else LengthDistribution.LOGNORMAL,
        )

    @property
    def narrower(self) -> "TokenCounts":
        """Lengths of the same mean that differ half as much, if their spread is assumed."""
        return TokenCounts.of(self.mean, self.cv / 2 * self.mean) if self.assumed else self

    def lengths(self, least: int = 0) -> Lengths:
        """Convert to a length distribution of the simulator; lengths are at least `least`."""
        if self.cv <= 0 or self.distribution is LengthDistribution.FIXED:
            return Lengths(LengthDistribution.FIXED, self.mean, 0.0, least)
        variation = (
            min(sqrt(3) * self.cv, 1.0) if self.distribution is LengthDistribution.UNIFORM else self.cv
        )
        return Lengths(self.distribution, self.mean, variation, least)


class RunMeasurements(NamedTuple):
    """Measured metrics of a run; None if not reported."""

    ttft_ms: float | None = None
    """Median TTFT [ms]."""
    itl_ms: float | None = None
    """Mean inter-token latency over all tokens, as benchmarks report it [ms]."""
    throughput_rps: float | None = None
    """Throughput of completed requests [requests/s]."""


NOTHING = RunMeasurements()


@dataclass(frozen=True, slots=True)
class BenchmarkRun:
    """One run of a benchmark, which starts with an empty server.

    If it has a duration, later completions do not count. If it has only a number of requests, all of them
    count. If it has neither, it is a steady state.
    """

    prompts: TokenCounts
    answers: TokenCounts
    arrivals: Arrivals
    rate_rps: float | None = None
    """Offered rate [requests/s]; None for a closed loop."""
    duration_s: float | None = None
    """Duration of the run [s]; None if it ends with its last request."""
    requests: int | None = None
    """Maximum number of requests sent; None for no limit."""
    max_in_flight: int | None = None
    """Maximum number of requests that the client keeps in flight; None for no limit."""
    burst: int = 0
    """Number of requests sent at once at the start, before the client sends at its rate."""
    arrival_cv: float | None = None
    """Coefficient of variation of the interarrival times; None for that of `arrivals`."""
    cached_share: float = 0.0
    """Share of the tokens of each prompt that a prefix cache holds; its last token is always computed."""
    think_ms: float = 0.0
    """Think time of a user of a closed loop between requests [ms]."""
    measured: RunMeasurements = NOTHING
    completed: int | None = None
    """Number of completed requests; metrics over few of them are less certain. None if unknown."""
    source: str = ""
    """Name of the file, and of the run in it."""

    @property
    def is_steady(self) -> bool:
        """Whether the run is a steady state: it has neither a duration nor a number of requests."""
        return self.duration_s is None and self.requests is None

    @property
    def is_full(self) -> bool:
        """Whether the client is a closed loop with more than one request in flight."""
        return self.arrivals is Arrivals.CLOSED and not self.is_alone

    @property
    def is_random(self) -> bool:
        """Whether lengths or arrivals differ from one draw of the requests to the next."""
        return self.prompts.cv > 0 or self.answers.cv > 0 or (self.rate_rps is not None and self.cv > 0)

    @property
    def cv(self) -> float:
        """Coefficient of variation of the interarrival times."""
        return CVS[self.arrivals] if self.arrival_cv is None else self.arrival_cv

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the run: prompt and output length, rounded to powers of two [tokens]."""
        return _rounded(self.prompts.mean), _rounded(self.answers.mean)

    @property
    def is_alone(self) -> bool:
        """Whether only one request is in flight at a time."""
        return self.max_in_flight == 1


def shape_name(shape: tuple[int, int]) -> str:
    """Return the display name of a shape: prompt and output length, for example 1024/256."""
    return f"{shape[0]}/{shape[1]}"


def shapes_of(runs: Iterable[BenchmarkRun]) -> list[tuple[int, int]]:
    """Return the distinct shapes of runs, ascending."""
    return sorted({run.shape for run in runs})


def _rounded(tokens: float) -> int:
    return int(2 ** round(log2(max(tokens, 1.0))))
