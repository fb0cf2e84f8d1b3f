"""Rows of queue models for server–accelerator pairs: one for a server, several for a shared queue.

A shared queue has one row for each of its service classes, because classes have different waiting times and
targets.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.pairs import Pairs, replicas_of, targets_of
from optimizer.queueing.performance import Performance, QueueModel
from optimizer.queueing.priority.model import COUNTED, WITH_WAIT, ClassMix, ClassPerformance, PriorityQueues
from optimizer.queueing.targets import Targets


@dataclass(frozen=True, slots=True)
class ServerRows:
    """Queue models and targets of R server–accelerator pairs, one row for each pair."""

    queues: QueueModel
    targets: Targets
    """Targets at the replica: the server's targets minus the network latency."""
    delay_ms: FloatArray
    """Network latency between the places of the server and the accelerator [ms]."""

    @classmethod
    def of(cls, arrays: SystemArrays, pairs: Pairs) -> Self:
        """Create the rows of R ≥ 1 pairs that have the same latency and queue model."""
        delay_ms = arrays.servers.delay_ms[pairs.server, pairs.accelerator]
        return cls(replicas_of(arrays, pairs), targets_of(arrays, pairs), delay_ms)

    def take(self, pairs: IntArray) -> "ServerRows":
        """Return the rows of the pairs with the given indices; indices can repeat."""
        return ServerRows(self.queues.take(pairs), self.targets.take(pairs), self.delay_ms[pairs])

    def of_pairs(self, ufunc: np.ufunc, values: Any) -> Any:
        """Reduce values of rows to one value for each pair with a NumPy function, shape (R,)."""
        del ufunc
        return values

    def of_rows(self, values: Any) -> Any:
        """Spread values of pairs, shape (R,), to their rows."""
        return values

    def worst(self, ratio: FloatArray, measure: IntArray) -> IntArray:
        """Return the index of each pair's row with the largest `ratio`; ties go to the smallest `measure`."""
        del measure
        return np.arange(len(ratio))

    def analyze(self, rate_rps: FloatArray) -> Performance:
        """Return the metrics of each row at the arrival rates of the pairs [requests/s], shape (R,)."""
        return self.queues.analyze(rate_rps)

    @property
    def delays(self) -> FloatArray:
        """Network latency that each of K target measures includes, for each of Q rows [ms], shape (K, Q)."""
        return self.targets.delays(self.delay_ms)

    def met(self, performance: Performance, asked: BoolArray | None = None) -> BoolArray:
        """Return a mask of pairs whose rows all meet their targets, shape (R,).

        Args:
            performance: performance of the rows.
            asked: mask of the pairs for which the result is needed; None for all.
        """
        rows = None if asked is None else self.of_rows(asked)
        return np.asarray(self.of_pairs(np.logical_and, self.targets.met(performance, rows)), np.bool_)

    def mean(self, performance: Performance) -> Performance:
        """Return the metrics of each pair, as means over the requests of its rows."""
        return performance


@dataclass(frozen=True, slots=True)
class ClassRows(ServerRows):
    """Rows for shared queues on accelerators: one for each member that has load, shapes (Q,)."""

    queues: PriorityQueues
    pair: IntArray
    """Index of the row's queue–accelerator pair; rows of a pair are adjacent."""
    member: IntArray
    """Index of the row's member of the queue."""

    @classmethod
    def of(cls, arrays: SystemArrays, pairs: Pairs) -> Self:
        """Create the rows of R ≥ 1 pairs that have the same latency and queue model."""
        members = arrays.servers.members
        ends = (np.searchsorted(members.server, pairs.server, side) for side in ("left", "right"))
        pair, member = _joined_ranges(*ends)
        loaded = members.load_rps[member] > 0
        pair, member = pair[loaded], member[loaded]
        # Each class gets its share of the pair's rate, so rates of pairs are totals over their classes.
        mixes = _mixes(arrays, pairs.server, pair, member)
        work_cv = arrays.servers.out_tokens_cv[pairs.server[pair]]
        shape = _own_shapes(arrays, pairs.server[pair], member)
        queues = PriorityQueues.of(replicas_of(arrays, pairs).take(pair), mixes, work_cv, shape)
        delay_ms = arrays.servers.delay_ms[pairs.server[pair], pairs.accelerator[pair]]
        targets = members.targets.take(member).before(delay_ms)
        return cls(queues, targets, delay_ms, pair, member)

    def take(self, pairs: IntArray) -> "ClassRows":
        """Return the rows of the pairs with the given indices; the result numbers these pairs from 0."""
        pair, rows = _joined_ranges(*(np.searchsorted(self.pair, pairs, side) for side in ("left", "right")))
        queues, targets = self.queues.take(rows), self.targets.take(rows)
        return ClassRows(queues, targets, self.delay_ms[rows], pair, self.member[rows])

    @property
    def first(self) -> IntArray:
        """Index of the first row of each pair."""
        return np.flatnonzero(np.diff(self.pair, prepend=-1))

    def of_pairs(self, ufunc: np.ufunc, values: Any) -> Any:
        """Reduce values of rows to one value for each pair with a NumPy function, shape (R,)."""
        return ufunc.reduceat(values, self.first)

    def of_rows(self, values: Any) -> Any:
        """Spread values of pairs, shape (R,), to their rows."""
        return values[self.pair]

    def worst(self, ratio: FloatArray, measure: IntArray) -> IntArray:
        """Return the index of each pair's row with the largest `ratio`; ties go to the smallest `measure`."""
        return np.lexsort((measure, -ratio, self.pair))[self.first]

    def analyze(self, rate_rps: FloatArray) -> ClassPerformance:
        """Return the metrics of each class at the pairs' total arrival rates [requests/s], shape (R,)."""
        return self.queues.analyze(rate_rps[self.pair])

    def mean(self, performance: Performance) -> Performance:
        """Return the metrics of each pair, as means over the requests of all its classes."""
        assert isinstance(performance, ClassPerformance)
        sums = {name: getattr(performance, name) for name in COUNTED}
        # Means over all requests weight the classes by their shares of the requests.
        sums |= {name: getattr(performance, name) * self.queues.share for name in WITH_WAIT}
        totals = {name: self.of_pairs(np.add, values) for name, values in sums.items()}
        return replace(performance.of_queue.take(self.first), **totals)


def rows_of(arrays: SystemArrays, pairs: Pairs) -> ServerRows:
    """Return the rows of R ≥ 1 pairs with the same models; either all or none of them are shared queues."""
    rows = ClassRows if arrays.servers.is_queue[pairs.server[0]] else ServerRows
    return rows.of(arrays, pairs)


def _joined_ranges(first: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """Concatenate the ranges first[i]..end[i]-1; return the range index and the value of each element."""
    count = end - first
    # The value of an element is first[i] plus its position within range i.
    of = np.repeat(np.arange(len(first)), count)
    return of, np.arange(len(of)) + np.repeat(first - np.cumsum(count) + count, count)


def _own_shapes(arrays: SystemArrays, server: IntArray, member: IntArray) -> IntArray | None:
    """Return the numbers of the request shapes of each class, shape (Q, H); −1 for those of other classes.

    Args:
        server: queue of each of Q classes.
        member: member of each class.
    """
    shapes, of_members = arrays.servers.shapes, arrays.servers.members.shapes
    if shapes is None:
        return None
    joint = shapes.take(server).shape
    own = joint.copy()
    for row, names in enumerate([of_members[m] for m in member.tolist()]):
        if names:
            own[row] = [names.get(number, -1) for number in joint[row].tolist()]
    return own


def _mixes(arrays: SystemArrays, server: IntArray, pair: IntArray, member: IntArray) -> list[ClassMix]:
    """Return the mix of classes of each pair; the work of a request is proportional to its output length."""
    members = arrays.servers.members
    known: dict[int, ClassMix] = {}
    for s in server.tolist():
        if s not in known:
            members_of = member[pair == np.flatnonzero(server == s)[0]]
            known[s] = ClassMix.of(
                members.load_rps[members_of].tolist(),
                members.priority[members_of].tolist(),
                members.out_tokens[members_of].tolist(),
            )
    return [known[s] for s in server.tolist()]
