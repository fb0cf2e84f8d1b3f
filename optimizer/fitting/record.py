"""Record of one benchmark run: the reported values in uniform units, and the fields that state them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from optimizer.fitting.runs import Arrivals, TokenCounts


class TokenStats(NamedTuple):
    """Token counts of the prompts or of the outputs of a run; None if not reported."""

    mean: float | None = None
    deviation: float | None = None
    least: float | None = None
    most: float | None = None

    @property
    def cv(self) -> float | None:
        """Coefficient of variation."""
        return self.deviation / self.mean if self.mean and self.deviation is not None else None

    @property
    def counts(self) -> TokenCounts:
        """Distribution to replay; lengths of unknown spread count as equal."""
        return TokenCounts.of(self.mean or 0.0, self.deviation or 0.0)


UNKNOWN = TokenStats()


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Data of one run in a report; None if not reported.

    Times are in ms, durations in s, rates per second. A time of 0 counts as not reported.
    """

    source: str
    """File, and run in the file."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Field of the report that states each attribute."""
    prompt: TokenStats = UNKNOWN
    output: TokenStats = UNKNOWN
    drawn: tuple[TokenCounts, TokenCounts] | None = None
    """Prompts and outputs that the client draws, if all runs of a report have the same distribution."""
    asked_tokens: float | None = None
    """Requested output tokens, if `output` counts the generated ones."""
    unusable: str | None = None
    """Reason why the run cannot be replayed, regardless of its numbers."""

    offered_rps: float | None = None
    """Offered rate [requests/s]; inf if all requests are sent at once."""
    sent_rps: float | None = None
    """Rate at which the client sent [requests/s]."""
    throughput_rps: float | None = None
    """Completed requests over the duration [requests/s]."""
    tokens_rps: float | None = None
    """Output tokens over the duration [tokens/s]."""
    users: float | None = None
    """Users of a closed loop, or with a rate the maximum in flight."""
    in_flight: float | None = None
    """Mean requests in flight."""
    arrivals: Arrivals = Arrivals.POISSON
    """Arrival process, if there is a rate."""
    arrival_cv: float | None = None
    burst: int = 0
    think_ms: float = 0.0
    """Pause of a user between requests [ms]."""
    client_delay_ms: float | None = None
    """Median delay of the client against its own schedule [ms]."""

    ttft_ms: float | None = None
    ttft_median_ms: float | None = None
    itl_ms: float | None = None
    tpot_ms: float | None = None
    tpot_median_ms: float | None = None
    latency_ms: float | None = None
    exact_itl: bool = False
    """Whether the ITL of the tool is the time from first to last token over the gaps of all requests."""

    requested: float | None = None
    completed: float | None = None
    failed: float | None = None
    incomplete: float | None = None
    cancelled: bool = False
    duration_s: float | None = None
    cooldown_s: float | None = None
    """Time excluded at the end [s]; negative if the measurement continues after the last request."""
    timed: bool = False
    """Whether the client stops at the end of the duration, with requests in flight."""

    replicas: float | None = None
    """Engines behind the address."""
    tensor_parallel: float | None = None
    pipeline_parallel: float | None = None
    hint: str | None = None
    """Text that might state engines or accelerators, such as `4xL40S`."""
    split: str | None = None
    """Field that says that prefill and decode run on separate engines."""
    accepted_tokens: float | None = None
    """Tokens of a step with speculative decoding."""
    cached_share: float | None = None
    """Share of prompt tokens from a prefix cache."""
    turns: float | None = None
    """Requests of a conversation."""

    @property
    def file(self) -> str:
        """Name of the file."""
        return self.source.partition(": ")[0]

    @property
    def is_rated(self) -> bool:
        """Whether the client keeps to a rate, instead of a number of users."""
        return self.offered_rps is not None and (math.isfinite(self.offered_rps) or self.users is None)

    @property
    def cards(self) -> int | None:
        """Accelerators of one engine."""
        size = (self.tensor_parallel or math.nan) * (self.pipeline_parallel or 1.0)
        return max(int(size), 1) if math.isfinite(size) else None

    @property
    def sent(self) -> float:
        """Requests that were sent."""
        return (self.completed or 0.0) + self.lost + min(self.incomplete or 0.0, self.users or math.inf)

    @property
    def lost(self) -> float:
        """Requests without a success: failed, or neither completed nor in flight at the end (A5)."""
        hidden = 0.0
        if self.requested is not None and self.completed is not None and math.isfinite(self.requested):
            hidden = self.requested - self.completed - (self.incomplete or 0.0)
        return max(self.failed or 0.0, hidden, 0.0) + max(
            (self.incomplete or 0.0) - (self.users or math.inf), 0.0
        )

    def with_numbers(self, numbers: Mapping[str, float | None]) -> "RunRecord":
        """Return the record with other numbers."""
        changes: dict[str, Any] = dict(numbers)
        return replace(self, **changes)
