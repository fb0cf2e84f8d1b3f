"""Columns of the master problem: one pattern of a server, or no allocation.

`PatternCandidates` become `PatternColumns`, which are arrays. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, RowArrays
from optimizer.solvers.branch_and_price.candidates import LOAD, PatternCandidates
from optimizer.solvers.model_columns import current_allocations
from optimizer.solvers.objectives import LevelObjective
from optimizer.solvers.problem import Problem
from optimizer.tolerances import COVER

COUNT_ROUNDING = 1e-12
"""Fraction of a replica that counts as rounding when a load is divided by the rate of a replica."""


@dataclass(frozen=True, slots=True)
class PatternColumns(RowArrays):
    """Columns of the master problem.

    Each is a pattern of one server, or its empty column without an allocation.
    """

    server: IntArray
    """Server of each column, shape (P,)."""
    candidate: IntArray
    """Candidates of each pattern, -1 for unused entries, shape (P, W)."""
    count: IntArray
    """Number of replicas of each of these candidates, shape (P, W)."""
    use: FloatArray
    """Amount of each limit row that the column uses, in multiples of the row's divisor, shape (P, K)."""
    value: FloatArray
    """Transition cost of the server with this column at first-step prices [cents/h], shape (P,) (eq. 31-33).
    """
    changed: FloatArray
    """1 if the column differs from the server's current allocation, else 0, shape (P,)."""
    served: BoolArray
    """Whether the column is a pattern and not empty, shape (P,)."""
    unreserved: BoolArray
    """Whether the column serves its server without the required reserve, shape (P,)."""
    off_preferred: FloatArray
    """Load that the column carries off preferred accelerators [requests/min], shape (P,)."""

    def __len__(self) -> int:
        """Return the number of columns P."""
        return len(self.server)

    def joined(self, other: "PatternColumns") -> "PatternColumns":
        """Return these columns followed by other columns."""
        width = max(self.candidate.shape[1], other.candidate.shape[1])
        first, second = self.widened(width), other.widened(width)
        pairs = zip(first.columns(), second.columns(), strict=True)
        return PatternColumns(*(np.concatenate(pair) for pair in pairs))

    def widened(self, width: int) -> "PatternColumns":
        """Return the columns padded to `width` candidates per pattern."""
        if width == self.candidate.shape[1]:
            return self
        more = ((0, 0), (0, width - self.candidate.shape[1]))
        candidate = np.pad(self.candidate, more, constant_values=-1)
        return replace(self, candidate=candidate, count=np.pad(self.count, more))

    def weights(self, objective: LevelObjective) -> FloatArray:
        """Return the coefficient of each column in the objective of a level, shape (P,)."""
        weights: FloatArray = np.where(self.served, 0.0, objective.on_unserved[self.server])
        weights = weights + objective.on_value * self.value + objective.on_changes * self.changed
        weights = weights + objective.on_off_preferred * self.off_preferred
        if objective.on_unreserved is None:
            return weights
        return weights + np.where(self.unreserved, objective.on_unreserved[self.server], 0.0)

    def replicas(self, chosen: IntArray, candidates: PatternCandidates, rows: int) -> IntArray:
        """Return the number of replicas of each row of the candidate table for the chosen columns."""
        replicas = np.zeros(rows, np.int64)
        candidate, count = self.candidate[chosen], self.count[chosen]
        used = candidate >= 0
        np.add.at(replicas, candidates.row[candidate[used]], count[used])
        return replicas


def patterns(
    problem: Problem, candidates: PatternCandidates, candidate: IntArray, count: IntArray
) -> PatternColumns:
    """Return patterns as columns, without patterns that exceed a limit on their own.

    Args:
        problem: the planning problem.
        candidates: the candidates of which patterns consist.
        candidate: candidates of each pattern, -1 for unused entries except the first, shape (P, W).
        count: number of replicas of each of these candidates, shape (P, W).
    """
    used, at = candidate >= 0, np.maximum(candidate, 0)
    server = candidates.server[candidate[:, 0]] if len(candidate) else np.zeros(0, np.int64)
    replicas = np.where(used, count, 0)
    use = candidates.used_by(candidate, replicas)
    # Replicas on other accelerators than now cost the transition penalty. A server is unchanged if it has
    # exactly its current pools, with their replicas.
    pools = replicas * problem.table.cost_per_replica[candidates.row[at]]
    elsewhere = np.where(candidates.here[at], 0.0, pools).sum(axis=1)
    stays = np.asarray((used & candidates.here[at]).any(axis=1), np.bool_)
    same = (used & candidates.here[at] & (count == problem.current_count[candidates.row[at]])).sum(axis=1)
    kept = np.asarray((same == used.sum(axis=1)) & (same == problem.current_pools[server]), np.bool_)
    value = problem.transition_value(server, pools.sum(axis=1), elsewhere, stays, kept)
    if problem.prices:
        value = value - (replicas * problem.discount[candidates.row[at]]).sum(axis=1)
    columns = PatternColumns(
        server=server,
        candidate=candidate,
        count=count,
        use=use,
        value=value,
        changed=(~kept).astype(np.float64),
        served=np.ones(len(candidate), np.bool_),
        unreserved=_without_reserve(problem, candidates, server, at, replicas),
        off_preferred=(replicas * candidates.off_preferred[at]).sum(axis=1),
    )
    # A pattern that exceeds a limit alone is in no solution, but could be used by a relaxation.
    there = np.asarray((use <= candidates.amount).all(axis=1), np.bool_)
    return columns if there.all() else columns.take(there)


def nothing(problem: Problem, candidates: PatternCandidates, servers: IntArray) -> PatternColumns:
    """Return the empty column, without an allocation, of each of some servers (eq. 32)."""
    none = np.full((len(servers), 1), -1, np.int64)
    return PatternColumns(
        server=servers,
        candidate=none,
        count=np.zeros_like(none),
        use=np.zeros((len(servers), len(candidates.amount))),
        value=problem.none_value[servers],
        changed=problem.is_running[servers].astype(np.float64),
        served=np.zeros(len(servers), np.bool_),
        unreserved=np.zeros(len(servers), np.bool_),
        off_preferred=np.zeros(len(servers)),
    )


def _without_reserve(
    problem: Problem, candidates: PatternCandidates, server: IntArray, at: IntArray, replicas: IntArray
) -> BoolArray:
    """Return a mask of the patterns that lack the reserve of their server, shape (P,) (eq. 143).

    Args:
        problem: the planning problem.
        candidates: the candidates of which patterns consist.
        server: server of each pattern, shape (P,).
        at: candidates of each pattern, any index for unused entries, shape (P, W).
        replicas: number of replicas of each of these candidates, 0 for unused entries, shape (P, W).
    """
    if not problem.reserve.wanted.any():
        return np.zeros(len(server), np.bool_)
    row, table = candidates.row[at], problem.table
    divisible = problem.divisible[row]
    carried = np.where(divisible, replicas * table.max_rate_rps[row], 0.0).sum(axis=1)
    has = carried >= problem.grown_load_rps[server] * (1 - 2 * COVER)
    has &= ~problem.reserve.one_pool[server]
    has |= ((replicas > 0) & ~divisible & table.reserved[row]).any(axis=1)
    return np.asarray(problem.reserve.wanted[server] & ~has, np.bool_)


def first_columns(problem: Problem, candidates: PatternCandidates) -> PatternColumns:
    """Return the initial columns: patterns of one candidate, and for mixed plans the current allocations."""
    joined = _of_one(problem, candidates, np.ones(len(problem.priority)))
    if not problem.options.heterogeneous:
        return joined
    if (problem.reserve.growth > 1).any():
        joined = joined.joined(_of_one(problem, candidates, problem.reserve.growth))
    return joined.joined(_as_it_runs(problem, candidates))


def needed(missing: FloatArray, share: FloatArray, least: FloatArray) -> FloatArray:
    """Return the number of replicas that carry the missing share of a load, but at least a minimum.

    Args:
        missing: missing share of the load.
        share: share of the load that one replica carries.
        least: minimum number of replicas.
    """
    return np.maximum(np.ceil(np.maximum(missing, 0) / share - COUNT_ROUNDING), np.maximum(least, 0.0))


def _of_one(problem: Problem, candidates: PatternCandidates, carried: FloatArray) -> PatternColumns:
    """Return the patterns with one candidate that carry a given share of their server's load.

    `carried` is that share for each server, shape (S,).
    """
    least = problem.min_replicas[candidates.server].astype(np.float64)
    load = np.where(problem.load_rps[candidates.server] > 0, LOAD * carried[candidates.server], 0.0)
    count = np.maximum(needed(load, candidates.share, least), 1.0)
    count = np.where(candidates.divisible, count, problem.table.num_replicas[candidates.row])
    allowed = count <= problem.max_replicas[candidates.server]
    candidate = np.flatnonzero(allowed)
    return patterns(problem, candidates, candidate[:, None], count[candidate].astype(np.int64)[:, None])


def _as_it_runs(problem: Problem, candidates: PatternCandidates) -> PatternColumns:
    """Return the current allocations that serve in full as patterns, even if fewer replicas would suffice."""
    row, of = current_allocations(problem, candidates.row[candidates.divisible])
    order = np.argsort(of, kind="stable")
    row, of = row[order], of[order]
    place = np.arange(len(of)) - np.searchsorted(of, of)
    candidate = np.full((int(of.max(initial=-1)) + 1, int(place.max(initial=0)) + 1), -1)
    candidate[of, place] = np.searchsorted(candidates.row, row)
    count = np.where(candidate >= 0, problem.current_count[candidates.row[candidate]], 0)
    return patterns(problem, candidates, candidate, count)
