"""The compact model: replicas per candidate as variables, minimised level by level by any MILP solver.

A `Problem` is written as a model (`formulation.py`) and solved lexicographically. The values of the solver's
solution are recomputed in integers.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from optimizer.milp.model import MilpModel, RunStatus, Session
from optimizer.solvers.compact_model import formulate
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.level_solver import KnownBounds, LevelResult, LevelSolver
from optimizer.solvers.lexicographic import LexicographicSolve
from optimizer.solvers.objectives import LevelObjective
from optimizer.solvers.problem import Problem, gap_target
from optimizer.solvers.related import RelatedSolution
from optimizer.solvers.solution import Solution
from optimizer.solvers.warm_starts import initial_incumbent

if TYPE_CHECKING:
    from optimizer.milp.highs import HighsSession

SessionFactory = Callable[[MilpModel], Session]


def highs_session(model: MilpModel, *, lean: bool = False) -> "HighsSession":
    """Load a model into HiGHS, which is imported here because that is slow.

    `lean` makes HiGHS focus on the bound.
    """
    from optimizer.milp.highs import HighsSession

    return HighsSession(model, lean=lean)


def solve_milp(
    problem: Problem,
    session: SessionFactory,
    deadline: Deadline | None = None,
    *,
    related: RelatedSolution | None = None,
) -> Solution:
    """Solve a problem level by level; the result is no worse than the current and the greedy allocation.

    Args:
        problem: the planning problem.
        session: factory that loads a model into a solver.
        deadline: deadline for all levels; None: now plus the time limit of the options.
        related: solution of a problem that differs in one change, used as a start if it is better. Only
            proved solutions are then useful, so a level can use all of the time.

    Raises:
        SolverError: the solver failed, or its solution exceeds a limit.
    """
    deadline = deadline or Deadline.after(problem.options.time_limit_s)
    solver = CompactModel(problem, session, related)
    return LexicographicSolve(solver, deadline, related, None if related is None else deadline).solve()


class CompactModel(LevelSolver):
    """The compact model of a problem, loaded into a solver."""

    def __init__(self, problem: Problem, session: SessionFactory, related: RelatedSolution | None) -> None:
        self.formulation = formulate(problem)
        self._session = session
        incumbent = initial_incumbent(problem, self.formulation.columns, related)
        idle = np.logical_or.reduce([problem.priority < 0, *(each.optional for each in problem.topologies)])
        counted = int(np.count_nonzero(~idle[self.formulation.column_servers]))  # as in verification
        gap = gap_target(problem.options, counted)
        super().__init__(problem, self.formulation.servers, incumbent, gap)

    def restart(self) -> None:
        """Restart with the first level, in a model without constraints on earlier levels."""
        super().restart()
        self.loaded = self._session(self.formulation.model)

    def fix(self, served: np.ndarray, unserved: np.ndarray) -> None:
        """Require some servers to be served and others to be unserved from now on; masks of shape (S,)."""
        super().fix(served, unserved)
        formulation = self.formulation
        self.loaded.set_upper(formulation.unserved[served[formulation.servers]], 0.0)
        self.loaded.set_upper(np.flatnonzero(unserved[formulation.column_servers]), 0.0)

    def hold(self, objective: LevelObjective, most: float) -> None:
        """Add a row that limits an objective to at most a value."""
        super().hold(objective, most)
        most -= self.formulation.constant(objective)
        self.loaded.add_limit(self.formulation.coefficients(objective), most)

    def can_serve_all(self, objective: LevelObjective, deadline: Deadline) -> bool:  # noqa: ARG002
        """Return True: one run of the value level with all servers served settles all service levels."""
        return True

    def minimise(self, objective: LevelObjective, known: KnownBounds, deadline: Deadline) -> LevelResult:
        """Minimise one level; without an initial solution, use at most half of the remaining time."""
        formulation, floor = self.formulation, known.all_answers
        start = formulation.point(self.incumbent.replicas) if self.is_feasible else None
        if start is not None and not formulation.model.holds(start):
            start = None
        time_s = deadline.left_s * (0.5 if start is None else 1.0)
        if time_s <= 0 or not len(formulation.columns):
            return LevelResult(floor, proved=not len(formulation.columns), feasible=start is not None)
        result = self.loaded.minimise(formulation.coefficients(objective), start, self.gap, time_s)
        if result.x is not None:
            self.incumbent.offer(formulation.replicas(result.x, len(self.problem.table)))
        # The incumbent is feasible, so an infeasible status of the solver proves nothing.
        proved = -np.inf if result.outcome is RunStatus.infeasible else result.bound
        bound = max(proved + formulation.constant(objective), floor)
        return LevelResult(bound, result.outcome is RunStatus.optimal, self.is_feasible)
