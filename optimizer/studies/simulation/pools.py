"""From pools of a plan to what the engine runs: laws, limits, loads; and from its runs to documents."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, frozen
from optimizer.candidates.arrays import largest_loss, profile_of
from optimizer.documents import ANY_LOSS
from optimizer.errors import SpecError
from optimizer.kinds.replicas import Percentiles
from optimizer.kinds.simulated import open_load
from optimizer.kinds.table import kind_of_pool, kind_of_profile
from optimizer.plan import Plan, Pool
from optimizer.queueing.measures import LOSS, MISSED, LatencyName, TargetMeasure
from optimizer.queueing.targets import meets_target
from optimizer.simulation.engine import SimulatedRun
from optimizer.simulation.replicas import Effort, SimulatedReplica, run_replica
from optimizer.simulation.requests import Requests
from optimizer.simulation.summary import (
    Distribution,
    IntervalEstimate,
    Summary,
    latency_percentile,
    share_within,
    summarise,
)
from optimizer.simulation.workload import Load, TraceLoad
from optimizer.spec.places import network_ms
from optimizer.spec.system import System
from optimizer.studies.simulation.document import (
    ConfidenceInterval,
    SimulatedFigure,
    SimulatedLatency,
    SimulatedPool,
    TargetCheck,
    Verdict,
)
from optimizer.studies.simulation.predictions import Prediction, predictions
from optimizer.units import SECONDS_PER_MINUTE


@dataclass(frozen=True, slots=True)
class PoolRun:
    """A pool to simulate: one of its replicas, at the load of each."""

    server: str
    pool: Pool
    load: Load
    rate_rps: float
    """Load of the replica [requests/s]."""
    prediction: Prediction
    """Prediction of the queue model for the replica at the load of the plan."""
    replica: SimulatedReplica
    targets: tuple[tuple[TargetMeasure, float], ...]
    """Measure and limit of each target."""
    request_limits: Mapping[LatencyName, float]
    """The limit on each latency that has one [ms]."""
    network_ms: float = 0.0
    """Time of the network between client and replica."""

    @property
    def stream(self) -> int:
        """A number of its own, whatever else is in the plan: its chances stay when other pools change."""
        return stream_of(self.server, self.pool.accelerator)


def stream_of(server: str, accelerator: str) -> int:
    """Return the number of the chances of a server on an accelerator."""
    return zlib.crc32(f"{server}\n{accelerator}".encode())


def pool_runs(system: System, plan: Plan) -> list[PoolRun]:
    """Return the pools of a plan that have a load, in the order of the names.

    Raises:
        SpecError: the plan is not for this system.
    """
    loaded = [
        (name, pool)
        for name, pools in sorted(plan.allocations.items())
        for pool in pools
        if pool.arrival_rate_rpm > 0
    ]
    for name, pool in loaded:
        server = system.servers.get(name)
        if server is None or (server.model, pool.accelerator) not in system.profiles:
            raise SpecError(
                f"allocations.{name}: {pool.accelerator!r} cannot run it in this system; plan it again"
            )
    found = predictions(system, loaded)
    return [
        _pool_run(system, name, pool, prediction)
        for (name, pool), prediction in zip(loaded, found, strict=True)
    ]


def traced(runs: list[PoolRun], trace: Requests) -> list[PoolRun]:
    """Return the pools of one server under recorded requests, each of which goes to a replica by chance.

    A pool gets its share of the load of the plan, whatever the rate of the trace.
    """
    total_rps = sum(run.rate_rps * run.pool.num_replicas for run in runs)
    assert trace.arrival_ms is not None
    span_s = max(float(trace.arrival_ms[-1]), 1.0) / 1000
    shares = [run.rate_rps / total_rps for run in runs]
    return [
        replace(run, load=TraceLoad(trace, share), rate_rps=share * len(trace) / span_s)
        for run, share in zip(runs, shares, strict=True)
    ]


def _pool_run(system: System, name: str, pool: Pool, prediction: Prediction) -> PoolRun:
    server = system.servers[name]
    rate_rps = pool.arrival_rate_rpm / SECONDS_PER_MINUTE / pool.num_replicas
    load, profile = server.current.load, profile_of(system, server, pool.accelerator)
    target = system.targets.get((server.service_class, server.model))
    return PoolRun(
        server=name,
        pool=pool,
        load=open_load(load, rate_rps),
        rate_rps=rate_rps,
        prediction=prediction,
        replica=kind_of_profile(profile).replica(server, profile, pool.max_batch, pool),
        targets=_targets(system, name),
        network_ms=network_ms(system.options, server, system.accelerators[pool.accelerator]),
        request_limits={} if target is None else target.request_limits(),
    )


def _targets(system: System, name: str) -> tuple[tuple[TargetMeasure, float], ...]:
    """Return the targets of a server; the bound on lost requests where its queue is limited."""
    server = system.servers[name]
    target = system.targets.get((server.service_class, server.model))
    latencies = () if target is None else tuple(target.latency_targets())
    bound = largest_loss(system, server)
    return latencies if bound >= ANY_LOSS else (*latencies, (LOSS, bound))


def simulate_pool(run: PoolRun, effort: Effort) -> SimulatedPool:
    """Simulate one replica of a pool and summarise the result."""
    runs = [
        replace(one, client_ms=frozen(one.client_ms + run.network_ms))
        for one in run_replica(run.load, run.replica, effort, run.stream)
    ]
    summary = summarise(runs)
    within = {metric: _share(runs, {metric: limit}) for metric, limit in run.request_limits.items()}
    within_all = _share(runs, run.request_limits)
    steady, of, kind = summary.overload is None, run.prediction.percentiles, kind_of_pool(run.pool)
    return SimulatedPool(
        server=run.server,
        accelerator=run.pool.accelerator,
        num_replicas=run.pool.num_replicas,
        rate_rps=run.rate_rps,
        overload=summary.overload,
        estimated=run.pool.estimated,
        **({kind.simulated_mark: True} if kind.simulated_mark else {}),
        own={
            shown.metric: SimulatedFigure(
                predicted=getattr(run.pool, shown.field),
                simulated=_interval(getattr(summary, shown.simulated)),
            )
            for shown in kind.metrics
            if shown.simulated
        },
        ttft=_latency(summary.ttft, run.pool.ttft_ms, of.get("ttft")) if steady else None,
        itl=_latency(summary.itl, run.pool.itl_ms, of.get("itl")) if steady else None,
        e2e=_latency(summary.e2e, run.prediction.e2e_ms, of.get("e2e")) if steady else None,
        throughput_rps=_interval(summary.throughput_rps),
        loss=_interval(summary.loss),
        preemptions=summary.preemptions,
        batch=summary.batch,
        within_ttft=within.get("ttft"),
        within_itl=within.get("itl"),
        within_e2e=within.get("e2e"),
        within_all=within_all,
        goodput_rps=within_all.value * run.rate_rps * run.pool.num_replicas,
        targets=tuple(_check(runs, run, summary, measure, limit) for measure, limit in run.targets),
    )


def _share(runs: Sequence[SimulatedRun], limits: Mapping[LatencyName, float]) -> ConfidenceInterval:
    """Return the share of requests that are served, and within the given limits."""
    return _interval(share_within(runs, lambda run: within(run, limits)))


def within(run: SimulatedRun, limits: Mapping[LatencyName, float]) -> BoolArray:
    """Return masks of the requests of a run that are served, and within the given limits [ms]."""
    kept = ~np.isnan(run.last_ms)
    for metric, limit in limits.items():
        values = _latencies(run, metric)
        kept &= np.isnan(values) | (values <= limit)  # an answer of one token has no ITL to miss
    return kept


def _latencies(run: SimulatedRun, metric: LatencyName) -> FloatArray:
    return {"ttft": run.ttft_ms, "itl": run.itl_ms, "e2e": run.e2e_ms}[metric]


def _check(
    runs: Sequence[SimulatedRun], run: PoolRun, summary: Summary, measure: TargetMeasure, limit: float
) -> TargetCheck:
    """Hold a target against what was simulated; without a steady state no latency is kept."""
    predicted = {figure.measure: figure.value for figure in run.pool.targets}
    means = {"ttft": run.pool.ttft_ms, "itl": run.pool.itl_ms, "e2e": run.prediction.e2e_ms}
    found = _interval(_figure(runs, run, summary, measure))
    steady = summary.overload is None or measure == LOSS
    return TargetCheck(
        target=measure.label,
        limit=limit,
        predicted=predicted.get(
            measure.label, run.pool.loss if measure == LOSS else means.get(measure.metric)
        ),
        simulated=found,
        met=steady and (np.isnan(found.value) or bool(meets_target(found.value, limit))),
        verdict=_verdict(found, limit) if steady else "missed",
    )


def _verdict(found: ConfidenceInterval, limit: float) -> Verdict:
    """Return the verdict on a metric by its interval; a metric without requests counts as met."""
    if np.isnan(found.value):
        return "held"
    width = found.half_width or 0.0
    if meets_target(found.value + width, limit):
        return "held"
    return "close" if meets_target(found.value - width, limit) else "missed"


def _figure(
    runs: Sequence[SimulatedRun], run: PoolRun, summary: Summary, measure: TargetMeasure
) -> IntervalEstimate:
    """Return the simulated figure that a target is about."""
    if measure == LOSS:
        return summary.loss
    if measure == MISSED:
        return share_within(runs, lambda one: ~within(one, run.request_limits))
    if measure.percentile is not None:
        return latency_percentile(runs, f"{measure.metric}_ms", measure.percentile)
    return {"ttft": summary.ttft, "itl": summary.itl, "e2e": summary.e2e}[measure.metric].mean


def _latency(
    found: Distribution, predicted_ms: float, predicted: Percentiles | None
) -> SimulatedLatency | None:
    """Return a latency as a document; none where no request has it."""
    if np.isnan(found.mean.value):
        return None
    percentiles = {f"p{percent}": _interval(value) for percent, value in found.percentiles.items()}
    return SimulatedLatency(
        predicted_mean=predicted_ms,
        predicted_percentiles=predicted,
        mean=_interval(found.mean),
        **percentiles,
    )


def _interval(found: IntervalEstimate) -> ConfidenceInterval:
    known = np.isfinite(found.half_width)
    return ConfidenceInterval(value=found.value, half_width=found.half_width if known else None)
