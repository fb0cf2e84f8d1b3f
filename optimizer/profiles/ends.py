"""One end of the intervals of an estimate: what a plan, or a single replica, counts with."""

from dataclasses import dataclass

from optimizer.profiles.estimate import Estimate
from optimizer.profiles.intervals import Estimated
from optimizer.spec.schema import EstimateEnd
from optimizer.timing import PerfParms


@dataclass(frozen=True, slots=True)
class EstimateAtEnd:
    """Token times and memory of a replica at one end of their intervals."""

    law: PerfParms
    """Of a mixture, experts have their own terms, so that α grows with the batch as the estimate says."""
    kv_capacity_tokens: int
    """Tokens of KV cache of the replica."""
    max_batch: int
    """Requests of full length that the cache holds, at most `max_requests` of the deployment."""


def at_end(found: Estimate, end: EstimateEnd, kv_capacity_tokens: int | None = None) -> EstimateAtEnd:
    """Return an estimate at one end; the slow end of the times goes with the small end of the memory.

    Args:
        found: the estimate.
        end: slow and small (``upper``), the middle, or fast and large (``lower``).
        kv_capacity_tokens: KV cache that is known; None: as estimated.
    """
    times: dict[EstimateEnd, str] = {"upper": "high", "middle": "value", "lower": "low"}
    memory: dict[EstimateEnd, str] = {"upper": "low", "middle": "value", "lower": "high"}

    def time_ms(time: Estimated) -> float:
        return float(getattr(time, times[end]))

    length = found.deployment.request_tokens
    tokens = kv_capacity_tokens
    if tokens is None:
        tokens = int(max(getattr(found.kv_tokens, memory[end]), length))
    law = PerfParms(
        base_ms=time_ms(found.alpha_alone_ms),
        compute_per_token_ms=time_ms(found.beta_ms),
        kv_read_per_token_ms=time_ms(found.gamma_ms),
        expert_read_ms=time_ms(found.expert_read_ms),
        expert_share=found.expert_share,
    )
    in_memory = max(int(tokens // length), 1)
    return EstimateAtEnd(law, tokens, min(in_memory, found.deployment.max_requests))
