"""What bounds a replica and its clients, as plain numbers that compiled code takes as they are."""

from typing import NamedTuple

UNLIMITED = 1 << 60
"""A count that nothing reaches."""


class Limits(NamedTuple):
    """The limits of a replica; none of them unless stated."""

    max_batch: int
    """Requests in an iteration."""
    max_num_tokens: int
    """Token budget of an iteration."""
    kv_tokens: int = UNLIMITED
    """Tokens that the KV cache holds."""
    max_queue: int = UNLIMITED
    """Requests that may wait behind a full batch; who comes then is rejected."""
    max_in_flight: int = UNLIMITED
    """Requests that the client has on the way at once; it holds the others back."""
    prefill_first: bool = False
    """Whether whole prompts come first, while answers stand still; else prompts are computed in chunks."""
