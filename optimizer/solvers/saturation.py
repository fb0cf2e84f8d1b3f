"""Saturation policies: partial service from the remaining capacity, after any solver.

The remaining capacity is used for replicas of unserved servers. A server takes the accelerator on which the
remaining capacity serves the largest share of its load, and keeps it if it can have only one pool. With a
minimum number of replicas, the served share is the smaller of the share of its load and the share of this
minimum.
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
    """Whether the policy was completed before the deadline."""


def share_leftover(
    problem: Problem, replicas: IntArray, deadline: Deadline | None = None
) -> LeftoverAllocation:
    """Allocate the capacity that a solution leaves, by the saturation policy of the options.

    ``PriorityExhaustive``: each server in turn takes all that it can use. ``PriorityRoundRobin`` and
    ``RoundRobin``: one replica per turn, for the server with the smallest served share of its load, among
    those of a priority or among all. Capacity that is not allocated by the deadline stays free.
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
    """Remaining capacity, and the replicas for which it is used.

    The state is in plain numbers because tens of thousands of turns each read only a few candidates.
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
        whole = problem.repeats | problem.reserve.surges[table.server]  # a surge depends on all replicas
        pools = np.flatnonzero(table.meets_targets_below_max_rate & ~whole)
        ends = np.searchsorted(table.server[pools], np.arange(len(self.load) + 1)).tolist()
        candidates = pools.tolist()
        self.candidates = [candidates[start:end] for start, end in itertools.pairwise(ends)]
        # Replicas of each candidate of a server; waiting servers start without any.
        self.mine: list[list[int]] = [[] for _ in self.load]

    def replicas(self) -> IntArray:
        """Return the replicas of each candidate, shape (C,)."""
        return np.array(self.taken, np.int64)

    def exhaust(self, server: int) -> None:
        """Allocate all replicas that a server can use."""
        while self._in_time() and (found := self._best_column(server)) is not None:
            self._give(server, *found)

    def allocate_round_robin(self, members: Sequence[int]) -> None:
        """Allocate one replica at a time to the server with the smallest served share of its load.

        When nothing fits any more, a server that could be served better by the remaining capacity of another
        accelerator moves there, and the turns continue with the capacity that it frees.
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
        """Return whether there is time for another step, and record it if not."""
        self.finished = self.finished and not self.deadline.passed
        return self.finished

    def _moved(self, server: int) -> bool:
        """Move a server to another accelerator if that serves more of its load; return whether it moved."""
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
        """Return the candidate that serves most of a server's load, and the useful number of its replicas.

        A server that has a pool and can have only one gets replicas of the same candidate. Ties are broken by
        cost, then by order.
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
        """Return the served share: of the load, or of the minimum replicas if that is smaller."""
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
