"""The compact model as an LP or MPS file, with a legend of its variables."""

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.errors import SpecError
from optimizer.milp.model import MilpModel
from optimizer.milp.pulp_solvers import write_file
from optimizer.quantities import counted
from optimizer.solvers.compact_model import formulate
from optimizer.solvers.formulation import Formulation
from optimizer.solvers.levels import served_in_full
from optimizer.solvers.objectives import INTEGER_SLACK
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import Solution
from optimizer.spec.writing import write_text


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
    write_file(model, objective, [label for label, *_ in labels], path)
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
