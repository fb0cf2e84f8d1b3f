"""Common parts of all GuideLLM reports: strategies, lengths and offered rates.

Source: GuideLLM 0.3 (2025), 0.5 and 0.8 (2026).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from optimizer.errors import FitError
from optimizer.fitting.readers.report import BenchmarkFile, measured, number
from optimizer.fitting.runs import Arrivals, BenchmarkRun, RunMeasurements, TokenCounts

IN_FLIGHT = 512
"""Requests in flight if a strategy sets no limit (GuideLLM's `max_concurrency`)."""
SWEEP_FIRST = ("synchronous", "throughput")
"""First strategies of a sweep; its constant rates are evenly spaced between their results."""
STEADY_STRATEGIES = {"constant": Arrivals.CONSTANT, "poisson": Arrivals.POISSON}


class GuideLlmRun(NamedTuple):
    """One run of a GuideLLM report."""

    strategy: Mapping[str, Any]
    """Strategy in GuideLLM's form: `type_`, and depending on it `rate`, `streams` or `max_concurrency`."""
    duration_s: float
    completed: int
    ttft_median_ms: float | None
    itl_mean_ms: float | None
    place: str
    prompts: "TokenCountStats"
    answers: "TokenCountStats"


class TokenCountStats(NamedTuple):
    """Token counts of one run."""

    mean: float
    deviation: float
    least: float | None
    most: float | None
    requests: float


def lengths(spreads: Sequence[TokenCountStats], place: str) -> TokenCounts:
    """Return the lengths of a report whose runs share one distribution, uniform if they fit one.

    Raises:
        FitError: no run has completed any request.
    """
    known = [spread for spread in spreads if spread.requests > 0 and spread.mean > 0]
    if not known:
        raise FitError(f"{place}: no token counts are recorded; the report is incomplete")
    weights = np.array([spread.requests for spread in known])
    mean = float(np.average([spread.mean for spread in known], weights=weights))
    inside = np.average(
        [spread.deviation**2 + (spread.mean - mean) ** 2 for spread in known], weights=weights
    )
    ends = [
        (spread.least, spread.most)
        for spread in known
        if spread.least is not None and spread.most is not None
    ]
    deviation = math.sqrt(float(inside))
    if ends:
        least, most = min(low for low, _ in ends), max(high for _, high in ends)
        half = (most - least) / 2
        # Long outputs complete less often in time: the range is more reliable than the mean of the completed.
        if half > 0 and abs(deviation * math.sqrt(3) / half - 1) < UNIFORM_WITHIN:
            return TokenCounts.of((least + most) / 2, half / math.sqrt(3))
    return TokenCounts.of(mean, deviation)


UNIFORM_WITHIN = 0.12
"""Relative deviation from the standard deviation of a uniform distribution up to which lengths count as
uniform."""


def runs(
    report: BenchmarkFile, rows: Sequence[GuideLlmRun], *, bursts: bool = False
) -> tuple[BenchmarkRun, ...]:
    """Return the benchmark runs of a report.

    Args:
        report: the report, for messages.
        rows: its runs, in the order of the report.
        bursts: whether the tool sends one second's requests at once before a constant rate.

    Raises:
        FitError: a run has no duration or no completed requests, or cannot be replayed.
    """
    for row in rows:
        if row.duration_s == 0:
            raise FitError(f"{row.place}: the duration is 0; the run was cut short")
    prompts = lengths([row.prompts for row in rows], report.name)
    answers = lengths([row.answers for row in rows], report.name)
    return tuple(_run(row, prompts, answers, bursts=bursts) for row in rows)


def _run(row: GuideLlmRun, prompts: TokenCounts, answers: TokenCounts, *, bursts: bool) -> BenchmarkRun:
    kind = str(row.strategy.get("type_", ""))
    common = BenchmarkRun(
        prompts,
        answers,
        Arrivals.CLOSED,
        duration_s=row.duration_s,
        max_in_flight=_in_flight(row),
        measured=RunMeasurements(
            row.ttft_median_ms, row.itl_mean_ms, measured(row.completed / row.duration_s)
        ),
        completed=row.completed,
        source=row.place,
    )
    if kind in {"synchronous", "throughput", "concurrent"}:
        return common
    if kind in STEADY_STRATEGIES:
        rate = number(row.strategy.get("rate"), f"{row.place}: strategy.rate")
        if rate == 0:
            raise FitError(f"{row.place}: strategy.rate is 0; no requests were sent")
        burst = math.floor(rate) if bursts and row.strategy.get("initial_burst") else 0
        return replace(common, arrivals=STEADY_STRATEGIES[kind], rate_rps=rate, burst=burst)
    known = ", ".join([*SWEEP_FIRST, "concurrent", *STEADY_STRATEGIES])
    raise FitError(f"{row.place}: the strategy {kind!r} cannot be replayed; known are {known}")


def _in_flight(row: GuideLlmRun) -> int:
    if row.strategy.get("type_") == "synchronous":
        return 1
    for key in ("streams", "max_concurrency"):
        value = row.strategy.get(key)
        if value is not None:
            return max(int(number(value, f"{row.place}: strategy.{key}")), 1)
    return IN_FLIGHT


def sweep_rates(achieved: Sequence[float]) -> list[float]:
    """Return the rates offered by a sweep from the achieved ones, in the order of a sweep."""
    lone, most, *others = achieved
    return [float(rate) for rate in np.linspace(lone, most, len(others) + 1)[1:]]
