"""Solves models with any solver that PuLP supports, and writes LP or MPS files; no other module uses PuLP."""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pulp

from optimizer.arrays import FloatArray
from optimizer.errors import SolverError, SpecError, reason_of
from optimizer.milp.model import MilpModel, RunResult, RunStatus, Session

_ALIASES = {"CBC": "PULP_CBC_CMD", "CPLEX": "CPLEX_PY", "GLPK": "GLPK_CMD", "SCIP": "SCIP_CMD"}
_OUTCOMES = {
    pulp.LpSolutionOptimal: RunStatus.optimal,
    pulp.LpSolutionIntegerFeasible: RunStatus.time_limit,
    pulp.LpSolutionNoSolutionFound: RunStatus.time_limit,
    pulp.LpSolutionInfeasible: RunStatus.infeasible,
}


class PulpSession(Session):
    """A model that is built from scratch in PuLP for every run."""

    def __init__(self, model: MilpModel, solver: str) -> None:
        super().__init__(model)
        self._solver = solver_name(solver)

    def minimise(
        self,
        objective: FloatArray,
        start: FloatArray | None,  # noqa: ARG002  few PuLP solvers support a start
        gap: float,
        time_limit_s: float,
    ) -> RunResult:
        """Minimise objective·x in one run.

        Raises:
            SolverError: the solver failed.
        """
        if time_limit_s <= 0:
            return RunResult(RunStatus.time_limit, None, -np.inf, 0.0)
        names = [f"v_{i}" for i in range(len(objective))]
        problem, variables = _pulp_problem(self.model, objective, names)
        with _without_deprecations():
            solver = pulp.getSolver(self._solver, msg=False, gapRel=gap, timeLimit=max(time_limit_s, 0.1))
            begin = time.perf_counter()
            try:
                problem.solve(solver)
            except pulp.PulpSolverError as error:
                raise SolverError(f"{self._solver} failed: {error}") from None
        run_s = time.perf_counter() - begin
        outcome = _OUTCOMES.get(problem.sol_status)
        if outcome is None:
            raise SolverError(f"{self._solver} ended with status {pulp.LpSolution[problem.sol_status]!r}")
        if problem.sol_status not in {pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible}:
            return RunResult(outcome, None, -np.inf, run_s)
        x = np.array([variable.varValue or 0.0 for variable in variables])
        x[self.model.integer] = np.round(x[self.model.integer])
        value = float(objective @ x)
        # PuLP returns no bound; an optimal status means that the requested gap was reached.
        bound = value - gap * abs(value) if outcome is RunStatus.optimal else -np.inf
        return RunResult(outcome, x, bound, run_s)


def solver_name(name: str) -> str:
    """Return PuLP's spelling of the name of a solver.

    Raises:
        SpecError: PuLP does not support the solver, or it is not installed.
    """
    known = sorted(set(pulp.listSolvers()))
    full = _ALIASES.get(name.upper(), name)
    if full not in known:
        raise SpecError(f"backend: {name!r} is not known; choose highs, CBC or {', '.join(sorted(known))}")
    with _without_deprecations():
        if not pulp.getSolver(full, msg=False).available():
            raise SpecError(f"backend: {name} is not installed here; install it, or use highs or CBC")
    return full


@contextmanager
def _without_deprecations() -> Iterator[None]:
    """Context manager that hides PuLP 3's deprecation warnings about PuLP 4.

    `pyproject.toml` requires PuLP 2 or 3.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _pulp_problem(
    model: MilpModel, objective: FloatArray, names: list[str]
) -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    with _without_deprecations():
        problem = pulp.LpProblem("inferplan", pulp.LpMinimize)
        categories = np.where(model.integer, pulp.LpInteger, pulp.LpContinuous)
        bounds = zip(names, model.lower, model.upper, categories, strict=True)
        variables = [pulp.LpVariable(name, low, high, str(category)) for name, low, high, category in bounds]
        problem.addVariables(variables)
        problem += pulp.LpAffineExpression([(variables[i], objective[i]) for i in np.flatnonzero(objective)])
    # Files in MPS format define variables by their entries, so the others get a row.
    unused = np.setdiff1d(np.flatnonzero(objective == 0), model.row_index)
    for variable in unused.tolist():
        problem += variables[variable] >= model.lower[variable]
    for row in range(len(model.row_lower)):
        entries = range(model.row_start[row], model.row_start[row + 1])
        body = pulp.LpAffineExpression([(variables[model.row_index[e]], model.row_value[e]) for e in entries])
        lower, upper = model.row_lower[row], model.row_upper[row]
        if lower == upper:
            problem += body == upper
        else:
            if np.isfinite(lower):
                problem += body >= lower
            if np.isfinite(upper):
                problem += body <= upper
    return problem, variables


def write_file(model: MilpModel, objective: FloatArray, names: list[str], path: Path) -> None:
    """Write a model to an LP or MPS file, depending on the suffix.

    Args:
        objective: coefficients of the objective to minimise.
        names: names of the variables.
        path: FILE.lp or FILE.mps.

    Raises:
        SpecError: the file cannot be written.
    """
    lp, _ = _pulp_problem(model, objective, names)
    writer = lp.writeLP if path.suffix.lower() == ".lp" else lp.writeMPS
    try:
        writer(str(path))
    except OSError as error:
        raise SpecError(f"{path}: cannot be written: {reason_of(error)}") from None
