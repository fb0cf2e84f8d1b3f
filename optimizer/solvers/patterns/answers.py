"""Answers as one option for each server: from replicas and back, what is left completed, the better one kept.

Takes a `Problem` and its pool of options. Nothing here asks a solver.
"""

from dataclasses import replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.greedy import greedy_replicas
from optimizer.solvers.levels import is_better
from optimizer.solvers.patterns.options import patterns
from optimizer.solvers.patterns.pool import Pool
from optimizer.solvers.problem import Problem, units_used
from optimizer.solvers.seeds import in_columns


class Incumbent:
    """The best answer so far, in the order of all levels."""

    def __init__(self, problem: Problem, pool: Pool, replicas: IntArray) -> None:
        self.problem, self.pool = problem, pool
        self.servers = pool.parts.servers
        self.chosen = self._nothing()
        self.offer(replicas)

    def offer(self, replicas: IntArray) -> bool:
        """Take over an answer of the candidate table if it is better; return whether it is."""
        return self.take(self._options_of(in_columns(self.pool.parts.row, self.problem, replicas)))

    def take(self, chosen: IntArray) -> bool:
        """Take over options, one for each server that has any, if they are better; say if so."""
        better = is_better(self.problem, self._replicas(chosen), self.replicas)
        if better:
            self.chosen = chosen
        return better

    @property
    def replicas(self) -> IntArray:
        """Replicas of each candidate, shape (C,)."""
        return self._replicas(self.chosen)

    @property
    def served(self) -> BoolArray:
        """Which servers have an allocation, shape (S,)."""
        served = np.zeros(len(self.problem.priority), np.bool_)
        served[self.servers] = self.pool.options.served[self.chosen]
        return served

    def of_level(self, weight: FloatArray) -> float:
        """Return the sum of what the chosen options weigh, shape (P,)."""
        return float(weight[self.chosen].sum())

    def completed(self, options: IntArray) -> IntArray:
        """Return an answer with some options, and greedily with what is left for the servers without."""
        chosen = self._nothing()
        place = np.searchsorted(self.servers, self.pool.options.server[options])
        chosen[place] = options
        replicas = self._replicas(chosen)
        open_servers = np.ones(len(self.problem.priority), np.bool_)
        open_servers[self.pool.options.server[options]] = False
        if self.problem.capacity is None or not open_servers[self.servers].any():
            return replicas
        left = self.problem.capacity - units_used(self.problem, replicas, len(self.problem.capacity))
        rest = replace(self.problem.of_servers(open_servers), capacity=left)
        replicas[open_servers[self.problem.table.server]] = greedy_replicas(rest)
        return replicas

    def _nothing(self) -> IntArray:
        options = self.pool.options
        return np.flatnonzero(~options.served[: len(self.servers)])

    def _replicas(self, chosen: IntArray) -> IntArray:
        return self.pool.options.replicas(chosen, self.pool.parts, len(self.problem.table))

    def _options_of(self, replicas: IntArray) -> IntArray:
        """Return an answer as options; patterns that the pool lacks are added."""
        parts, chosen = self.pool.parts, self._nothing()
        used = np.flatnonzero(replicas[parts.row])
        servers, place, size = np.unique(parts.server[used], return_inverse=True, return_counts=True)
        if not len(servers):
            return chosen
        start = np.cumsum(size) - size
        part = np.full((len(servers), int(size.max())), -1)
        count = np.zeros_like(part)
        spot = np.arange(len(used)) - start[place]
        part[place, spot], count[place, spot] = used, replicas[parts.row[used]]
        found = patterns(self.problem, parts, part, count)
        self.pool.add(found)
        chosen[np.searchsorted(self.servers, found.server)] = self.pool.place_of(found)
        return chosen
