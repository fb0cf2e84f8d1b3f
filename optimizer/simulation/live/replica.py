"""Interface of a live replica, and the rows that it reuses."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.arrays import IntArray

MIN_ROWS = 64
"""Number of requests that a replica has memory for at first; it doubles as needed."""


class Step(NamedTuple):
    """Tokens that a replica makes at one time."""

    time_ms: float
    made: list[int]
    """Requests that make a token; a server without tokens answers with its last."""
    ended: list[int]
    """Those of them that complete; their numbers can be reused by the next `add`."""
    rejected: tuple[int, ...] = ()
    """Requests that a full server rejects after its earlier stages; their numbers can be reused, too."""


class LiveReplica(ABC):
    """A replica whose requests become known only when they arrive.

    Before each `add` and `cancel`, the caller takes all steps up to that time from `run_until`. Requests are
    known by numbers, which are reused.
    """

    @abstractmethod
    def add(self, now_ms: float, in_tokens: int = 0, out_tokens: int = 1, level: int = 0) -> int | None:
        """Let a request arrive.

        Args:
            now_ms: current time.
            in_tokens: prompt length; ignored by servers without tokens, like the next two.
            out_tokens: maximum output length.
            level: rank of its priority, 0 is the highest.

        Returns:
            Its number; None if it is rejected.
        """

    @abstractmethod
    def cancel(self, row: int, now_ms: float) -> None:
        """Remove a request, whose number can be reused then; a batch in progress still takes its time.

        An output ends early if its request is cancelled with its last token, between two steps: its slot is
        free in the next iteration.
        """

    @abstractmethod
    def next_ms(self) -> float:
        """Return the time of the next step; inf if the replica is idle."""

    @abstractmethod
    def step(self) -> Step:
        """Advance to `next_ms()`; it might be a time without tokens."""

    def run_until(self, until_ms: float) -> Iterator[Step]:
        """Yield the steps up to a time (inclusive)."""
        while self.next_ms() <= until_ms:
            step = self.step()
            if step.made or step.rejected:
                yield step

    def scheduled_ms(self, row: int) -> float:
        """Return the first time at which a request joined the batch; NaN if it has not, or is not known.

        A request that has just made its first token, or its last one, is known until the next step.
        """
        del row
        return math.nan

    @property
    @abstractmethod
    def waiting(self) -> int:
        """Number of waiting requests."""

    @property
    @abstractmethod
    def running(self) -> int:
        """Number of requests in the batch."""


class Rows:
    """Numbers of requests: free ones, and those that leave at the end of the work in progress."""

    def __init__(self) -> None:
        self._free = list(range(MIN_ROWS))[::-1]
        self.size = MIN_ROWS
        """Number of rows."""
        self.leaving: set[int] = set()
        """Cancelled requests that a batch or an iteration in progress computes."""

    def take(self) -> int:
        """Return a free row, from twice as many rows if there is none."""
        if not self._free:
            self._free = list(range(self.size, 2 * self.size))[::-1]
            self.size *= 2
        return self._free.pop()

    def release(self, row: int) -> None:
        """Make a row free."""
        self._free.append(row)

    def end(self, made: list[int], ended: list[int]) -> tuple[list[int], list[int]]:
        """Release the rows that ended, and return both lists without those leaving."""
        self._free += ended
        if not self.leaving:
            return made, ended
        gone = set(self.leaving)
        self.leaving.difference_update(ended)
        return [row for row in made if row not in gone], [row for row in ended if row not in gone]

    def take_leaving(self) -> list[int]:
        """Return the rows that leave now, in order."""
        if not self.leaving:
            return []
        rows = sorted(self.leaving)
        self.leaving.clear()
        return rows


def make_room(queue: IntArray, state: Any) -> None:
    """Move the batch and the waiting requests to the start of a queue that has no place left.

    Args:
        queue: places of requests, at least twice as many as there can be requests.
        state: record with `head`, `tail` and `batch`.
    """
    if state["tail"] == len(queue):
        kept = queue[state["head"] - state["batch"] :].copy()
        queue[: len(kept)] = kept
        state["head"], state["tail"] = state["batch"], len(kept)


def drop_from_queue(queue: IntArray, state: Any, row: int) -> bool:
    """Remove a request from such a queue; return False if it does not wait."""
    head, tail = int(state["head"]), int(state["tail"])
    places = np.flatnonzero(queue[head:tail] == row)
    if not len(places):
        return False
    place = head + int(places[0])
    queue[place : tail - 1] = queue[place + 1 : tail].copy()
    state["tail"] = tail - 1
    return True


def lengthened(values: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return an array with zeros at its end."""
    longer = np.zeros(size, values.dtype)
    longer[: len(values)] = values
    return longer
