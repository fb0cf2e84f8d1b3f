"""Estimates the parameters that minimise the errors of replayed benchmark runs.

Residuals are logarithms of predicted over measured metrics, under a robust loss (eq. 98). The metrics of a
replayed run are a rough function of the parameters, so derivatives are finite differences over steps that
change the times by several percent.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.errors import AnalysisError, FitError
from optimizer.fitting.parameters import DRAWN, StartPoint, coefficients, prior_residuals
from optimizer.fitting.replay import BenchmarkReplay, RunMetrics, with_fewer_requests
from optimizer.fitting.runs import BenchmarkRun
from optimizer.parallel import in_threads
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import Limits

LOSS_SCALE = 0.05
"""Residual above which the loss is about linear instead of quadratic."""
WEIGHTS = {"itl_ms": 1.0, "ttft_ms": 0.6, "throughput_rps": 1.0}
"""Weights of residuals by metric: median TTFTs scatter about twice as much as ITLs."""
MOVE = 0.03
"""Target root-mean-square change of residuals in a finite difference; the roughness of a replay is about
0.005.
"""
FIRST_STEP, MIN_STEP, MAX_STEP = 0.1, 0.02, 0.5
"""Steps of finite differences, relative to a parameter's scale."""
MAX_JACOBIANS = 16
FIRST_JACOBIANS = 5
"""Number of Jacobians computed for every starting point; only the best point continues."""
MAX_ROUNDS = 6
WORTH_A_ROUND = 0.01
"""Minimum relative improvement of the loss for another round of short and full runs."""
MIN_SHARE = 1e-4
"""Smallest value, relative to a parameter's scale, at which derivatives are evaluated."""
NOTHING_COMPLETED = 3.0
"""Residual of a run in which the model completes no request."""
TOLERANCE = 1e-3
DAMPINGS = (1e-4, 1e-2, 0.1, 1.0, 10.0)
"""Factors on the previous best damping; all are tried at once."""
MAX_DAMPING = 1e4
MIN_NOISE = 0.003
"""Minimum assumed relative error of measurements, due to the client's clock and randomly drawn lengths."""
MAX_CHORDS = 5
"""Maximum number of steps of a refit without one shape (pair of request lengths)."""
CHORD_DAMPINGS = (1e-4, 0.3)

Progress = Callable[[str], None]


class Residuals(NamedTuple):
    """The N metrics that are compared with measurements, one residual each; shapes (N,)."""

    run: IntArray
    """Index of the metric's run."""
    name: tuple[str, ...]
    """Name of the metric."""
    log_measured: FloatArray
    weight: FloatArray


def residual_rows(runs: Sequence[BenchmarkRun]) -> Residuals:
    """Return the metrics of runs to compare: times, and throughput of closed loops of several users."""
    rows = [
        (i, name, value)
        for i, run in enumerate(runs)
        for name in WEIGHTS
        if (value := getattr(run.measured, name)) is not None
        if name != "throughput_rps" or run.is_full
    ]
    return Residuals(
        np.array([row[0] for row in rows], dtype=np.int64),
        tuple(row[1] for row in rows),
        np.log([row[2] for row in rows]),
        np.array([WEIGHTS[row[1]] for row in rows]),
    )


@dataclass(frozen=True, slots=True)
class FitProblem:
    """The runs to fit, which are replayed in parallel threads.

    Long runs also have a short form. The prediction of the full run is approximated by that of the short run,
    multiplied by the ratio full/short for other parameters.
    """

    whole: tuple[BenchmarkReplay, ...]
    short: tuple[BenchmarkReplay, ...]
    rows: Residuals

    @classmethod
    def of(cls, runs: Sequence[BenchmarkRun], limits: Limits) -> "FitProblem":
        """Create the problem: draw the requests of all runs, in full and short form."""
        whole = tuple(BenchmarkReplay.of(run, limits) for run in runs)
        short = tuple(
            whole[i] if (cut := with_fewer_requests(run)) is run else BenchmarkReplay.of(cut, limits)
            for i, run in enumerate(runs)
        )
        return cls(whole, short, residual_rows(runs))

    def take(self, names: Sequence[str], values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the residuals of the full runs at a point, and log(full/short) of metrics; shapes (N,)."""
        whole, short = (self.logs_of(names, [values], replays)[0] for replays in (self.whole, self.short))
        return self.rows.weight * (whole - self.rows.log_measured), whole - short

    def without(self, rows: BoolArray) -> "FitProblem":
        """Return the problem without the residuals in a mask, and without runs that then have none left."""
        runs, place = np.unique(self.rows.run[~rows], return_inverse=True)
        kept = Residuals(
            place,
            tuple(name for name, gone in zip(self.rows.name, rows, strict=True) if not gone),
            self.rows.log_measured[~rows],
            self.rows.weight[~rows],
        )
        return FitProblem(tuple(self.whole[i] for i in runs), tuple(self.short[i] for i in runs), kept)

    def logs_of(
        self, names: Sequence[str], points: Sequence[FloatArray], replays: Sequence[BenchmarkReplay]
    ) -> list[FloatArray]:
        """Return the logarithms of the compared metrics of replays at each of several points; shapes (N,)."""
        laws = [coefficients(names, point) for point in points]
        return [self.logs(figures) for figures in simulate_all(replays, laws)]

    def logs(self, figures: Sequence[RunMetrics]) -> FloatArray:
        """Return the logarithms of the compared metrics, shape (N,), given all metrics of each run."""
        values = [getattr(figures[i], name) for i, name in zip(self.rows.run, self.rows.name, strict=True)]
        predicted = np.array(values, dtype=np.float64)
        known = predicted > 0
        far = self.rows.log_measured + NOTHING_COMPLETED
        return np.where(known, np.log(np.where(known, predicted, 1.0)), far)


def simulate_all(
    replays: Sequence[BenchmarkReplay], laws: Sequence[IterationCoefficients]
) -> list[list[RunMetrics]]:
    """Simulate every run with each of several latency models, in parallel threads; return the metrics."""
    tasks = [(law, run) for law in range(len(laws)) for run in range(len(replays))]
    tasks.sort(key=lambda task: -len(replays[task[1]]))  # longest runs first
    found = dict(in_threads(lambda task: (task, replays[task[1]].simulate(laws[task[0]])), tasks))
    return [[found[law, run] for run in range(len(replays))] for law in range(len(laws))]


@dataclass(frozen=True, slots=True)
class FitResult:
    """Fitted parameters that minimise the loss, with the derivatives of the residuals."""

    names: tuple[str, ...]
    values: FloatArray
    """Parameter values, shape (P,)."""
    scales: FloatArray
    residuals: FloatArray
    """Residuals at the fitted values, shape (N,)."""
    jacobian: FloatArray
    """Derivatives of the residuals with respect to parameters divided by their scales, shape (N, P)."""
    penalties: FloatArray
    """Derivatives of the K prior residuals with respect to parameters divided by their scales, shape (K, P).
    """
    loss: float

    @property
    def weights(self) -> FloatArray:
        """Robust weight of each residual, 1 for small ones; shape (N,)."""
        return 1 / np.sqrt(1 + (self.residuals / LOSS_SCALE) ** 2)

    def without(self, name: str) -> "FitResult":
        """Return the result without the named parameter."""
        kept = [i for i, other in enumerate(self.names) if other != name]
        drawn = [other for other in DRAWN if other in self.names]
        return replace(
            self,
            names=tuple(self.names[i] for i in kept),
            values=self.values[kept],
            scales=self.scales[kept],
            jacobian=self.jacobian[:, kept],
            penalties=self.penalties[[other != name for other in drawn]][:, kept],
        )

    def with_another(self, name: str, scale: float) -> "FitResult":
        """Return the result with another parameter at the value `scale`, as the starting point of a refit."""
        return replace(
            self,
            names=(*self.names, name),
            values=np.append(self.values, scale),
            scales=np.append(self.scales, scale),
            jacobian=np.column_stack([self.jacobian, np.zeros(len(self.jacobian))]),
            penalties=np.column_stack([self.penalties, np.zeros(len(self.penalties))]),
        )

    def standard_errors(self) -> FloatArray:
        """Return the standard errors of parameters, ignoring priors, shape (P,); 0 for parameters at 0."""
        free = self.values > 0
        weighted = self.jacobian[:, free] * np.sqrt(self.weights)[:, None]
        spare = max(len(self.residuals) - int(free.sum()), 1)
        noise = max(float((self.weights * self.residuals**2).sum()) / spare, MIN_NOISE**2)
        variance = noise * np.diag(np.linalg.pinv(weighted.T @ weighted, rcond=1e-14))
        errors = np.zeros(len(self.values))
        errors[free] = np.sqrt(np.maximum(variance, 0.0)) * self.scales[free]
        return errors

    def sensitivities(self) -> FloatArray:
        """Return the Jacobian of the non-zero parameters, with columns normalised to length 1."""
        free = self.values > 0
        table = self.jacobian[:, free] * np.sqrt(self.weights)[:, None]
        lengths = np.linalg.norm(table, axis=0)
        return table / np.where(lengths > 0, lengths, np.inf)

    def without_effect(self) -> list[str]:
        """Return the names of non-zero parameters that affect no residual."""
        free = [name for name, value in zip(self.names, self.values, strict=True) if value > 0]
        moves = np.abs(self.sensitivities()).sum(axis=0) > 0
        return [name for name, moved in zip(free, moves, strict=True) if not moved]

    def condition(self) -> float:
        """Return the condition number of the normalised Jacobian; inf if a parameter has no effect."""
        table = self.sensitivities()
        return float(np.linalg.cond(table)) if table.any(axis=0).all() else float("inf")


def soft_l1(residuals: FloatArray) -> float:
    """Return the soft-L1 loss: about quadratic in small residuals and linear in large ones."""
    return float(LOSS_SCALE**2 * (np.sqrt(1 + (residuals / LOSS_SCALE) ** 2) - 1).sum())


def fitted_parameters(
    problem: FitProblem, names: Sequence[str], begin: Iterable[StartPoint], progress: Progress
) -> FitResult:
    """Fit non-negative parameters from several starting points; return the best result.

    Args:
        problem: the runs.
        names: names of the parameters.
        begin: starting points.
        progress: called with progress messages.

    Raises:
        FitError: no starting point gives positive times.
    """
    tried: list[tuple[float, FloatArray, _ScaledSearch]] = []
    for number, start in enumerate(begin, start=1):
        search = _ScaledSearch(problem, names, np.array([start[name] for name in names]))
        try:
            x, loss = search.descend(np.ones(len(names)), 0.0, FIRST_JACOBIANS)
        except AnalysisError as error:
            progress(f"start {number} leads nowhere: {error}")
            continue
        progress(f"start {number}: loss {loss:.4g}")
        tried.append((loss, x, search))
    if not tried:
        raise FitError("no start values give positive times; check that the measured times are in ms")
    _, x, search = min(tried, key=lambda found: found[0])
    return search.settle(x, progress)


def refine(problem: FitProblem, solution: FitResult, progress: Progress) -> FitResult:
    """Continue the search from a given result; return the best parameters nearby."""
    x = np.maximum(solution.values / solution.scales, MIN_SHARE)
    return _ScaledSearch(problem, solution.names, solution.scales).settle(x, progress)


def refit_without(problem: FitProblem, solution: FitResult, rows: BoolArray) -> FloatArray | None:
    """Return the parameters fitted without the residuals in a mask; None if the others do not identify them.

    The search starts at the full fit and keeps its Jacobian, which hardly changes over such a short distance.
    So each step needs only one replay of the runs.
    """
    free = solution.values > 0
    jacobian = np.vstack([solution.jacobian[~rows], solution.penalties]) * free
    root = np.append(np.sqrt(solution.weights)[~rows], np.ones(len(solution.penalties)))
    if np.linalg.matrix_rank((jacobian * root[:, None])[:, free]) < int(free.sum()):
        return None
    kept, names, scales = problem.without(rows), solution.names, solution.scales
    search = _ScaledSearch(kept, names, scales)
    x = solution.values / scales
    residuals = np.append(solution.residuals[~rows], prior_residuals(names, solution.values))
    loss = soft_l1(residuals)
    for _ in range(MAX_CHORDS):
        tried = [_damped(jacobian, residuals, x, damping) for damping in CHORD_DAMPINGS]
        found = search.residuals(tried, kept.whole)
        losses = [soft_l1(one) for one in found]
        best = int(np.argmin(losses))
        gain = loss - losses[best]
        if gain > 0:
            x, residuals, loss = tried[best], found[best], losses[best]
        if gain < WORTH_A_ROUND * loss:
            break
    return np.asarray(x * scales)


@dataclass(frozen=True, slots=True)
class _ScaledSearch:
    """A search for the best parameters; points are parameters divided by their scales, shape (P,)."""

    problem: FitProblem
    names: Sequence[str]
    scales: FloatArray

    def settle(self, x: FloatArray, progress: Progress) -> FitResult:
        """Alternate between minimising on short runs and evaluating full runs until the loss stays."""
        least, best = np.inf, x
        for _ in range(MAX_ROUNDS):
            values = x * self.scales
            residuals, excess = self.problem.take(self.names, values)
            loss = soft_l1(np.append(residuals, prior_residuals(self.names, values)))
            progress(f"loss {loss:.4g}")
            better, worth = loss < least, loss < least * (1 - WORTH_A_ROUND)
            if better:
                least, best = loss, x
            if not worth:
                break
            x, _ = self.descend(x, excess, MAX_JACOBIANS)
        x = np.where(best < 2 * MIN_SHARE, 0.0, best)
        values = x * self.scales
        residuals, _ = self.problem.take(self.names, values)
        jacobian = self.differences(x, np.full(len(x), FIRST_STEP))
        jacobian = self.differences(x, _steps(jacobian))
        of_runs, of_priors = np.split(jacobian, [len(residuals)])
        loss = soft_l1(residuals)
        return FitResult(tuple(self.names), values, self.scales, residuals, of_runs, of_priors, loss)

    def descend(self, x: FloatArray, excess: FloatArray | float, jacobians: int) -> tuple[FloatArray, float]:
        """Minimise the loss of the short runs; return the best point and its loss.

        The method is iteratively reweighted Levenberg-Marquardt. The bounded linear problem is solved for
        several dampings and all solutions are evaluated, because on a rough function a search that tries one
        at a time can get stuck.
        """
        short = self.problem.short
        residuals = self.residuals([x], short, excess)[0]
        loss = soft_l1(residuals)
        damping, steps = 1.0, np.full(len(x), FIRST_STEP)
        for _ in range(jacobians):
            jacobian = self.differences(x, steps)
            steps = _steps(jacobian)
            tried = [_damped(jacobian, residuals, x, damping * factor) for factor in DAMPINGS]
            found = self.residuals(tried, short, excess)
            losses = [soft_l1(one) for one in found]
            best = int(np.argmin(losses))
            if losses[best] < loss:
                gain = loss - losses[best]
                x, residuals, loss = tried[best], found[best], losses[best]
                if gain < TOLERANCE * loss:
                    break
            elif damping * DAMPINGS[-1] > MAX_DAMPING:
                break
            damping = min(damping * DAMPINGS[best], MAX_DAMPING) if losses[best] <= loss else damping * 100
        return np.maximum(x, MIN_SHARE), loss

    def differences(self, x: FloatArray, steps: FloatArray) -> FloatArray:
        """Return the derivatives of residuals and prior residuals by finite differences, shape (N + K, P)."""
        moved = [x + step * unit for step, unit in zip(steps, np.eye(len(x)), strict=True)]
        middle, *others = self.residuals([x, *moved], self.problem.short)
        return np.column_stack([(one - middle) / step for one, step in zip(others, steps, strict=True)])

    def residuals(
        self,
        points: Sequence[FloatArray],
        replays: Sequence[BenchmarkReplay],
        excess: FloatArray | float = 0.0,
    ) -> list[FloatArray]:
        """Return the residuals of runs, then the prior residuals, at each of several points; shapes (N + K,).

        Args:
            points: the points.
            replays: the full or the short runs.
            excess: log(full/short) of each metric, which is added to the residuals of short runs.
        """
        rows, values = self.problem.rows, [point * self.scales for point in points]
        return [
            np.append(rows.weight * (found + excess - rows.log_measured), prior_residuals(self.names, given))
            for found, given in zip(self.problem.logs_of(self.names, values, replays), values, strict=True)
        ]


def _damped(jacobian: FloatArray, residuals: FloatArray, x: FloatArray, damping: float) -> FloatArray:
    """Return the non-negative solution of the linear least-squares problem with the given damping."""
    from scipy.optimize import lsq_linear

    root = (1 + (residuals / LOSS_SCALE) ** 2) ** -0.25
    table = jacobian * root[:, None]
    columns = np.maximum(np.linalg.norm(table, axis=0), 1e-9)
    damped = np.vstack([table, np.diag(np.sqrt(damping) * columns)])
    wanted = np.concatenate([-residuals * root, np.zeros(len(x))])
    step = lsq_linear(damped, wanted, bounds=(-x - 1e-12, np.inf), method="bvls").x
    return np.asarray(np.maximum(x + step, 0.0))


def _steps(jacobian: FloatArray) -> FloatArray:
    """Return steps at which all parameters change the residuals equally, well above the roughness."""
    moves = np.sqrt((jacobian**2).mean(axis=0))
    return np.asarray(np.clip(MOVE / np.maximum(moves, 1e-9), MIN_STEP, MAX_STEP))
