"""Search of one level: restricted master heuristic, branching, and a reduced-cost window.

A solution that uses a column of reduced cost r exceeds the bound of the relaxation by at least r. So a model
without the columns above some reduced cost contains every solution below the bound plus that cost. Equation
numbers refer to ``docs/math.md``.
"""

from dataclasses import replace

import numpy as np

from optimizer.arrays import BoolArray, IntArray
from optimizer.milp.highs import HighsSession
from optimizer.milp.model import RunStatus
from optimizer.solvers.branch_and_price.cuts import with_cuts
from optimizer.solvers.branch_and_price.generation import MasterSolution
from optimizer.solvers.branch_and_price.master import MasterProblem
from optimizer.solvers.branch_and_price.nodes import BranchTree, Node, reduced_cost_slack
from optimizer.solvers.branch_and_price.pool import ColumnPool
from optimizer.solvers.branch_and_price.pricing import MAX_FOUND
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.dominance import nondominated
from optimizer.solvers.level_solver import LevelSolver
from optimizer.solvers.related import completed

FIRST_CORE, SECOND_CORE = (2_000, 10), (8_000, 40)
"""Maximum number of columns that the restricted master heuristic adds to those of the relaxation, in total
and per server: first before branching, then after it.
"""
CORE_S, SECOND_CORE_SHARE = 4.0, 0.6
"""Time limit of the first heuristic [s], and fraction of the remaining time for the second one."""
MAX_COLUMNS = 30_000
"""Maximum number of columns of a model."""
COLUMNS_PER_S = 25_000
"""Maximum number of columns per second of remaining time, because loading a model cannot be interrupted."""
PRESOLVED_EACH = 10
"""Maximum number of columns per server for which presolve is on, because it cannot be interrupted either."""
FEW_SERVERS = 200
"""Maximum number of servers for which models are solved for the proof, and more columns are enumerated."""
MAX_KNOWN = 8_000
"""Number of columns below the cutoff that are enumerated before branching, whatever the remaining time."""
SHRINKS = 4
"""Number of windows tried for the restricted master heuristic, each a sixteenth of the previous one."""
TREE_SHARE = 0.7
"""Fraction of a level's time for branching."""
MAX_NODES = 8
"""Maximum number of open nodes whose reduced costs select columns; with more nodes, the root's are used."""


class LevelSearch:
    """The search of one level: the incumbent, a bound, and the nodes that contain all better solutions."""

    def __init__(
        self,
        solver: LevelSolver,
        master: MasterProblem,
        pool: ColumnPool,
        relaxed: MasterSolution,
        bound: float = -np.inf,
    ) -> None:
        """Start from the relaxation of the level.

        Args:
            solver: the formulation, with the incumbent and the constraints on earlier levels.
            master: the level.
            relaxed: solution of the relaxation of the level.
            bound: a known lower bound of the level.
        """
        self.solver, self.master, self.pool = solver, master, pool
        self.small = len(master.servers) <= FEW_SERVERS
        self.bound = max(relaxed.bound, bound)
        self.root = Node.root(master, relaxed)
        self.nodes = [self.root]
        self.solved, self.solved_bound = np.zeros(0, np.int64), np.inf
        """Columns of the last model, and a lower bound of the solutions that use only these columns."""
        self.enumerated = -np.inf
        """Value below which all solutions use only columns of the pool."""
        self.own = pool.rows_of(solver.incumbent.replicas)
        """Columns of the incumbent."""
        self._update()

    def _update(self) -> None:
        """Recompute reduced costs, feasibility and value after the pool or the incumbent has changed."""
        least = np.full(len(self.pool.columns), np.inf)
        for node in self.nodes:
            slack, _ = reduced_cost_slack(node, self.pool)
            least = np.minimum(least, np.maximum(node.relaxed.bound + slack, node.bound))
        # If no solution exists, no column has a finite reduced cost.
        floor = self.floor if np.isfinite(self.floor) else -np.inf
        self.reduced = np.maximum(least - floor, 0.0)
        self.feasible = self.solver.is_feasible
        self.value = self.solver.value_of(self.master.objective) if self.feasible else np.inf

    @property
    def floor(self) -> float:
        """Least bound of the open nodes, to which reduced costs are added."""
        return self.nodes[0].bound

    @property
    def tolerance(self) -> float:
        """Difference of value and bound at which the level counts as proved."""
        return self.master.objective.tolerance(self.value, self.solver.gap)

    @property
    def cutoff(self) -> float:
        """Value below which a solution improves on the incumbent by more than the tolerance."""
        return self.value - self.tolerance * (1 - 1e-6) if self.feasible else np.inf

    @property
    def proved(self) -> bool:
        """Whether the difference of value and bound is within the tolerance."""
        return self.feasible and self.value - self.bound <= self.tolerance

    @property
    def window(self) -> float:
        """Largest reduced cost that a column in a solution below the cutoff can have."""
        return max(self.cutoff - self.floor, 0.0) * (1 + 1e-9) + 1e-12

    def run(self, deadline: Deadline, *, only_complete: bool = False) -> None:
        """Search until the level is proved or the deadline passes.

        Args:
            deadline: time to stop.
            only_complete: whether to stop if there are too many columns to enumerate.
        """
        self.solve_core(deadline, *FIRST_CORE)
        self.branch(deadline)
        self.solve_core(deadline.share(SECOND_CORE_SHARE), *SECOND_CORE)
        self.solve_window(deadline, only_complete=only_complete)

    def solve_core(self, deadline: Deadline, total: int, each: int) -> None:
        """Solve a model of the columns that the relaxation uses and those of least reduced cost.

        Args:
            deadline: time to stop.
            total: maximum number of columns of least reduced cost.
            each: maximum number of these columns per server.
        """
        if self.proved or deadline.passed or self._window_is_small(total):
            return
        self._enumerate_nearest()
        core = np.zeros(len(self.reduced), np.bool_)
        core[self.root.relaxed.used] = True
        others = np.where(core, np.inf, self.reduced)
        if self.feasible and self.small:
            others[self.reduced > self.window] = np.inf
        nearest = np.lexsort((self._thrift_ranks(), others))
        near = nearest[: min(total, each * len(self.master.servers))]
        core[near[np.isfinite(others[near])]] = True
        columns = np.flatnonzero(core)
        if not np.isin(columns, self.solved).all():
            self._solve(columns, min(deadline.left_s, CORE_S))

    def _enumerate_nearest(self) -> None:
        """Add all columns of the largest window that is small enough to enumerate."""
        window = self.window
        for _ in range(SHRINKS if self.feasible else 0):
            if self._enumerate(window, MAX_KNOWN):
                return
            window /= 16.0

    def _window_is_small(self, total: int) -> bool:
        """Return whether all columns below the cutoff are known, and are at most `total`."""
        known = self.feasible and self.enumerated >= self.floor + self.window
        return known and int((self.reduced <= self.window).sum()) <= total

    def _thrift_ranks(self) -> IntArray:
        """Rank the columns of each server by their total use relative to the limits.

        The ranks distinguish columns if no limit is scarce in the relaxation.
        """
        columns, amount = self.pool.columns, np.maximum(self.master.candidates.amount, 1.0)
        order = np.lexsort(((columns.use / amount).sum(axis=1), columns.server))
        server = columns.server[order]
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order)) - np.searchsorted(server, server)
        return ranks

    def branch(self, deadline: Deadline) -> None:
        """Branch on fractionally unserved servers, and update the bound and the open nodes."""
        if self.proved or deadline.passed or not self.feasible:
            return
        tree = self._tree(deadline.share(TREE_SHARE))
        if tree is None:
            return
        self.bound = max(self.bound, tree.bound)
        if 0 < len(tree.nodes) <= MAX_NODES and tree.nodes != self.nodes:
            self.nodes = tree.nodes
        self._update()

    def _tree(self, deadline: Deadline) -> BranchTree | None:
        """Return the branching tree, restricted to the relevant columns if they are known.

        None if out of time.
        """
        cutoff = self.cutoff
        columns = self.columns_below_cutoff(_in_time(deadline) if self.small else MAX_KNOWN)
        if columns is None:
            tree = BranchTree(self.root, self.pool, cutoff)
            tree.grow(deadline)
            return tree
        root = with_cuts(self.master, self.pool, columns, cutoff, deadline)
        if root is None:
            return None
        tree = BranchTree(root, self.pool, cutoff)
        tree.grow(deadline)
        return tree

    def columns_below_cutoff(self, most: int, of: BoolArray | None = None) -> IntArray | None:
        """Return all columns that solutions below the cutoff can use.

        None if there are too many to enumerate.

        Args:
            most: maximum number of columns.
            of: servers whose columns are returned, shape (S,); None: all.
        """
        if not self._enumerate(self.window, most, of):
            return None
        return np.flatnonzero(self.reduced <= self.window)

    def solve_window(self, deadline: Deadline, *, only_complete: bool) -> None:
        """Solve a model of the columns below the cutoff, or of those for which there is time (eq. 93).

        Args:
            deadline: time to stop.
            only_complete: whether to solve only if all columns fit in the model.
        """
        if self.proved or deadline.passed or not self.feasible:
            return
        window, most = self.window, int(min(MAX_COLUMNS, COLUMNS_PER_S * deadline.left_s))
        possible = self.reduced[np.isfinite(self.reduced)]
        if most < len(possible):
            window = min(window, float(np.partition(possible, most)[most]))
        # A model with all columns below the cutoff proves the level; one with fewer can still improve the
        # incumbent.
        complete = self._enumerate(window, _in_time(deadline))
        every = self.nondominated_columns(np.flatnonzero(self.reduced <= window))
        columns = every[np.argsort(self.reduced[every], kind="stable")[:most]]
        complete &= len(columns) == len(every)
        if only_complete and not complete:
            return
        if not (complete and np.isin(columns, self.solved).all()):
            self._solve(columns, deadline.left_s)
        if complete:
            self.bound = max(self.bound, min(self.solved_bound, self.floor + window, self.value))

    def take_over(self) -> None:
        """Update the search after another search has improved the incumbent."""
        self.own = self.pool.rows_of(self.solver.incumbent.replicas)
        self._update()

    def _enumerate(self, window: float, most: int = MAX_FOUND, of: BoolArray | None = None) -> bool:
        """Add all columns with reduced cost up to a window to the pool; return whether all were found.

        Args:
            window: maximum reduced cost.
            most: maximum number of columns.
            of: servers whose columns are enumerated, shape (S,); None: all.
        """
        value = self.floor + window
        if not len(self.pool.subproblems.server) or value <= self.enumerated:
            return True
        for node in self.nodes:
            if node.columns is not None:
                continue
            # A column can be in a solution below `value` only if its reduced cost is at most `value` minus
            # the bound.
            _, least = reduced_cost_slack(node, self.pool)
            limit = np.where(np.isfinite(least), least + value - node.relaxed.bound, -np.inf)
            limit = limit if of is None else np.where(of, limit, -np.inf)
            columns = self.pool.price_columns(node.master, node.relaxed.duals, limit, most)
            if not columns.complete:
                self._update()  # earlier nodes can have added columns
                return False
            self.pool.add(columns.columns)
        self.enumerated = self.enumerated if of is not None else value
        self._update()
        return True

    def nondominated_columns(self, columns: IntArray) -> IntArray:
        """Return the given columns that no other one of their server dominates at this level.

        At a service level, only the use of limits and the earlier levels count, so many patterns are equal.
        """
        taken = self.pool.columns.take(columns)
        objectives = [self.master.objective, *(each.objective for each in self.master.held)]
        keys = [taken.use, ~taken.served[:, None], *(taken.weights(each)[:, None] for each in objectives)]
        return columns[nondominated(taken.server, np.hstack(keys))]

    def _solve(self, columns: IntArray, time_s: float) -> None:
        """Solve a model of the given columns and the incumbent's; a better solution becomes the incumbent."""
        start = None
        if self.feasible:
            own = self.own[self.master.active[self.pool.columns.server[self.own]]]
            columns = np.union1d(columns, own)
            steps = self.master.step_amounts(self.pool.columns.take(own))
            start = np.concatenate([np.isin(columns, own).astype(np.float64), steps])
        taken = self.pool.columns.take(columns)
        model = replace(self.master, cuts=self.nodes[0].master.cuts).model(taken)
        outside = self.master.objective.outside
        value = self.value - outside if self.feasible else 0.0
        tolerance = self.tolerance / abs(value) if value else self.solver.gap
        result = HighsSession(model, lean=self.small).minimise(
            np.concatenate([taken.weights(self.master.objective), self.master.step_weights]),
            start,
            tolerance / 2,
            time_s,
            presolve=len(columns) <= PRESOLVED_EACH * len(self.master.servers),
        )
        self.solved = columns
        self.solved_bound = np.inf if result.outcome is RunStatus.infeasible else result.bound + outside
        if result.x is not None:
            self._offer(columns[result.x[: len(columns)] > 0.5])

    def _offer(self, chosen: IntArray) -> None:
        """Offer a solution, given as one column per active server, to the incumbent."""
        problem, pool = self.solver.problem, self.pool
        replicas = pool.columns.replicas(chosen, pool.candidates, len(problem.table))
        settled = self.solver.without_candidates.copy()
        settled[pool.columns.server[chosen]] = True
        if self.solver.incumbent.offer(completed(problem, replicas, settled)):
            self.own = pool.rows_of(self.solver.incumbent.replicas)
            self._update()


def _in_time(deadline: Deadline) -> int:
    """Return the number of columns that can be enumerated in the remaining time."""
    return int(np.clip(4 * COLUMNS_PER_S * deadline.left_s, MAX_KNOWN, MAX_FOUND))
