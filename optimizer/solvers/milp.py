"""The exact choice: levels minimised one after the other, each under the values reached before it.

Takes a `Problem`, writes it as a model, and has a solver minimise the levels. What the solver returns is
counted again here in integers.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.errors import SolverError
from optimizer.solvers.bounds import least_values
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.formulation import Formulation, formulate, served_in_full
from optimizer.solvers.known import Known, repaired
from optimizer.solvers.levels import (
    CHANGES,
    VALUE,
    bounded_levels,
    changes_of,
    is_better,
    levels_of,
    served,
    value_of,
    value_slack,
)
from optimizer.solvers.model import MilpModel, Outcome, RunResult, Session
from optimizer.solvers.problem import (
    ROUNDING,
    Problem,
    ServiceLevel,
    Solution,
    Status,
    gap_target,
    units_used,
)
from optimizer.solvers.room import with_more_room
from optimizer.solvers.seeds import best_seed, in_columns
from optimizer.solvers.subsets import told_by

WHOLE_TOLERANCE = 0.5
"""Slack of a pinned integer level: half a unit, far from the solver's own tolerance."""

SessionFactory = Callable[[MilpModel], Session]


def solve_milp(
    problem: Problem,
    session: SessionFactory,
    deadline: Deadline | None = None,
    seed: IntArray | None = None,
    *,
    to_prove: bool = False,
    known: Known | None = None,
) -> Solution:
    """Choose candidates within the capacities, level by level; never worse than what runs, or than greedy.

    Args:
        problem: what to choose from.
        session: loads a model into a solver.
        deadline: when all levels are due; none: after the time limit of the options.
        seed: an answer of one pool per server to start from, shape (C,); none: the better of what runs now
            and the greedy plan.
        to_prove: whether an answer without a proof is of no use: a level may then take all the time.
        known: the answer to a problem that differs in one thing, to begin from if it is better.

    Raises:
        SolverError: the solver failed, or what it returned breaks a limit.
    """
    deadline = deadline or Deadline.after(problem.options.time_limit_s)
    formulation = formulate(problem)
    if not len(formulation.columns):
        replicas = np.zeros(len(problem.table), np.int64)
        return Solution(replicas, Status.optimal, "milp", levels_of(problem, replicas, proved=True))
    seeds = [best_seed(problem) if seed is None else seed]
    if known is not None:
        as_known = repaired(problem, known.replicas)
        seeds.insert(0 if is_better(problem, as_known, seeds[0]) else 1, as_known)
    run = _Run(problem, formulation, session(formulation.model), deadline, seeds, known, to_prove=to_prove)
    return run.solve()


class _Run:
    """One lexicographic solve: a session, the best point so far, and the time that is left."""

    def __init__(
        self,
        problem: Problem,
        formulation: Formulation,
        session: Session,
        deadline: Deadline,
        seeds: Sequence[IntArray],
        known: Known | None,
        *,
        to_prove: bool,
    ) -> None:
        self.problem, self.formulation, self.session = problem, formulation, session
        self.to_prove, self.known = to_prove, known
        self.follows = known is not None and known.restricts
        """Whether the levels so far are as a problem has them of which this one is a part."""
        self.gap = gap_target(problem.options, len(formulation.columns))
        self.deadline = deadline
        self.service = problem.service
        self.columnless = ~np.isin(np.arange(len(problem.priority)), formulation.servers)
        self.best = self._first_point(seeds)
        self.bounds: dict[str, float] = {}
        """Bounds of the levels so far, those of service in steps; infinity: the value is proved."""
        self.proved = True
        self.all_served = False

    def _first_point(self, seeds: Sequence[IntArray]) -> FloatArray:
        """Return the point of a seed; of nothing, which is always possible, if the model refuses them all."""
        problem, formulation = self.problem, self.formulation
        for seed in seeds:
            point = formulation.point(problem, in_columns(formulation.columns, problem, seed))
            if formulation.model.holds(point):
                return point
        return formulation.point(problem, np.zeros(len(problem.table), np.int64))

    def solve(self) -> Solution:
        """Minimise every level in its order."""
        if self._must_leave_out() or not self._serve_everything():
            self._serve_by_level()
            self._note_value(self._minimise(self.formulation.value, self._least_value()))
        self._minimise_changes()
        return self._solution()

    @property
    def _changes_vary(self) -> bool:
        """Whether answers of the same service can differ in the number of changed servers.

        A served server takes one column of a single plan. Of a mixed one it may keep what it has, or not.
        """
        changed, n = self.formulation.changed, len(self.formulation.columns)
        unserved = changed[self.formulation.unserved]
        kept = len(self.formulation.keeping) > 0
        return bool(kept or np.ptp(changed[:n]) > 0 or (not self.all_served and np.ptp(unserved) > 0))

    def _must_leave_out(self) -> bool:
        """Whether it is known that not all servers can be served that have a column."""
        return any(self._least_of(level) > 0 for level in self.service)

    def _known_serves_as_much(self) -> bool:
        """Whether the known answer leaves out the servers without a column, and no others."""
        known, left = self.known, self.columnless
        return known is not None and all(
            x.weight[left].sum() == known.left_of(x.weight) for x in self.service
        )

    def _least_of(self, level: ServiceLevel) -> float:
        """Return what a level leaves unserved at least, beside the servers without a column."""
        if self.known is None or not self.follows:
            return 0.0
        return max(self.known.least_of(level) - float(level.weight[self.columnless].sum()), 0.0)

    def _serve_everything(self) -> bool:
        """Minimise the value with every server served; if that is possible it settles all service levels."""
        formulation = self.formulation
        self.all_served = not self.best[formulation.unserved].any()
        self.session.set_upper(formulation.unserved, 0.0)
        if self.all_served:
            self.follows &= self._known_serves_as_much()
            result = self._minimise(formulation.value, self._least_value(), levels_left=3)
        else:
            result = self._run(formulation.value, None, levels_left=3)
            if result.x is None:
                self.session.set_upper(formulation.unserved, 1.0)
                return False
            self.best, self.all_served = result.x, True
            self.follows &= self._known_serves_as_much()
            self.proved &= result.outcome is Outcome.optimal
        for level in self.service:
            self.bounds[level.name] = level.steps(self.columnless)
        self._note_value(result)
        return True

    def _serve_by_level(self) -> None:
        """Minimise what is unserved, priority by priority."""
        for level in self.service:
            objective = self.formulation.on_servers(level.weight)
            lost = level.steps(self.columnless)
            value = bound = 0.0
            if objective.any():
                value, bound = self._minimise_whole(objective, self._least_of(level))
                if not self._settle(level.weight * ~self.columnless, value, bound):
                    self.session.add_limit(objective, value + WHOLE_TOLERANCE)
            self.follows &= self.known is not None and value + lost == self.known.left_of(level.weight)
            self.bounds[level.name] = bound + lost

    def _settle(self, weight: FloatArray, value: float, bound: float) -> bool:
        """Fix the servers that an optimum tells to be served or left out; return whether these are all."""
        if bound < value:
            return False
        served_then, left_out = told_by(weight, value)
        formulation = self.formulation
        self.session.set_upper(formulation.unserved[served_then[formulation.servers]], 0.0)
        self.session.set_upper(np.flatnonzero(left_out[formulation.column_servers]), 0.0)
        return bool((served_then | left_out)[weight > 0].all())

    def _note_value(self, result: RunResult) -> None:
        objective = self.formulation.value
        value = float(objective @ self.best)
        reached = value_of(self.problem, self._replicas())  # with the servers that have no column at all
        bound = max(result.bound, self._least_value())
        proved = value - bound <= ROUNDING * max(1.0, abs(value))
        self.bounds[VALUE] = np.inf if proved else bound + (reached - value)

    def _least_value(self) -> float:
        """Return what the value would be if every server had its least: a bound that needs no solver."""
        formulation = self.formulation
        least = least_values(self.problem, formulation.columns, all_served=self.all_served)
        bound = float(least.sum()) - formulation.value_offset
        if self.known is None or not self.follows:
            return bound
        outside = value_of(self.problem, self._replicas()) - float(formulation.value @ self.best)
        return max(bound, self.known.least_value - outside)

    def _minimise_changes(self) -> None:
        objective = self.formulation.changed
        least = bound = float(np.round(objective @ self.best))
        if self._changes_vary:
            value = float(self.formulation.value @ self.best)
            self.session.add_limit(self.formulation.value, value + value_slack(value))
            least, bound = self._minimise_whole(objective, -self.formulation.changed_offset)
        reached = float(changes_of(self.problem, self._replicas()))
        self.bounds[CHANGES] = bound + (reached - least)

    def _minimise_whole(self, objective: FloatArray, least: float) -> tuple[float, float]:
        """Minimise an integer level, at least `least`; return its value and bound, both integers."""
        result = self._minimise(objective, least)
        value = float(np.round(objective @ self.best))
        bound = float(np.ceil(result.bound - 1e-6)) if result.bound > least else least
        return value, min(bound, value)

    def _minimise(self, objective: FloatArray, least: float, levels_left: int | None = None) -> RunResult:
        """Minimise one level; where the solver finds nothing better the best point so far is kept.

        No solver is asked where that is as good as any answer can be.
        """
        value = float(objective @ self.best)
        if value - least <= ROUNDING * max(1.0, abs(value)):
            return RunResult(Outcome.optimal, None, least, 0.0)
        left = len(self.service) + 1 + self._changes_vary - len(self.bounds)
        result = self._run(objective, self.best, left if levels_left is None else levels_left)
        if result.x is not None and self._is_better(objective, result.x):
            self.best = result.x
        self.proved &= result.outcome is Outcome.optimal
        # The best point is feasible: a solver that says otherwise has proved nothing.
        return replace(result, bound=-np.inf) if result.outcome is Outcome.infeasible else result

    def _run(self, objective: FloatArray, start: FloatArray | None, levels_left: int) -> RunResult:
        """Let the solver minimise for up to twice an equal share of the time left, or for all of it."""
        time_s = self.deadline.share(1.0 if self.to_prove else 2 / (levels_left + 1)).left_s
        if time_s <= 0:
            return RunResult(Outcome.time_limit, None, -np.inf, 0.0)
        return self.session.minimise(objective, start, self.gap, time_s)

    def _is_better(self, objective: FloatArray, x: FloatArray) -> bool:
        """Return whether a point is better at the level at hand or, equal there, over all levels.

        The levels before hold by rows of the model; a tie may be worse at the levels to come.
        """
        value, best = float(objective @ x), float(objective @ self.best)
        if abs(value - best) > ROUNDING * max(1.0, abs(best)):
            return value < best
        return is_better(self.problem, self._replicas(x), self._replicas())

    def _replicas(self, x: FloatArray | None = None) -> IntArray:
        """Return the replicas of a point, or of the best one so far; shape (C,)."""
        return self.formulation.replicas(self.best if x is None else x, len(self.problem.table))

    def _solution(self) -> Solution:
        """Count the answer again in integers."""
        problem = self.problem
        replicas = with_more_room(problem, self._replicas())
        over = problem.capacity is not None and bool(
            (units_used(problem, replicas, len(problem.capacity)) > problem.capacity).any()
        )
        if over or (served(problem, replicas) & ~served_in_full(problem, replicas)).any():
            raise SolverError("the solver's answer breaks a limit; please report this with the input")
        status = Status.optimal if self.proved else Status.feasible
        return Solution(replicas, status, "milp", bounded_levels(problem, replicas, self.bounds))
