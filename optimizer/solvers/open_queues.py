"""Shared queues that a solution does not serve in full, for partial service by a saturation policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.arrays import IntArray
from optimizer.candidates.queue_parts import QueueParts
from optimizer.solvers.limit_rows import Remaining
from optimizer.solvers.problem import Problem


@dataclass(frozen=True, slots=True)
class OpenQueue:
    """A queue whose next member can be served in part.

    A queue with replicas gets more of the same; one without gets its first on the accelerator that serves
    most.
    """

    parts: QueueParts
    problem: Problem
    rows: tuple[int, ...]
    """Candidates that can get further replicas."""
    bits: int
    """Members served in full, as bits."""
    priority: int
    """Priority of the next member."""

    def share(self, taken: Sequence[int]) -> float:
        """Return the share of the next member that given replicas of each candidate serve."""
        return max((self._share(row, taken[row]) for row in self.rows if taken[row]), default=0.0)

    def best(self, taken: Sequence[int], left: Remaining, most: int) -> tuple[int, int] | None:
        """Return the candidate that serves most of the next member, and the useful further replicas.

        Args:
            taken: replicas of each candidate.
            left: remaining capacity of the limits.
            most: maximum replicas of the queue.
        """
        now, best, key = self.share(taken), None, (0.0, 0.0)
        for row in [row for row in self.rows if taken[row]] or self.rows:
            more = int(min(left.most(row), most - taken[row], self.problem.table.num_replicas.max()))
            share = self._share(row, taken[row] + more) if more > 0 else 0.0
            if share <= now:
                continue
            count = next(n for n in range(1, more + 1) if self._share(row, taken[row] + n) >= share)
            cost = count * float(self.problem.table.cost_per_replica[row])
            if best is None or (-share, cost) < key:
                best, key = (row, count), (-share, cost)
        return best

    def _share(self, row: int, replicas: int) -> float:
        return self.parts.share(self.problem.table, row, self.bits, replicas)


def queues_with_parts(problem: Problem, replicas: IntArray) -> Mapping[int, OpenQueue]:
    """Return the queues, by server, that a policy can serve further; none that require a reserve."""
    if problem.queue_parts is None:
        return {}
    found, table = {}, problem.table
    for server in np.flatnonzero(problem.is_queue & problem.to_serve & ~problem.reserve.wanted).tolist():
        chosen = np.flatnonzero((table.server == server) & (replicas > 0))
        bits = int(table.members[chosen[0]]) if len(chosen) else 0
        _, part = problem.queue_parts.members(server, bits)
        if part is None:
            continue
        alone = 1 << int(problem.members.place[part])
        mine = np.flatnonzero((problem.members.server == server) & (problem.members.load_rps == 0))
        rows = chosen if len(chosen) else _alone(problem, server, alone)
        bits = bits if len(chosen) else sum(1 << place for place in problem.members.place[mine].tolist())
        if len(rows):
            rank = int(problem.members.priority[part])
            found[server] = OpenQueue(problem.queue_parts, problem, tuple(rows.tolist()), bits, rank)
    return found


def _alone(problem: Problem, server: int, member: int) -> IntArray:
    """Return the candidates that serve only one given loaded member."""
    table, members = problem.table, problem.members
    mine = np.flatnonzero(members.server == server)
    loaded = sum(1 << int(members.place[m]) for m in mine.tolist() if members.load_rps[m] > 0)
    mine_only = (table.server == server) & (table.members & loaded == member)
    return np.flatnonzero(mine_only & ~problem.repeats)
