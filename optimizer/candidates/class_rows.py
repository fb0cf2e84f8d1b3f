"""Shared queues on accelerators: a row for each class, which has its own waiting time and its own targets."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.pairs import Pairs, replicas_of
from optimizer.queueing.performance import Performance
from optimizer.queueing.priority.model import COUNTED, WITH_WAIT, ClassMix, ClassPerformance, PriorityQueues
from optimizer.queueing.targets import DELAYED, MISS_TOLERANCE, Targets, meets_target


@dataclass(frozen=True, slots=True)
class ClassRows:
    """Rows of the loaded members of shared queues on accelerators, shapes (Q,)."""

    pair: IntArray
    """Index of the pair of queue and accelerator; rows of a pair are adjacent."""
    member: IntArray
    """Index of the member."""
    share: FloatArray
    """Share of the queue's requests."""
    queues: PriorityQueues
    targets: Targets
    """Targets at the replica: those of the members minus the network latency."""
    network_ms: FloatArray
    """Network latency between the places of the queue and the accelerator [ms]."""

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
        mixes = _mixes(arrays, pairs.server, pair, member)
        work_cv = arrays.servers.out_tokens_cv[pairs.server[pair]]
        queues = PriorityQueues.of(replicas_of(arrays, pairs).take(pair), mixes, work_cv)
        network_ms = arrays.servers.network_ms[pairs.server[pair], pairs.accelerator[pair]]
        targets = members.targets.take(member).before(network_ms)
        return cls(pair, member, queues.share, queues, targets, network_ms)

    def take_pairs(self, rows: IntArray) -> "ClassRows":
        """Return the rows of some pairs, with pairs renumbered in the given order."""
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
            self.network_ms[mine],
        )

    @property
    def first(self) -> IntArray:
        """First row of each pair."""
        return np.flatnonzero(np.diff(self.pair, prepend=-1))

    def all_of_pair(self, rows: BoolArray) -> BoolArray:
        """Return whether a condition holds for all classes of each pair, shape (R,)."""
        return np.asarray(np.logical_and.reduceat(rows, self.first))

    def analyze(self, rate_rps: FloatArray) -> ClassPerformance:
        """Return the metrics of each class at the rate of all classes of each pair, shape (R,)."""
        return self.queues.analyze(rate_rps[self.pair])

    @property
    def delays(self) -> FloatArray:
        """Increase of each target measure due to the network, shape (K, Q)."""
        return self.targets.delays(self.network_ms)

    def least_limit(self) -> FloatArray:
        """Return the tightest limit of each pair on latencies that include the network [ms], shape (R,)."""
        mine = np.minimum(*(self.targets.limit(metric) for metric in sorted(DELAYED))) + self.network_ms
        return np.asarray(np.minimum.reduceat(mine, self.first))

    def met(self, found: Performance) -> BoolArray:
        """Return whether the targets of all classes of each pair are met, shape (R,)."""
        figures = self.targets.figures(found)
        met = meets_target(figures, self.targets.limits, MISS_TOLERANCE)
        return self.all_of_pair(np.asarray(met.all(axis=0)))

    def mean(self, found: Performance) -> Performance:
        """Return the metrics of each pair: means over the requests of all its classes."""
        sums = {name: np.add.reduceat(getattr(found, name), self.first) for name in COUNTED}
        sums |= {name: np.add.reduceat(getattr(found, name) * self.share, self.first) for name in WITH_WAIT}
        return replace(found.take(self.first), **sums)


def _mixes(arrays: SystemArrays, server: IntArray, pair: IntArray, member: IntArray) -> list[ClassMix]:
    """Return the mix of each pair; the work of a request is proportional to its output."""
    members = arrays.servers.members
    known: dict[int, ClassMix] = {}
    for s in server.tolist():
        if s not in known:
            mine = member[pair == np.flatnonzero(server == s)[0]]
            known[s] = ClassMix.of(
                members.load_rps[mine].tolist(),
                members.priority[mine].tolist(),
                members.out_tokens[mine].tolist(),
            )
    return [known[s] for s in server.tolist()]
