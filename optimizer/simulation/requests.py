"""Requests of a simulated run, with arrival times and lengths, in send order."""

from dataclasses import dataclass, replace
from typing import Any, Self

from optimizer.arrays import FloatArray, IntArray

PER_REQUEST = (
    "in_tokens", "out_tokens", "arrival_ms", "think_ms", "stage_ms", "priority", "stream", "shape",
    "cached_tokens", "shared_tokens", "assigned",
)  # fmt: skip
"""Fields of `Requests` whose last index is the request."""


@dataclass(frozen=True, slots=True)
class Requests:
    """R requests with given arrival times, or requests of users who think after each output.

    Either `arrival_ms` or `think_ms` is given.
    """

    in_tokens: IntArray
    """Prompt lengths [tokens], shape (R,)."""
    out_tokens: IntArray
    """Output lengths [tokens], at least one, shape (R,)."""
    arrival_ms: FloatArray | None = None
    """Arrival times, ascending [ms], shape (R,)."""
    think_ms: FloatArray | None = None
    """Thinking time of the user after each output [ms], shape (R,)."""
    wakes_ms: FloatArray | None = None
    """Time of each user's first request, ascending [ms], shape (users,)."""
    stage_ms: FloatArray | None = None
    """Service times at the stages of a tandem [ms], shape (stages, R)."""
    priority: IntArray | None = None
    """Priority of each request, 1 is the highest, shape (R,); None if all are equal."""
    stream: IntArray | None = None
    """Index of the merged load to which each request belongs, shape (R,)."""
    shape: IntArray | None = None
    """Index of the request shape of each request, shape (R,); None if the load has no shapes."""
    cached_tokens: IntArray | None = None
    """Number of prompt tokens that each request finds in the prefix cache, shape (R,); None for 0."""
    shared_tokens: IntArray | None = None
    """Number of these tokens that all requests hold in the KV cache together, shape (R,); None for 0."""
    assigned: IntArray | None = None
    """Index of the prefill replica and of the decode replica of each request, shape (2, R)."""

    def take(self, rows: IntArray) -> Self:
        """Return the requests with the given indices; the users of a closed load are not distinguished."""
        given = {name: getattr(self, name) for name in PER_REQUEST if getattr(self, name) is not None}
        some: dict[str, Any] = {name: values[..., rows] for name, values in given.items()}
        return replace(self, **some)

    def __len__(self) -> int:
        return len(self.in_tokens)
