"""A benchmark run: what was asked of a server, by which client, for how long, and what was measured.

Every reader gives runs, and fitting and prediction take nothing else.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import log2, sqrt
from typing import NamedTuple

from optimizer.simulation.lengths import LengthDistributionKind, Lengths
from optimizer.simulation.limits import UNLIMITED

NEARLY_FIXED = 0.005
"""A coefficient of variation below which lengths count as fixed."""


class Arrivals(StrEnum):
    """How a client sends."""

    CONSTANT = "constant"
    """At even intervals."""
    POISSON = "poisson"
    """With exponential times between."""
    CLOSED = "closed"
    """Always as many as it may have in flight."""


CVS = {Arrivals.CONSTANT: 0.0, Arrivals.POISSON: 1.0, Arrivals.CLOSED: 0.0}


class TokenCounts(NamedTuple):
    """The lengths of prompts or answers [tokens]."""

    mean: float
    cv: float = 0.0
    """Coefficient of variation."""
    kind: LengthDistributionKind = LengthDistributionKind.UNIFORM

    @classmethod
    def of(cls, mean: float, deviation: float) -> "TokenCounts":
        """Return lengths of a mean and a standard deviation: uniform where those may be, else lognormal."""
        cv = deviation / mean if mean > 0 else 0.0
        if cv < NEARLY_FIXED:
            return cls(mean, 0.0, LengthDistributionKind.FIXED)
        return cls(
            mean,
            cv,
            LengthDistributionKind.UNIFORM if cv <= 1 / sqrt(3) else LengthDistributionKind.LOGNORMAL,
        )

    def lengths(self, least: int = 0) -> Lengths:
        """Return the law of lengths that the simulator draws from."""
        if self.cv <= 0 or self.kind is LengthDistributionKind.FIXED:
            return Lengths(LengthDistributionKind.FIXED, self.mean, 0.0, least)
        variation = min(sqrt(3) * self.cv, 1.0) if self.kind is LengthDistributionKind.UNIFORM else self.cv
        return Lengths(self.kind, self.mean, variation, least)


class RunMeasurements(NamedTuple):
    """What was measured; none: not stated."""

    ttft_ms: float | None = None
    """Median time to the first token [ms]."""
    itl_ms: float | None = None
    """Mean time between tokens [ms]: over tokens, as benchmarks give it."""
    throughput_rps: float | None = None
    """Completed [requests/s]."""


NOTHING = RunMeasurements()


@dataclass(frozen=True, slots=True)
class BenchmarkRun:
    """One run of a benchmark, from an empty server.

    With a duration, what ends later does not count. With a number of requests and no duration, all of them
    count, however long it takes. With neither, it is a steady state.
    """

    prompts: TokenCounts
    answers: TokenCounts
    arrivals: Arrivals
    rate_rps: float | None = None
    """Offered [requests/s]; none where the client sends as fast as it may."""
    duration_s: float | None = None
    """How long it took [s]."""
    requests: int | None = None
    """The client sends no more than these; none: no limit."""
    max_in_flight: int | None = None
    """Requests that the client has on the way at once; none: no limit."""
    burst: int = 0
    """Requests that a client sends at once before it keeps to its rate."""
    arrival_cv: float | None = None
    """Coefficient of variation of the times between arrivals; none: that of the arrivals' name."""
    measured: RunMeasurements = NOTHING
    completed: int | None = None
    """Requests that were completed; what is measured over few of them is less certain."""
    source: str = ""
    """Where it comes from: a file, and which run in it."""

    @property
    def is_steady(self) -> bool:
        """Whether it has no end."""
        return self.duration_s is None and self.requests is None

    @property
    def is_full(self) -> bool:
        """Whether the client sends all that it may, for others beside one."""
        return self.arrivals is Arrivals.CLOSED and not self.is_alone

    @property
    def cv(self) -> float:
        """Coefficient of variation of the times between arrivals."""
        return CVS[self.arrivals] if self.arrival_cv is None else self.arrival_cv

    @property
    def shape(self) -> tuple[int, int]:
        """Prompt and answer, rounded to powers of two: runs of a shape have nearly the same lengths."""
        return _rounded(self.prompts.mean), _rounded(self.answers.mean)

    @property
    def is_alone(self) -> bool:
        """Whether no request meets another."""
        return self.max_in_flight == 1

    @property
    def in_flight_limit(self) -> int:
        """Requests on the way at once, as the simulator takes it."""
        return UNLIMITED if self.max_in_flight is None else self.max_in_flight


def shape_name(shape: tuple[int, int]) -> str:
    """Return a shape as people write it, 1024/256."""
    return f"{shape[0]}/{shape[1]}"


def shapes_of(runs: Iterable[BenchmarkRun]) -> list[tuple[int, int]]:
    """Return the shapes of runs, ascending."""
    return sorted({run.shape for run in runs})


def _rounded(tokens: float) -> int:
    return int(2 ** round(log2(max(tokens, 1.0))))
