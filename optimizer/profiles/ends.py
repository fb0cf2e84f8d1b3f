"""Selects the end of an estimate's intervals that a plan or a single replica uses."""

from dataclasses import dataclass

from optimizer.profiles.estimate import ProfileEstimate
from optimizer.profiles.intervals import Estimated
from optimizer.schema import EstimateEnd
from optimizer.timing import PerfParms


@dataclass(frozen=True, slots=True)
class EstimateAtEnd:
    """Token times and memory of a replica at one end of their intervals."""

    law: PerfParms
    """Parameters of the latency model; experts of a mixture have separate terms, so α grows with the batch.
    """
    kv_capacity_tokens: int
    """KV cache capacity of the replica [tokens]."""
    max_batch: int
    """Maximum batch: full-length requests that fit in the cache, at most the deployment's `max_requests`."""


def at_end(
    estimate: ProfileEstimate, end: EstimateEnd, kv_capacity_tokens: int | None = None
) -> EstimateAtEnd:
    """Return an estimate at one end of its intervals; slow token times are combined with little memory.

    Args:
        end: ``upper`` (slow times, little memory), ``middle``, or ``lower`` (fast times, much memory).
        kv_capacity_tokens: known KV cache capacity [tokens]; None selects the estimate.
    """
    times: dict[EstimateEnd, str] = {"upper": "high", "middle": "value", "lower": "low"}
    memory: dict[EstimateEnd, str] = {"upper": "low", "middle": "value", "lower": "high"}

    def time_ms(time: Estimated) -> float:
        return float(getattr(time, times[end]))

    length = estimate.deployment.request_tokens
    tokens = kv_capacity_tokens
    if tokens is None:
        tokens = int(max(getattr(estimate.kv_tokens, memory[end]), length))
    law = PerfParms(
        base_ms=time_ms(estimate.alpha_alone_ms),
        compute_per_token_ms=time_ms(estimate.beta_ms),
        kv_read_per_token_ms=time_ms(estimate.gamma_ms),
        expert_read_ms=time_ms(estimate.expert_read_ms),
        expert_share=estimate.expert_share,
    )
    in_memory = max(int(tokens // length), 1)
    return EstimateAtEnd(law, tokens, min(in_memory, estimate.memory.max_requests))
