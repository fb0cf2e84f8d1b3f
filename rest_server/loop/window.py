"""Measurements of a server over a window of time, and the reasons that there are none."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from math import isfinite

Buckets = Mapping[float, float]
"""Number of values in each bucket of a histogram, by upper bound; the last bound is infinite."""


class HoldReason(StrEnum):
    """Reason that a server keeps its replicas."""

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
    remote_held = "RemoteHeld"


@dataclass(frozen=True, slots=True)
class Hold:
    """A server that keeps its replicas, with the reason."""

    reason: HoldReason
    detail: str


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests and tokens of a server in a time span, summed over its replicas."""

    span_s: float = 0.0
    """Length of the time span [s]."""
    first_tokens: float = 0.0
    """Requests that got their first token; for a batch server, completed ones."""
    waiting_growth: float = 0.0
    """Increase of the number of waiting requests."""
    rejected: float = 0.0
    """Rejected requests."""
    arrived: float | None = None
    """Arrivals counted before the replicas, by a gateway; None if nothing counts them."""
    completed: float = 0.0
    prompts: float = 0.0
    """Requests with a known prompt length."""
    prompt_tokens: float = 0.0
    answers: float = 0.0
    """Requests with a known output length."""
    answer_tokens: float = 0.0
    ttft_s: float = 0.0
    """Sum of the times to first token [s]."""
    tokens: float = 0.0
    """Tokens after the first."""
    itl_s: float = 0.0
    """Sum of the times between tokens [s]."""
    prompt_buckets: Buckets = field(default_factory=dict)
    answer_buckets: Buckets = field(default_factory=dict)

    def plus(self, other: "Counts") -> "Counts":
        """Return the sum of two time spans."""
        return _combined((self, other), (1.0, 1.0))

    def times(self, share: float) -> "Counts":
        """Return a share of all counts."""
        return _combined((self,), (share,))


def _combined(parts: tuple[Counts, ...], weights: tuple[float, ...]) -> Counts:
    found: dict[str, object] = {}
    for each in fields(Counts):
        values = [getattr(part, each.name) for part in parts]
        if each.name.endswith("buckets"):
            bounds = sorted({bound for value in values for bound in value})
            pairs = list(zip(values, weights, strict=True))
            found[each.name] = {
                bound: sum(value.get(bound, 0.0) * weight for value, weight in pairs) for bound in bounds
            }
        else:
            known = [
                value * weight for value, weight in zip(values, weights, strict=True) if value is not None
            ]
            found[each.name] = sum(known) if known else None
    return Counts(**found)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Window:
    """Measurements of a server over the last window."""

    counts: Counts
    waiting: float
    """Waiting requests at its end."""
    running: float
    """Requests in batches at its end."""
    reporting: int
    """Replicas with a recent value."""
    expected: int | None = None
    """Replicas that should report; None if the source does not know."""

    @property
    def is_finite(self) -> bool:
        """Whether every value is a finite number."""
        single = [getattr(self.counts, each.name) for each in fields(Counts)]
        values: list[float] = [self.waiting, self.running]
        for value in single:
            values += value.values() if isinstance(value, Mapping) else () if value is None else [value]
        return all(map(isfinite, values))


def in_buckets(cumulative: Mapping[float, float]) -> dict[float, float]:
    """Return the number of values in each bucket, from numbers up to each bound."""
    before, found = 0.0, {}
    for bound in sorted(cumulative):
        found[bound] = cumulative[bound] - before
        before = cumulative[bound]
    return found


Reading = Window | Hold
"""A window, or the reason that there is none."""


def summed(parts: Iterable[Counts]) -> Counts:
    """Return the sum of time spans."""
    found = Counts()
    for part in parts:
        found = found.plus(part)
    return found
