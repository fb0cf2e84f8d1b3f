"""Coefficients of latency models for the engine: the time of an iteration, or the speed of a batch.

They are plain numbers for compiled code. Equation numbers refer to ``docs/math.md``.
"""

from typing import NamedTuple


class IterationCoefficients(NamedTuple):
    """Time of an iteration with n decodes that read K tokens of KV cache, and T tokens of P prompts.

    a + (√(m² + (d·(n + T))²) − m) + b·(n + P) + r·P + g·K + x·(1 − (1 − y)^(n + T)), plus q·A + e if there
    are prompts, plus s if n + P > 1. A is the sum over the chunks of prompts of c·(start + c/2), for c tokens
    computed after `start` others. The last five fields are not part of this time; they are added to the
    latencies that clients see (eq. 100).
    """

    base_ms: float = 0.0
    """a: time of every iteration [ms]."""
    compute_per_token_ms: float = 0.0
    """d: compute time [ms per token computed]."""
    kv_read_per_token_ms: float = 0.0
    """g: time to read the KV cache [ms per token read]."""
    per_sequence_ms: float = 0.0
    """b: time per request in the iteration [ms]."""
    prompt_attention_ms: float = 0.0
    """q: attention time of prompts [ms per pair of prompt tokens]."""
    prompt_base_ms: float = 0.0
    """e: additional time of an iteration with prompts [ms]."""
    weight_read_ms: float = 0.0
    """m: time to read the weights, which hides the compute time of up to about m/d tokens [ms]."""
    batch_base_ms: float = 0.0
    """s: additional time of an iteration with more than one request [ms]."""
    per_prompt_ms: float = 0.0
    """r: time per prompt in the iteration [ms]."""
    expert_read_ms: float = 0.0
    """x: time to read the weights of all experts [ms]."""
    expert_share: float = 0.0
    """y: fraction of the experts that a token uses."""
    client_offset_ms: float = 0.0
    """c₀: delay of the first token, and so of all later tokens, at the client [ms]."""
    pipeline_depth: float = 0.0
    """k₀: additional delay while other requests are in progress [iterations]."""
    front_end_lag: float = 0.0
    """c₂: additional delay for each other request in progress [iterations]."""
    pause_offset_ms: float = 0.0
    """c₃: additional delay while other requests are in progress, long after the last prompt was sent [ms]."""
    idle_offset_ms: float = 0.0
    """c₄: additional delay if no other request is in progress [ms]."""


class ProcessorSharingCoefficients(NamedTuple):
    """The linear law of llm-inferno: all requests of a batch progress at once (processor sharing).

    With n requests in the batch, a prompt of I tokens progresses by 1/(γ + δ·I·n) of itself per millisecond,
    and an output by 1/(α + β·n) tokens.
    """

    decode_base_ms: float
    """α: base time of a decode step [ms]."""
    decode_per_request_ms: float
    """β: time of a decode step per request in the batch [ms]."""
    prefill_base_ms: float
    """γ: base time of a prefill [ms]."""
    prefill_per_token_ms: float
    """δ: time of a prefill per input token and request in the batch [ms]."""


class StaticCoefficients(NamedTuple):
    """The linear law with static batching: one batch after the other, up to a maximum batch.

    The prompts of n requests together take γ + δ·(their tokens), and a decode step takes α + β·n. Completed
    requests leave the batch. With padding they stay, and are computed until the last request completes.
    """

    decode_base_ms: float
    """α: base time of a decode step [ms]."""
    decode_per_request_ms: float
    """β: time of a decode step per request in the batch [ms]."""
    prefill_base_ms: float
    """γ: base time of the prefill of a batch [ms]."""
    prefill_per_token_ms: float
    """δ: time of the prefill per input token of the batch [ms]."""
    padded: bool
    """Whether requests are computed until the last request of the batch completes."""


Coefficients = IterationCoefficients | ProcessorSharingCoefficients
