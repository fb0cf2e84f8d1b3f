"""Limits of a replica and its clients, as plain numbers for compiled code."""

from typing import NamedTuple

UNLIMITED = 1 << 60
"""Represents no limit."""


class Limits(NamedTuple):
    """Limits of a replica; by default none."""

    max_batch: int
    """Maximum requests in an iteration."""
    max_num_tokens: int
    """Token budget of an iteration."""
    kv_tokens: int = UNLIMITED
    """Tokens of KV cache."""
    max_queue: int = UNLIMITED
    """Maximum requests queued behind a full batch; further ones are rejected."""
    max_in_flight: int = UNLIMITED
    """Maximum requests of the client in flight; the client holds back the others."""
    prefill_first: bool = False
    """Whether full prompts are computed first while decodes pause; otherwise prompts are computed in
    chunks.
    """
