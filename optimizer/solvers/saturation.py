"""Who gets partial service when not everything fits: one procedure after any solver.

Takes an answer and gives it more replicas: whole ones, from the units that the answer leaves, to servers
that it leaves out. A server takes the accelerator on which it can get the largest share of its load with
what is left, and, unless plans are mixed, stays with it. A server with a least number of replicas is served
by the lesser of two shares, that of its load and that of this number.
"""

import heapq
from collections.abc import Iterable

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates.finder import COUNT_TOLERANCE
from optimizer.solvers.levels import served
from optimizer.solvers.problem import Problem, units_used


def share_leftover(problem: Problem, replicas: IntArray) -> IntArray:
    """Return an answer with the leftover units given out by the options' saturation policy.

    ``PriorityExhaustive``: each server in turn takes what it can use. ``PriorityRoundRobin`` and
    ``RoundRobin``: one replica a turn, to the server of a priority, or of all, with the smallest share of
    its load served so far.
    """
    if problem.capacity is None or problem.options.saturation_policy == "None":
        return replicas
    leftover = _Leftover(problem, replicas)
    waiting = np.flatnonzero(problem.to_serve & ~served(problem, replicas))
    waiting = waiting[np.argsort(problem.priority[waiting], kind="stable")]
    match problem.options.saturation_policy:
        case "PriorityExhaustive":
            for server in waiting:
                leftover.exhaust(int(server))
        case "PriorityRoundRobin":
            for priority in np.unique(problem.priority[waiting]):
                leftover.take_turns(int(s) for s in waiting[problem.priority[waiting] == priority])
        case "RoundRobin":
            leftover.take_turns(int(s) for s in waiting)
    return leftover.replicas


class _Leftover:
    """The units that are left, and the replicas that they become."""

    def __init__(self, problem: Problem, replicas: IntArray) -> None:
        capacity: FloatArray = problem.capacity if problem.capacity is not None else np.zeros(0)
        self.problem, self.replicas = problem, replicas.copy()
        self.left = capacity.astype(np.int64) - units_used(problem, replicas, len(capacity))
        servers = np.arange(len(problem.priority))
        self.first = np.searchsorted(problem.table.server, servers)
        self.last = np.searchsorted(problem.table.server, servers, side="right")

    def exhaust(self, server: int) -> None:
        """Give a server all that it can use."""
        while (column := self._best_column(server)) is not None:
            self._give(column, int(self._usable(server, np.array([column]))[0]))

    def take_turns(self, servers: Iterable[int]) -> None:
        """Give one replica at a time to the server with the smallest share of its load served.

        When nothing fits any more, a server that would get further with what is left on another accelerator
        moves there, and the turns go on with what it gave up.
        """
        members = list(servers)
        while True:
            queue = [(self._share(server), turn, server) for turn, server in enumerate(members)]
            heapq.heapify(queue)
            while queue:
                _, turn, server = heapq.heappop(queue)
                column = self._best_column(server)
                if column is not None:
                    self._give(column, 1)
                    heapq.heappush(queue, (self._share(server), turn, server))
            if not any(self._moved(server) for server in members):
                return

    def _moved(self, server: int) -> bool:
        """Move a server to another accelerator if it gets further there; say whether it moved."""
        rows = np.arange(self.first[server], self.last[server])
        mine = rows[self.replicas[rows] > 0]
        if not len(mine) or self.problem.options.heterogeneous:
            return False
        column, count, share = int(mine[0]), int(self.replicas[mine[0]]), self._share(server)
        self._give(column, -count)
        best = self._best_column(server)
        if best is not None and best != column:
            usable = int(self._usable(server, np.array([best]))[0])
            self._give(best, usable)
            if self._share(server) > share * (1 + 1e-9):
                return True
            self._give(best, -usable)
        self._give(column, count)
        return False

    def _columns(self, server: int) -> IntArray:
        """Return the columns that a server may take replicas of: its own once it has one, unless mixed."""
        columns = np.arange(self.first[server], self.last[server])
        columns = columns[self.problem.table.steady[columns]]
        own = columns[self.replicas[columns] > 0]
        return own if len(own) and not self.problem.options.heterogeneous else columns

    def _usable(self, server: int, columns: IntArray) -> IntArray:
        """Return how many more replicas of each of a server's columns fit, and are of use to it."""
        table, problem = self.problem.table, self.problem
        count = self._count(server)
        missing = max(float(problem.load_rps[server]) - self._carried(server), 0.0)
        for_load = np.ceil(missing / table.max_rate_rps[columns] * (1 - COUNT_TOLERANCE))
        useful = np.maximum(for_load, problem.min_replicas[server] - count)
        fits = self.left[table.kind[columns]] // table.units_per_replica[columns]
        allowed = problem.max_replicas[server] - count
        usable: IntArray = np.minimum(np.minimum(useful, fits), allowed).clip(0).astype(np.int64)
        return usable

    def _best_column(self, server: int) -> int | None:
        """Return the column with which a server gets furthest; ties go to the lesser cost, then in order."""
        columns = self._columns(server)
        usable = self._usable(server, columns)
        columns, usable = columns[usable > 0], usable[usable > 0]
        if not len(columns):
            return None
        table = self.problem.table
        carried = self._carried(server) + usable * table.max_rate_rps[columns]
        share = self._share_of(server, carried, self._count(server) + usable)
        order = np.lexsort((usable * table.cost_per_replica[columns], -share))
        return int(columns[order[0]])

    def _carried(self, server: int) -> float:
        rows = slice(self.first[server], self.last[server])
        return float((self.replicas[rows] * self.problem.table.max_rate_rps[rows]).sum())

    def _count(self, server: int) -> int:
        return int(self.replicas[self.first[server] : self.last[server]].sum())

    def _share(self, server: int) -> float:
        carried, count = np.array([self._carried(server)]), np.array([self._count(server)])
        return float(self._share_of(server, carried, count)[0])

    def _share_of(self, server: int, carried_rps: FloatArray, count: IntArray) -> FloatArray:
        """Return the share served: of the load, or of the least number of replicas where that is less."""
        load, least = float(self.problem.load_rps[server]), int(self.problem.min_replicas[server])
        of_load = carried_rps / load if load > 0 else np.ones(len(count))
        of_least = count / least if least > 0 else np.ones(len(count))
        return np.minimum(np.minimum(of_load, of_least), 1.0)

    def _give(self, column: int, count: int) -> None:
        self.replicas[column] += count
        self.left[self.problem.table.kind[column]] -= count * self.problem.table.units_per_replica[column]


def waiting_servers(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return which servers an answer leaves out although they have a column; shape (S,)."""
    has_column = np.zeros(len(problem.priority), np.bool_)
    has_column[problem.table.server[problem.table.steady]] = True
    return has_column & problem.to_serve & ~served(problem, replicas)
