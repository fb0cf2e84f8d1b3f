"""Writes the compact model as an LP or MPS file, with a legend of its variables."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.errors import SpecError
from optimizer.milp.model import MilpModel
from optimizer.milp.pulp_solvers import write_file
from optimizer.solvers.compact_model import formulate
from optimizer.solvers.formulation import Formulation
from optimizer.solvers.levels import Reached, served_in_full, with_outside
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import Solution
from optimizer.spec.writing import write_text
from optimizer.topologies.topology import Label


def write_model(problem: Problem, solution: Solution, names: tuple[tuple[str, ...], ...], path: Path) -> None:
    """Write the model of the value level as an LP or MPS file, and a legend next to it.

    Earlier levels are fixed to the full service of the solution, so the optimum of the file is the transition
    cost of an exact plan without partial service. The legend, FILE.legend.csv, states the meaning of each
    variable.

    Args:
        problem: the planning problem.
        names: names of servers, and names of accelerators.
        path: FILE.lp or FILE.mps; the suffix selects the format.

    Raises:
        SpecError: the suffix is of neither format, or the file cannot be written.
    """
    check_model_file(path)
    formulation = formulate(problem)
    model, objective = _value_level(problem, solution, formulation)
    labels = formulation.labels
    if len(objective) > len(labels):
        labels.append(("constant", "what no choice changes", -1, -1))
    write_file(model, objective, [label for label, *_ in labels], path)
    write_text(_legend(labels, names), path.with_name(path.name + ".legend.csv"))


def check_model_file(path: Path) -> None:
    """Reject a model file with an unknown suffix.

    Raises:
        SpecError: the suffix is neither .lp nor .mps.
    """
    if path.suffix.lower() not in {".lp", ".mps"}:
        raise SpecError(f"{path}: the suffix must be .lp or .mps")


def _value_level(
    problem: Problem, solution: Solution, formulation: Formulation
) -> tuple[MilpModel, FloatArray]:
    """Return the model with all levels before the value level fixed, and the objective of the value level.

    Neither file format supports a constant in the objective. So the constant is the coefficient of an
    additional last variable, which is fixed to 1.
    """
    model, full = formulation.model, served_in_full(problem, solution.replicas)
    reached = Reached(problem, np.where(full[problem.table.server], solution.replicas, 0))
    without, offset = ~np.isin(np.arange(len(full)), formulation.servers), 0.0
    for level in with_outside(problem, without):
        coefficients, constant = formulation.coefficients(level), formulation.constant(level)
        if level.on_value:
            offset = constant
            break
        if coefficients.any():
            value = reached.of(level)
            model = model.with_limit(coefficients, value + level.slack(value) - constant)
    if not offset:
        return model, formulation.value
    none = np.zeros(0, np.int64)
    wider = model.widened(np.ones(1), (none, none, np.zeros(0)))
    return replace(wider, lower=np.append(model.lower, 1.0)), np.append(formulation.value, offset)


def _legend(labels: list[Label], names: tuple[tuple[str, ...], ...]) -> str:
    """Return a CSV table with the meaning of each variable."""
    servers, accelerators = names
    legend = io.StringIO()
    table = csv.writer(legend, lineterminator="\n")
    table.writerow(["variable", "stands for", "server", "accelerator"])
    for label, meaning, server, accelerator in labels:
        where = "" if accelerator < 0 else (*accelerators, "external", "shared cards")[accelerator]
        table.writerow([label, meaning, "" if server < 0 else (*servers, "shared cards")[server], where])
    return legend.getvalue()
