"""Model selection: drops, one at a time, parameters that the runs cannot identify."""

from collections.abc import Mapping, Sequence

import numpy as np

from optimizer.fitting.estimation import FitProblem, FitResult, Progress, fitted_parameters, refine
from optimizer.fitting.interval import ALPHA, alpha_interval
from optimizer.fitting.parameters import ADDED_LATER, BY_NAME, DRAWN, SIMPLIFIED_FIRST, StartPoint, plausible
from optimizer.quantities import be, counted

MAX_CONDITION = 30.0
"""Maximum condition number of the normalised Jacobian; two columns at an angle of 4° reach it."""
HOPELESS = 1e4
"""Condition number above which its size is meaningless, so messages omit it."""
MAX_RELATIVE_ERROR = 0.6
"""Relative standard error above which a parameter is dropped as unknown."""
LITTLE = 0.25
"""Fraction of a parameter's plausible value below which it probably fits noise, unless it is well known."""
LITTLE_KNOWN = 0.2
CLEARLY = 0.15
"""Maximum relative standard error of an added parameter. Standard errors ignore the roughness of replays: a
spurious parameter was once found four standard errors away from 0.
"""
CLEARLY_BETTER = 0.99865
"""Confidence at which an added parameter is kept: three standard errors, more with few runs."""
CONFIDENCE = 0.975
WELL_KNOWN = {"base_ms": 0.05, "compute_per_token_ms": 0.15}
"""Relative half-width of the 95 % interval above which α or β counts as poorly known."""
VALUES_EACH = 1.5
"""Minimum number of measured values per parameter."""
TOO_FEW = "too few measured values"
MANY_RUNS = "a sweep of rates for several shapes"
IT_IS_0 = "it is 0 within the accuracy of the runs"
TIED = 0.35
"""Component of the least identified direction above which a parameter belongs to this direction."""


def fit_identifiable(
    problem: FitProblem, names: Sequence[str], begin: Sequence[StartPoint], progress: Progress
) -> tuple[FitResult, list[str]]:
    """Fit the identifiable parameters; also return sentences on the others, and on runs to identify them.

    Args:
        problem: the runs.
        names: names of all parameters to consider.
        begin: starting points.
        progress: called with progress messages.

    Raises:
        FitError: no starting point gives positive times.
    """
    measured = len(problem.rows.name)
    first = _affordable([name for name in names if name not in ADDED_LATER], measured)
    left_out = {name: TOO_FEW for name in names if name not in (*first, *ADDED_LATER)}
    solution = fitted_parameters(problem, first, begin, progress)
    while True:
        weakest, why = _weakest(solution)
        if weakest is None:
            added = [name for name in names if name in ADDED_LATER]
            solution = _with_what_shows(problem, solution, added, begin, progress)
            told = _told(left_out, measured)
            scales = {name: begin[0][name] for name in left_out}
            return solution, [*_unknown_basics(problem, solution, scales), *told]
        left_out[weakest] = why
        progress(f"without {BY_NAME[weakest].key}: {why}")
        was_zero = solution.values[solution.names.index(weakest)] == 0
        solution = solution.without(weakest)
        if not was_zero:
            solution = refine(problem, solution, progress)


def _affordable(names: Sequence[str], measured: int) -> list[str]:
    """Return the parameters to fit: as many as the number of measured values can determine."""
    gone = [name for name in SIMPLIFIED_FIRST if name in names][
        : max(len(names) - int(measured / VALUES_EACH), 0)
    ]
    return [name for name in names if name not in gone]


def _told(left_out: Mapping[str, str], measured: int) -> list[str]:
    """Return sentences on why parameters are not fitted, and on runs that would identify non-zero ones."""
    few = [BY_NAME[name].key for name, why in left_out.items() if why == TOO_FEW]
    found = []
    for name, why in left_out.items():
        advice = "" if why == IT_IS_0 else f"; add {BY_NAME[name].shown_by}"
        found += [] if why == TOO_FEW else [f"{BY_NAME[name].key} is left out: {why}{advice}"]
    if few:
        found.append(
            f"left out: {', '.join(few)}; {counted(measured, 'measured value')} {be(measured)} too few for "
            f"them; add {MANY_RUNS}"
        )
    return found


def _unknown_basics(problem: FitProblem, solution: FitResult, left_out: Mapping[str, float]) -> list[str]:
    """Return sentences about α and β, which are always fitted, if the runs do not determine them well."""
    errors = solution.standard_errors() * _student(solution, CONFIDENCE)
    found = []
    for name, value, error in zip(solution.names, solution.values, errors, strict=True):
        if name not in WELL_KNOWN:
            continue
        low, high = value - error, value + error
        if name == ALPHA:
            low, high = alpha_interval(problem, solution, left_out)
        if value > 0 and max(high - value, value - low) <= WELL_KNOWN[name] * value:
            continue
        key, runs = BY_NAME[name].key, BY_NAME[name].shown_by
        if name == ALPHA and any(run.run.is_alone for run in problem.whole):
            runs = MANY_RUNS
        ends = f"{max(min(low, value), 0.0):.3g} to {max(high, value):.3g}"
        found.append(f"{key} is not well known from these runs: {value:.3g}, {ends} at 95 %; add {runs}")
    return found


def _student(solution: FitResult, confidence: float) -> float:
    """Return the quantile of Student's distribution for the residual degrees of freedom of a fit."""
    from scipy.special import stdtrit

    return float(stdtrit(max(len(solution.residuals) - len(solution.names), 1), confidence))


def _with_what_shows(
    problem: FitProblem,
    solution: FitResult,
    added: Sequence[str],
    begin: Sequence[StartPoint],
    progress: Progress,
) -> FitResult:
    """Return the fit with those of the parameters `added` that the runs clearly identify."""
    for name in added:
        key, scale = BY_NAME[name].key, begin[0][name]
        progress(f"with {key}")
        more = refine(problem, solution.with_another(name, scale), progress)
        error, value = float(more.standard_errors()[-1]), float(more.values[-1])
        progress(f"{key} {value:.3g} ± {error:.2g}")
        known = value > 0 and error < CLEARLY * value
        if known and _gain(solution, more) > _student(solution, CLEARLY_BETTER) ** 2:
            solution = more
    return solution


def _gain(solution: FitResult, more: FitResult) -> float:
    """Return the F statistic of one more parameter; negative if the search with it ended at a worse fit."""
    free = len(more.residuals) - len(more.names)
    return free * (solution.loss - more.loss) / max(more.loss, 1e-300)


def _weakest(solution: FitResult) -> tuple[str | None, str]:
    """Return the parameter to drop next and the reason; None if the runs identify all parameters."""
    droppable = [name for name in SIMPLIFIED_FIRST if name in solution.names]
    values = dict(zip(solution.names, solution.values, strict=True))
    free = [name for name, value in values.items() if value > 0]
    zero = [name for name in droppable if name not in free]
    if zero:
        return zero[0], IT_IS_0
    if values.get("compute_per_token_ms") == 0 and "kv_read_per_token_ms" in droppable:
        return "kv_read_per_token_ms", "beside it beta would be 0, which no engine reaches"
    unseen = solution.without_effect()
    for name in droppable:
        if name in unseen:
            return name, "it has no effect on these runs"
    condition = solution.condition()
    if condition > MAX_CONDITION and not unseen:
        tied = _unseen_direction(solution, free)
        for name in droppable:
            if name in tied:
                others = " and ".join(BY_NAME[other].key for other in tied if other != name)
                why = f"these shapes and rates cannot distinguish it from {others}"
                return name, f"{why} (condition number {condition:.0f})" if condition < HOPELESS else why
    errors = dict(zip(solution.names, solution.standard_errors(), strict=True))
    for name in droppable:
        little = name in DRAWN and values[name] < LITTLE * plausible(name, values)
        if errors[name] > (LITTLE_KNOWN if little else MAX_RELATIVE_ERROR) * values[name]:
            return name, f"{values[name]:.3g} ± {errors[name]:.2g} is not known from these runs"
    return None, ""


def _unseen_direction(solution: FitResult, free: Sequence[str]) -> list[str]:
    """Return the parameters that can change together with almost no effect on the residuals."""
    table = solution.sensitivities()
    _, _, directions = np.linalg.svd(table, full_matrices=False)
    shares = np.abs(directions[-1])
    return [name for name, share in zip(free, shares, strict=True) if share > TIED]
