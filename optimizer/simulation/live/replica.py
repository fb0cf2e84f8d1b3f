"""Interface of live replicas, and the allocation of their request numbers."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from optimizer.arrays import IntArray

MIN_ROWS = 64
"""Number of requests for which a new replica has memory; it doubles as needed."""


class Step(NamedTuple):
    """Tokens that a replica makes at one time."""

    time_ms: float
    made: list[int]
    """Numbers of the requests that make a token; a server without tokens makes one when it completes a
    request.
    """
    ended: list[int]
    """Numbers of the requests in `made` that complete; the next `add` can reuse them."""
    rejected: tuple[int, ...] = ()
    """Numbers of requests that a full server rejects after its earlier stages; `add` can reuse them, too."""


class LiveReplica(ABC):
    """A replica whose requests become known only when they arrive.

    Before each `add` and `cancel`, the caller takes all steps up to that time from `run_until`. Requests are
    identified by numbers, which are reused.
    """

    @abstractmethod
    def add(self, now_ms: float, in_tokens: int = 0, out_tokens: int = 1, level: int = 0) -> int | None:
        """Add an arriving request.

        Args:
            now_ms: current time [ms].
            in_tokens: prompt length [tokens]; ignored by servers without tokens, like the next two.
            out_tokens: maximum output length [tokens].
            level: rank of its priority; 0 is the highest.

        Returns:
            The number of the request; None if it is rejected.
        """

    @abstractmethod
    def cancel(self, row: int, now_ms: float) -> None:
        """Remove a request, so that its number can be reused; a batch in progress still takes its full time.

        To end an output early, cancel its request between two steps; its slot is free in the next iteration.
        """

    @abstractmethod
    def next_ms(self) -> float:
        """Return the time of the next step [ms]; inf if the replica is idle."""

    @abstractmethod
    def step(self) -> Step:
        """Advance to `next_ms()`, and return the tokens made then, if any."""

    def run_until(self, until_ms: float) -> Iterator[Step]:
        """Yield the steps up to a time [ms], inclusive."""
        while self.next_ms() <= until_ms:
            step = self.step()
            if step.made or step.rejected:
                yield step

    def scheduled_ms(self, row: int) -> float:
        """Return the time at which a request first joined the batch [ms]; NaN if it has not, or is unknown.

        A request remains known until the step after its last token.
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
    """Allocates request numbers: free ones, and those that become free when the work in progress ends."""

    def __init__(self) -> None:
        self._free = list(range(MIN_ROWS))[::-1]
        self.size = MIN_ROWS
        """Number of request numbers that exist."""
        self.leaving: set[int] = set()
        """Cancelled requests that the batch or iteration in progress still computes."""

    def take(self) -> int:
        """Return a free number; if there is none, double their count first."""
        if not self._free:
            self._free = list(range(self.size, 2 * self.size))[::-1]
            self.size *= 2
        return self._free.pop()

    def release(self, row: int) -> None:
        """Make a request number free."""
        self._free.append(row)

    def end(self, made: list[int], ended: list[int]) -> tuple[list[int], list[int]]:
        """Release the numbers of ended requests, and return both lists without cancelled requests."""
        self._free += ended
        if not self.leaving:
            return made, ended
        gone = set(self.leaving)
        self.leaving.difference_update(ended)
        return [row for row in made if row not in gone], [row for row in ended if row not in gone]

    def take_leaving(self) -> list[int]:
        """Return the cancelled requests whose work has ended, in ascending order."""
        if not self.leaving:
            return []
        rows = sorted(self.leaving)
        self.leaving.clear()
        return rows


def make_room(queue: IntArray, state: Any) -> None:
    """Move the batch and the waiting requests to the start of a queue array whose end is reached.

    Args:
        queue: array with the queue, at least twice as long as the maximum number of requests.
        state: record with `head`, `tail` and `batch`.
    """
    if state["tail"] == len(queue):
        kept = queue[state["head"] - state["batch"] :].copy()
        queue[: len(kept)] = kept
        state["head"], state["tail"] = state["batch"], len(kept)


def drop_from_queue(queue: IntArray, state: Any, row: int) -> bool:
    """Remove a request from a queue array; return False if it is not waiting."""
    head, tail = int(state["head"]), int(state["tail"])
    places = np.flatnonzero(queue[head:tail] == row)
    if not len(places):
        return False
    place = head + int(places[0])
    queue[place : tail - 1] = queue[place + 1 : tail].copy()
    state["tail"] = tail - 1
    return True
