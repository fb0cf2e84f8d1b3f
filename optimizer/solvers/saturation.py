"""Saturation policies: partial service from the capacity that a solution leaves.

The remaining capacity is used for replicas of unserved servers. A server takes the accelerator on which the
remaining capacity serves the largest share of its load, and stays there if it can have only one pool. For a
server with a minimum number of replicas, the served share is at most its share of this minimum.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.greedy import rows_by_server
from optimizer.solvers.levels import served
from optimizer.solvers.limit_rows import Remaining
from optimizer.solvers.problem import Problem
from optimizer.tolerances import ROUNDING


@dataclass(frozen=True, slots=True)
class LeftoverAllocation:
    """A solution after the remaining capacity was allocated."""

    replicas: IntArray
    """Replicas of each candidate, shape (C,)."""
    partly: BoolArray
    """Mask of the servers that are served in part, shape (S,)."""
    finished: bool = True
    """Whether the policy was completed before the deadline."""


def share_leftover(
    problem: Problem, replicas: IntArray, deadline: Deadline | None = None
) -> LeftoverAllocation:
    """Allocate the capacity that a solution leaves, by the saturation policy of the options.

    ``PriorityExhaustive``: one server after the other takes all that it can use. ``PriorityRoundRobin`` and
    ``RoundRobin``: in each turn, the server with the smallest served share of its load gets one replica,
    among the servers of a priority or among all. Capacity that is not allocated by the deadline stays free.
    """
    partly = np.zeros(len(problem.priority), np.bool_)
    limited = np.isfinite(problem.limits.amount).any()
    if not limited or problem.options.saturation_policy == "None":
        return LeftoverAllocation(replicas, partly)
    can = problem.to_serve & ~problem.only_in_full
    waiting, priority = np.flatnonzero(can & ~served(problem, replicas)), problem.priority
    if not len(waiting):
        return LeftoverAllocation(replicas, partly)
    leftover = _Leftover(problem, replicas, deadline or Deadline(math.inf))
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
    partly[waiting] = [leftover.share(server) > 0 for server in waiting.tolist()]
    return LeftoverAllocation(np.array(leftover.taken, np.int64), partly, leftover.finished)


class _Leftover:
    """Allocation of remaining capacity in progress, with the replicas for which it is used.

    The state consists of Python numbers, because tens of thousands of turns each read only a few candidates.
    """

    def __init__(self, problem: Problem, replicas: IntArray, deadline: Deadline) -> None:
        problem = problem.at_list_price
        table = problem.table
        self.deadline, self.finished = deadline, True
        self.one_pool = not problem.options.heterogeneous
        self.left = Remaining(problem.limits, problem.left_by(replicas))
        self.taken: list[int] = replicas.tolist()
        self.rate: list[float] = table.max_rate_rps.tolist()
        self.cost: list[float] = table.cost_per_replica.tolist()
        self.load: list[float] = problem.load_rps.tolist()
        self.least: list[int] = problem.min_replicas.tolist()
        self.most: list[int] = problem.max_replicas.tolist()
        whole = problem.repeats | problem.reserve.surges[table.server]  # a surge depends on all replicas
        pools = np.flatnonzero(table.meets_targets_below_max_rate & ~whole)
        self.candidates = rows_by_server(problem, pools)

    def exhaust(self, server: int) -> None:
        """Allocate all replicas that a server can use."""
        while self._in_time() and (best_column := self._best_column(server)) is not None:
            self._give(*best_column)

    def allocate_round_robin(self, members: Sequence[int]) -> None:
        """Allocate one replica at a time to the server with the smallest served share of its load.

        If no further replica fits, a server moves to another accelerator on which the remaining capacity
        would serve it better, and the turns continue with the capacity that this frees.
        """
        while self._in_time():
            queue = [(self.share(server), turn, server) for turn, server in enumerate(members)]
            heapq.heapify(queue)
            while queue and self._in_time():
                _, turn, server = queue[0]
                best_column = self._best_column(server)
                if best_column is None:
                    heapq.heappop(queue)
                else:
                    self._give(best_column[0], 1)
                    heapq.heapreplace(queue, (self.share(server), turn, server))
            if not any(self._moved(server) for server in members if self._in_time()):
                return

    def _in_time(self) -> bool:
        """Return whether there is time for another step; if not, mark the allocation as unfinished."""
        self.finished = self.finished and not self.deadline.passed
        return self.finished

    def _moved(self, server: int) -> bool:
        """Move a server to another accelerator if that serves more of its load; return whether it moved."""
        taken = self._mine(server)
        if not taken or not self.one_pool:
            return False
        candidate, share = taken[0], self.share(server)
        count = self.taken[candidate]
        self._give(candidate, -count)
        best = self._best_column(server)
        if best is not None and best[0] != candidate:
            self._give(*best)
            if self.share(server) > share * (1 + 1e-9):
                return True
            self._give(best[0], -best[1])
        self._give(candidate, count)
        return False

    def _best_column(self, server: int) -> tuple[int, int] | None:
        """Return the candidate that serves most of a server's load, and the useful number of its replicas.

        A server that has a pool and can have only one gets more replicas of the same candidate. Ties are
        broken by cost, then by order.
        """
        taken, (carried, count) = self._mine(server), self._has(server)
        missing = max(self.load[server] - carried, 0.0)
        best_column = list[tuple[float, float, int, int]]()
        for candidate in taken if taken and self.one_pool else self.candidates.get(server, []):
            for_load = math.ceil(missing / self.rate[candidate] * (1 - ROUNDING)) if missing else 0
            useful = max(for_load, self.least[server] - count)
            usable = int(min(useful, self.left.most(candidate), self.most[server] - count))
            if usable > 0:
                share = self._share_of(server, carried + usable * self.rate[candidate], count + usable)
                best_column.append((-share, usable * self.cost[candidate], candidate, usable))
        return min(best_column)[2:] if best_column else None

    def _mine(self, server: int) -> list[int]:
        return [candidate for candidate in self.candidates.get(server, []) if self.taken[candidate]]

    def _has(self, server: int) -> tuple[float, int]:
        """Return the rate that the replicas of a server carry [requests/s], and their number."""
        chosen = self._mine(server)
        return sum(self.taken[c] * self.rate[c] for c in chosen), sum(self.taken[c] for c in chosen)

    def share(self, server: int) -> float:
        """Return the served share of a server's load."""
        return self._share_of(server, *self._has(server))

    def _share_of(self, server: int, carried_rps: float, count: int) -> float:
        """Return the smaller of the served share of the load and the share of the minimum number of replicas.

        Args:
            carried_rps: rate that its replicas carry [requests/s].
            count: number of its replicas.
        """
        load, least = self.load[server], self.least[server]
        of_load = carried_rps / load if load > 0 else 1.0
        of_least = count / least if least > 0 else 1.0
        return min(of_load, of_least, 1.0)

    def _give(self, candidate: int, count: int) -> None:
        self.taken[candidate] += count
        self.left.take(candidate, count)
