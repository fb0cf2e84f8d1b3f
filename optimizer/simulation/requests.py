"""Requests of a run, with arrival times and lengths, in send order."""

from dataclasses import dataclass

from optimizer.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Requests:
    """R requests with given arrival times, or of users who think after each output.

    Either `arrival_ms` or `think_ms` is given.
    """

    in_tokens: IntArray
    """Prompt lengths [tokens], shape (R,)."""
    out_tokens: IntArray
    """Output lengths [tokens], at least one, shape (R,)."""
    arrival_ms: FloatArray | None = None
    """Arrival times, ascending, shape (R,)."""
    think_ms: FloatArray | None = None
    """Thinking time of the user after each output, shape (R,)."""
    wakes_ms: FloatArray | None = None
    """Time of each user's first request, ascending, shape (users,)."""
    stage_ms: FloatArray | None = None
    """Service times at the stages of a tandem, shape (stages, R)."""

    def __len__(self) -> int:
        return len(self.in_tokens)
