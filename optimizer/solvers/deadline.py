"""Deadline of a request, set once and passed to every step."""

import time
from dataclasses import dataclass


class OutOfTimeError(Exception):
    """Raised when a deadline passes before any solution is found."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in time on the clock of `time.perf_counter`."""

    at_s: float

    @classmethod
    def after(cls, limit_s: float) -> "Deadline":
        """Return the deadline that is `limit_s` seconds from now."""
        return cls(time.perf_counter() + limit_s)

    @property
    def left_s(self) -> float:
        """Remaining time, at least 0 [s]."""
        return max(self.at_s - time.perf_counter(), 0.0)

    @property
    def passed(self) -> bool:
        """Whether the deadline has passed."""
        return time.perf_counter() >= self.at_s

    def share(self, part: float) -> "Deadline":
        """Return the deadline of a step that can use a fraction, 0 to 1, of the remaining time."""
        return Deadline.after(self.left_s * part) if part < 1 else self

    def sooner(self, other: "Deadline") -> "Deadline":
        """Return the earlier of two deadlines."""
        return Deadline(min(self.at_s, other.at_s))

    def later(self, extra_s: float) -> "Deadline":
        """Return a deadline that is later by `extra_s` seconds."""
        return Deadline(self.at_s + extra_s)
