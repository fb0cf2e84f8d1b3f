"""Shared queues on accelerators: a row for each class, which has its own waiting time and its own targets."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.pairs import Pairs, replicas_of
from optimizer.queueing.class_queues import ClassQueues
from optimizer.queueing.performance import Performance, QueueModel
from optimizer.queueing.targets import MISS_TOLERANCE, Targets, meets_target

AVERAGED = ("ttft_ms", "wait_ms", "response_ms")
"""Means that differ from class to class; those of a queue are over all requests."""


@dataclass(frozen=True, slots=True)
class ClassRows:
    """Rows of the loaded members of shared queues on accelerators, shapes (Q,)."""

    pair: IntArray
    """Index of the pair of queue and accelerator; rows of a pair are adjacent."""
    member: IntArray
    """Index of the member."""
    share: FloatArray
    """Share of the queue's requests."""
    queues: QueueModel
    targets: Targets

    @classmethod
    def of(cls, arrays: SystemArrays, pairs: Pairs) -> Self:
        """Return the rows of R ≥ 1 pairs with the same latency and queue model."""
        members = arrays.servers.members
        first, end = (np.searchsorted(members.server, pairs.server, side) for side in ("left", "right"))
        count = end - first
        pair = np.repeat(np.arange(len(first)), count)
        member = np.arange(len(pair)) + np.repeat(first - np.cumsum(count) + count, count)
        loaded = members.load_rps[member] > 0
        pair, member = pair[loaded], member[loaded]
        share, higher, not_lower = (column[member] for column in _shares(arrays))
        queues = ClassQueues(replicas_of(arrays, pairs).take(pair), higher, not_lower)
        return cls(pair, member, share, queues, members.targets.take(member))

    def take_pairs(self, rows: IntArray) -> "ClassRows":
        """Return the rows of some pairs, which are numbered anew in their order."""
        place = np.full(int(self.pair.max(initial=-1)) + 1, -1)
        place[rows] = np.arange(len(rows))
        mine = np.flatnonzero(place[self.pair] >= 0)
        mine = mine[np.argsort(place[self.pair[mine]], kind="stable")]
        return ClassRows(
            place[self.pair[mine]],
            self.member[mine],
            self.share[mine],
            self.queues.take(mine),
            self.targets.take(mine),
        )

    @property
    def first(self) -> IntArray:
        """First row of each pair."""
        return np.flatnonzero(np.diff(self.pair, prepend=-1))

    def all_of_pair(self, rows: BoolArray) -> BoolArray:
        """Return whether something holds for all classes of each pair."""
        return np.asarray(np.logical_and.reduceat(rows, self.first))

    def analyze(self, rate_rps: FloatArray) -> Performance:
        """Return the metrics of each class at the rate of all classes of each pair, shape (R,)."""
        return self.queues.analyze(rate_rps[self.pair])

    def met(self, found: Performance) -> BoolArray:
        """Return whether the targets of all classes of each pair are met, shape (R,)."""
        figures = self.targets.figures(found)
        return self.all_of_pair(meets_target(figures, self.targets.limits, MISS_TOLERANCE).all(axis=0))

    def mean(self, found: Performance) -> Performance:
        """Return the metrics of each pair: means over the requests of all its classes."""
        one = found.take(self.first)
        means = {name: np.add.reduceat(getattr(found, name) * self.share, self.first) for name in AVERAGED}
        return replace(one, **means)


def _shares(arrays: SystemArrays) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the share of each member in its queue, of those before it, and of those up to it; shapes (M,)."""
    members = arrays.servers.members
    total = arrays.servers.load_rps[members.server]
    share = np.divide(members.load_rps, total, out=np.zeros(len(total)), where=total > 0)
    higher, not_lower = np.zeros_like(share), np.zeros_like(share)
    queued = np.flatnonzero(arrays.servers.is_queue[members.server])
    for m in queued.tolist():
        mine = queued[members.server[queued] == members.server[m]]
        higher[m] = share[mine[members.priority[mine] < members.priority[m]]].sum()
        not_lower[m] = share[mine[members.priority[mine] <= members.priority[m]]].sum()
    return share, higher, np.minimum(not_lower, 1.0)
