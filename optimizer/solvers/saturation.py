"""Partial service when not everything fits: one procedure after any solver.

Spends the remaining capacity on replicas for unserved servers. A server takes the accelerator
on which the remaining capacity serves the largest share of its load and, if it may have one pool only, keeps
it.
With a minimum number of replicas, the served share is the lesser of two: that of its load and that
of this number.
"""

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, IntArray
from optimizer.candidates.measuring import COUNT_TOLERANCE
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.levels import served
from optimizer.solvers.limit_rows import Remaining
from optimizer.solvers.open_queues import OpenQueue, queues_with_parts
from optimizer.solvers.problem import Problem


@dataclass(frozen=True, slots=True)
class LeftoverAllocation:
    """A solution after the remaining capacity was allocated."""

    replicas: IntArray
    """Replicas of each candidate, shape (C,)."""
    finished: bool
    """Whether all was given out that the policy gives; else the deadline passed first."""


def share_leftover(
    problem: Problem, replicas: IntArray, deadline: Deadline | None = None
) -> LeftoverAllocation:
    """Give out what an answer leaves of the limits by the options' saturation policy.

    ``PriorityExhaustive``: each server in turn takes what it can use. ``PriorityRoundRobin`` and
    ``RoundRobin``: one replica a turn, to the server of a priority, or of all, with the smallest share of
    its load served so far. Capacity that is not allocated by the deadline stays free.
    """
    limited = np.isfinite(problem.limits.amount).any()
    if not limited or problem.options.saturation_policy == "None":
        return LeftoverAllocation(replicas, finished=True)
    open_queues = queues_with_parts(problem, replicas)
    waiting = np.flatnonzero(problem.to_serve & ~problem.is_queue & ~served(problem, replicas))
    waiting = np.sort(np.concatenate([waiting, np.array([*open_queues], np.int64)]))
    if not len(waiting):
        return LeftoverAllocation(replicas, finished=True)
    leftover = _Leftover(problem, replicas, deadline or Deadline(math.inf), open_queues)
    priority = problem.priority.copy()
    for server, queue in open_queues.items():
        priority[server] = queue.priority
    waiting = waiting[np.argsort(priority[waiting], kind="stable")]
    match problem.options.saturation_policy:
        case "PriorityExhaustive":
            for server in waiting.tolist():
                leftover.exhaust(server)
        case "PriorityRoundRobin":
            for rank in np.unique(priority[waiting]):
                leftover.allocate_round_robin(waiting[priority[waiting] == rank].tolist())
        case "RoundRobin":
            leftover.allocate_round_robin(waiting.tolist())
    return LeftoverAllocation(leftover.replicas(), leftover.finished)


class _Leftover:
    """Remaining capacity, and the replicas that it is spent on.

    The state is in plain numbers because tens of thousands of turns read one or a few candidates each.
    """

    def __init__(
        self, problem: Problem, replicas: IntArray, deadline: Deadline, queues: Mapping[int, OpenQueue]
    ) -> None:
        problem = problem.at_list_price
        table = problem.table
        self.deadline, self.finished, self.queues = deadline, True, queues
        self.one_pool: list[bool] = (problem.reserve.one_pool | (not problem.options.heterogeneous)).tolist()
        self.left = Remaining(problem.limits, problem.left_by(replicas))
        self.taken: list[int] = replicas.tolist()
        self.rate: list[float] = table.max_rate_rps.tolist()
        self.cost: list[float] = table.cost_per_replica.tolist()
        self.load: list[float] = problem.load_rps.tolist()
        self.least: list[int] = problem.min_replicas.tolist()
        self.most: list[int] = problem.max_replicas.tolist()
        whole = problem.repeats | problem.reserve.surges[table.server]  # a surge is of all replicas
        pools = np.flatnonzero(table.meets_targets_below_max_rate & ~whole)
        ends = np.searchsorted(table.server[pools], np.arange(len(self.load) + 1)).tolist()
        candidates = pools.tolist()
        self.candidates = [candidates[start:end] for start, end in itertools.pairwise(ends)]
        # What a server has of its candidates; a server that waits has none at first.
        self.mine: list[list[int]] = [[] for _ in self.load]

    def replicas(self) -> IntArray:
        """Return the replicas of each candidate, shape (C,)."""
        return np.array(self.taken, np.int64)

    def exhaust(self, server: int) -> None:
        """Give a server all that it can use."""
        while self._in_time() and (found := self._best_column(server)) is not None:
            self._give(server, *found)

    def allocate_round_robin(self, members: Sequence[int]) -> None:
        """Give one replica at a time to the server with the smallest share of its load served.

        When nothing fits any more, a server that would get further with what is left on another accelerator
        moves there, and the turns go on with what it gave up.
        """
        while self._in_time():
            queue = [(self._share(server), turn, server) for turn, server in enumerate(members)]
            heapq.heapify(queue)
            while queue and self._in_time():
                _, turn, server = queue[0]
                found = self._best_column(server)
                if found is None:
                    heapq.heappop(queue)
                else:
                    self._give(server, found[0], 1)
                    heapq.heapreplace(queue, (self._share(server), turn, server))
            if not any(self._moved(server) for server in members if self._in_time()):
                return

    def _in_time(self) -> bool:
        """Return whether there is time for another step; that there was none is noted."""
        self.finished = self.finished and not self.deadline.passed
        return self.finished

    def _moved(self, server: int) -> bool:
        """Move a server to another accelerator if more of its load is served there; return whether it did."""
        if not self.mine[server] or not self.one_pool[server] or server in self.queues:
            return False
        candidate, share = self.mine[server][0], self._share(server)
        count = self.taken[candidate]
        self._give(server, candidate, -count)
        best = self._best_column(server)
        if best is not None and best[0] != candidate:
            self._give(server, *best)
            if self._share(server) > share * (1 + 1e-9):
                return True
            self._give(server, best[0], -best[1])
        self._give(server, candidate, count)
        return False

    def _best_column(self, server: int) -> tuple[int, int] | None:
        """Return the candidate with which a server gets furthest, and how many replicas of it are of use.

        It may take replicas of all its candidates or, if it has one already and may have one pool only, of
        that one.
        Ties go to the lesser cost, then in order.
        """
        if server in self.queues:
            return self.queues[server].best(self.taken, self.left, self.most[server])
        mine = self.mine[server]
        carried, count = self._carried(server), self._count(server)
        missing = max(self.load[server] - carried, 0.0)
        best, best_key = None, (0.0, 0.0)
        for candidate in mine if mine and self.one_pool[server] else self.candidates[server]:
            for_load = math.ceil(missing / self.rate[candidate] * (1 - COUNT_TOLERANCE)) if missing else 0
            useful = max(for_load, self.least[server] - count)
            usable = int(min(useful, self.left.most(candidate), self.most[server] - count))
            if usable <= 0:
                continue
            share = self._share_of(server, carried + usable * self.rate[candidate], count + usable)
            key = (-share, usable * self.cost[candidate])
            if best is None or key < best_key:
                best, best_key = (candidate, usable), key
        return best

    def _carried(self, server: int) -> float:
        return sum(self.taken[candidate] * self.rate[candidate] for candidate in self.mine[server])

    def _count(self, server: int) -> int:
        return sum(self.taken[candidate] for candidate in self.mine[server])

    def _share(self, server: int) -> float:
        if server in self.queues:
            return self.queues[server].share(self.taken)
        return self._share_of(server, self._carried(server), self._count(server))

    def _share_of(self, server: int, carried_rps: float, count: int) -> float:
        """Return the share served: of the load, or of the least number of replicas where that is less."""
        load, least = self.load[server], self.least[server]
        of_load = carried_rps / load if load > 0 else 1.0
        of_least = count / least if least > 0 else 1.0
        return min(of_load, of_least, 1.0)

    def _give(self, server: int, candidate: int, count: int) -> None:
        self.taken[candidate] += count
        self.left.take(candidate, count)
        mine = self.mine[server]
        if server in self.queues:
            return
        if not self.taken[candidate]:
            mine.remove(candidate)
        elif candidate not in mine:
            mine.append(candidate)


def waiting_servers(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the unserved servers that have a candidate; shape (S,)."""
    has_candidate = np.zeros(len(problem.priority), np.bool_)
    has_candidate[problem.table.server[problem.table.meets_targets_below_max_rate]] = True
    return has_candidate & problem.to_serve & ~served(problem, replicas)
