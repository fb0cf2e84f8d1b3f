"""Predicts with a fitted profile: benchmark runs by replay, and steady states in closed form."""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Literal

from pydantic import Field

from optimizer.documents import Document
from optimizer.fitting.profile import FittedProfile
from optimizer.fitting.replay import MANY_REQUESTS, PERCENTILES, BenchmarkReplay
from optimizer.fitting.runs import Arrivals, BenchmarkRun, RunMeasurements
from optimizer.kinds.replicas import Percentiles, Replica, analyze_replicas
from optimizer.parallel import in_threads
from optimizer.quantities import precise, quantity

LIVES_OF_CLOSED = 60
"""Number of requests per user of a closed loop if the run has no duration."""
MIN_OF_CLOSED = 2000
MAX_BATCH = 1 << 14
"""Maximum batch in a steady state if neither the server nor the client limits it [requests]."""


class Predicted(Document):
    """Prediction of a profile for one run or steady state."""

    source: str = ""
    """Name of the predicted run or steady state."""
    kind: Literal["run", "steady"]
    """`run`: a run that starts with an empty server; `steady`: a steady state."""
    ttft_ms: float | None = None
    """Median time to first token [ms]."""
    itl_ms: float | None = None
    """Mean inter-token latency [ms]."""
    throughput_rps: float | None = None
    """Throughput of completed requests [requests/s]."""
    ttft_percentiles: Percentiles | None = None
    """Percentiles of the time to first token [ms]."""
    itl_percentiles: Percentiles | None = None
    """Percentiles of the mean inter-token latency of each request [ms]."""
    in_flight: float | None = None
    """Mean number of requests in flight."""
    errors: dict[str, float] = Field(default_factory=dict)
    """Relative error by measured metric: predicted over measured, minus 1."""
    outside: tuple[str, ...] = ()
    """Quantities in which the run is outside the measured domain of the profile."""
    message: str | None = None
    """Reason for missing metrics."""


def predict(profile: FittedProfile, runs: Sequence[BenchmarkRun]) -> list[Predicted]:
    """Predict each of the given runs and steady states."""
    return in_threads(lambda run: _predicted(profile, run), list(runs))


def _predicted(profile: FittedProfile, run: BenchmarkRun) -> Predicted:
    if run.is_steady and run.arrivals is not Arrivals.CLOSED:
        return _steady(profile, run)
    ended = run
    if run.is_steady:
        ended = replace(run, requests=max(MIN_OF_CLOSED, LIVES_OF_CLOSED * (run.max_in_flight or 1)))
    replay = BenchmarkReplay.of(ended, profile.settings.limits(), MANY_REQUESTS)
    simulation = replay.simulate(profile.coefficients, detailed=True)
    if not simulation.completed:
        return Predicted(
            source=run.source,
            kind="run",
            throughput_rps=0.0,
            message="nothing is completed in this time; give a longer duration_s",
        )
    answer = Predicted.taken_from(
        simulation,
        source=run.source,
        kind="steady" if run.is_steady else "run",
        itl_ms=simulation.itl_ms if isfinite(simulation.itl_ms) else None,
        ttft_percentiles=_percentiles(simulation.ttft_percentiles),
        itl_percentiles=_percentiles(simulation.itl_percentiles),
    )
    return _judged(profile, run, answer)


def _steady(profile: FittedProfile, run: BenchmarkRun) -> Predicted:
    """Predict a steady state with the queue model `continuous`."""
    assert run.rate_rps is not None
    batch = min(profile.max_batch_size or MAX_BATCH, run.max_in_flight or MAX_BATCH)
    replica = Replica.taken_from(
        profile,
        max_batch=batch,
        max_queue=None,
        in_tokens=run.prompts.mean,
        out_tokens=max(run.answers.mean, 1.0),
        arrival_cv=run.cv,
        in_tokens_cv=run.prompts.cv,
        out_tokens_cv=run.answers.cv,
        queue_model="continuous",
    )
    steady = analyze_replicas([replica], [run.rate_rps])[0]
    if run.rate_rps > steady.stable_rate_rps:
        text = (
            f"no steady state: {precise(run.rate_rps)} requests/s exceed the largest stable rate "
            f"{quantity(steady.stable_rate_rps)}; give a duration_s, or a lower rate"
        )
        return Predicted(source=run.source, kind="steady", message=text)
    assert steady.ttft_percentiles is not None
    answer = Predicted.taken_from(
        steady,
        source=run.source,
        kind="steady",
        ttft_ms=steady.ttft_percentiles.p50_ms,
        itl_ms=steady.itl_ms if run.answers.mean > 1 else None,
        in_flight=steady.in_service + steady.in_queue,
    )
    return _judged(profile, run, answer)


def _judged(profile: FittedProfile, run: BenchmarkRun, answer: Predicted) -> Predicted:
    """Add to a prediction its errors, and the quantities in which the run is outside the profile's domain."""
    errors = {
        name: getattr(answer, name) / measured - 1
        for name in RunMeasurements._fields
        if (measured := getattr(run.measured, name)) is not None and getattr(answer, name) is not None
    }
    outside = profile.provenance.domain.misses(run.prompts.mean, run.answers.mean, answer.in_flight or 0.0)
    return answer.model_copy(update={"errors": errors, "outside": tuple(outside)})


def _percentiles(values: Sequence[float]) -> Percentiles | None:
    if not values:
        return None
    return Percentiles.model_validate(
        {f"p{percent}_ms": value for percent, value in zip(PERCENTILES, values, strict=True)}
    )
