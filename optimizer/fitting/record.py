"""Record of one benchmark run: the reported values in uniform units, and the fields that contain them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from optimizer.fitting.runs import Arrivals, TokenCounts


class TokenStats(NamedTuple):
    """Statistics of the token counts of a run's prompts or outputs; None if not reported."""

    mean: float | None = None
    deviation: float | None = None
    least: float | None = None
    most: float | None = None

    @property
    def cv(self) -> float | None:
        """Coefficient of variation of the token counts; None if unknown."""
        return self.deviation / self.mean if self.mean and self.deviation is not None else None

    @property
    def counts(self) -> TokenCounts:
        """Distribution for the replay; an unknown spread is 0 if the mean is round, else `ASSUMED_CV`."""
        mean = self.mean or 0.0
        if self.deviation is not None or _is_round(mean):
            return TokenCounts.of(mean, self.deviation or 0.0)
        return TokenCounts.of(mean, ASSUMED_CV * mean)._replace(assumed=True)

    def with_cv(self, cv: float | None) -> "TokenStats":
        """Return the statistics with a coefficient of variation, unless they have one."""
        known = cv is None or self.mean is None or self.deviation is not None
        return self if known else self._replace(deviation=(cv or 0.0) * (self.mean or 0.0))


NEARLY_ROUND = 0.001
"""Largest relative difference from a round number that counts as that number."""
ASSUMED_CV = 0.3
"""Coefficient of variation of lengths that differ by an unknown amount, so that users are not in step."""


def _is_round(mean: float) -> bool:
    """Return whether a mean looks like that of equal lengths: an integer, or almost a round number.

    Round numbers are far apart, by 4 to 50 %, so that few means are near one by chance.
    """
    most = max(mean, 1.0)
    units = 10 ** math.floor(math.log10(most)) / 2, 2.0 ** (round(math.log2(most)) - 4)
    near = min(abs(mean / max(round(mean / unit), 1) / unit - 1) for unit in units)
    return mean == round(mean) or near < NEARLY_ROUND


UNKNOWN = TokenStats()


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Data of one run in a report; attributes are None if not reported.

    Times are in ms, durations in s, rates per second. A time of 0 counts as not reported.
    """

    source: str
    """Name of the file, and of the run in it."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Field of the report that contains each attribute, by attribute."""
    prompt: TokenStats = UNKNOWN
    output: TokenStats = UNKNOWN
    drawn: tuple[TokenCounts, TokenCounts] | None = None
    """Distributions from which the client draws prompt and output lengths, if all runs of a report share
    them.
    """
    text_tokens: float | None = None
    """Mean output tokens according to a tokenizer of the client, if `output` is the server's count."""
    asked_tokens: float | None = None
    """Mean requested output tokens, if `output` counts the generated ones."""
    unusable: str | None = None
    """Reason why the run cannot be replayed, regardless of its numbers."""

    offered_rps: float | None = None
    """Offered rate [requests/s]; inf if all requests are sent at once."""
    sent_rps: float | None = None
    """Rate at which the client really sent requests [requests/s]."""
    throughput_rps: float | None = None
    """Completed requests divided by the duration [requests/s]."""
    tokens_rps: float | None = None
    """Output tokens divided by the duration [tokens/s]."""
    users: float | None = None
    """Number of users of a closed loop; if there is a rate, the maximum number of requests in flight."""
    in_flight: float | None = None
    """Mean number of requests in flight."""
    arrivals: Arrivals = Arrivals.POISSON
    """Arrival process of the client, if there is a rate."""
    arrival_cv: float | None = None
    burst: int = 0
    think_ms: float = 0.0
    """Think time of a user between requests [ms]."""
    client_delay_ms: float | None = None
    """Median delay of the client against its own schedule [ms]."""

    ttft_ms: float | None = None
    ttft_median_ms: float | None = None
    itl_ms: float | None = None
    tpot_ms: float | None = None
    tpot_median_ms: float | None = None
    latency_ms: float | None = None
    exact_itl: bool = False
    """Whether the tool's ITL is exact: total time from first to last tokens divided by the number of gaps."""

    requested: float | None = None
    completed: float | None = None
    failed: float | None = None
    incomplete: float | None = None
    cancelled: bool = False
    duration_s: float | None = None
    cooldown_s: float | None = None
    """Time at the end that the measurement excludes [s]; negative if it continues after the last request."""
    timed: bool = False
    """Whether the client stops at the end of the duration, when requests can still be in flight."""

    replicas: float | None = None
    """Number of engines behind the measured address."""
    tensor_parallel: float | None = None
    pipeline_parallel: float | None = None
    hint: str | None = None
    """Text that might state a number of engines or accelerators, such as `4xL40S`."""
    split: str | None = None
    """Name of the field that shows that prefill and decode run on separate engines."""
    accepted_tokens: float | None = None
    """Mean number of tokens per decode step with speculative decoding."""
    cached_share: float | None = None
    """Share of prompt tokens from a prefix cache."""
    is_busy: bool = False
    """Whether a user sends the next request as soon as the last one ends, without pauses."""
    turns: float | None = None
    """Mean number of requests (turns) per conversation."""

    @property
    def file(self) -> str:
        """Name of the report's file."""
        return self.source.partition(": ")[0]

    @property
    def is_rated(self) -> bool:
        """Whether the client sends at a rate instead of with a number of users."""
        return self.offered_rps is not None and (math.isfinite(self.offered_rps) or self.users is None)

    @property
    def cards(self) -> int | None:
        """Number of accelerators of one engine; None if unknown."""
        size = (self.tensor_parallel or math.nan) * (self.pipeline_parallel or 1.0)
        return max(int(size), 1) if math.isfinite(size) else None

    @property
    def sent(self) -> float:
        """Number of requests that were sent."""
        return (self.completed or 0.0) + self.lost + min(self.incomplete or 0.0, self.users or math.inf)

    @property
    def lost(self) -> float:
        """Number of unsuccessful requests: failed, or neither completed nor in flight at the end (A5)."""
        hidden = 0.0
        if self.requested is not None and self.completed is not None and math.isfinite(self.requested):
            hidden = self.requested - self.completed - (self.incomplete or 0.0)
        return max(self.failed or 0.0, hidden, 0.0) + max(
            (self.incomplete or 0.0) - (self.users or math.inf), 0.0
        )
