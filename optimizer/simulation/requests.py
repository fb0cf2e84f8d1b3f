"""The requests of a run: when each comes and how long it is, in the order in which they are sent."""

from dataclasses import dataclass

from optimizer.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Requests:
    """R requests that clients send whatever becomes of them, or users who wait for the answer and think.

    One of `arrival_ms` and `think_ms` is given.
    """

    in_tokens: IntArray
    """Prompt lengths [tokens], shape (R,)."""
    out_tokens: IntArray
    """Answer lengths [tokens], one at least, shape (R,)."""
    arrival_ms: FloatArray | None = None
    """Ascending, shape (R,)."""
    think_ms: FloatArray | None = None
    """How long the user of each request thinks after its answer, shape (R,)."""
    wakes_ms: FloatArray | None = None
    """When each user sends the first request, ascending, shape (users,)."""
    stage_ms: FloatArray | None = None
    """How long each request is served at the stages of a line, shape (stages, R)."""

    def __len__(self) -> int:
        return len(self.in_tokens)
