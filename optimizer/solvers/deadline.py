"""Deadline of a request, set once and passed to every step."""

import time
from dataclasses import dataclass


class OutOfTimeError(Exception):
    """A deadline passed before there was an answer of any kind."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in time, of the clock that `time.perf_counter` reads."""

    at_s: float

    @classmethod
    def after(cls, limit_s: float) -> "Deadline":
        """Return the deadline of an answer that may take this long from now [s]."""
        return cls(time.perf_counter() + limit_s)

    @property
    def left_s(self) -> float:
        """Time that is left, never below zero [s]."""
        return max(self.at_s - time.perf_counter(), 0.0)

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return time.perf_counter() >= self.at_s

    def share(self, part: float) -> "Deadline":
        """Return the deadline of a step that may take a part, of 0 to 1, of the time that is left."""
        return Deadline.after(self.left_s * part) if part < 1 else self

    def sooner(self, other: "Deadline") -> "Deadline":
        """Return the one of two deadlines that comes first."""
        return Deadline(min(self.at_s, other.at_s))

    def later(self, extra_s: float) -> "Deadline":
        """Return a deadline that is later by some time [s]."""
        return Deadline(self.at_s + extra_s)
