"""The single-accelerator MILP: which column each server takes, within the units that exist.

Takes a `Problem`, writes it as a `MilpModel` (eq. 26-29 of ``docs/math.md``) and minimises the levels one
after the other, each under the values reached before it. What the solver returns is counted again here in
whole numbers.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.errors import SolverError
from optimizer.solvers.levels import CHANGES, VALUE, changes_of, proved_levels, service_levels, value_of
from optimizer.solvers.model import MilpModel, Outcome, RunResult, Session
from optimizer.solvers.problem import Level, Problem, Solution, Status, gap_target, undominated

VALUE_TOLERANCE = 5e-9
"""Relative slack at which the value stays pinned while the changes are minimised; at least 5e-6 cents/h."""
WHOLE_TOLERANCE = 0.5
"""Slack of a pinned level of whole numbers: half a unit, far from the solver's own tolerance."""
ROUNDING = 1e-9
"""Relative distance of value and bound that is rounding."""


@dataclass(frozen=True, slots=True)
class Formulation:
    """The model and what its variables mean: x_c of the columns kept, then u_s of their servers."""

    model: MilpModel
    columns: IntArray
    """Row of the candidate table of each x, shape (n,)."""
    servers: IntArray
    """Server of each u, shape (m,)."""
    capacity: FloatArray
    """Units of each accelerator type, shape (T,)."""
    value: FloatArray
    """Value of every variable [cents/h], shape (n + m,)."""
    changed: FloatArray
    """Whether a variable stands for a change, shape (n + m,)."""

    @property
    def unserved(self) -> IntArray:
        """Indices of the variables u."""
        return np.arange(len(self.columns), len(self.columns) + len(self.servers))

    def of_servers(self, weight: FloatArray) -> FloatArray:
        """Return the coefficients that give each u its server's weight, shape (n + m,)."""
        return np.concatenate([np.zeros(len(self.columns)), weight[self.servers]])


def solve_milp(problem: Problem, session: Callable[[MilpModel], Session]) -> Solution:
    """Choose columns within the capacities, level by level.

    Args:
        problem: with capacities.
        session: loads a model into a solver.

    Raises:
        SolverError: the solver failed, or what it returned breaks a limit.
    """
    formulation = formulate(problem)
    if not len(formulation.columns):
        replicas = np.zeros(len(problem.table), np.int64)
        return Solution(replicas, Status.optimal, "milp", proved_levels(problem, replicas))
    return _Run(problem, formulation, session(formulation.model)).solve()


def formulate(problem: Problem) -> Formulation:
    """Write the choice as a model (eq. 26-29)."""
    table, capacity = problem.table, problem.capacity
    if capacity is None:
        raise ValueError("an unlimited problem needs no MILP")
    columns = undominated(problem)
    columns = columns[table.units[columns] <= capacity[table.kind[columns]]]
    servers, row = np.unique(table.server[columns], return_inverse=True)
    n, m = len(columns), len(servers)
    kinds, kind_row = np.unique(table.kind[columns], return_inverse=True)

    units = table.units[columns].astype(np.float64)
    divisor = np.array([float(np.gcd.reduce(table.units[columns][kind_row == k])) for k in range(len(kinds))])
    entries_row = np.concatenate([row, np.arange(m), m + kind_row])
    entries_index = np.concatenate([np.arange(n), np.arange(n, n + m), np.arange(n)])
    entries_value = np.concatenate([np.ones(n + m), units / divisor[kind_row] if n else units])
    order = np.lexsort((entries_index, entries_row))
    counts = np.bincount(entries_row, minlength=m + len(kinds))
    limit = np.floor(capacity[kinds] / divisor) if n else np.zeros(0)
    model = MilpModel(
        lower=np.zeros(n + m),
        upper=np.ones(n + m),
        whole=np.ones(n + m, np.bool_),
        row_start=np.concatenate([[0], np.cumsum(counts)]),
        row_index=entries_index[order],
        row_value=entries_value[order],
        row_lower=np.concatenate([np.ones(m), np.full(len(kinds), -np.inf)]),
        row_upper=np.concatenate([np.ones(m), limit]),
    )
    return Formulation(
        model,
        columns,
        servers,
        capacity,
        np.concatenate([problem.value[columns], problem.none_value[servers]]),
        np.concatenate([problem.changed[columns], problem.none_changed[servers]]).astype(np.float64),
    )


class _Run:
    """One lexicographic solve: a session, the best point so far, and the time that is left."""

    def __init__(self, problem: Problem, formulation: Formulation, session: Session) -> None:
        self.problem, self.formulation, self.session = problem, formulation, session
        self.gap = gap_target(problem.options, len(formulation.columns))
        self.deadline = time.perf_counter() + problem.options.time_limit_s
        self.service = service_levels(problem)
        self.columnless = ~np.isin(np.arange(len(problem.priority)), formulation.servers)
        self.best: FloatArray | None = None
        self.levels: list[Level] = []
        self.proved = True

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
        changed, n = self.formulation.changed, len(self.formulation.columns)
        return not changed[:n].all() or bool(changed[n:].any())

    def _serve_everything(self) -> bool:
        """Minimise the value with every server served; if that is possible it settles all service levels."""
        formulation = self.formulation
        self.session.set_upper(formulation.unserved, 0.0)
        result = self.session.minimise(formulation.value, None, self.gap, self._time_s(3))
        if result.x is None:
            self.session.set_upper(formulation.unserved, 1.0)
            return False
        self.best = result.x
        self.proved &= result.outcome is Outcome.optimal
        for level in self.service:
            lost = float(level.weight[self.columnless].sum() * level.unit)
            self.levels.append(Level(level.name, lost, lost))
        self._note_value(result)
        return True

    def _serve_by_level(self) -> None:
        """Minimise what is unserved, priority by priority."""
        for level in self.service:
            objective = self.formulation.of_servers(level.weight)
            lost = float(level.weight[self.columnless].sum())
            value = bound = 0.0
            if objective.any():
                value, bound = self._minimise_whole(objective)
                self.session.add_limit(objective, value + WHOLE_TOLERANCE)
            self.levels.append(Level(level.name, (value + lost) * level.unit, (bound + lost) * level.unit))

    def _note_value(self, result: RunResult) -> None:
        objective = self.formulation.value
        value = float(objective @ self._point())
        fixed = value_of(self.problem, self._replicas()) - value  # of the servers that have no column at all
        bound = max(result.bound, self._least_value())
        bound = value if value - bound <= ROUNDING * max(1.0, abs(value)) else bound
        self.levels.append(Level(VALUE, value + fixed, bound + fixed))
        self.session.add_limit(objective, value + VALUE_TOLERANCE * max(1000.0, abs(value)))

    def _least_value(self) -> float:
        """Return what the value would be if every server had its least: a bound that needs no solver."""
        table, formulation = self.problem.table, self.formulation
        least = self.problem.none_value.copy()
        np.minimum.at(least, table.server[formulation.columns], self.problem.value[formulation.columns])
        return float(least[formulation.servers].sum())

    def _minimise_changes(self) -> None:
        objective = self.formulation.changed
        least = bound = float(np.round(objective @ self._point()))
        if self._changes_vary:
            least, bound = self._minimise_whole(objective)
        fixed = changes_of(self.problem, self._replicas()) - least
        self.levels.append(Level(CHANGES, least + fixed, bound + fixed))

    def _minimise_whole(self, objective: FloatArray) -> tuple[float, float]:
        """Minimise a level of whole, non-negative numbers; return its value and bound, both whole."""
        result = self._minimise(objective)
        value = float(np.round(objective @ self._point()))
        bound = float(np.ceil(result.bound - 1e-6)) if result.bound > 0 else 0.0
        return value, min(bound, value)

    def _minimise(self, objective: FloatArray) -> RunResult:
        """Minimise one level; where the solver finds nothing better the best point so far is kept."""
        if self.best is None:  # leaving every server unserved is always possible
            self.best = self.formulation.of_servers(np.ones(len(self.problem.priority)))
        left = len(self.service) + 1 + self._changes_vary - len(self.levels)
        result = self.session.minimise(objective, self.best, self.gap, self._time_s(left))
        if result.x is not None and objective @ result.x <= objective @ self.best:
            self.best = result.x
        self.proved &= result.outcome is Outcome.optimal
        return result

    def _point(self) -> FloatArray:
        if self.best is None:
            raise SolverError("no level has been solved yet")
        return self.best

    def _replicas(self) -> IntArray:
        table = self.problem.table
        chosen = self.formulation.columns[self._point()[: len(self.formulation.columns)] > 0.5]
        replicas = np.zeros(len(table), np.int64)
        replicas[chosen] = table.num_replicas[chosen]
        return replicas

    def _solution(self) -> Solution:
        """Count the answer again in whole numbers."""
        replicas, table, capacity = self._replicas(), self.problem.table, self.formulation.capacity
        used = np.bincount(table.kind, replicas * table.units_per_replica, minlength=len(capacity))
        if (used > capacity).any() or np.bincount(table.server[replicas > 0]).max(initial=0) > 1:
            raise SolverError("the solver's answer breaks a limit; please report this with the input")
        return Solution(
            replicas, Status.optimal if self.proved else Status.feasible, "milp", tuple(self.levels)
        )
