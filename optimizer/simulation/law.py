"""Latency models for the engine: the time of an iteration, or the speed of a batch.

They are plain numbers for compiled code. Equation numbers refer to ``docs/math.md``.
"""

from typing import NamedTuple


class IterationCoefficients(NamedTuple):
    """Time of an iteration with n decodes that read K tokens of KV cache, and T tokens of P prompts.

    a + (√(m² + (d·(n + T))²) − m) + b·(n + P) + r·P + g·K + x·(1 − (1 − y)^(n + T)), plus q·A + e if there
    are prompts, plus s if n + P > 1. A is the sum over the chunks of prompts of c·(start + c/2), for c tokens
    computed after `start` others. The last four fields are not part of this time; they are added to the
    latencies that clients see (eq. 100).
    """

    base_ms: float = 0.0
    """a [ms]."""
    compute_per_token_ms: float = 0.0
    """d [ms per token computed]."""
    kv_read_per_token_ms: float = 0.0
    """g [ms per token of KV cache read]."""
    per_sequence_ms: float = 0.0
    """b [ms per request in the iteration]."""
    prompt_attention_ms: float = 0.0
    """q [ms per pair of prompt tokens]."""
    prompt_base_ms: float = 0.0
    """e [ms per iteration with prompts]."""
    weight_read_ms: float = 0.0
    """m [ms]: compute hides behind reading the weights, up to about m/d tokens."""
    batch_base_ms: float = 0.0
    """s [ms per iteration of more than one request]."""
    per_prompt_ms: float = 0.0
    """r [ms per prompt in the iteration]."""
    expert_read_ms: float = 0.0
    """x [ms]: reading all experts."""
    expert_share: float = 0.0
    """y: share of the experts chosen by a token."""
    client_offset_ms: float = 0.0
    """c₀ [ms]: delay of the first token, and so of all others, at the client."""
    pipeline_depth: float = 0.0
    """k₀: further delay in iterations, while other requests are in progress."""
    front_end_lag: float = 0.0
    """c₂: further delay in iterations for each other request in progress."""
    pause_offset_ms: float = 0.0
    """c₃ [ms]: further delay with other requests in progress, long after the last prompt was sent."""


class ProcessorSharingCoefficients(NamedTuple):
    """The linear model as in the reference: all requests of a batch progress at once (processor sharing).

    With n requests in the batch, a prompt of I tokens progresses by 1/(γ + δ·I·n) of itself per millisecond,
    and an output by 1/(α + β·n) tokens.
    """

    decode_base_ms: float
    """α [ms]."""
    decode_per_request_ms: float
    """β [ms per request in the batch]."""
    prefill_base_ms: float
    """γ [ms]."""
    prefill_per_token_ms: float
    """δ [ms per input token and request in the batch]."""


class StaticCoefficients(NamedTuple):
    """The linear model with static batching: one batch after the other, up to a maximum batch.

    The prompts of n requests take γ + δ·(their tokens) together, and a decode step α + β·n. Completed
    requests leave the batch, or with padding are computed until the last one completes.
    """

    decode_base_ms: float
    """α [ms]."""
    decode_per_request_ms: float
    """β [ms per request in the batch]."""
    prefill_base_ms: float
    """γ [ms]."""
    prefill_per_token_ms: float
    """δ [ms per input token of the batch]."""
    padded: bool
    """Whether requests are computed until the last request of the batch completes."""


Coefficients = IterationCoefficients | ProcessorSharingCoefficients
