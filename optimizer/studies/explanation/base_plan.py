"""Warm starts and bounds that a plan provides for what-if questions, without solving.

A feasible solution of a question bounds its optimum from above, and the proofs of the plan bound it from
below. So every question has an interval. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import replace
from functools import cached_property

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates import Candidates
from optimizer.pipeline import Solved
from optimizer.plan.proof import ordered_levels
from optimizer.plan.views import PlanPlacements
from optimizer.solvers.blocks import Solve, SolvedBlocks, solve_in_blocks
from optimizer.solvers.branch_and_price.duals import DualBounds, DualMultipliers
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.levels import changes_of, levels_of, served, transition_value, trivial_bounds
from optimizer.solvers.objectives import CHANGES, VALUE
from optimizer.solvers.problem import Problem, build_problem
from optimizer.solvers.related import RelatedSolution, differing, repaired
from optimizer.solvers.saturation import share_leftover
from optimizer.solvers.solution import Solution, SolvedLevel, Status
from optimizer.studies.explanation.outcome import PlanOutcome
from optimizer.tolerances import ROUNDING


class BasePlan:
    """The plan that what-if questions change, with the warm starts and bounds that it provides."""

    def __init__(self, solved: Solved) -> None:
        self.candidates, self.plan, self.problem = solved.candidates, solved.plan, solved.problem
        self.outcome = PlanOutcome.of_plan(solved.plan)
        self.known = dict(zip(solved.problem.keys, solved.solution.replicas.tolist(), strict=True))
        """Replicas of each candidate, by its key."""
        self.ordered = ordered_levels(solved.plan, solved.candidates)
        """Names of the levels whose optimum cannot improve if something is removed."""
        self.blocks: SolvedBlocks | None = None
        """Solved blocks of the problem, which questions about other blocks reuse; None if it is not solved in
        blocks.
        """
        self._multipliers: dict[str, DualMultipliers] = {}

    @cached_property
    def left(self) -> FloatArray:
        """Amount of each limited item that the plan leaves unused, shape (R,)."""
        limits = self.problem.limits
        units = PlanPlacements.of_plan(self.plan, self.candidates.system, self.candidates.arrays).units
        left: FloatArray = limits.amount - [units.used(row.limit, row.item) for row in limits.items]
        return left

    @property
    def _by_policy(self) -> bool:
        """Whether a saturation policy allocates cards, so that levels result from several steps."""
        return self.candidates.system.options.saturation_policy != "None" and not self.plan.complete

    @cached_property
    def left_out(self) -> BoolArray:
        """Mask of the servers that the plan does not serve in full, shape (S,)."""
        partly = {item.server for item in self.plan.unserved}
        return np.array([name in partly for name in self.candidates.arrays.server_names], np.bool_)

    def replicas(self, problem: Problem) -> IntArray:
        """Return the replicas of servers served in full, for each candidate of another problem."""
        replicas = np.array([self.known.get(key, 0) for key in problem.keys], np.int64)
        replicas[np.append(self.left_out, False)[problem.table.server]] = 0
        return replicas

    def find_blocks(self, solve: Solve, deadline: Deadline) -> None:
        """Solve the problem in blocks, unless dual values are available, which questions then use instead.

        Raises:
            SolverError: the solver failed.
        """
        in_full = self.candidates.system.options.saturation_policy == "None"
        if self.blocks is None and in_full and self.problem.serves_jointly:
            self.blocks = solve_in_blocks(self.problem, solve, deadline)

    def related(self, problem: Problem, *, restricts: bool, carries_more: bool) -> RelatedSolution | None:
        """Return the plan as a related solution of a problem with one change.

        None if a policy allocates cards.

        Args:
            problem: the changed problem.
            restricts: whether the change only removes something.
            carries_more: whether the change only lets candidates carry more load.
        """
        if self._by_policy or problem.serves_jointly:
            return None
        return RelatedSolution(
            replicas=self.replicas(problem),
            left_out=self.left_out,
            levels=self.outcome.levels,
            restricts=restricts,
            with_less=self.problem if carries_more else None,
        )

    def still_serves(self, problem: Problem) -> bool:
        """Return whether the plan, repaired for a changed problem, leaves no more load unserved there."""
        fitting = repaired(problem, self.replicas(problem))
        reached = _reached(problem, fitting)
        service = (level for level in self.outcome.levels if level.name not in (VALUE, CHANGES))
        return all(reached[level.name] <= level.value + ROUNDING * max(1.0, level.value) for level in service)

    # --- without a solve ---------------------------------------------------------------------------------

    def unchanged(self, candidates: Candidates) -> bool:
        """Return whether the plan is also the answer, because no available choice differs."""
        if self._by_policy or not len(self.problem.limits):
            return False
        problem, old = build_problem(candidates), self.problem
        table = problem.table
        if len(table) != len(old.table) or differing(problem, old).any():
            return False
        if not (table.alone.all() and old.table.alone.all()):  # maximum rates on shared cards can differ
            return False
        ones = np.ones(len(table), np.int64)
        now, then = (each.limits.scaled(ones)[-1] for each in (problem, old))
        return bool((now == then).all())

    def find_multipliers(self, deadline: Deadline) -> None:
        """Find dual values for the plan's levels, which bound the answers to questions that add something.

        Raises:
            SolverError: the solver failed.
        """
        if self._multipliers or not len(self.problem.limits) or self.problem.serves_jointly:
            return
        reached = {level.name: level.value for level in self.outcome.levels}
        provable = DualBounds(self.problem, self.left_out, reached)
        multipliers = provable.multipliers(reached, deadline)
        self._multipliers = {level.name: item for level, item, _ in multipliers}

    def draft(self, candidates: Candidates, *, restricts: bool) -> PlanOutcome:
        """Return a feasible answer to a question, with the bounds that the plan proves (eq. 123, 124).

        Args:
            candidates: candidates of the changed system.
            restricts: whether the change only removes choices; otherwise it only adds some.
        """
        problem = build_problem(candidates)
        full = repaired(problem, self.replicas(problem))
        shared = share_leftover(problem, full).replicas
        sums = {VALUE: transition_value(problem, shared), CHANGES: float(changes_of(problem, shared))}
        reached = tuple(
            replace(level, value=sums.get(level.name, level.value))
            for level in levels_of(problem, full, proved=False)
        )
        floors = trivial_bounds(problem)
        floors |= self._as_before(reached) if restricts else self._by_price(problem, full, reached)
        settled = self._settled_bound if restricts and self._by_policy else -np.inf
        floors[VALUE] = max(floors[VALUE], self._value_where_served(problem, full, reached, floors, settled))
        levels = tuple(SolvedLevel(x.name, x.value, min(floors[x.name], x.value)) for x in reached)
        return PlanOutcome.of_solution(candidates, problem, Solution(shared, Status.feasible, "milp", levels))

    def _as_before(self, reached: tuple[SolvedLevel, ...]) -> dict[str, float]:
        """Return the plan's bounds that also hold for a question that removes something, by level name."""
        floors = {}
        for was, now in zip(self.outcome.levels, reached, strict=True):
            if was.name not in self.ordered or was.bound is None:
                break
            floors[was.name] = was.bound
            if abs(now.value - was.value) > ROUNDING * max(1.0, abs(was.value)):
                break
        return floors

    def _by_price(
        self, problem: Problem, replicas: IntArray, reached: tuple[SolvedLevel, ...]
    ) -> dict[str, float]:
        """Return the bounds of a changed problem that the plan's dual values prove, by level name.

        There are none after the first unproved level.
        """
        floors: dict[str, float] = {}
        if not len(problem.limits) or not len(problem.table) or problem.serves_jointly:
            return floors
        provable = DualBounds(problem, ~served(problem, replicas), _reached(problem, replicas))
        values = {level.name: level.value for level in reached}
        for level in provable.levels():
            if values[level.name] == 0 and level.whole:
                continue
            if level.name not in self._multipliers or level.name not in self.ordered:
                break
            floors[level.name] = provable.bound(level, self._multipliers[level.name])
            if floors[level.name] < values[level.name]:
                break
        return floors

    def _value_where_served(
        self,
        problem: Problem,
        replicas: IntArray,
        reached: tuple[SolvedLevel, ...],
        floors: dict[str, float],
        settled: float,
    ) -> float:
        """Return a lower bound of the transition cost if all service levels are proved.

        It also holds with a saturation policy: replicas that a policy adds to a running server can lower the
        transition cost by at most the penalty for moving.
        """
        service = [level for level in reached if level.name not in (VALUE, CHANGES)]
        proved = all(floors[level.name] >= level.value * (1 - ROUNDING) for level in service)
        if not proved or VALUE not in self._multipliers or not len(problem.table):
            return -np.inf
        left = ~served(problem, replicas)
        provable = DualBounds(problem, left, _reached(problem, replicas))
        level = next(level for level in provable.levels() if level.name == VALUE)
        bound = provable.bound(level, self._multipliers[VALUE])
        if {level.name for level in service} <= self.ordered:
            bound = max(bound, settled)
        return bound - float(problem.leaving_value[left].sum())

    @property
    def _settled_bound(self) -> float:
        """Lower bound of the transition cost before a policy allocates the remaining capacity.

        It is valid only if levels are solved in a single stage.
        """
        value = next(level for level in self.outcome.levels if level.name == VALUE)
        if value.bound is None:
            return -np.inf
        return transition_value(self.problem, self.replicas(self.problem)) - (value.value - value.bound)

    def unexamined(self) -> PlanOutcome:
        """Return the plan as the answer to a question that adds something, with bounds that always hold."""
        nothing_costs = -float(self.problem.current_cost.sum())
        bounds = dict.fromkeys((level.name for level in self.outcome.levels), 0.0) | {VALUE: nothing_costs}
        return self.outcome.with_bounds(bounds)


def _reached(problem: Problem, replicas: IntArray) -> dict[str, float]:
    """Return the value of each level of a solution, by level name."""
    return {level.name: level.value for level in levels_of(problem, replicas, proved=False)}
