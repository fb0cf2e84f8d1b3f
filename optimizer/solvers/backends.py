"""The same model on any solver that PuLP knows, and as an LP or MPS file. The only place that knows PuLP."""

import csv
import io
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pulp

from optimizer.arrays import FloatArray
from optimizer.errors import SolverError, SpecError
from optimizer.quantities import counted
from optimizer.solvers.compact_model import formulate
from optimizer.solvers.formulation import Formulation
from optimizer.solvers.levels import served_in_full
from optimizer.solvers.model import MilpModel, RunResult, RunStatus, Session
from optimizer.solvers.objectives import INTEGER_SLACK
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import Solution
from optimizer.spec.writing import write_text

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
        start: FloatArray | None,  # noqa: ARG002  few of PuLP's solvers take one
        gap: float,
        time_limit_s: float,
    ) -> RunResult:
        """Minimise objective·x.

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
        # PuLP hands on no bound: an optimal status means that the gap asked for was reached.
        bound = value - gap * abs(value) if outcome is RunStatus.optimal else -np.inf
        return RunResult(outcome, x, bound, run_s)


def solver_name(name: str) -> str:
    """Return PuLP's name of a solver.

    Raises:
        SpecError: PuLP does not know it, or it is not installed here.
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
    """Hide what PuLP 3 says of PuLP 4; `pyproject.toml` keeps to PuLP 2 and 3."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _pulp_problem(
    model: MilpModel, objective: FloatArray, names: list[str]
) -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    with _without_deprecations():
        problem = pulp.LpProblem("inferplan", pulp.LpMinimize)
        kinds = np.where(model.integer, pulp.LpInteger, pulp.LpContinuous)
        bounds = zip(names, model.lower, model.upper, kinds, strict=True)
        variables = [pulp.LpVariable(name, low, high, str(kind)) for name, low, high, kind in bounds]
        problem.addVariables(variables)
        problem += pulp.LpAffineExpression([(variables[i], objective[i]) for i in np.flatnonzero(objective)])
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


def write_model(problem: Problem, solution: Solution, names: tuple[tuple[str, ...], ...], path: Path) -> None:
    """Write the model of the value level as LP or MPS, by the suffix, with a legend beside it.

    The levels of service are pinned at what the solution serves in full, so the optimum of the file is the
    value of an exact plan without partial service. The legend, FILE.legend.csv, says what each variable
    stands for.

    Args:
        problem: what was chosen from.
        solution: what was chosen.
        names: the names of servers and of accelerators.
        path: FILE.lp or FILE.mps.

    Raises:
        SpecError: the suffix is of neither format, or the file cannot be written.
    """
    check_model_file(path)
    formulation = formulate(problem)
    model, objective = _value_level(problem, solution, formulation)
    labels = _labels(formulation, problem)
    if len(objective) > len(labels):
        labels.append(("constant", "what no choice changes", -1, -1))
    lp, _ = _pulp_problem(model, objective, [label for label, *_ in labels])
    writer = lp.writeLP if path.suffix.lower() == ".lp" else lp.writeMPS
    try:
        writer(str(path))
    except OSError as error:
        raise SpecError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None
    write_text(_legend(labels, names), path.with_name(path.name + ".legend.csv"))


def check_model_file(path: Path) -> None:
    """Refuse a file for a model whose suffix is of neither format.

    Raises:
        SpecError: the suffix is neither .lp nor .mps.
    """
    if path.suffix.lower() not in {".lp", ".mps"}:
        raise SpecError(f"{path}: the suffix must be .lp or .mps")


def _value_level(
    problem: Problem, solution: Solution, formulation: Formulation
) -> tuple[MilpModel, FloatArray]:
    """Return the model with every level of service pinned at what was reached, and the value to minimise.

    Neither file format keeps a constant in the objective: it stands beside a last variable that is one.
    """
    model, full = formulation.model, served_in_full(problem, solution.replicas)
    taken = (solution.replicas > 0) & full[problem.table.server]
    left = ~full & np.isin(np.arange(len(full)), formulation.servers)
    for level in problem.service:
        pinned, reached = formulation.coefficients(level), level.steps(left, taken)
        if pinned.any():
            model = model.with_limit(pinned, reached + INTEGER_SLACK)
    outside = ~np.isin(np.arange(len(problem.priority)), formulation.servers)
    offset = formulation.value_offset + float(problem.none_value[outside].sum())
    if not offset:
        return model, formulation.value
    with_constant = replace(
        model,
        lower=np.append(model.lower, 1.0),
        upper=np.append(model.upper, 1.0),
        integer=np.append(model.integer, False),
    )
    return with_constant, np.append(formulation.value, offset)


_Label = tuple[str, str, int, int]
"""Name in the file, meaning, server and accelerator (-1: none) of a variable."""


def _legend(labels: list[_Label], names: tuple[tuple[str, ...], ...]) -> str:
    """Return as CSV what each variable stands for."""
    servers, accelerators = names
    legend = io.StringIO()
    table = csv.writer(legend, lineterminator="\n")
    table.writerow(["variable", "stands for", "server", "accelerator"])
    for label, meaning, server, accelerator in labels:
        where = "" if accelerator < 0 else (*accelerators, "external", "shared cards")[accelerator]
        table.writerow([label, meaning, "" if server < 0 else (*servers, "shared cards")[server], where])
    return legend.getvalue()


def _labels(formulation: Formulation, problem: Problem) -> list[_Label]:
    """Return the label of every variable, in the order of the model."""
    table = problem.table
    labels = []
    for c, each in zip(formulation.columns, formulation.replicas_each, strict=True):
        server, accelerator = int(table.server[c]), int(table.accelerator[c])
        meaning = (
            "number of replicas"
            if problem.options.heterogeneous
            else f"takes {counted(int(each), 'replica')}"
        )
        off = formulation.routes is not None and bool(formulation.routes.undivided[c])
        meaning += " without a router" * off
        labels.append((f"x_{server}_{accelerator}" + "_off" * off, meaning, server, accelerator))
    labels += [(f"u_{s}", "is unserved", int(s), -1) for s in formulation.servers]
    for letter, columns, meaning in (
        ("s", formulation.staying, "keeps a pool where it runs now"),
        ("k", formulation.keeping, "keeps exactly what it has"),
    ):
        servers = formulation.column_servers[columns]
        labels += [(f"{letter}_{s}", meaning, int(s), -1) for s in servers]
    return labels + ([] if formulation.routes is None else list(_route_labels(formulation)))


def _route_labels(formulation: Formulation) -> Iterator[_Label]:
    assert formulation.routes is not None
    for r, route in enumerate(formulation.routes.routes):
        yield f"on_{r}", f"the router of {route.name} is in use", -1, -1
        yield f"w_{r}", f"{route.name} needs no replica of its large model", route.large, -1
        for d in range(len(route.rate_rps)):
            yield f"phi_{r}_{d}", f"share of kind {d + 1} of {route.name} at the small model", route.small, -1
    for column in formulation.routes.one_of.tolist():
        yield (
            f"z_{column}",
            "has its replicas on this accelerator",
            int(formulation.column_servers[column]),
            -1,
        )
