"""Measurements of a server over a time window, and the reasons why there are none."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from math import isfinite

from optimizer.stabilisation.arrivals import ArrivalCount

Buckets = Mapping[float, float]
"""Number of values in each bucket of a histogram, by upper bound; the last bound is infinite."""


class HoldReason(StrEnum):
    """Reason why a server keeps its replicas."""

    source_down = "SourceDown"
    no_series = "NoSeries"
    not_a_number = "NotANumber"
    stale = "Stale"
    partial = "Partial"
    window_not_full = "WindowNotFull"
    replicas_unknown = "ReplicasUnknown"
    no_deployment = "NoDeployment"
    plan_failed = "PlanFailed"
    not_in_plan = "NotInPlan"


@dataclass(frozen=True, slots=True)
class Hold:
    """The reason why a server keeps its replicas, as code and text."""

    reason: HoldReason
    detail: str


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests and tokens of a server counted in a time span, summed over its replicas."""

    span_s: float = 0.0
    """Length of the time span [s]."""
    first_tokens: float = 0.0
    """Number of requests that got their first token; for a batch server, of completed requests."""
    waiting_growth: float = 0.0
    """Increase of the number of waiting requests."""
    rejected: float = 0.0
    """Number of rejected requests."""
    arrived: float | None = None
    """Number of arrivals that a gateway counted in front of the replicas; None if none does."""
    completed: float = 0.0
    prompts: float = 0.0
    """Number of requests with a known prompt length."""
    prompt_tokens: float = 0.0
    answers: float = 0.0
    """Number of requests with a known output length."""
    answer_tokens: float = 0.0
    prefix_queries: float = 0.0
    """Number of prompt tokens that were looked up in a prefix cache."""
    prefix_hits: float = 0.0
    """Number of these tokens that were found."""
    ttft_s: float = 0.0
    """Sum of the times to first token [s]."""
    tokens: float = 0.0
    """Number of tokens after the first token of each request."""
    itl_s: float = 0.0
    """Sum of the times between tokens [s]."""
    prompt_buckets: Buckets = field(default_factory=dict)
    answer_buckets: Buckets = field(default_factory=dict)

    @property
    def arrivals(self) -> float:
        """Number of requests that arrived.

        A gateway counts arrivals; otherwise they follow by conservation: first tokens + growth of the queue +
        rejections (docs/loop.md, eq. L1). This is exact for the counted time, also in overload and drain.
        """
        conserved = self.first_tokens + self.waiting_growth + self.rejected
        return max(0.0, conserved if self.arrived is None else self.arrived)

    def times(self, share: float) -> "Counts":
        """Return the counts multiplied by a factor."""
        return summed([self], share)


def summed(parts: Iterable[Counts], share: float = 1.0) -> Counts:
    """Return the sum of the counts of several time spans, multiplied by a factor."""
    by_field: dict[str, object] = {}
    parts = [Counts(), *parts]
    for each in fields(Counts):
        known = [value for part in parts if (value := getattr(part, each.name)) is not None]
        if each.name.endswith("buckets"):
            bounds = sorted({bound for value in known for bound in value})
            by_field[each.name] = {
                bound: sum(share * value.get(bound, 0.0) for value in known) for bound in bounds
            }
        else:
            by_field[each.name] = sum(share * value for value in known) if known else None
    return Counts(**by_field)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Window:
    """Measurements of a server over the last time window."""

    counts: Counts
    waiting: float
    """Number of waiting requests at the end of the window."""
    running: float
    """Number of requests in batches at the end of the window."""
    reporting: int
    """Number of replicas with a recent value."""
    expected: int | None = None
    """Number of replicas that should report; None if the source does not know it."""
    covered_s: float | None = None
    """Time in the window that samples cover, summed over the replicas [s]; None if unknown."""
    last: ArrivalCount | None = None
    """Arrivals in the last period; None if the source does not count them by period."""
    of_replicas: tuple[float, ...] | None = None
    """Number of waiting requests of each replica; None if the source does not know them."""
    lower_bound: bool = False
    """Whether more requests can have arrived than are counted, because a replica appeared in the window."""

    @property
    def is_finite(self) -> bool:
        """Whether every value is a finite number."""
        single = [getattr(self.counts, each.name) for each in fields(Counts)]
        values: list[float] = [self.waiting, self.running]
        for value in single:
            values += value.values() if isinstance(value, Mapping) else () if value is None else [value]
        return all(map(isfinite, values))


def in_buckets(cumulative: Mapping[float, float]) -> dict[float, float]:
    """Convert cumulative numbers of values by upper bound to the number of values in each bucket."""
    before, result = 0.0, {}
    for bound in sorted(cumulative):
        result[bound] = cumulative[bound] - before
        before = cumulative[bound]
    return result


Reading = Window | Hold
"""Measurements of a server, or the reason why there are none."""
