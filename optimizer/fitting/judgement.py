"""Judges a fit: which parameters the runs show, which run contradicts the others, which limits it breaks."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from optimizer.fitting.estimation import FitProblem, Posterior
from optimizer.fitting.options import MeasuredSetup
from optimizer.fitting.parameters import BY_NAME
from optimizer.fitting.priors import ALPHA, BETA, IDLE, iterations_of
from optimizer.fitting.runs import BenchmarkRun
from optimizer.fitting.selection import hardly_overlap
from optimizer.profiles.efficiency import Efficiency
from optimizer.quantities import quantity

SHOWN = 0.7
"""Ratio of the posterior's standard deviation to the prior's above which runs do not show a parameter."""
WELL_KNOWN = {ALPHA: 0.10, BETA: 0.15}
"""Relative half-width of the 95 % interval above which α or β counts as poorly known; a lone run of unknown
noise shows α within 9.5 %.
"""
SPOILT = 0.10
"""Difference between the errors at a run, with and without another run, from which the fit is not good."""
FAR = 9.0
"""Largest logarithm of an error that is compared."""
TOLERANCE = 0.9
"""Fraction of a bound below which a parameter is reported; allows for errors of data sheets and parameter
counts.
"""
IDEAL = Efficiency(
    weight_bandwidth=1.0, expert_bandwidth=1.0, bf16=1.0, fp8=1.0, fp4=1.0, experts=1.0, link=math.inf,
    link_pcie=math.inf, generations={},
)  # fmt: skip
"""Efficiencies of ideal hardware: the rates of the data sheet, and links that take no time."""


def shown_by_runs(posterior: Posterior) -> list[str]:
    """Return the names of the parameters whose posterior is clearly narrower than the prior."""
    deviations = posterior.deviations()
    return [name for name, own in zip(posterior.prior.names, deviations, strict=True) if own < SHOWN]


def words_of(posterior: Posterior, runs: Sequence[BenchmarkRun]) -> Iterator[str]:
    """Yield sentences about parameters that the runs do not show well, and runs that would show them."""
    yield from hardly_overlap(runs)
    shown, intervals, terms = shown_by_runs(posterior), posterior.intervals(), posterior.prior.terms
    values = dict(zip(posterior.prior.names, posterior.prior.values(posterior.x), strict=True))
    others = []
    for name, term in zip(posterior.prior.names, terms, strict=True):
        item, (low, high), value = BY_NAME[name], intervals[name], values[name]
        ends = f"{value:.3g}, {low:.3g} to {high:.3g} at 95 %; add {item.advice(runs)}"
        if name not in shown and term.lognormal:
            yield f"{item.key} is not identified by these runs but by {posterior.prior.source}: {ends}"
        elif name not in shown:
            others.append(item.key)
        elif name in WELL_KNOWN and max(high - value, value - low) > WELL_KNOWN[name] * value:
            yield f"{item.key} is not well known from these runs: {ends}"
    if values.get(IDLE):
        yield (
            f"lone requests wait {quantity(values[IDLE], 3)} ms longer for their first token than others "
            "(idleOffset); if their run warmed the engine up, measure it again"
        )
    if others:
        yield f"not identified, so 0 or that of {posterior.prior.source}: {', '.join(others)}"


def cost_of_assumed_lengths(
    posterior: Posterior, problem: FitProblem, runs: Sequence[BenchmarkRun]
) -> Iterator[str]:
    """Yield a sentence about the TTFT if it depends on the assumption how much lengths differ."""
    changes = np.expm1(problem.effect_of_assumed_lengths(posterior.law))
    times = [
        (abs(change), change, runs[run].source)
        for change, run, name in zip(changes, problem.rows.run, problem.rows.name, strict=True)
        if name == "ttft_ms"
    ]
    size, change, source = max(times, default=(0.0, 0.0, ""))
    if size > SPOILT:
        yield (
            f"if lengths differ half as much as assumed, TTFTs change by up to {change:+.0%} ({source}); "
            "state --in-tokens-cv and --out-tokens-cv"
        )


def spoiling_run(posterior: Posterior, problem: FitProblem, runs: Sequence[BenchmarkRun]) -> str | None:
    """Return a sentence about a run without which another one is predicted much better, or None.

    The fit without a run is that of the normal approximation of the posterior.
    """
    rows, worst, text = problem.rows, SPOILT, None
    for number, run in enumerate(runs):
        own = rows.run == number
        step = posterior.moved_without(own) - posterior.x
        errors = [
            np.abs(np.expm1(np.minimum(residuals * rows.noise, FAR)))
            for residuals in (posterior.residuals, posterior.residuals + posterior.jacobian @ step)
        ]
        worse = np.where(own, 0.0, errors[0] - errors[1] - rows.noise)
        row = int(np.argmax(worse))
        if worse[row] > worst:
            worst, other = worse[row], runs[rows.run[row]].source
            text = (
                f"{run.source} contradicts the other runs: without it, the {_METRICS[rows.name[row]]} of "
                f"{other} is predicted within {errors[1][row]:.0%} instead of {errors[0][row]:.0%}; measure "
                "it again, or leave it out"
            )
    return text


_METRICS = {"itl_ms": "ITL", "ttft_ms": "TTFT", "throughput_rps": "throughput"}


def below_bounds(
    posterior: Posterior, model: str, key: MeasuredSetup, cards: int, accepted: float
) -> Iterator[str]:
    """Yield sentences about α and β below the times of ideal hardware (B1, B2, eq. 241).

    Args:
        posterior: the fit.
        model: name of the model.
        key: names of the accelerator and of the weights.
        cards: number of accelerators of a replica.
        accepted: tokens per decode step with speculative decoding; 1 without it.
    """
    law, intervals = posterior.law, posterior.intervals()
    ideal = iterations_of(model, key, cards, IDEAL)
    if ideal is None:
        return
    replica = f"{cards} {key.accelerator}" if cards > 1 else f"one {key.accelerator}"
    least = ideal.weights_ms + ideal.experts_ms * ideal.touched(1)
    size = least * ideal.deployment.tp * ideal.accelerator.device_bandwidth_gb_per_s / 1000
    lone_ms = law.base_ms + law.expert_read_ms * law.expert_share
    if max(intervals[ALPHA][1], lone_ms) < TOLERANCE * least / accepted:
        yield (
            f"α {quantity(lone_ms, 3)} ms is below the {quantity(least / accepted, 3)} ms that {replica} "
            f"needs to read {quantity(size, 3)} GB of weights: several replicas (--replicas), other weights, "
            "or times that are not per token"
        )
    if intervals[BETA][1] < TOLERANCE * ideal.token_ms:
        yield (
            f"β {quantity(law.compute_per_token_ms, 3)} ms is below the {quantity(ideal.token_ms, 3)} ms "
            f"that {replica} needs to compute a token: several replicas (--replicas), or a prefix cache"
        )
