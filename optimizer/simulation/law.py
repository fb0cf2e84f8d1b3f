"""What the engine must know of time: how long an iteration takes, or how fast a batch progresses.

Both are plain numbers, so that compiled code takes them as they are. Equation numbers refer to
``docs/math.md``.
"""

from typing import NamedTuple


class IterationCoefficients(NamedTuple):
    """Time of one iteration with n decodes that read K tokens of KV cache, and T prompt tokens of P prompts.

    a + (√(m² + (d·(n + T))²) − m) + b·(n + P) + r·P + g·K + x·(1 − (1 − y)^(n + T)), plus q·A + e where there
    are prompts, plus s where n + P > 1. A is the sum over the chunks of prompts of c·(start + c/2), for c
    tokens computed behind `start` others. The last four are no part of it: they are added to what clients
    see (eq. 100).
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
    """m [ms]: computing hides behind reading the weights, up to about m/d tokens."""
    batch_base_ms: float = 0.0
    """s [ms per iteration of more than one request]."""
    per_prompt_ms: float = 0.0
    """r [ms per prompt in the iteration]."""
    expert_read_ms: float = 0.0
    """x [ms]: reading all experts."""
    expert_share: float = 0.0
    """y: share of the experts that a token chooses."""
    client_offset_ms: float = 0.0
    """c₀ [ms]: by how much later a client sees a first token, and with it all others."""
    pipeline_depth: float = 0.0
    """k₀: the same in iterations, while other requests are in progress."""
    front_end_lag: float = 0.0
    """c₂: the same for each of them."""
    pause_offset_ms: float = 0.0
    """c₃ [ms]: the same beside them, a long time after the last prompt was sent."""


class ProcessorSharingCoefficients(NamedTuple):
    """The linear law, as the reference means it: all requests of a batch progress at once.

    While n are in the batch, a prompt of I tokens progresses by 1/(γ + δ·I·n) of itself in a millisecond,
    and an answer by 1/(α + β·n) tokens.
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
    """The linear law in static batches: one batch after the other, up to a limit of requests in each.

    The prompts of n requests take γ + δ·(their tokens) together, and a step of the answers α + β·n, where
    those whose answers have ended leave, or are computed on until the last has ended.
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
    """Whether requests are computed until the last of the batch has ended."""


Coefficients = IterationCoefficients | ProcessorSharingCoefficients
