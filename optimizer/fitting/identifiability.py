"""Model selection: drop, one at a time, parameters that the runs cannot identify."""

from collections.abc import Sequence

import numpy as np

from optimizer.fitting.estimation import FitProblem, FitResult, Progress, refine, solve
from optimizer.fitting.parameters import ADDED_LATER, BY_NAME, DRAWN, SIMPLIFIED_FIRST, StartPoint, plausible

MAX_CONDITION = 30.0
"""Limit of the condition number of the equilibrated Jacobian; two columns at an angle of 4° reach it."""
MAX_RELATIVE_ERROR = 0.6
"""Relative standard error above which a parameter counts as unknown."""
LITTLE = 0.25
"""Share of its plausible value below which a parameter probably fits noise, unless well known."""
LITTLE_KNOWN = 0.2
CLEARLY = 0.15
"""Maximum relative standard error of an added parameter. Standard errors ignore the roughness of replays: a
spurious parameter has been found four of them away from 0."""
CLEARLY_BETTER = 9.0
"""F statistic above which an added parameter is kept: three standard errors."""
TIED = 0.35
"""Component in the unidentified direction above which a parameter belongs to it."""


def fit_identifiable(
    problem: FitProblem, names: Sequence[str], begin: Sequence[StartPoint], progress: Progress
) -> tuple[FitResult, list[str]]:
    """Fit the identifiable parameters, and return the reasons for the dropped ones.

    Args:
        problem: the runs.
        names: candidate parameters.
        begin: starting points.
        progress: called with progress messages.

    Raises:
        FitError: no starting point gives positive times.
    """
    solution = solve(problem, [name for name in names if name not in ADDED_LATER], begin, progress)
    left_out: list[str] = []
    while True:
        weakest, why = _weakest(solution)
        if weakest is None:
            added = [name for name in names if name in ADDED_LATER]
            return _with_what_shows(problem, solution, added, begin, progress), left_out
        key = BY_NAME[weakest].key
        left_out.append(f"{key} is left out: {why}")
        progress(f"without {key}: {why}")
        was_zero = solution.values[solution.names.index(weakest)] == 0
        solution = solution.without(weakest)
        if not was_zero:
            solution = refine(problem, solution, progress)


def _with_what_shows(
    problem: FitProblem,
    solution: FitResult,
    added: Sequence[str],
    begin: Sequence[StartPoint],
    progress: Progress,
) -> FitResult:
    """Return the best fit with those further parameters that the runs clearly identify."""
    for name in added:
        key, scale = BY_NAME[name].key, begin[0][name]
        progress(f"with {key}")
        more = refine(problem, solution.with_another(name, scale), progress)
        error, value = float(more.standard_errors()[-1]), float(more.values[-1])
        progress(f"{key} {value:.3g} ± {error:.2g}")
        known = value > 0 and error < CLEARLY * value
        if known and _gain(solution, more) > CLEARLY_BETTER:
            solution = more
    return solution


def _gain(solution: FitResult, more: FitResult) -> float:
    """Return the F statistic of one more parameter; below 0 if the search with it ended at a worse fit."""
    free = len(more.residuals) - len(more.names)
    return free * (solution.loss - more.loss) / max(more.loss, 1e-300)


def _weakest(solution: FitResult) -> tuple[str | None, str]:
    """Return the parameter to drop and the reason; None if all are identified."""
    droppable = [name for name in SIMPLIFIED_FIRST if name in solution.names]
    free = [name for name, value in zip(solution.names, solution.values, strict=True) if value > 0]
    zero = [name for name in droppable if name not in free]
    if zero:
        return zero[0], "it is 0 within the accuracy of the runs"
    condition = solution.condition()
    if condition > MAX_CONDITION:
        tied = _unseen_direction(solution, free)
        for name in droppable:
            if name in tied:
                others = " and ".join(BY_NAME[other].key for other in tied if other != name)
                why = f"these shapes and rates cannot distinguish it from {others}"
                return name, f"{why} (condition number {condition:.0f})"
    errors = dict(zip(solution.names, solution.standard_errors(), strict=True))
    values = dict(zip(solution.names, solution.values, strict=True))
    for name in droppable:
        little = name in DRAWN and values[name] < LITTLE * plausible(name, values)
        if errors[name] > (LITTLE_KNOWN if little else MAX_RELATIVE_ERROR) * values[name]:
            return name, f"{values[name]:.3g} ± {errors[name]:.2g} is not known from these runs"
    return None, ""


def _unseen_direction(solution: FitResult, free: Sequence[str]) -> list[str]:
    """Return the parameters that can change together with hardly any effect on the residuals."""
    table = solution.sensitivities()
    table = table / np.linalg.norm(table, axis=0)
    _, _, directions = np.linalg.svd(table, full_matrices=False)
    shares = np.abs(directions[-1])
    return [name for name, share in zip(free, shares, strict=True) if share > TIED]
