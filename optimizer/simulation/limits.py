"""Limits of a replica and its clients, as plain numbers for compiled code."""

from typing import NamedTuple

UNLIMITED = 1 << 60
"""Value of a limit that does not apply."""


class Limits(NamedTuple):
    """Limits of a replica and its clients; by default, only the batch and its tokens are limited."""

    max_batch: int
    """Maximum number of requests in an iteration."""
    max_num_tokens: int
    """Token budget of an iteration [tokens]."""
    kv_tokens: int = UNLIMITED
    """Capacity of the KV cache [tokens]."""
    max_queue: int = UNLIMITED
    """Maximum number of requests that wait for a full batch; further requests are rejected."""
    max_in_flight: int = UNLIMITED
    """Maximum number of the client's requests in flight; the client holds back the others."""
    prefill_first: bool = False
    """Whether full prompts are computed first while decodes pause; otherwise prompts are computed in chunks.
    """
