"""Lexicographic solve: minimises the levels in order, each subject to the values reached at earlier levels.

It works with any `LevelSolver` and returns a `Solution`. Equation numbers refer to ``docs/math.md``.
"""

import numpy as np

from optimizer.arrays import IntArray
from optimizer.errors import SolverError
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.level_solver import KnownBounds, LevelSolver
from optimizer.solvers.levels import bounded_levels, least_value, served, served_in_full, trivial_bounds
from optimizer.solvers.model_columns import current_allocations
from optimizer.solvers.objectives import CHANGES, VALUE, LevelObjective, proved_within
from optimizer.solvers.related import RelatedSolution
from optimizer.solvers.solution import Solution, SolvedLevel, SolverName, Status
from optimizer.solvers.spare_capacity import with_more_spare_capacity, with_reserves_found
from optimizer.solvers.subset_sums import fixed_by_subset_sum
from optimizer.tolerances import ROUNDING

SHARES = (("rate", 0.4), ("servers", 0.2), (VALUE, 0.9), (CHANGES, 1.0), ("", 0.4))
"""Fraction of the remaining time for a level, by the suffix of the level's name; the last entry is for goals.
"""


class LexicographicSolve:
    """One lexicographic solve, with its proved bounds and its optimistic assumptions about service levels."""

    def __init__(
        self,
        solver: LevelSolver,
        deadline: Deadline,
        related: RelatedSolution | None = None,
        service_by: Deadline | None = None,
    ) -> None:
        """Start from the incumbent of the solver.

        Args:
            solver: the formulation.
            deadline: deadline for all levels.
            related: solution of a problem that differs in one change.
            service_by: time by which service levels must be proved. The solve ends at the first unproved one,
                so each can use all of that time. None: solve as far as possible.
        """
        self.solver, self.problem, self.incumbent = solver, solver.problem, solver.incumbent
        self.deadline, self.service_by = deadline, service_by
        self.related = related
        self.without = solver.without_candidates

    def solve(self) -> Solution:
        """Minimise all levels in their order, and return the solution."""
        # First, service levels that all servers may reach are assumed to be reached, to save their solves.
        # If no incumbent confirms that, all levels are minimised.
        for optimistic in (True, False):
            if self._minimise_all(optimistic=optimistic):
                break
        else:
            self.proved = False
        return self._solution()

    def _minimise_all(self, *, optimistic: bool) -> bool:
        """Minimise all levels; return whether the incumbent confirms the optimistic assumptions."""
        self.solver.restart()
        self.bounds = trivial_bounds(self.problem)
        """Bounds by level name, in steps for service levels."""
        self.proved = True
        self.matches_related = self.related is not None
        """Whether all levels so far equal those of the related solution, so that its bounds apply."""
        self.assumed: list[tuple[LevelObjective, float]] = []
        for objective in self.solver.objectives:
            if not self._minimise(objective, optimistic=optimistic):
                return False
            if objective.is_service and self.service_by is not None and not self.proved:
                break
        return True

    def _minimise(self, objective: LevelObjective, *, optimistic: bool) -> bool:
        """Minimise one level; return False if no solution satisfies the assumptions on earlier levels."""
        known, due = self._known_bounds(objective), self._due(objective)
        value, bound = self.solver.value_of(objective), known.all_answers
        if objective.is_service:
            value = max(value, bound)
        solves = not _is_reached(objective, value, bound) or not (objective.is_service or self._confirmed())
        if solves and optimistic and bound == objective.outside and self._may_be_zero(objective, due):
            value, solves = bound, False
        if solves:
            result = self.solver.minimise(objective, known, due)
            if not result.feasible and not objective.on_changes and (optimistic or not objective.is_service):
                return False
            value, bound = self.solver.value_of(objective), max(result.bound, bound)
            # Levels with steps have integer values, so their bounds round up.
            bound = float(np.ceil(bound - 1e-6)) if objective.step else bound
            self.proved &= result.proved
        self._settle(objective, value, value if _is_reached(objective, value, bound) else bound)
        return True

    def _confirmed(self) -> bool:
        """Return whether the incumbent confirms the assumptions on the service levels."""
        return all(self.solver.value_of(objective) <= least for objective, least in self.assumed)

    def _due(self, objective: LevelObjective) -> Deadline:
        """Return the time at which the minimisation of a level must end."""
        if self.service_by is not None and not objective.is_goal:
            return self.service_by if objective.is_service else self.deadline
        return self.deadline.share(next(share for end, share in SHARES if objective.name.endswith(end)))

    def _known_bounds(self, objective: LevelObjective) -> KnownBounds:
        """Return the bounds of a level that are known without a solver (eq. 123, 133)."""
        least, related = self._least(objective), self.related
        compares = objective.is_service or objective.on_value
        if related is None or not self.matches_related or not compares:
            return KnownBounds(least)
        bound = related.bound_of(objective)
        if related.restricts:
            return KnownBounds(max(least, bound))
        return KnownBounds(least, bound if related.with_less is not None else -np.inf)

    def _least(self, objective: LevelObjective) -> float:
        """Return the lower bound of a level that follows from the constraints on earlier levels."""
        if objective.on_value:
            rows = np.flatnonzero(~self.without[self.problem.table.server])
            all_served = bool((self.solver.forced_served | self.without).all())
            return least_value(self.problem, rows, all_served=all_served)
        if objective.on_changes:
            return self._least_changes()
        return objective.steps(self.solver.forced_unserved | self.without)

    def _may_be_zero(self, objective: LevelObjective, due: Deadline) -> bool:
        """Return whether to assume, optimistically, that all servers of a level can be served."""
        counts = (objective.on_unserved > 0) & ~self.without
        if not objective.is_service or (self.related is not None and (counts & self.related.left_out).any()):
            return False
        return not (counts & ~self.solver.forced_served).any() or self.solver.can_serve_all(objective, due)

    def _settle(self, objective: LevelObjective, value: float, bound: float) -> None:
        """Constrain a level to the value reached from now on.

        For a service level, also fix the servers that its value determines to be served or unserved (eq.
        134).
        """
        self.bounds[objective.name] = min(bound, value)
        if objective.is_service:
            self.assumed.append((objective, value))
            if self.related is not None:
                self.matches_related &= value == objective.steps(self.related.left_out)
            weight, inside = objective.on_unserved * ~self.without, value - objective.outside
            if inside == 0:
                self.solver.fix(weight > 0, np.zeros(len(weight), np.bool_))
                if objective.on_columns is None:
                    return
            elif bound >= value and objective.on_columns is None:
                self.solver.fix(*fixed_by_subset_sum(weight, inside))
        self.matches_related &= not objective.is_goal
        self.solver.hold(objective, value + objective.slack(value))

    def _least_changes(self) -> float:
        """Return the number of servers that must change because they cannot keep their current allocation."""
        problem, fixed = self.problem, self.solver
        unchanged = problem.full & ~problem.changed
        if problem.is_mixed:
            unchanged[current_allocations(problem, np.arange(len(problem.table)))[0]] = True
        stays = problem.has_some_of(unchanged) & ~(fixed.forced_unserved | self.without)
        changes = problem.is_running | (fixed.forced_served & ~problem.served_by_rows)
        return max(0.0, float((~stays & changes).sum() - problem.repeated_changes))

    def _solution(self) -> Solution:
        """Return the incumbent, with its levels recomputed in integers."""
        problem = self.problem
        replicas = with_reserves_found(problem, self.incumbent.replicas)
        replicas = with_more_spare_capacity(problem, replicas)
        for topology in problem.topologies:
            replicas = topology.without_unused(problem.table, replicas)
        over = bool((problem.left_by(replicas) < 0).any())
        if over or (served(problem, replicas) & ~served_in_full(problem, replicas)).any():
            raise SolverError("the solver's solution violates a limit; please report this with the input")
        levels = bounded_levels(problem, replicas, self.bounds)
        proved = self.proved and self._is_within_gap(replicas, levels)
        proved = proved or all(level.is_proved(self.solver.gap) for level in levels)
        solver: SolverName = "separable"
        if problem.is_limited or any(each.extra_servers for each in problem.topologies):
            solver = "milp"
        return Solution(replicas, Status.optimal if proved else Status.feasible, solver, levels)

    def _is_within_gap(self, replicas: IntArray, levels: tuple[SolvedLevel, ...]) -> bool:
        """Return whether all levels are proved by the rule of `verify`; solvers use other tolerances."""
        problem = self.problem
        costs = float(problem.current_cost.sum() + (replicas * problem.table.cost_per_replica).sum())
        constants = {
            VALUE: (1 + problem.options.transition_penalty) * costs,
            CHANGES: float(len(problem.priority)),
        }
        return all(
            level.bound is not None
            and proved_within(
                level.name,
                level.value,
                level.bound,
                self.solver.gap,
                constants.get(level.name, 0.0),
                is_service=objective.is_service,
            )
            for level, objective in zip(levels, problem.objectives, strict=True)
        )


def _is_reached(objective: LevelObjective, value: float, bound: float) -> bool:
    """Return whether a value equals its bound, up to rounding."""
    return value - bound <= (0.0 if objective.step else ROUNDING * max(1.0, abs(value)))
