"""Column pool: the known columns of every server, and the pricing of all other columns.

It uses no solver. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optimizer.arrays import FloatArray, IntArray
from optimizer.solvers.branch_and_price.candidates import PatternCandidates, candidates_of
from optimizer.solvers.branch_and_price.columns import PatternColumns, first_columns, nothing, patterns
from optimizer.solvers.branch_and_price.master import MasterProblem
from optimizer.solvers.branch_and_price.pricing import (
    MAX_FOUND,
    PricingSubproblems,
    enumerate_patterns,
    subproblems_of,
)
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.problem import Problem

MARGIN = 1e-12
"""Relative difference of two reduced costs that counts as rounding."""


@dataclass(frozen=True, slots=True)
class PricingResult:
    """Result of pricing: the columns whose reduced cost is at most a limit."""

    columns: PatternColumns
    floor: FloatArray
    """Lower bound of the reduced cost for servers whose enumeration was cut short, else inf, shape (S,)."""

    @property
    def complete(self) -> bool:
        """Whether all columns within the limits were found."""
        return not np.isfinite(self.floor).any()


class ColumnPool:
    """The known columns, and the pricing of other columns."""

    def __init__(
        self,
        problem: Problem,
        candidates: PatternCandidates,
        columns: PatternColumns,
        subproblems: PricingSubproblems,
        due: Deadline | None = None,
    ) -> None:
        self.problem, self.candidates, self.columns = problem, candidates, columns
        self.subproblems, self.due = subproblems, due
        self.excluded = np.zeros(len(columns), np.bool_)
        """Mask of the columns excluded while their servers are restricted to other columns."""
        rng = np.random.default_rng(0)
        self._marks = rng.integers(1, 2**63, len(candidates.row) + len(problem.priority), np.uint64)
        keys = self._key(columns)
        self._rows = np.argsort(keys, kind="stable")
        """Row of each column, sorted by the key of the column."""
        self._keys = keys[self._rows]

    @classmethod
    def of(cls, problem: Problem, due: Deadline | None = None) -> "ColumnPool":
        """Return the initial column pool of a problem.

        Args:
            problem: the planning problem.
            due: time at which pricing must stop; None: no deadline.
        """
        candidates = candidates_of(problem)
        unserved = nothing(problem, candidates, candidates.servers)
        pool = cls(problem, candidates, unserved, subproblems_of(problem, candidates), due)
        pool.add(first_columns(problem, candidates))
        return pool

    def _key(self, columns: PatternColumns) -> npt.NDArray[np.uint64]:
        """Return a hash of each column, which does not depend on the order of its candidates."""
        own = np.where(columns.candidate >= 0, self._marks[columns.candidate], 0).astype(np.uint64)
        key = (own * columns.count.astype(np.uint64)).sum(axis=1, dtype=np.uint64)
        return np.where(columns.served, key, self._marks[len(self.candidates.row) + columns.server])

    def add(self, pattern_columns: PatternColumns) -> None:
        """Add columns that are not yet in the pool."""
        key, first = np.unique(self._key(pattern_columns), return_index=True)
        place = np.searchsorted(self._keys, key)
        new = np.append(self._keys, 0)[place] != key
        if new.any():
            rows = np.argsort(first[new])
            self.columns = self.columns.joined(pattern_columns.take(first[new][rows]))
            self.excluded = np.concatenate([self.excluded, np.zeros(len(rows), np.bool_)])
            self._rows = np.insert(self._rows, place[new], len(self._keys) + np.argsort(rows))
            self._keys = np.insert(self._keys, place[new], key[new])

    def rows_of(self, replicas: IntArray) -> IntArray:
        """Return the column of each server in a solution; missing patterns are added to the pool.

        A server without an allocation has its empty column. The solution is given as replicas of each
        candidate, shape (C,).
        """
        candidates, servers = self.candidates, self.candidates.servers
        rows = np.flatnonzero(~self.columns.served[: len(servers)])
        used = np.flatnonzero(replicas[candidates.row])
        taking, place, size = np.unique(candidates.server[used], return_inverse=True, return_counts=True)
        if not len(taking):
            return rows
        candidate = np.full((len(taking), int(size.max())), -1)
        count = np.zeros_like(candidate)
        spot = np.arange(len(used)) - (np.cumsum(size) - size)[place]
        candidate[place, spot], count[place, spot] = used, replicas[candidates.row[used]]
        result = patterns(self.problem, candidates, candidate, count)
        self.add(result)
        at = np.searchsorted(self._keys, self._key(result))
        rows[np.searchsorted(servers, result.server)] = self._rows[at]
        return rows

    @contextmanager
    def restricted_to(self, rows: IntArray) -> Iterator[None]:
        """Context in which servers are restricted to the given columns, and are not priced."""
        excluded, subproblems = self.excluded.copy(), self.subproblems
        barred = self.columns.server == self.columns.server[rows[0]]
        barred[rows] = False
        self.excluded |= barred
        others = subproblems.server != self.columns.server[rows[0]]
        self.subproblems = subproblems.take(np.flatnonzero(others))
        yield
        self.excluded[: len(excluded)] = excluded
        self.subproblems = subproblems

    def price_columns(
        self,
        master: MasterProblem,
        duals: FloatArray,
        limit: FloatArray,
        most: int = MAX_FOUND,
        *,
        only_best: bool = False,
    ) -> PricingResult:
        """Return the columns whose reduced cost is at most the limit of their server.

        At most `most` columns are returned. With `only_best`, columns that do not have the least reduced cost
        of their server can be omitted. `duals` are those of the shared rows; `limit` has shape (S,).
        """
        # The reduced cost of a pattern is a sum over its replicas (`weight`) plus a constant (`own`). It
        # includes the prices of the limits, the objective of this level, and earlier levels at their dual
        # values.
        limit = np.where(master.active & ~master.forced_unserved, limit, -np.inf)
        candidates, subproblems = self.candidates, self.subproblems
        prices = np.append(duals[: len(candidates.amount)], 0.0)  # an unused entry costs nothing
        weight = (prices[candidates.row_used] * candidates.use).sum(axis=1)
        own = np.zeros(len(subproblems.server))
        held = zip(master.held, duals[len(candidates.amount) :].tolist(), strict=False)
        for objective, dual in [(master.objective, 1.0), *((each.objective, dual) for each, dual in held)]:
            on_value, on_load = dual * objective.on_value, dual * objective.on_off_preferred
            weight += on_value * candidates.cost + on_load * candidates.off_preferred
            own += on_value * subproblems.value + dual * objective.on_changes
            if objective.on_unreserved is not None:
                own += dual * np.where(
                    subproblems.unreserved, objective.on_unreserved[subproblems.server], 0.0
                )
        limits = limit[subproblems.server] - own
        columns = enumerate_patterns(
            candidates, subproblems, weight, limits, most=most, due=self.due, only_best=only_best
        )
        # Subproblems that are cut short still give a bound. If all columns are requested, an incomplete set
        # is useless.
        floor = np.full(len(self.problem.priority), np.inf)
        np.minimum.at(floor, subproblems.server, np.where(columns.cut, columns.least, np.inf) + own)
        none = columns.cut.any() and not only_best
        candidate, count = (each[: 0 if none else None] for each in (columns.candidate, columns.count))
        return PricingResult(patterns(self.problem, candidates, candidate, count), floor)


def reduced_costs(master: MasterProblem, columns: PatternColumns, duals: FloatArray) -> FloatArray:
    """Return the reduced costs of columns, without the dual value of their server's row, shape (P,)."""
    return priced(columns.weights(master.objective), master.shared(columns), duals)


def priced(weight: FloatArray, shared: FloatArray, duals: FloatArray) -> FloatArray:
    """Return weights plus the use of shared rows at their dual values, shape (P,).

    Args:
        weight: weight of each column, shape (P,).
        shared: coefficient of each column in every shared row, shape (P, rows).
        duals: dual value of each row.
    """
    # With many rows and few columns, a product with `@` takes several times as long.
    cost: FloatArray = weight + np.einsum("pr,r->p", shared, duals)
    return cost


def least_of_servers(master: MasterProblem, pool: ColumnPool, duals: FloatArray) -> FloatArray:
    """Return the least reduced cost of each server over all its columns; inf for inactive servers."""
    columns = pool.columns
    allowed = master.allowed(columns)
    least = np.full(len(pool.problem.priority), np.inf)
    np.minimum.at(least, columns.server[allowed], reduced_costs(master, columns, duals)[allowed])
    if not len(pool.subproblems.server):
        return least
    while True:
        # Columns that are cheaper only by rounding are not searched for; the margin is subtracted instead.
        margin = np.where(np.isfinite(least), MARGIN * np.maximum(1.0, np.abs(least)), 0.0)
        result = pool.price_columns(master, duals, least - margin, only_best=True)
        least_cost, cost = least - margin, reduced_costs(master, result.columns, duals)
        np.minimum.at(least_cost, result.columns.server, cost - MARGIN * np.maximum(1.0, np.abs(cost)))
        floored: FloatArray = np.minimum(least_cost, result.floor)
        cut = floored < least_cost
        if not (cut & (least_cost < least - margin)).any():
            return floored
        least = np.where(cut, least_cost, least)  # repeat with a lower limit for servers that were cut short
