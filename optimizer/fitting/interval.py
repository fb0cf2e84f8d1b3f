"""Confidence interval of α, from noise, random requests and parameters that are not fitted (eq. 242)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.fitting.estimation import FitProblem, FitResult, simulate_all
from optimizer.fitting.parameters import coefficients
from optimizer.fitting.replay import MANY_REQUESTS, BenchmarkReplay

NOISE = 0.01
"""Relative noise of a measured metric, due to the client's clock and the state of the server."""
NORMAL = 1.96
"""Half-width of a 95 % interval in standard errors."""
UNSEEN = 1e-9
"""Fisher information assumed for a parameter that affects no metric."""
ALPHA = "base_ms"


def alpha_interval(
    problem: FitProblem, solution: FitResult, left_out: Mapping[str, float]
) -> tuple[float, float]:
    """Return the 95 % confidence interval of α [ms], from one more weighted least-squares step.

    Each measured metric is weighted by its variance: that of the measurement, and that of its random
    requests, which are not those of the replay. Parameters that are not fitted are assumed to be at most
    about as large as their plausible values.

    Args:
        problem: the runs.
        solution: the fit.
        left_out: plausible values of the parameters that are not fitted, by name.
    """
    from scipy.optimize import lsq_linear

    free = (solution.values > 0) | (np.array(solution.names) == ALPHA)
    expected, variance = _over_draws(problem, solution)
    known = solution.jacobian[:, free] / problem.rows.weight[:, None]
    table = np.hstack([known, _moves(problem, solution, left_out)])
    noise = np.sqrt(NOISE**2 + variance)
    unknown = np.arange(table.shape[1]) >= known.shape[1]
    columns = np.vstack([table / noise[:, None], np.diag(unknown.astype(float))])
    wanted = np.concatenate([(problem.rows.log_measured - expected) / noise, np.zeros(table.shape[1])])
    shares = solution.values[free] / solution.scales[free]
    least = np.concatenate([-shares - 1e-12, np.full(int(unknown.sum()), -1e-12)])
    step = lsq_linear(columns, wanted, bounds=(least, np.inf)).x
    misfit = ((columns @ step - wanted)[: len(table)] ** 2).sum() / max(len(table) - known.shape[1], 1)
    information = columns.T @ columns + UNSEEN * np.eye(len(step))
    place = [name for name, kept in zip(solution.names, free, strict=True) if kept].index(ALPHA)
    half = NORMAL * np.sqrt(np.linalg.inv(information)[place, place] * max(float(misfit), 1.0))
    scale = float(solution.scales[solution.names.index(ALPHA)])
    middle = shares[place] + step[place]
    return max(scale * float(middle - half), 0.0), scale * float(middle + half)


def _over_draws(problem: FitProblem, solution: FitResult) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of the logarithms of the metrics over other random requests, shapes (N,)."""
    many = [BenchmarkReplay.of(one.run, one.limits, MANY_REQUESTS) for one in problem.whole]
    singles = [replace(one, draws=(draw,)) for one in many for draw in one.draws]
    figures = iter(simulate_all(singles, [coefficients(solution.names, solution.values)])[0])
    runs = [[next(figures) for _ in one.draws] for one in many]
    draws = max(map(len, runs))
    logs = np.array([problem.logs([found[i % len(found)] for found in runs]) for i in range(draws)])
    spread = logs.var(axis=0, ddof=1) * (1 + 1 / draws) if draws > 1 else np.zeros(logs.shape[1])
    return logs.mean(axis=0), spread


def _moves(problem: FitProblem, solution: FitResult, left_out: Mapping[str, float]) -> FloatArray:
    """Return the changes of log metrics by each unfitted parameter at its plausible value, shape (N, E)."""
    names = (*solution.names, *left_out)
    points: Sequence[FloatArray] = [
        np.concatenate([solution.values, [value * (name == other) for other, value in left_out.items()]])
        for name in ("", *left_out)
    ]
    base, *moved = problem.logs_of(names, points, problem.whole)
    return np.reshape([one - base for one in moved], (len(left_out), len(base))).T
