"""Time of an iteration (eq. 63), compiled."""

import math

from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.machine.compiling import compiled


@compiled
def iteration_ms(
    times: IterationCoefficients, decodes: int, context: int, prompts: int, tokens: int, attention: float
) -> float:
    """Return the time of an iteration [ms].

    Args:
        times: coefficients of the iteration law.
        decodes: number of decoding requests.
        context: tokens of KV cache that the decoding requests read.
        prompts: number of prompts in the iteration.
        tokens: number of prompt tokens computed.
        attention: number of pairs of prompt tokens.
    """
    compute_ms = times.compute_per_token_ms * (decodes + tokens)
    hidden_ms = times.weight_read_ms
    time_ms = times.base_ms + (math.sqrt(hidden_ms * hidden_ms + compute_ms * compute_ms) - hidden_ms)
    time_ms += times.per_sequence_ms * (decodes + prompts) + times.kv_read_per_token_ms * context
    if tokens > 0:
        time_ms += times.prompt_attention_ms * attention + times.prompt_base_ms
        time_ms += times.per_prompt_ms * prompts
    if decodes + prompts > 1:
        time_ms += times.batch_base_ms
    if times.expert_read_ms > 0:
        time_ms -= times.expert_read_ms * math.expm1((decodes + tokens) * math.log1p(-times.expert_share))
    return time_ms


@compiled
def iterations_ms(first_ms: float, growth_ms: float, count: int) -> float:
    """Return the total time of `count` iterations [ms], each `growth_ms` longer than the previous one."""
    return count * first_ms + growth_ms * (count * (count - 1) / 2)


@compiled
def iterations_until(span_ms: float, first_ms: float, growth_ms: float) -> int:
    """Return the smallest number of iterations, at least 1, that together take `span_ms` or longer.

    Each iteration is `growth_ms` longer than the previous one.
    """
    half = first_ms - growth_ms / 2
    count = math.ceil(2 * span_ms / (half + math.sqrt(half * half + 2 * growth_ms * span_ms)))
    count = max(count, 1)
    while count > 1 and iterations_ms(first_ms, growth_ms, count - 1) >= span_ms:
        count -= 1
    while iterations_ms(first_ms, growth_ms, count) < span_ms:
        count += 1
    return count
