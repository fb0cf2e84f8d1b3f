"""Converts pools of a plan to simulation inputs (models, limits, loads), and results to documents."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, frozen, grouped
from optimizer.candidates.arrays import largest_loss, profile_of, tabulate_as_served
from optimizer.candidates.pairs import arrays_of
from optimizer.documents import ANY_LOSS
from optimizer.errors import SpecError
from optimizer.features.disaggregation.simulated import BothPools, as_client, both_pools
from optimizer.features.disaggregation.streams import RolePool
from optimizer.features.offline.simulated import OfflineRun, offline_run
from optimizer.features.shared_cards.simulated import (
    CardInTurns,
    card_in_turns,
    items_with_load,
    part_profile,
)
from optimizer.features.shared_cards.uses import SharedCardUse, SharedPool
from optimizer.kinds.replicas import Percentiles
from optimizer.kinds.simulated import beside_heads, open_load, runs_of
from optimizer.kinds.table import kind_of_pool, kind_of_profile
from optimizer.plan import Plan, Pool
from optimizer.queueing.measures import LATENCIES, LOSS, LatencyName, TargetMeasure
from optimizer.queueing.targets import meets_target
from optimizer.schema import ModelProfile
from optimizer.simulation.engine import SimulatedRun
from optimizer.simulation.pools import PooledRun
from optimizer.simulation.replicas import Effort, SimulatedReplica, run_replica
from optimizer.simulation.requests import Requests
from optimizer.simulation.summary import (
    Distribution,
    IntervalEstimate,
    Summary,
    counted_rows,
    distribution,
    latency_mean,
    latency_percentile,
    share_within,
    summarise,
)
from optimizer.simulation.workload import Load, MergedLoad, OpenLoad, TraceLoad
from optimizer.spec.streams import members_of, replica_load
from optimizer.spec.system import System
from optimizer.studies.simulation.predictions import Prediction, member_predictions, predictions
from optimizer.studies.simulation.simulation_document import (
    ConfidenceInterval,
    SimulatedFigure,
    SimulatedLatency,
    SimulatedPool,
    SimulatedShape,
    TargetCheck,
    Verdict,
)
from optimizer.units import SECONDS_PER_MINUTE


@dataclass(frozen=True, slots=True)
class PoolRun:
    """A pool to simulate, represented by one of its replicas at its load."""

    server: str
    pool: Pool
    load: Load
    rate_rps: float
    """Load of the replica [requests/s]."""
    prediction: Prediction
    """Latencies that the queue model predicts for the replica at the load of the plan."""
    replica: SimulatedReplica
    targets: tuple[tuple[TargetMeasure, float], ...]
    """Measure and limit of each target of the server."""
    request_limits: Mapping[LatencyName, float]
    """Limit on each latency that has one [ms]."""
    delay_ms: float = 0.0
    """Network latency between client and replica [ms]."""
    queue: str | None = None
    """Name of the server's shared queue; None if it has its own queue."""
    place: int = 0
    """Index of the server's requests among those of the shared queue."""
    offline: OfflineRun | None = None
    """Offline work of the replica; None if its requests arrive over time."""
    card: CardInTurns | None = None
    """Card that the replica shares in time; None if it has its own part of a card."""
    shapes: tuple[str, ...] = ()
    """Names of the request shapes of the server's load."""
    cards: str = ""
    """Name of the shared cards on which the replica runs; empty if there are none."""
    both: BothPools | None = None
    """Prefill and decode pool that are simulated together; None if the pool is neither."""

    @property
    def planned(self) -> str:
        """Name of the planned server: the server itself, or its shared queue."""
        return self.queue or self.server

    @property
    def shape_names(self) -> tuple[str, ...]:
        """Names of the request shapes of the server's load; empty if its load or a trace has none."""
        return self.shapes if isinstance(self.load, OpenLoad | MergedLoad) else ()

    @property
    def units(self) -> int:
        """Number of replicas of the pool, or number of cards that it shares in time."""
        if self.card is None:
            return self.pool.num_replicas
        assert isinstance(self.pool, SharedPool)
        return self.pool.num_replicas // self.pool.per_card

    @property
    def means(self) -> dict[str, float]:
        """Predicted mean of each latency [ms]."""
        means = {"ttft": self.pool.ttft_ms, "itl": self.pool.itl_ms, "e2e": self.prediction.e2e_ms}
        return means if self.both is None else {name: means[name] for name in self.both.latencies}

    @property
    def stream(self) -> int:
        """Number of the random stream, which does not depend on other pools of the plan."""
        if self.both is not None:
            return stream_of(self.both.server, "")
        return stream_of(self.cards or self.planned, self.pool.accelerator)

    @property
    def owner(self) -> str:
        """Name of the server whose requests the pool serves."""
        return self.server if self.both is None else self.both.server

    @property
    def counted_rps(self) -> float:
        """Load of the pool [requests/s]; 0 for a decode pool, whose requests count in the prefill pool."""
        is_second = self.both is not None and self.both.role == "decode"
        return 0.0 if is_second else self.rate_rps * self.pool.num_replicas

    @property
    def replica_rps(self) -> float:
        """Load of the replica from all servers that share it [requests/s]."""
        if isinstance(self.load, MergedLoad):
            return sum(stream.rate_rps for stream in self.load.streams)
        return self.rate_rps

    def at_share(self, share: float) -> "PoolRun":
        """Return a copy with a fraction of the load on each replica."""
        load = self.load
        if isinstance(load, MergedLoad):
            streams = (replace(each, rate_rps=each.rate_rps * share) for each in load.streams)
            load = replace(load, streams=tuple(streams))
        else:
            assert isinstance(load, OpenLoad)
            load = replace(load, rate_rps=load.rate_rps * share)
        return replace(self, rate_rps=self.rate_rps * share, load=load)


def stream_of(server: str, accelerator: str) -> int:
    """Return the number of the random stream of a server on an accelerator."""
    return zlib.crc32(f"{server}\n{accelerator}".encode())


def pool_runs(system: System, plan: Plan) -> list[PoolRun]:
    """Return the pools of a plan that have a load, sorted by name.

    Raises:
        SpecError: the plan is not for this system.
    """
    system = plan.planned_in(system)
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
                f"allocations.{name}: {pool.accelerator!r} cannot run it in this system; solve again"
            )
    groups = plan.groups
    alone = [(name, pool) for name, pool in loaded if name not in groups]
    result = predictions(system, alone)
    runs = [
        replace(_pool_run(system, name, pool, prediction), offline=offline_run(system, plan, name, pool))
        for (name, pool), prediction in zip(alone, result, strict=True)
    ]
    shared = [(name, pool) for name, pool in loaded if name in groups]
    runs += [run for name, pool in shared for run in _member_runs(system, plan, name, pool)]
    runs += [_card_run(system, *item) for item in items_with_load(plan)]
    runs = [_role_run(system, plan, run) for run in runs]
    return sorted(runs, key=lambda run: run.planned)


def _role_run(system: System, plan: Plan, run: PoolRun) -> PoolRun:
    """Return the run of a prefill or decode pool with both pools; others remain as they are.

    The prefill pool has the TTFT target of the server, the decode pool the other targets.
    """
    pool = system.servers.get(run.server)
    if not isinstance(pool, RolePool):
        return run
    both, target = both_pools(system, plan, pool), system.target_of(pool.whole)
    latencies = () if target is None else tuple(target.latency_targets())
    run = replace(
        run,
        pool=as_client(plan, pool, run.pool),
        replica=both.replica,
        both=both,
        targets=tuple(each for each in latencies if (each[0].metric == "ttft") == (pool.role == "prefill")),
    )
    if pool.role == "decode" or target is None:
        return run
    return replace(run, prediction=Prediction(np.nan, {}), request_limits=target.request_limits())


def _member_runs(system: System, plan: Plan, name: str, pool: Pool) -> Iterator[PoolRun]:
    """Yield the servers that share a queue; each has the load of all of them on its replica."""
    served, metrics = plan.served_in_queues_rpm, plan.members
    arrays = tabulate_as_served(system, arrays_of(system), served)
    predicted = dict(member_predictions(system, arrays, name, pool))
    members = [member for member in members_of(system.servers[name]) if served[name].get(member.name)]
    rates = [served[name][m.name] / SECONDS_PER_MINUTE / pool.num_replicas for m in members]
    streams = tuple(open_load(m.current.load, rate) for m, rate in zip(members, rates, strict=True))
    load = MergedLoad(streams, tuple(system.priority(member) for member in members))
    for place, (member, rate) in enumerate(zip(members, rates, strict=True)):
        figures = metrics[member.name]
        fields = ("itl_ms", "ttft_ms", "wait_ms", "arrival_rate_rpm", "targets")
        own = pool.model_copy(update={field: getattr(figures, field) for field in fields})
        profile = beside_heads(
            profile_of(system, member, pool.accelerator), system.servers[name].current.load
        )
        run = _pool_run(system, member.name, own, predicted[member.name], profile)
        yield replace(run, load=load, rate_rps=rate, queue=name, place=place)


def traced(runs: list[PoolRun], trace: Requests) -> list[PoolRun]:
    """Return the pools of one server under recorded requests, which are split randomly among replicas.

    A pool gets its share of the plan's load, regardless of the rate of the trace.

    Raises:
        SpecError: the server shares a queue.
    """
    if any(run.queue for run in runs):
        raise SpecError(f"{runs[0].server} shares a queue, but a trace has no priorities; remove the trace")
    if any(measure.shape for run in runs for measure, _ in run.targets):
        raise SpecError(
            f"{runs[0].server} has targets of request shapes, which a trace does not name; remove the trace"
        )
    total_rps = sum(run.counted_rps for run in runs)
    assert trace.arrival_ms is not None
    span_s = max(float(trace.arrival_ms[-1]), 1.0) / 1000
    shares = [run.rate_rps / total_rps for run in runs]
    return [
        replace(
            run,
            load=TraceLoad(trace, share),
            rate_rps=share * len(trace) / span_s,
            both=run.both and replace(run.both, load=TraceLoad(trace)),
        )
        for run, share in zip(runs, shares, strict=True)
    ]


def _pool_run(
    system: System, name: str, pool: Pool, prediction: Prediction, profile: ModelProfile | None = None
) -> PoolRun:
    """Return the simulation input of a pool; its profile is by default that of the server's model.

    If its queue is limited, the limit on the rejection rate is one of its targets.
    """
    server = system.in_plans[name]
    rate_rps = pool.arrival_rate_rpm / SECONDS_PER_MINUTE / pool.num_replicas
    profile = profile or beside_heads(profile_of(system, server, pool.accelerator), server.current.load)
    target, bound = system.target_of(server), largest_loss(system, server)
    latencies = () if target is None else tuple(target.latency_targets())
    return PoolRun(
        server=name,
        pool=pool,
        load=open_load(replica_load(server), rate_rps),
        rate_rps=rate_rps,
        prediction=prediction,
        replica=kind_of_profile(profile).replica(server, profile, pool.max_batch, pool),
        targets=latencies if bound >= ANY_LOSS else (*latencies, (LOSS, bound)),
        delay_ms=system.delay_ms(server, pool.accelerator),
        request_limits={} if target is None else target.request_limits(),
        shapes=tuple(shape.name for shape in server.current.load.shapes),
    )


def _card_run(system: System, use: SharedCardUse, place: int, item: SharedPool) -> PoolRun:
    """Return the simulation input of a server on shared cards."""
    server = system.servers.get(item.server)
    if server is None or (server.model, item.accelerator) not in system.profiles:
        raise SpecError(
            f"sharedCards.{use.name}: {item.server!r} cannot run there in this system; plan it again"
        )
    steps = max(server.current.load.out_tokens - 1, 0.0)
    prediction = Prediction(item.ttft_ms + steps * item.itl_ms, {})
    run = _pool_run(system, item.server, item, prediction, part_profile(system, item))
    delay_ms = system.delay_ms(server, use.accelerator)
    return replace(run, delay_ms=delay_ms, card=card_in_turns(system, use, place), cards=use.name)


def together(runs: Sequence[PoolRun]) -> list[list[PoolRun]]:
    """Group the pools that are simulated in one run: prefill and decode pool of a server."""
    groups = grouped((run.owner if run.both else i, run) for i, run in enumerate(runs))
    return [*groups.values()]


def simulate_together(runs: Sequence[PoolRun], effort: Effort) -> list[SimulatedPool]:
    """Simulate the pools of a group, and summarise each."""
    both = runs[0].both
    if both is None:
        return [simulate_pool(run, effort) for run in runs]
    results = both.runs(effort, runs[0].stream)
    return [_role_summary(run, results) for run in runs]


def _role_summary(run: PoolRun, results: Sequence[PooledRun]) -> SimulatedPool:
    assert run.both is not None
    seen = [run.both.seen(result) for result in results]
    summary, replicas = summarise(seen), run.both.replicas[run.both.role]
    throughput = IntervalEstimate(*(value / replicas for value in summary.throughput_rps))
    return summarised_pool(run, seen, replace(summary, throughput_rps=throughput))


def simulate_pool(run: PoolRun, effort: Effort) -> SimulatedPool:
    """Simulate one replica of a pool that is simulated alone, and summarise the result."""
    runs = [
        replace(one, client_ms=frozen(one.client_ms + run.delay_ms)) for one in simulated_runs(run, effort)
    ]
    finishes_h = None if run.offline is None else run.offline.finishes_h(effort, run.stream)
    return summarised_pool(run, runs, summarise(runs), finishes_h)


def summarised_pool(
    run: PoolRun, runs: Sequence[SimulatedRun], summary: Summary, finishes_h: float | None = None
) -> SimulatedPool:
    """Return the metrics of a pool, given runs of one of its replicas, beside those that the plan predicts.

    Args:
        run: the pool.
        runs: runs of the replica, or requests that were measured at the pool.
        summary: summary of the runs.
        finishes_h: time until the pool's offline work is done [h]; None without offline work.
    """
    within_all, kind = _share(runs, run.request_limits), kind_of_pool(run.pool)
    shares: dict[str, Any] = {
        f"within_{metric}": _share(runs, {metric: limit}) for metric, limit in run.request_limits.items()
    }
    shares |= {
        metric: _latency(getattr(summary, metric), mean, run.prediction.percentiles.get(metric))
        for metric, mean in run.means.items()
        if summary.overload is None
    }
    shares |= {kind.simulated_mark: True} if kind.simulated_mark else {}
    return SimulatedPool(
        server=run.server,
        accelerator=run.pool.accelerator,
        num_replicas=run.pool.num_replicas,
        rate_rps=run.rate_rps,
        overload=None if run.offline else summary.overload,  # offline work only has to end in time
        estimated=run.pool.estimated,
        own={
            shown.metric: SimulatedFigure(
                predicted=getattr(run.pool, shown.field),
                simulated=_interval(getattr(summary, shown.simulated)),
            )
            for shown in kind.metrics
            if shown.simulated
        },
        **shares,
        throughput_rps=_interval(summary.throughput_rps),
        loss=_interval(summary.loss),
        preemptions=summary.preemptions,
        batch=_known(summary.batch),
        within_all=within_all,
        goodput_rps=within_all.value * run.rate_rps * run.pool.num_replicas,
        finishes_h=finishes_h,
        shapes=tuple(_shapes(runs, run, summary)),
        targets=tuple(_checks(runs, run, summary, run.targets)),
    )


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


def open_load_of(run: PoolRun) -> OpenLoad:
    """Return the load of the server itself, also if others share its replica."""
    load = run.load.streams[run.place] if isinstance(run.load, MergedLoad) else run.load
    assert isinstance(load, OpenLoad)
    return load


def simulated_runs(run: PoolRun, effort: Effort) -> list[SimulatedRun]:
    """Return the simulated runs of a replica; for a shared queue, only with the requests of one server."""
    if run.card is not None:
        return run.card.run(effort, run.stream)
    if not isinstance(run.load, MergedLoad):
        return run_replica(run.load, run.replica, effort, run.stream)
    streams = run.load.streams
    longer = replace(effort, requests=effort.requests * len(streams))
    replica = run_replica(run.load, run.replica, longer, run.stream)
    return runs_of(replica, streams[run.place], run.place, run.server)


def _share(runs: Sequence[SimulatedRun], limits: Mapping[LatencyName, float]) -> ConfidenceInterval:
    """Return the fraction of requests that are served within the given latency limits [ms]."""
    return _interval(share_within(runs, lambda run: within(run, limits)))


def within(run: SimulatedRun, limits: Mapping[LatencyName, float]) -> BoolArray:
    """Return a mask of the requests of a run that are served within the given latency limits [ms]."""
    kept = ~np.isnan(run.last_ms)
    for metric, limit in limits.items():
        values: FloatArray = getattr(run, LATENCIES[metric])
        kept &= np.isnan(values) | (values <= limit)  # an output of one token has no ITL
    return kept


def _checks(
    runs: Sequence[SimulatedRun],
    run: PoolRun,
    summary: Summary,
    targets: Sequence[tuple[TargetMeasure, float]],
) -> Iterator[TargetCheck]:
    """Compare targets with the simulation; one is left out if no request has the latency."""
    for measure, limit in targets:
        figure = _figure(runs, run, summary, measure)
        if not np.isnan(figure.value):
            yield _check(run, summary, measure, limit, figure)


def _check(
    run: PoolRun, summary: Summary, measure: TargetMeasure, limit: float, figure: IntervalEstimate
) -> TargetCheck:
    """Compare a target with a simulated figure; without a steady state, no latency target is met."""
    predicted = {figure.measure: figure.value for figure in run.pool.targets}
    predicted |= {known.label: value for known, value in run.prediction.shapes.items()}
    interval = _interval(figure)
    steady = summary.overload is None or measure == LOSS
    return TargetCheck(
        target=measure.label,
        unit="ms" if measure.metric in LATENCIES else "share",
        limit=limit,
        predicted=predicted.get(
            measure.label, run.pool.loss if measure == LOSS else run.means.get(measure.metric)
        ),
        simulated=interval,
        met=steady and bool(meets_target(interval.value, limit)),
        verdict=_verdict(interval, limit) if steady else "missed",
    )


def _verdict(confidence_interval: ConfidenceInterval, limit: float) -> Verdict:
    """Return the verdict on a limit, given a confidence interval."""
    width = confidence_interval.half_width or 0.0
    if meets_target(confidence_interval.value + width, limit):
        return "held"
    return "close" if meets_target(confidence_interval.value - width, limit) else "missed"


def _figure(
    runs: Sequence[SimulatedRun], run: PoolRun, summary: Summary, measure: TargetMeasure
) -> IntervalEstimate:
    """Return the simulated value of the measure that a target limits."""
    if measure == LOSS:
        return summary.loss
    if measure.is_missed:
        missed = share_within(runs, lambda one: ~within(one, run.request_limits))
        return IntervalEstimate(*(part * (1 - measure.hit_rate) for part in missed))
    name = f"{measure.metric}_ms"
    if measure.shape:
        runs = [of_shape(one, run.shape_names.index(measure.shape)) for one in runs]
        if measure.percentile is None:
            return latency_mean(runs, name)
    if measure.percentile is not None:
        return latency_percentile(runs, name, measure.percentile)
    figure: Distribution = getattr(summary, measure.metric)
    return figure.mean


def _shapes(runs: Sequence[SimulatedRun], run: PoolRun, summary: Summary) -> Iterator[SimulatedShape]:
    """Yield the latencies of the requests of each shape, with the targets that apply to it."""
    for i, shape in enumerate(run.shape_names if summary.overload is None else ()):
        own = [(measure, limit) for measure, limit in run.targets if measure.shape == shape]
        of_all = [
            (measure._replace(shape=shape), limit)
            for measure, limit in run.targets
            if not measure.shape and measure.metric in LATENCIES
        ]
        some = [of_shape(one, i) for one in runs]
        yield SimulatedShape(
            name=shape,
            share=float(np.mean([_mask(one, i)[counted_rows(one)].mean() for one in runs])),
            targets=tuple(_checks(runs, run, summary, own or of_all)),
            **{metric: _shape_latency(some, run, metric, shape) for metric in ("ttft", "itl")},
        )


def _shape_latency(
    runs: Sequence[SimulatedRun], run: PoolRun, metric: LatencyName, shape: str
) -> SimulatedLatency | None:
    """Return a simulated latency of one shape with its predictions; None if no request has it."""
    known = {measure: value for measure, value in run.prediction.shapes.items() if measure.shape == shape}
    of_metric = {measure.percentile: value for measure, value in known.items() if measure.metric == metric}
    mean = of_metric.pop(None, None)
    predicted = (
        Percentiles(**{f"p{percent:g}_ms": value for percent, value in of_metric.items()}) if known else None
    )
    return _latency(distribution(runs, f"{metric}_ms"), mean, predicted)


def _mask(run: SimulatedRun, shape: int) -> BoolArray:
    """Return a mask of the requests of one shape."""
    assert run.requests.shape is not None
    return np.asarray(run.requests.shape == shape)


def of_shape(run: SimulatedRun, shape: int) -> SimulatedRun:
    """Return a run in which the times of requests of other shapes are NaN."""
    mine = _mask(run, shape)
    first, last = (np.where(mine, times, np.nan) for times in (run.first_ms, run.last_ms))
    return replace(run, first_ms=frozen(first), last_ms=frozen(last))


def _latency(
    simulated: Distribution, predicted_ms: float | None, predicted: Percentiles | None
) -> SimulatedLatency | None:
    """Return a simulated latency as a document, with its predictions; None if no request has this latency."""
    if np.isnan(simulated.mean.value):
        return None
    percentiles = {f"p{percent}": _interval(value) for percent, value in simulated.percentiles.items()}
    return SimulatedLatency(
        predicted_mean=predicted_ms,
        predicted_percentiles=predicted,
        mean=_interval(simulated.mean),
        **percentiles,
    )


def _interval(interval_estimate: IntervalEstimate) -> ConfidenceInterval:
    known = np.isfinite(interval_estimate.half_width)
    return ConfidenceInterval(
        value=interval_estimate.value, half_width=interval_estimate.half_width if known else None
    )
