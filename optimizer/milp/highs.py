"""Solves `MilpModel` with HiGHS; the only module that imports highspy."""

import time
from dataclasses import replace

import highspy
import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.errors import SolverError
from optimizer.milp.model import MilpModel, RunResult, RunStatus, Session
from optimizer.tolerances import SAME

SEED = 0
THREADS = 1
"""Number of threads: one, so that together with a fixed seed equal models have equal solutions."""

_PARALLEL_COLUMNS = 1 << 13
"""Bit of HiGHS's presolve-rule option that disables merging parallel rows and columns."""

_PRIMAL_SIMPLEX = 4
"""HiGHS's value for the primal simplex method. The current point stays feasible when columns are added, so
few steps are needed.
"""
_FIXED_OPTIONS: dict[str, bool | float] = {
    "output_flag": False,
    "threads": THREADS,
    "random_seed": SEED,
    "mip_abs_gap": 0.0,
    # On small models this heuristic dominates the run time; on large ones its solutions are not needed.
    "mip_heuristic_run_feasibility_jump": False,
    # With this rule, HiGHS 1.15.1 solves small mixed models with two equal accelerators wrongly.
    "presolve_rule_off": _PARALLEL_COLUMNS,
}
_LEAN_OPTIONS: dict[str, bool | float | str] = {
    # These sub-MIP heuristics take longer than the proof of a small model.
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_root_reduced_cost": False,
    # No benefit here, and HiGHS 1.15.1 solves a model wrongly if it is presolved again in the search.
    "presolve": "off",
}
LEAN_CUTS = 0.01
"""Maximum number of cuts in a lean model, relative to its number of columns; many similar cuts do not help.
"""
MIN_CUTS = 50
"""Lower bound on the maximum number of cuts in a lean model."""
_OUTCOMES = {
    highspy.HighsModelStatus.kOptimal: RunStatus.optimal,
    highspy.HighsModelStatus.kModelEmpty: RunStatus.optimal,
    highspy.HighsModelStatus.kInfeasible: RunStatus.infeasible,
    highspy.HighsModelStatus.kTimeLimit: RunStatus.time_limit,
}


class HighsSession(Session):
    """A mixed-integer model that HiGHS minimises for several objectives.

    Each run uses a new HiGHS instance with a copy of the model, because in a used instance the clock for the
    time limit restarts for some algorithms and continues for others.
    """

    def __init__(self, model: MilpModel, *, lean: bool = False) -> None:
        """Create a session for a model.

        Args:
            lean: whether HiGHS should focus on proving the bound instead of finding solutions.
        """
        super().__init__(model)
        self._lean = lean

    def minimise(
        self,
        objective: FloatArray,
        start: FloatArray | None,
        gap: float,
        time_limit_s: float,
        *,
        presolve: bool = True,
    ) -> RunResult:
        """Minimise objective·x in one run.

        Args:
            objective: coefficients of the objective, shape (n,).
            start: a feasible point, shape (n,), as a warm start; None if unknown.
            gap: relative gap between value and bound at which the run stops.
            time_limit_s: time limit of the run [s].
            presolve: whether HiGHS can presolve the model, during which it ignores the time limit.

        Raises:
            SolverError: HiGHS reports an error or an unexpected status.
        """
        highs = self._loaded(objective, start, mip_rel_gap=gap, time_limit=time_limit_s)
        if self._lean:
            cuts = max(int(LEAN_CUTS * len(objective)), MIN_CUTS)
            _set(highs, **_LEAN_OPTIONS, mip_pool_soft_limit=cuts)
        if not presolve:
            _set(highs, presolve="off")
        outcome, run_s = _outcome_of_run(highs)
        info, x = highs.getInfo(), _feasible_point(highs)
        if (
            x is not None
            and start is not None
            and _differ(float(objective @ x), info.objective_function_value)
        ):
            # HiGHS 1.16.0 can presolve the start to a better point, but still return the start.
            left_s = max(time_limit_s - run_s, 0.0)
            again = self.minimise(objective, None, gap, left_s, presolve=presolve)
            return replace(again, x=start if again.x is None else again.x, run_s=run_s + again.run_s)
        if x is not None:
            x[self.model.integer] = np.round(x[self.model.integer])
        return RunResult(outcome, x, float(info.mip_dual_bound), run_s)

    def relax(self, objective: FloatArray, time_limit_s: float) -> RunResult:
        """Minimise objective·x without integrality; the result contains dual values of the rows.

        Raises:
            SolverError: HiGHS reports an error or an unexpected status.
        """
        highs = self._loaded(objective, None, solve_relaxation=True, time_limit=time_limit_s)
        outcome, run_s = _outcome_of_run(highs)
        x, value = _feasible_point(highs), highs.getInfo().objective_function_value
        row_price = None if x is None else np.array(highs.getSolution().row_dual)
        return RunResult(outcome, x, float(value), run_s, row_price)

    def _loaded(
        self, objective: FloatArray, start: FloatArray | None, **options: bool | float
    ) -> highspy.Highs:
        """Return a HiGHS instance with the model, an objective, a starting point and options."""
        highs = _quiet_highs(**options)
        _check(highs.passModel(_lp(self.model, objective)), "load the model")
        if start is not None:
            every = np.arange(len(objective), dtype=np.int32)
            _check(highs.setSolution(len(every), every, start), "set the start")
        return highs


def _feasible_point(highs: highspy.Highs) -> FloatArray | None:
    feasible_point = highs.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    return np.array(highs.getSolution().col_value) if feasible_point else None


def _differ(value: float, reported: float) -> bool:
    return abs(value - reported) > SAME * max(abs(value), 1.0)


class MasterLp:
    """A linear program over x ≥ 0 that is solved repeatedly, with columns added between solves.

    Each solve starts from the last basis. Columns have no upper bounds because rows limit them, and a bound
    would distort reduced costs.
    """

    def __init__(self, row_lower: FloatArray, row_upper: FloatArray) -> None:
        self._highs = _quiet_highs(solve_relaxation=True, simplex_strategy=_PRIMAL_SIMPLEX)
        none, rows = np.zeros(0, np.int32), len(row_lower)
        added = self._highs.addRows(rows, row_lower, row_upper, 0, none, none, np.zeros(0))
        _check(added, "add rows")

    def add(self, cost: FloatArray, start: IntArray, row: IntArray, value: FloatArray) -> None:
        """Add columns; `start` is the position of each column's first entry in `row` and `value`."""
        count, endless = len(cost), np.full(len(cost), highspy.kHighsInf)
        entries = start.astype(np.int32), row.astype(np.int32), value
        added = self._highs.addCols(count, cost, np.zeros(count), endless, len(row), *entries)
        _check(added, "add columns")

    def reprice(self, cost: FloatArray) -> None:
        """Change the costs of the first len(cost) columns."""
        first = np.arange(len(cost), dtype=np.int32)
        _check(self._highs.changeColsCost(len(first), first, cost), "change the costs of columns")

    def allow(self, upper: FloatArray) -> None:
        """Set the upper bound of each column; inf for none."""
        every = np.arange(len(upper), dtype=np.int32)
        upper = np.where(np.isinf(upper), highspy.kHighsInf, upper)
        changed = self._highs.changeColsBounds(len(every), every, np.zeros(len(every)), upper)
        _check(changed, "change the bounds of columns")

    def minimise(self, time_limit_s: float) -> RunResult:
        """Minimise over the current columns; the result contains the dual values of the rows.

        Raises:
            SolverError: HiGHS reports an error or an unexpected status.
        """
        # The clock of a used HiGHS instance continues, so the limit is added to the time so far.
        _set(self._highs, time_limit=self._highs.getRunTime() + time_limit_s)
        outcome, run_s = _outcome_of_run(self._highs)
        solution, value = self._highs.getSolution(), self._highs.getInfo().objective_function_value
        x, row_price = np.array(solution.col_value), np.array(solution.row_dual)
        return RunResult(outcome, x, float(value), run_s, row_price)


class _QuietHighs(highspy.Highs):
    """A HiGHS instance that prints nothing."""

    def enableCallbacks(self) -> None:  # noqa: N802
        """Suppress the banner that HiGHS prints in this method since 1.16.0; the constructor calls it."""
        self.silent()
        super().enableCallbacks()  # type: ignore[no-untyped-call]


def _quiet_highs(**options: bool | float) -> highspy.Highs:
    highs = _QuietHighs()  # type: ignore[no-untyped-call]
    _set(highs, **_FIXED_OPTIONS, **options)
    return highs


def _set(highs: highspy.Highs, **options: bool | float | str) -> None:
    for name, value in options.items():
        _check(highs.setOptionValue(name, value), f"set {name}")


def _outcome_of_run(highs: highspy.Highs) -> tuple[RunStatus, float]:
    """Run HiGHS; return its status and its run time [s]."""
    begin = time.perf_counter()
    _check(highs.run(), "run")
    run_s = time.perf_counter() - begin
    status = highs.getModelStatus()
    if status not in _OUTCOMES:
        raise SolverError(f"HiGHS ended with status {highs.modelStatusToString(status)!r}")
    return _OUTCOMES[status], run_s


def _check(status: highspy.HighsStatus, what: str) -> None:
    if status == highspy.HighsStatus.kError:
        raise SolverError(f"HiGHS could not {what}")


def _lp(model: MilpModel, objective: FloatArray) -> highspy.HighsLp:
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(model.lower), len(model.row_lower)
    lp.col_cost_ = objective
    lp.col_lower_, lp.col_upper_ = model.lower, model.upper
    lp.row_lower_, lp.row_upper_ = model.row_lower, model.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = model.row_start.astype(np.int32)
    lp.a_matrix_.index_ = model.row_index.astype(np.int32)
    lp.a_matrix_.value_ = model.row_value
    types = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    lp.integrality_ = [types[integer] for integer in model.integer.astype(int)]
    return lp
