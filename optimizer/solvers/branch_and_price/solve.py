"""Branch and price: one pattern per server, found by column generation level by level (math.md section 18).

It solves a `Problem` with limits and returns a `Solution`.
"""

from optimizer.solvers.branch_and_price.generation import MasterSolution, generate_columns
from optimizer.solvers.branch_and_price.master import MasterProblem
from optimizer.solvers.branch_and_price.new_columns import search_new_columns
from optimizer.solvers.branch_and_price.nodes import Node
from optimizer.solvers.branch_and_price.pool import ColumnPool
from optimizer.solvers.branch_and_price.search import LevelSearch
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.level_solver import KnownBounds, LevelResult, LevelSolver
from optimizer.solvers.lexicographic import LexicographicSolve
from optimizer.solvers.objectives import LevelObjective
from optimizer.solvers.problem import Problem, gap_target
from optimizer.solvers.related import RelatedSolution
from optimizer.solvers.solution import Solution
from optimizer.solvers.warm_starts import initial_incumbent
from optimizer.tolerances import ROUNDING


def solve_patterns(
    problem: Problem,
    deadline: Deadline | None = None,
    related: RelatedSolution | None = None,
    *,
    service_by: Deadline | None = None,
) -> Solution:
    """Choose one pattern per server within the limits, level by level.

    The initial solution is the best of the current allocation, the greedy plan, and that of `related`.

    Args:
        problem: the planning problem, with limits.
        deadline: deadline of all levels; None: after the time limit of the options.
        related: the solution of a problem with one difference.
        service_by: deadline for the proofs of all service levels. The solve ends at the first level that is
            unproved by then, or that has too many columns to enumerate. None: it continues without proofs.

    Raises:
        SolverError: the solver failed, or its solution exceeds a limit.
    """
    deadline = deadline or Deadline.after(problem.options.time_limit_s)
    solver = ColumnGeneration(problem, deadline, related, only_complete=service_by is not None)
    return LexicographicSolve(solver, deadline, related, service_by).solve()


class ColumnGeneration(LevelSolver):
    """Formulation with one column per server and pattern."""

    def __init__(
        self, problem: Problem, deadline: Deadline, related: RelatedSolution | None, *, only_complete: bool
    ) -> None:
        self.pool = ColumnPool.of(problem, deadline)
        self.only_complete, self.related = only_complete, related
        row = self.pool.candidates.row
        incumbent = initial_incumbent(problem, row, related)
        # Without limits the relaxation is integral.
        gap = gap_target(problem.options, len(row) if problem.is_limited else 0)
        super().__init__(problem, self.pool.candidates.servers, incumbent, gap)

    def restart(self) -> None:
        """Restart with the first level, keeping the known columns and the incumbent."""
        super().restart()
        self._root: Node | None = None

    def can_serve_all(self, objective: LevelObjective, deadline: Deadline) -> bool:
        """Return whether the relaxation of a service level has value 0."""
        relaxed = self._relaxed(objective, deadline)
        least = objective.outside + ROUNDING * float(objective.on_unserved.sum())
        return relaxed is not None and relaxed.finished and relaxed.bound <= least

    def minimise(self, objective: LevelObjective, known: KnownBounds, deadline: Deadline) -> LevelResult:
        """Minimise a level by column generation, branching and restricted master problems."""
        relaxed = self._relaxed(objective, deadline)
        if relaxed is None or self._root is None:
            return LevelResult(known.all_answers, proved=False)
        search = LevelSearch(self, self._root.master, self.pool, relaxed, known.all_answers)
        if self.related is not None and self.related.with_less is not None:
            search_new_columns(search, self.related, known.unchanged_answers, deadline)
        search.run(deadline, only_complete=self.only_complete)
        return LevelResult(search.bound, search.proved, search.feasible)

    def _relaxed(self, objective: LevelObjective, deadline: Deadline) -> MasterSolution | None:
        """Solve the relaxation of a level unless it is already solved; None if there was no time."""
        if self._root is not None and self._root.master.objective is objective:
            return self._root.relaxed
        master = MasterProblem(
            self.pool.candidates, objective, self.held, self.forced_served, self.forced_unserved
        )
        start = self.pool.rows_of(self.incumbent.replicas)
        relaxed = generate_columns(master, self.pool, start, deadline)
        self._root = None if relaxed is None else Node.root(master, relaxed)
        return relaxed
