"""The exact choice: levels minimised one after the other, each under the values reached before it.

Takes a `Problem`, writes it as a model, and has a solver minimise the levels. What the solver returns is
counted again here in whole numbers.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.errors import SolverError
from optimizer.solvers.formulation import Formulation, formulate, served_in_full
from optimizer.solvers.greedy import solve_greedy
from optimizer.solvers.levels import CHANGES, VALUE, changes_of, levels_of, served, service_levels, value_of
from optimizer.solvers.model import MilpModel, Outcome, RunResult, Session
from optimizer.solvers.problem import Level, Problem, Solution, Status, gap_target, units_used

VALUE_TOLERANCE = 5e-9
"""Relative slack at which the value stays pinned while the changes are minimised."""
LEAST_TOLERANCE = 5e-6
"""Least slack of a pinned value [cents/h]."""
WHOLE_TOLERANCE = 0.5
"""Slack of a pinned level of whole numbers: half a unit, far from the solver's own tolerance."""
ROUNDING = 1e-9
"""Relative distance of value and bound that is rounding."""

SessionFactory = Callable[[MilpModel], Session]


def solve_milp(problem: Problem, session: SessionFactory, time_limit_s: float | None = None) -> Solution:
    """Choose columns within the capacities, level by level.

    Args:
        problem: what to choose from.
        session: loads a model into a solver.
        time_limit_s: time for all levels; none: as in the options.

    Raises:
        SolverError: the solver failed, or what it returned breaks a limit.
    """
    formulation = formulate(problem)
    if not len(formulation.columns):
        replicas = np.zeros(len(problem.table), np.int64)
        return Solution(replicas, Status.optimal, "milp", levels_of(problem, replicas, proved=True))
    limit_s = problem.options.time_limit_s if time_limit_s is None else time_limit_s
    return _Run(problem, formulation, session(formulation.model), limit_s).solve()


class _Run:
    """One lexicographic solve: a session, the best point so far, and the time that is left."""

    def __init__(
        self, problem: Problem, formulation: Formulation, session: Session, time_limit_s: float
    ) -> None:
        self.problem, self.formulation, self.session = problem, formulation, session
        self.gap = gap_target(problem.options, len(formulation.columns))
        self.deadline = time.perf_counter() + time_limit_s
        self.service = service_levels(problem)
        self.columnless = ~np.isin(np.arange(len(problem.priority)), formulation.servers)
        # Leaving every server unserved is always possible.
        self.best = formulation.on_servers(np.ones(len(problem.priority)))
        self.levels: list[Level] = []
        self.proved = True
        self.all_served = False

    def solve(self) -> Solution:
        """Minimise every level in its order."""
        if not self._serve_everything():
            self._serve_by_level()
            self._note_value(self._minimise(self.formulation.value))
        self._minimise_changes()
        return self._solution()

    def _time_s(self, levels_left: int) -> float:
        """Return the share of the time left that the next level may use: up to twice an equal one."""
        return max((self.deadline - time.perf_counter()) * 2 / (levels_left + 1), 0.0)

    @property
    def _changes_vary(self) -> bool:
        """Whether answers of the same service can differ in the number of changed servers."""
        changed, n, m = self.formulation.changed, len(self.formulation.columns), len(self.formulation.servers)
        parts = (changed[:n], changed[n + m :]) if self.all_served else (changed[:n], changed[n:])
        return any(len(part) > 0 and float(np.ptp(part)) > 0 for part in parts)

    def _serve_everything(self) -> bool:
        """Minimise the value with every server served; if that is possible it settles all service levels."""
        formulation = self.formulation
        self.session.set_upper(formulation.unserved, 0.0)
        result = self.session.minimise(formulation.value, None, self.gap, self._time_s(3))
        if result.x is None:
            self.session.set_upper(formulation.unserved, 1.0)
            return False
        self.best, self.all_served = result.x, True
        self.proved &= result.outcome is Outcome.optimal
        for level in self.service:
            lost = float(level.weight[self.columnless].sum() * level.unit)
            self.levels.append(Level(level.name, lost, lost))
        self._note_value(result)
        return True

    def _serve_by_level(self) -> None:
        """Minimise what is unserved, priority by priority, from what the greedy heuristic finds."""
        usable = np.zeros(len(self.problem.table), np.bool_)
        usable[self.formulation.columns] = True
        greedy = solve_greedy(replace(self.problem, full=self.problem.full & usable))
        self.best = self.formulation.point(greedy.replicas)
        for level in self.service:
            objective = self.formulation.on_servers(level.weight)
            lost = float(level.weight[self.columnless].sum())
            value = bound = 0.0
            if objective.any():
                value, bound = self._minimise_whole(objective, least=0.0)
                self.session.add_limit(objective, value + WHOLE_TOLERANCE)
            self.levels.append(Level(level.name, (value + lost) * level.unit, (bound + lost) * level.unit))

    def _note_value(self, result: RunResult) -> None:
        objective = self.formulation.value
        value = float(objective @ self.best)
        reached = value_of(self.problem, self._replicas())  # with the servers that have no column at all
        bound = max(result.bound, self._least_value())
        bound = value if value - bound <= ROUNDING * max(1.0, abs(value)) else bound
        self.levels.append(Level(VALUE, reached, reached if bound == value else bound + (reached - value)))
        self.session.add_limit(objective, value + max(VALUE_TOLERANCE * abs(value), LEAST_TOLERANCE))

    def _least_value(self) -> float:
        """Return what the value would be if every server had its least: a bound that needs no solver."""
        formulation = self.formulation
        n = len(formulation.columns)
        if self.problem.options.heterogeneous:
            return float(np.minimum(formulation.value, 0.0).sum())
        least = self.problem.none_value.copy()
        np.minimum.at(least, self.problem.table.server[formulation.columns], formulation.value[:n])
        return float(least[formulation.servers].sum())

    def _minimise_changes(self) -> None:
        objective = self.formulation.changed
        least = bound = float(np.round(objective @ self.best))
        if self._changes_vary:
            least, bound = self._minimise_whole(objective, -self.formulation.changed_offset)
        reached = float(changes_of(self.problem, self._replicas()))
        self.levels.append(Level(CHANGES, reached, min(bound + (reached - least), reached)))

    def _minimise_whole(self, objective: FloatArray, least: float) -> tuple[float, float]:
        """Minimise a level of whole numbers, at least `least`; return its value and bound, both whole."""
        result = self._minimise(objective)
        value = float(np.round(objective @ self.best))
        bound = float(np.ceil(result.bound - 1e-6)) if result.bound > least else least
        return value, min(bound, value)

    def _minimise(self, objective: FloatArray) -> RunResult:
        """Minimise one level; where the solver finds nothing better the best point so far is kept."""
        left = len(self.service) + 1 + self._changes_vary - len(self.levels)
        result = self.session.minimise(objective, self.best, self.gap, self._time_s(left))
        if result.x is not None and objective @ result.x <= objective @ self.best:
            self.best = result.x
        self.proved &= result.outcome is Outcome.optimal
        # The best point is feasible: a solver that says otherwise has proved nothing.
        return replace(result, bound=-np.inf) if result.outcome is Outcome.infeasible else result

    def _replicas(self) -> IntArray:
        return self.formulation.replicas(self.best, len(self.problem.table))

    def _solution(self) -> Solution:
        """Count the answer again in whole numbers."""
        replicas, problem = self._replicas(), self.problem
        over = problem.capacity is not None and bool(
            (units_used(problem, replicas, len(problem.capacity)) > problem.capacity).any()
        )
        if over or (served(problem, replicas) & ~served_in_full(problem, replicas)).any():
            raise SolverError("the solver's answer breaks a limit; please report this with the input")
        status = Status.optimal if self.proved else Status.feasible
        # A level that stopped early may have been improved on the way to a later one.
        reached = levels_of(problem, replicas, proved=True)
        levels = tuple(_with_bound(now, then) for now, then in zip(reached, self.levels, strict=True))
        return Solution(replicas, status, "milp", levels)


def _with_bound(reached: Level, noted: Level) -> Level:
    """Return a level as the answer reached it, with the bound that was proved when it was minimised."""
    if noted.bound is None or noted.bound >= noted.value:
        return reached
    return Level(reached.name, reached.value, min(noted.bound, reached.value))
