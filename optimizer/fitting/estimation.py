"""Estimates the parameters with the largest posterior density, given replayed benchmark runs and a prior.

Residuals are logarithms of predicted over measured metrics, in units of their noise, and the distances from
the prior, under a robust loss (eq. 98, 99). The metrics of a replayed run are a rough function of the
parameters, so derivatives are finite differences over steps that change the times by several percent.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.errors import AnalysisError, FitError
from optimizer.fitting.options import ALL_TOKENS
from optimizer.fitting.priors import Prior
from optimizer.fitting.replay import MANY_REQUESTS, BenchmarkReplay, RunMetrics, with_fewer_requests
from optimizer.fitting.runs import BenchmarkRun
from optimizer.parallel import in_threads
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import Limits

NOISE = {"itl_ms": 0.03, "ttft_ms": 0.05, "throughput_rps": 0.03}
"""Relative noise of measured metrics: equal servers differ by 4 %, and median TTFTs scatter about twice as
much as ITLs.
"""
ROBUST, ROBUST_PRIOR = 4.0, 1.0
"""Residual of a metric in units of its noise, and distance from the prior in units of its spread, above which
the loss is about linear instead of quadratic.
"""
MOVE = 0.03
"""Target root-mean-square change of logarithms of metrics in a finite difference; the roughness of a replay
is about 0.005.
"""
FIRST_STEP, MIN_STEP, MAX_STEP = 0.1, 0.02, 0.5
"""Steps of finite differences, relative to the standard deviation of a parameter's prior."""
FIRST_JACOBIANS, MAX_JACOBIANS = 8, 20
"""Maximum number of Jacobians for every starting point, and for the best one."""
TOLERANCE = 1e-3
HEAT = 4.0
"""Factor on the noise of the first search from a starting point, which makes the posterior smoother."""
NEAREST = 4
"""Number of starting points that are searched again with the noise as it is."""
NOTHING_COMPLETED = 3.0
"""Log-residual of a run in which the model completes no request."""
NEVER_MS = 1e-12
SMOOTH_REQUESTS, START_REQUESTS = 1600, 800
"""Minimum number of requests over all draws of a run, and while starting points are compared."""
INERT = 0.1
"""Change of all residuals together, by one standard deviation of the prior, below which the derivatives of a
parameter are not updated.
"""
USUAL = np.log(99.0)
"""Logarithm of the prior odds of the usual limit on the tokens of an iteration against another one."""
OTHER_LIMITS = 512, 2048, ALL_TOKENS
"""Other limits: vLLM's of 2024 with chunked prefill, that on small devices, and none."""
PRIOR_DEGREES = 3.0
"""Degrees of freedom of the prior of the noise: the weight of `NOISE` against the residuals."""
LEVEL = 0.95
"""Probability of the intervals."""

Progress = Callable[[str], None]


class Residuals(NamedTuple):
    """The N metrics that are compared with measurements, one residual each; shapes (N,)."""

    run: IntArray
    """Index of the metric's run."""
    name: tuple[str, ...]
    """Name of the metric."""
    log_measured: FloatArray
    noise: FloatArray
    """Standard deviation of the logarithm of the ratio of prediction and measurement."""


def residual_rows(runs: Sequence[BenchmarkRun]) -> Residuals:
    """Return the metrics of runs to compare: times, and throughput of closed loops of several users."""
    rows = [
        (i, name, value)
        for i, run in enumerate(runs)
        for name in NOISE
        if (value := getattr(run.measured, name)) is not None
        if name != "throughput_rps" or run.is_full
    ]
    return Residuals(
        np.array([row[0] for row in rows], dtype=np.int64),
        tuple(row[1] for row in rows),
        np.log([row[2] for row in rows]),
        np.array([NOISE[row[1]] for row in rows]),
    )


@dataclass(frozen=True, slots=True)
class FitProblem:
    """The runs to fit, which are replayed in parallel threads."""

    replays: tuple[BenchmarkReplay, ...]
    rows: Residuals

    @classmethod
    def of(cls, runs: Sequence[BenchmarkRun], limits: Limits) -> "FitProblem":
        """Create the problem: draw the requests of all runs."""
        replays = tuple(BenchmarkReplay.of(run, limits, SMOOTH_REQUESTS) for run in runs)
        return cls(replays, residual_rows(runs))

    @property
    def max_num_tokens(self) -> int:
        """Maximum number of tokens in an iteration."""
        return self.replays[0].limits.max_num_tokens

    def noisier(self, factor: float) -> "FitProblem":
        """Return the problem with the noise multiplied by a factor."""
        return replace(self, rows=self.rows._replace(noise=factor * self.rows.noise))

    def shortened(self) -> "FitProblem":
        """Return the problem with shortened runs and fewer draws, to compute starting points faster."""
        cut = (
            BenchmarkReplay.of(with_fewer_requests(one.run), one.limits, START_REQUESTS)
            for one in self.replays
        )
        return replace(self, replays=tuple(cut))

    def with_noise_of_draws(self, law: IterationCoefficients) -> "FitProblem":
        """Return the problem with the noise of random requests, which are not those of the replay."""
        many = [BenchmarkReplay.of(one.run, one.limits, MANY_REQUESTS) for one in self.replays]
        singles = [replace(one, draws=(draw,)) for one in many for draw in one.draws]
        figures = iter(simulate_all(singles, [law])[0])
        runs = [[next(figures) for _ in one.draws] for one in many]
        spread = [
            np.log([max(getattr(run, name), NEVER_MS) for run in runs[i]]).var()
            * (1 + 1 / len(self.replays[i].draws))
            for i, name in zip(self.rows.run, self.rows.name, strict=True)
        ]
        noise = np.sqrt(self.rows.noise**2 + np.nan_to_num(spread) + self.effect_of_assumed_lengths(law) ** 2)
        return replace(self, rows=self.rows._replace(noise=noise))

    def effect_of_assumed_lengths(self, law: IterationCoefficients) -> FloatArray:
        """Return the change of the logarithms of metrics if assumed lengths differ half as much, shape (N,).

        Equal lengths would be no alternative: a mean that is not round shows that lengths differ.
        """
        narrower = [
            replace(one.run, prompts=one.run.prompts.narrower, answers=one.run.answers.narrower)
            for one in self.replays
        ]
        if all(run == one.run for run, one in zip(narrower, self.replays, strict=True)):
            return np.zeros(len(self.rows.noise))
        others = tuple(
            BenchmarkReplay.of(run, one.limits, SMOOTH_REQUESTS)
            for run, one in zip(narrower, self.replays, strict=True)
        )
        return replace(self, replays=others).logs([law])[0] - self.logs([law])[0]

    def logs(self, laws: Sequence[IterationCoefficients]) -> list[FloatArray]:
        """Return the logarithms of the compared metrics with each of several laws; shapes (N,)."""
        return [self._logs(figures) for figures in simulate_all(self.replays, laws)]

    def _logs(self, figures: Sequence[RunMetrics]) -> FloatArray:
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
    results = dict(in_threads(lambda task: (task, replays[task[1]].simulate(laws[task[0]])), tasks))
    return [[results[law, run] for run in range(len(replays))] for law in range(len(laws))]


@dataclass(frozen=True, slots=True)
class Posterior:
    """The most probable parameters, and a normal approximation of the posterior around them."""

    prior: Prior
    x: FloatArray
    """Most probable point, shape (P,)."""
    residuals: FloatArray
    """Residuals of the metrics in units of their noise, shape (N,)."""
    jacobian: FloatArray
    """Derivatives of the residuals with respect to x, shape (N, P)."""

    @property
    def law(self) -> IterationCoefficients:
        """The most probable latency model."""
        return self.prior.law(self.x)

    @property
    def weights(self) -> FloatArray:
        """Robust weight of each residual, 1 for small ones; shape (N,)."""
        return robust_weights(self.residuals, ROBUST)

    @property
    def loss(self) -> float:
        """Negative logarithm of the density of the posterior, but for a constant."""
        both = (self.residuals, ROBUST), (self.x, ROBUST_PRIOR)
        return sum(float((scale**2 * (np.hypot(1, r / scale) - 1)).sum()) for r, scale in both)

    @property
    def degrees(self) -> float:
        """Degrees of freedom of the noise."""
        return PRIOR_DEGREES + max(len(self.residuals) - len(self.x), 0)

    @property
    def misfit(self) -> float:
        """Variance of the residuals relative to the assumed noise, at least 1."""
        squares = float((self.weights * self.residuals**2).sum())
        return max((PRIOR_DEGREES + squares) / (PRIOR_DEGREES + len(self.residuals)), 1.0)

    def precision(self, rows: BoolArray | slice = slice(None)) -> FloatArray:
        """Return the inverse of the covariance of x given the residuals in a mask, shape (P, P)."""
        table = self.jacobian[rows] * np.sqrt(self.weights[rows] / self.misfit)[:, None]
        return np.asarray(table.T @ table + np.diag(robust_weights(self.x, ROBUST_PRIOR)))

    def deviations(self) -> FloatArray:
        """Return the standard deviations of x, shape (P,); those of the prior are 1."""
        return np.sqrt(np.diag(np.linalg.inv(self.precision())))

    def mass_at_zero(self) -> FloatArray:
        """Return the posterior probability that each parameter is 0, shape (P,) (eq. 242)."""
        from scipy.stats import norm

        lowest, deviations = self.prior.lowest, self.deviations()
        slab = norm.sf((lowest - self.x) / deviations)
        ratio = norm.cdf(lowest) * norm.pdf((lowest - self.x) / deviations) / deviations
        return np.nan_to_num(ratio / np.maximum(ratio + norm.pdf(lowest) * slab, 1e-300))

    def intervals(self) -> dict[str, tuple[float, float]]:
        """Return the 95 % interval of each parameter, by name."""
        from scipy.special import stdtrit

        half = float(stdtrit(self.degrees, 0.5 + LEVEL / 2))
        covariance, middle, zero = (
            np.linalg.inv(self.precision()),
            self.prior.values(self.x),
            self.mass_at_zero(),
        )
        moved = [self.prior.values(self.x + 1e-4 * unit) - middle for unit in np.eye(len(self.x))]
        slopes = np.reshape(moved, (len(self.x), -1)).T / 1e-4
        errors = half * np.sqrt(np.einsum("ip,pq,iq->i", slopes, covariance, slopes))
        intervals = {}
        for name, term, value, error, mass in zip(
            self.prior.names, self.prior.terms, middle, errors, zero, strict=True
        ):
            if term.lognormal:
                intervals[name] = value * np.exp(-error / value), value * np.exp(error / value)
            else:
                intervals[name] = 0.0 if mass > (1 - LEVEL) / 2 else max(value - error, 0.0), value + error
        return {name: (float(low), float(high)) for name, (low, high) in intervals.items()}

    def moved_without(self, rows: BoolArray) -> FloatArray:
        """Return the most probable point without the residuals in a mask, to first order, shape (P,)."""
        gone = self.jacobian[rows] * (self.weights[rows] / self.misfit)[:, None]
        step = np.linalg.solve(self.precision(~rows), gone.T @ self.residuals[rows])
        return np.asarray(np.maximum(self.x + step, self.prior.lowest))


def robust_weights(residuals: FloatArray, threshold: float) -> FloatArray:
    """Return the weights of residuals in the reweighted least squares of the soft-L1 loss, shape (N,)."""
    return np.asarray(1 / np.sqrt(1 + (residuals / threshold) ** 2))


def most_probable(
    problem: FitProblem,
    prior: Prior,
    begin: Iterable[tuple[FloatArray, BoolArray]],
    progress: Progress,
    *,
    free_tokens: bool = False,
) -> tuple[Posterior, FitProblem]:
    """Return the posterior around its maximum, searched from several points, and the problem with its noise.

    The metrics jump where the client's delays become 0, because the next prompt then joins the next
    iteration: some starting points are without these delays.

    Args:
        problem: the runs, with the usual limit on the tokens of an iteration if it is not known.
        prior: prior of the parameters.
        begin: starting points, and the terms that are 0.
        progress: called with progress messages.
        free_tokens: whether the runs decide if there is a limit on the tokens of an iteration.

    Raises:
        FitError: no starting point gives positive times.
    """
    nearest = _best_starts(problem.shortened(), prior, begin, progress)
    problem = problem.with_noise_of_draws(prior.law(nearest[0][0]))
    found = [_search(problem, prior, start, MAX_JACOBIANS, zero) for start, zero in nearest]
    best = posterior_at(problem, prior, min(found, key=lambda one: one[1])[0])
    return _with_token_limit(problem, best, progress) if free_tokens else (best, problem)


def _with_token_limit(
    problem: FitProblem, best: Posterior, progress: Progress
) -> tuple[Posterior, FitProblem]:
    """Return the posterior and the problem with the limit on tokens that the runs show."""
    found = [(best.loss - USUAL, best, problem)]
    for tokens in OTHER_LIMITS:
        progress(f"with at most {tokens:,} tokens in an iteration")
        each = [replace(one, limits=one.limits._replace(max_num_tokens=tokens)) for one in problem.replays]
        other = replace(problem, replays=tuple(each))
        x, _ = _search(other, best.prior, best.x, MAX_JACOBIANS, best.x <= best.prior.lowest)
        found.append(((posterior := posterior_at(other, best.prior, x)).loss, posterior, other))
    return min(found, key=lambda one: one[0])[1:]


def _best_starts(
    problem: FitProblem, prior: Prior, begin: Iterable[tuple[FloatArray, BoolArray]], progress: Progress
) -> list[tuple[FloatArray, BoolArray]]:
    """Return two points with little loss near some of several points, and their terms that are 0.

    All points are searched with more noise, and the nearest ones again with the noise as it is.
    """
    nearest = list(begin)
    for factor, count in ((HEAT, NEAREST), (1.0, 2)):
        tried, noisy = [], problem.noisier(factor)
        for number, (start, zero) in enumerate(nearest, start=1):
            try:
                x, loss = _search(noisy, prior, start, FIRST_JACOBIANS, zero)
            except AnalysisError as error:
                progress(f"start {number} leads nowhere: {error}")
                continue
            progress(f"start {number}: loss {loss:.4g}")
            tried.append((loss, number, x, zero))
        if not tried:
            raise FitError("no start values give positive times; check that the measured times are in ms")
        nearest = [(x, zero) for _, _, x, zero in sorted(tried, key=lambda one: one[:2])[:count]]
    return nearest


def posterior_at(problem: FitProblem, prior: Prior, x: FloatArray) -> Posterior:
    """Return the normal approximation of the posterior around a point."""
    local = _Differences(problem, prior)
    local.jacobian(x)  # at the first steps
    residuals, jacobian = local.residuals(x), local.jacobian(x)
    count = len(problem.rows.name)
    return Posterior(prior, x, residuals[:count], jacobian[:count])


def _search(
    problem: FitProblem, prior: Prior, start: FloatArray, jacobians: int, zero: BoolArray
) -> tuple[FloatArray, float]:
    """Return a local maximum of the posterior in which the terms in a mask are 0, and its loss."""
    from scipy.optimize import least_squares

    local = _Differences(problem, prior.without(zero))
    lowest, begin = prior.lowest[~zero], start[~zero]
    loss: Any = local.loss  # the stubs of scipy accept other shapes only
    inside = np.maximum(begin, np.where(np.isfinite(lowest), lowest + MIN_STEP, begin))
    result = least_squares(
        local.residuals, inside, local.jacobian, (lowest, np.inf), "dogbox", loss=loss,
        ftol=TOLERANCE, xtol=TOLERANCE, gtol=None, max_nfev=jacobians,
    )  # fmt: skip
    x = np.where(zero, prior.lowest, 0.0)
    x[~zero] = result.x
    gone = np.sqrt(1 + (prior.lowest[zero] / ROBUST_PRIOR) ** 2) - 1
    return x, float(result.cost + ROBUST_PRIOR**2 * gone.sum())


class _Differences:
    """Residuals of metrics and of the prior, and their derivatives by finite differences."""

    def __init__(self, problem: FitProblem, prior: Prior) -> None:
        self._problem, self._prior = problem, prior
        self._steps, self._moves = np.full(len(prior.names), FIRST_STEP), np.full(len(prior.names), np.inf)
        self._table = np.zeros((len(problem.rows.noise) + len(prior.names), len(prior.names)))
        self._last: tuple[FloatArray, FloatArray] | None = None

    def residuals(self, x: FloatArray) -> FloatArray:
        """Return the residuals of the N metrics and of the prior of the P parameters, shape (N + P,)."""
        if self._last is None or not np.array_equal(self._last[0], x):
            self._last = np.array(x), self._all([x])[0]
        return self._last[1]

    def jacobian(self, x: FloatArray) -> FloatArray:
        """Return the derivatives of the residuals, shape (N + P, P); those of inert parameters are kept."""
        moving = np.flatnonzero(self._moves > INERT)
        moved = [x + self._steps[i] * np.eye(len(x))[i] for i in moving]
        middle, others = self.residuals(x), self._all(moved)
        rows = len(self._problem.rows.noise)
        for i, one in zip(moving, others, strict=True):
            self._table[:, i] = (one - middle) / self._steps[i]
        jacobian = self._table[:rows]
        moves = np.sqrt(((jacobian * self._problem.rows.noise[:, None]) ** 2).mean(axis=0))
        self._moves = np.sqrt((jacobian**2).sum(axis=0))
        self._steps = np.clip(MOVE / np.maximum(moves, 1e-9), MIN_STEP, MAX_STEP)
        self._table[rows:] = np.eye(len(x))
        return np.array(self._table)

    def loss(self, squares: FloatArray) -> FloatArray:
        """Return the soft-L1 loss of squared residuals and its two derivatives, shape (3, N + P)."""
        rows = len(self._problem.rows.noise)
        scale = np.where(np.arange(len(squares)) < rows, ROBUST, ROBUST_PRIOR) ** 2
        root = np.sqrt(1 + squares / scale)
        return np.array([2 * scale * (root - 1), 1 / root, -0.5 / (scale * root**3)])

    def _all(self, points: Sequence[FloatArray]) -> list[FloatArray]:
        rows = self._problem.rows
        logs = self._problem.logs([self._prior.law(point) for point in points])
        return [
            np.append((log_times - rows.log_measured) / rows.noise, point)
            for log_times, point in zip(logs, points, strict=True)
        ]
