"""Summaries of simulated runs: means, percentiles and fractions, with confidence intervals.

Only the middle 80 % of the requests of a run, in send order, are counted, so that the replica has filled
before them and is still under load after them. The interval of one run uses batch means: the counted requests
are split into 20 consecutive batches of equal size, and the interval is Student's t over their results. The
interval of several independent runs is Student's t over the runs. The estimate itself uses all counted
requests.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.quantities import quantity
from optimizer.simulation.engine import SimulatedRun

LEFT_OUT = 0.1
"""Fraction of a run's requests discarded at its start, and again at its end."""
PARTS = 20
"""Number of batches into which a run is split for batch means."""
MIN_REQUESTS = 500
"""Minimum number of requests in a run, so that percentiles of batches are meaningful."""
CONFIDENCE = 0.95
PERCENTILES = (50, 90, 95, 99)


class IntervalEstimate(NamedTuple):
    """An estimate with its confidence interval, value ± half-width."""

    value: float
    half_width: float
    """Half-width of the 95 % confidence interval."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distribution of a latency of the counted requests [ms]."""

    mean: IntervalEstimate
    percentiles: dict[int, IntervalEstimate]
    """Percentiles of the latency [ms], by percent."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of the counted requests of one or more runs."""

    ttft: Distribution
    itl: Distribution
    e2e: Distribution
    throughput_rps: IntervalEstimate
    """Throughput of completed requests [requests/s]."""
    loss: IntervalEstimate
    """Fraction of requests that were rejected."""
    preemptions: float
    """Mean number of preemptions per request."""
    batch: float
    """Mean batch size while the batch is not empty [requests]."""
    counted: int
    """Number of requests counted in all runs."""
    overload: str | None
    """Reason that the replica has no steady state; None if the runs show none."""


def counted_rows(run: SimulatedRun) -> slice:
    """Return the slice of a run's requests that are counted."""
    left_out = int(len(run.requests) * LEFT_OUT)
    return slice(left_out, len(run.requests) - left_out)


def summarise(runs: Sequence[SimulatedRun]) -> Summary:
    """Summarise runs of one replica that differ only in their seeds.

    Args:
        runs: one or more runs of at least `MIN_REQUESTS` requests.
    """
    return Summary(
        ttft=distribution(runs, "ttft_ms"),
        itl=distribution(runs, "itl_ms"),
        e2e=distribution(runs, "e2e_ms"),
        throughput_rps=_throughput(runs),
        loss=estimate(runs, lambda run: run.rejected.astype(np.float64), _mean),
        preemptions=float(np.mean([run.preemptions[counted_rows(run)].mean() for run in runs])),
        batch=_mean_batch(runs),
        counted=sum(len(run.sent_ms[counted_rows(run)]) for run in runs),
        overload=next((text for run in runs if (text := overload_of(run)) is not None), None),
    )


def _mean_batch(runs: Sequence[SimulatedRun]) -> float:
    """Return the mean batch size while the batch is not empty; 0 if it is always empty."""
    busy_ms = sum(run.busy_ms for run in runs)
    return sum(run.batch_ms for run in runs) / busy_ms if busy_ms else 0.0


def share_within(
    runs: Sequence[SimulatedRun], within: Callable[[SimulatedRun], BoolArray]
) -> IntervalEstimate:
    """Return the fraction of requests that satisfy a condition.

    Args:
        within: function that returns a mask of the requests of a run; rejected requests count as False.
    """
    return estimate(runs, lambda run: within(run).astype(np.float64), _mean)


Figure = Callable[[FloatArray], FloatArray]
"""Function that returns a statistic of each batch from values of shape (batches, requests)."""


def estimate(
    runs: Sequence[SimulatedRun], values: Callable[[SimulatedRun], FloatArray], figure: Figure
) -> IntervalEstimate:
    """Return an estimate with its confidence interval over the counted requests; NaN values are ignored.

    Args:
        values: function that returns a value for each request of a run.
        figure: the statistic.
    """
    counted = [values(run)[counted_rows(run)] for run in runs]
    whole = float(_apply(figure, np.concatenate(counted)[None, :])[0])
    if len(runs) > 1:
        return IntervalEstimate(
            whole, half_width(np.array([_apply(figure, one[None, :])[0] for one in counted]))
        )
    length = len(counted[0]) // PARTS
    if not length:  # of few measured requests
        return IntervalEstimate(whole, np.nan)
    return IntervalEstimate(
        whole, half_width(_apply(figure, counted[0][: length * PARTS].reshape(PARTS, length)))
    )


def half_width(figures: FloatArray) -> float:
    """Return the half-width of the 95 % t interval for the mean of independent results.

    NaN for fewer than two.
    """
    from scipy.special import stdtrit

    kept = figures[~np.isnan(figures)]
    if len(kept) < 2:
        return np.nan
    quantile = float(stdtrit(len(kept) - 1, (1 + CONFIDENCE) / 2))
    return float(quantile * kept.std(ddof=1) / np.sqrt(len(kept)))


def overload_of(run: SimulatedRun) -> str | None:
    """Return the reason that a run has no steady state; None if it has one.

    The queue is assumed to grow without bound if, in the second half of the counted requests, at least 1 %
    fewer are completed than admitted, and the smallest TTFT of the last quarter exceeds the median TTFT of
    the first.
    """
    rows = counted_rows(run)
    sent, ttft = run.sent_ms[rows], run.ttft_ms[rows]
    quarter = len(sent) // 4
    begin, end = sent[2 * quarter], sent[-1]
    taken = int((~run.rejected[rows])[2 * quarter :].sum())
    completed = int(((run.last_ms > begin) & (run.last_ms <= end)).sum())
    first, last = ttft[:quarter], ttft[-quarter:]
    if end <= begin or completed >= 0.99 * taken or np.isnan(last).all() or np.isnan(first).all():
        return None
    if np.nanmin(last) <= np.nanmedian(first):
        return None
    offered, done = (1000 * count / (end - begin) for count in (taken, completed))
    return (
        f"{quantity(offered)} requests/s arrive and {quantity(done)} are completed: the queue grows without "
        "bound; lower the load, or add replicas"
    )


def _mean(parts: FloatArray) -> FloatArray:
    return np.asarray(parts.mean(axis=1))


def _percentile(percent: float) -> Figure:
    return lambda parts: np.asarray(np.quantile(parts, percent / 100, axis=1))


def _apply(figure: Figure, parts: FloatArray) -> FloatArray:
    """Return a statistic of each row of an array, ignoring NaN."""
    if not np.isnan(parts).any():
        return figure(parts)
    kept = [part[~np.isnan(part)] for part in parts]
    return np.array([figure(part[None, :])[0] if len(part) else np.nan for part in kept])


def latency_percentile(runs: Sequence[SimulatedRun], name: str, percent: float) -> IntervalEstimate:
    """Return a percentile of a latency over the counted requests [ms].

    Args:
        name: name of the latency, such as `ttft_ms`.
        percent: the percentile, in percent.
    """
    return estimate(runs, attrgetter(name), _percentile(percent))


def latency_mean(runs: Sequence[SimulatedRun], name: str) -> IntervalEstimate:
    """Return the mean of a latency over the counted requests [ms].

    Args:
        name: name of the latency, such as `ttft_ms`.
    """
    return estimate(runs, attrgetter(name), _mean)


def distribution(runs: Sequence[SimulatedRun], name: str) -> Distribution:
    """Return mean and percentiles of a latency over the counted requests [ms]; see `latency_mean`."""
    return Distribution(
        latency_mean(runs, name),
        {percent: latency_percentile(runs, name, percent) for percent in PERCENTILES},
    )


def _throughput(runs: Sequence[SimulatedRun]) -> IntervalEstimate:
    """Return the throughput while the counted requests were sent [requests/s]."""
    rates = []
    for run in runs:
        sent = run.sent_ms[counted_rows(run)]
        edges = np.linspace(sent[0], sent[-1], PARTS + 1)
        rates.append(1000 * np.histogram(run.last_ms[~np.isnan(run.last_ms)], edges)[0] / np.diff(edges))
    means = np.array([rate.mean() for rate in rates])
    return IntervalEstimate(float(means.mean()), half_width(means if len(runs) > 1 else rates[0]))
