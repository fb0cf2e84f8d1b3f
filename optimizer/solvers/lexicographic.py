"""The lexicographic solve: one level after the other, each under the values reached before it.

Takes a `LevelSolver`, gives a `Solution`. It is the same for every formulation. Equation numbers refer to
``docs/math.md``.
"""

import numpy as np

from optimizer.errors import SolverError
from optimizer.solvers.bounds import least_value, trivial_bounds
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.level_solver import KnownBounds, LevelSolver
from optimizer.solvers.levels import bounded_levels, served, served_in_full, value_slack
from optimizer.solvers.model_columns import keepable
from optimizer.solvers.objectives import (
    INTEGER_SLACK,
    ROUNDING,
    LevelObjective,
    changes_objective,
    goal_objectives,
    service_objectives,
    value_objective,
)
from optimizer.solvers.related import RelatedSolution
from optimizer.solvers.service_levels import ServiceLevel
from optimizer.solvers.solution import Solution, SolverName, Status
from optimizer.solvers.spare_capacity import with_more_spare_capacity
from optimizer.solvers.subset_sums import fixed_by_subset_sum

RATE_SHARE, COUNT_SHARE, VALUE_SHARE = 0.4, 0.2, 0.9
"""Part of the time left for an unserved rate, a number of unserved servers and the value."""


class LexicographicSolve:
    """One solve: what is proved of each level, and what is assumed of it."""

    def __init__(
        self,
        solver: LevelSolver,
        deadline: Deadline,
        related: RelatedSolution | None = None,
        service_by: Deadline | None = None,
    ) -> None:
        """Begin with the solver's incumbent.

        Args:
            solver: the formulation.
            deadline: when all levels are due.
            related: the solution of a problem that differs in one thing.
            service_by: when the levels of service have to be proved: the solve ends at the first that is not,
                so that each may take all of that time; None if it does what it can.
        """
        self.solver, self.problem, self.incumbent = solver, solver.problem, solver.incumbent
        self.deadline, self.service_by = deadline, service_by
        self.related = related
        self.without = solver.without_candidates
        self._restart()

    def solve(self) -> Solution:
        """Minimise all levels in their order."""
        for optimistic in (True, False):
            self._restart()
            if self._minimise_all(optimistic=optimistic):
                break
        else:
            self.proved = False
        return self._solution()

    def _restart(self) -> None:
        self.solver.restart()
        self.bounds = trivial_bounds(self.problem)
        """By the name of the level, those of service in steps."""
        self.proved = True
        self.matches_related = self.related is not None
        """Whether the levels so far are as in the related solution, so that its bounds hold."""
        self.assumed: list[tuple[LevelObjective, float]] = []

    def _minimise_all(self, *, optimistic: bool) -> bool:
        """Minimise all levels; return whether an answer confirms what was assumed of them."""
        for objective in service_objectives(self.problem, self.without):
            if not self._minimise_service(objective, optimistic=optimistic):
                return False
            if self.service_by is not None and not self.proved:
                return True
        goals = all(self._minimise_goal(objective) for objective in goal_objectives(self.problem))
        confirmed = goals and self._minimise_value() and self._confirmed()
        if confirmed:
            self._minimise_changes()
        return confirmed

    def _confirmed(self) -> bool:
        """Return whether the incumbent is as good as what was assumed of the levels of service."""
        return all(self.solver.value_of(objective) <= least for objective, least in self.assumed)

    def _minimise_service(self, objective: LevelObjective, *, optimistic: bool) -> bool:
        """Minimise one level of service; return False if an earlier assumption turns out wrong."""
        known = self._known_bounds(objective)
        floor = bound = known.all_answers
        value = max(self.solver.value_of(objective), floor)
        rate = objective.service is not None and objective.service.name.endswith("rate")
        due = self.service_by or self.deadline.share(RATE_SHARE if rate else COUNT_SHARE)
        if value > floor and optimistic and floor == 0 and self._may_be_zero(objective, due):
            value = 0.0
        elif value > floor:
            result = self.solver.minimise(objective, known, due)
            if not result.feasible and optimistic:
                return False
            value = self.solver.value_of(objective)
            bound = min(float(np.ceil(max(result.bound, floor) - 1e-6)), value)
            self.proved &= result.proved
        self.assumed.append((objective, value))
        self._record_service(objective, value, bound)
        self._hold_service(objective, value, due, optimal=bound >= value)
        return True

    def _known_bounds(self, objective: LevelObjective) -> KnownBounds:
        """Return the bounds of a level that need no solver (eq. 123, 133)."""
        least = float(objective.on_unserved[self.solver.forced_unserved].sum())
        if objective.on_value:
            least = self._least_value() - objective.constant(self.problem, self.without)
        related = self.related
        if related is None or not self.matches_related:
            return KnownBounds(least)
        if objective.service is None:
            bound = related.least_value - objective.constant(self.problem, self.without)
        else:
            proved = related.is_proved(objective.name)
            bound = self._related_unserved(objective.service) if proved else 0.0
        if related.restricts:
            return KnownBounds(max(least, bound))
        return KnownBounds(least, bound if related.with_less is not None else -np.inf)

    def _related_unserved(self, level: ServiceLevel | None) -> float:
        """Return the unserved weight of the related solution, apart from servers without a candidate."""
        assert self.related is not None
        assert level is not None
        return self.related.unserved(level.weight) - level.steps(self.without)

    def _may_be_zero(self, objective: LevelObjective, due: Deadline) -> bool:
        """Return whether all servers of a level are assumed to be served until an answer says otherwise."""
        counts = objective.on_unserved > 0
        if self.related is not None and (counts & self.related.left_out).any():
            return False
        return not (counts & ~self.solver.forced_served).any() or self.solver.can_serve_all(objective, due)

    def _record_service(self, objective: LevelObjective, value: float, bound: float) -> None:
        level = objective.service
        assert level is not None
        if self.related is not None:
            self.matches_related &= value == self._related_unserved(level)
        self.bounds[level.name] = bound + level.steps(self.without)

    def _hold_service(self, objective: LevelObjective, value: float, due: Deadline, *, optimal: bool) -> None:
        """Hold a level of service, and fix the servers that an optimum determines (eq. 134)."""
        weight = objective.on_unserved
        if value == 0:
            self.solver.fix(weight > 0, np.zeros(len(weight), np.bool_))
            if objective.on_columns is None:
                return
        elif optimal and objective.on_columns is None:
            self.solver.fix(*fixed_by_subset_sum(weight, value))
        self.solver.hold(objective, value + INTEGER_SLACK, due)

    def _minimise_goal(self, objective: LevelObjective) -> bool:
        """Minimise one goal; return False if no answer keeps what was assumed of service."""
        value, bound = self.solver.value_of(objective), 0.0
        if value > ROUNDING or not self._confirmed():
            result = self.solver.minimise(objective, KnownBounds(0.0), self.deadline.share(RATE_SHARE))
            if not result.feasible:
                return False
            value = self.solver.value_of(objective)
            bound = max(result.bound, 0.0)
            self.proved &= result.proved
        self.matches_related = False
        self.bounds[objective.name] = value if value - bound <= ROUNDING * max(1.0, value) else bound
        self.solver.hold(objective, value + value_slack(value), self.deadline)
        return True

    def _minimise_value(self) -> bool:
        """Minimise the value; return False if no answer keeps what was assumed."""
        objective = value_objective(self.problem)
        outside, known = objective.constant(self.problem, self.without), self._known_bounds(objective)
        value = objective.of(self.problem, self.incumbent.replicas)
        bound = known.all_answers + outside
        if value - bound > ROUNDING * max(1.0, abs(value)) or not self._confirmed():
            share = VALUE_SHARE if self.service_by is None else 1.0
            result = self.solver.minimise(objective, known, self.deadline.share(share))
            if not result.feasible:
                return False
            value = objective.of(self.problem, self.incumbent.replicas)
            bound = max(result.bound + outside, bound)
            self.proved &= result.proved
        self.bounds[objective.name] = value if value - bound <= ROUNDING * max(1.0, abs(value)) else bound
        self.solver.hold(objective, value - outside + value_slack(value), self.deadline)
        return True

    def _least_value(self) -> float:
        """Return a bound of the value that needs no solver."""
        rows = np.flatnonzero(~self.without[self.problem.table.server])
        all_served = bool((self.solver.forced_served | self.without).all())
        return least_value(self.problem, rows, all_served=all_served)

    def _minimise_changes(self) -> None:
        objective = changes_objective(self.problem)
        value, bound = objective.of(self.problem, self.incumbent.replicas), self._least_changes()
        outside = objective.constant(self.problem, self.without)
        if bound < value:
            result = self.solver.minimise(objective, KnownBounds(bound - outside), self.deadline)
            value = objective.of(self.problem, self.incumbent.replicas)
            bound = max(float(np.ceil(result.bound + outside - 1e-6)), bound)
            self.proved &= result.proved
        self.bounds[objective.name] = min(bound, value)

    def _least_changes(self) -> float:
        """Return the number of servers that must change because they cannot keep their current allocation."""
        problem, fixed = self.problem, self.solver
        unchanged = problem.full & ~problem.changed
        if problem.is_mixed:
            unchanged |= keepable(problem)
        stays = np.zeros(len(problem.priority), np.bool_)
        stays[problem.table.server[unchanged]] = True
        stays &= ~(fixed.forced_unserved | self.without)
        changes = problem.none_changed | (fixed.forced_served & ~problem.routed)
        return float((~stays & changes).sum())

    def _solution(self) -> Solution:
        """Return the incumbent with its levels, counted again in integers."""
        problem = self.problem
        replicas = with_more_spare_capacity(problem, self.incumbent.replicas)
        if problem.cards is not None:
            replicas = problem.cards.without_idle_units(problem.table, replicas)
        if problem.routing is not None:
            replicas = problem.routing.with_routers_off(problem.table, replicas)
        over = bool((problem.left_by(replicas) < 0).any())
        if over or (served(problem, replicas) & ~served_in_full(problem, replicas)).any():
            raise SolverError("the solver's answer breaks a limit; please report this with the input")
        levels = bounded_levels(problem, replicas, self.bounds)
        proved = self.proved or all(level.is_proved(self.solver.gap) for level in levels)
        solver: SolverName = "separable"
        if len(problem.limits) or problem.cards is not None:
            solver = "milp"
        return Solution(replicas, Status.optimal if proved else Status.feasible, solver, levels)
