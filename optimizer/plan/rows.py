"""Converts pools of a plan to arrays for queue models, and metrics back to fields of pools."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.measuring import ReplicaMetrics, measure_pairs, parts
from optimizer.candidates.pairs import Pairs, law_of, own_fields
from optimizer.plan.pool_shapes import shape_fields
from optimizer.queueing.measures import LOSS, TargetMeasure
from optimizer.schema.pools import Pool, TargetFigure
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE


def pool_pairs(arrays: SystemArrays, pools: Sequence[tuple[str, Pool]]) -> tuple[Pairs, FloatArray]:
    """Return R pools, given with their server names, as pairs, and the load of one replica [requests/s]."""
    servers = {name: s for s, name in enumerate(arrays.server_names)}
    accelerators = {name: a for a, name in enumerate(arrays.accelerator_names)}
    rows = [(servers[name], accelerators[pool.accelerator], pool.max_batch) for name, pool in pools]
    # Load is divided equally among the replicas of a pool.
    rates = [pool.arrival_rate_rpm / SECONDS_PER_MINUTE / max(pool.num_replicas, 1) for _, pool in pools]
    return Pairs.of(arrays, *np.array(rows, np.int64).reshape(-1, 3).T), np.array(rates, np.float64)


MEANS_OF_POOLS = ("itl_ms", "ttft_ms", "wait_ms", "utilization", "loss")
"""Fields of `Performance` that pools state."""


def figures_at_load(
    arrays: SystemArrays, system: System, pairs: Pairs, rate_rps: FloatArray
) -> tuple[list[dict[str, Any]], ReplicaMetrics]:
    """Return the metrics of pools by field name, and the performance of the replicas that have load.

    Args:
        pairs: R pools as pairs.
        rate_rps: load of one replica of each pool [requests/s], shape (R,).
    """
    loaded = rate_rps > 0
    measured = measure_pairs(arrays, pairs.take(loaded), rate_rps[loaded])
    with_load = pool_figures(arrays, system, pairs.take(loaded), measured)
    without_load = iter(_idle_figures(arrays, system, pairs.take(~loaded)))
    return [next(with_load if one else without_load) for one in loaded.tolist()], measured


def pool_figures(
    arrays: SystemArrays, system: System, pairs: Pairs, replica_metrics: ReplicaMetrics
) -> Iterator[dict[str, Any]]:
    """Yield the metrics of pools with load: means, fields of their kinds, and targets other than means.

    Args:
        pairs: R pools as pairs.
        replica_metrics: performance of one replica of each pair.
    """
    targets = arrays.servers.targets.take(pairs.server)
    for i, s in enumerate(pairs.server.tolist()):
        means = {name: float(getattr(replica_metrics.performance, name)[i]) for name in MEANS_OF_POOLS}
        own = {
            name: float(values[i]) for name, values in replica_metrics.own.items() if not np.isnan(values[i])
        }
        shown = target_figures(targets.measures, replica_metrics.targets[:, i], targets.limits[:, i])
        members = arrays.servers.is_queue[s]  # members have the targets
        settings = own_fields(arrays, system, pairs, i)
        shaped = replica_metrics.shaped.get(i)
        of_shapes = {} if shaped is None else shape_fields(arrays, system, pairs.take(np.array([i])), shaped)
        yield {**means, **settings, **own, **of_shapes, "targets": () if members else shown}


IDLE = {"wait_ms": 0.0, "utilization": 0.0, "loss": 0.0, "targets": ()}
"""Metrics that are equal for all pools without load."""


def _idle_figures(arrays: SystemArrays, system: System, pairs: Pairs) -> list[dict[str, Any]]:
    """Return the metrics of pools without load: means without queueing, and the fields of their kinds."""
    idle_figures: list[dict[str, Any]] = [{} for _ in pairs.server]
    for rows, some in parts(arrays, pairs):
        times, _ = law_of(arrays, some).idle_times(some.max_batch)
        # Without load nothing waits: the first token takes the prefill and the network.
        ttft_ms = times.first_token_ms + arrays.servers.delay_ms[some.server, some.accelerator]
        for k, i in enumerate(rows.tolist()):
            means = {"itl_ms": float(times.itl_ms[k]), "ttft_ms": float(ttft_ms[k])}
            idle_figures[i] = {**IDLE, **means, **own_fields(arrays, system, some, k)}
    return idle_figures


def owner_of(system: System, server: str, accelerator: str, replicas: int) -> dict[str, Any]:
    """Return the fields of a pool that describe its server and its cards.

    Args:
        system: the planned system.
        server: name of the planned server.
        accelerator: name of the accelerator.
        replicas: number of replicas that use cards of their own.
    """
    owner = system.servers[server]
    type_name, cards = system.units_per_replica(server, accelerator)
    return {
        "service_class": owner.service_class,
        "model": owner.model,
        "priority": system.priority(owner),
        "type": type_name,
        "cards": cards * replicas,
    }


def origin_of(system: System, server: str, accelerator: str, in_flight: float) -> dict[str, Any]:
    """Return the fields of a pool that state the source of its token times.

    Args:
        server: name of the server.
        accelerator: name of the accelerator.
        in_flight: mean number of requests in flight per replica.
    """
    owner = system.servers[server]
    profile = system.profiles[owner.model, accelerator]
    end, provenance, load = system.options.estimates, profile.provenance, owner.current.load
    return {
        "estimated": end if profile.is_estimated else None,
        "provenance": None if provenance is None else provenance.of_pair(owner.model, accelerator),
        "outside": ()
        if provenance is None
        else tuple(provenance.domain.misses(load.in_tokens, load.out_tokens, in_flight)),
    }


def target_figures(
    measures: Sequence[TargetMeasure], values: FloatArray, limits: FloatArray
) -> tuple[TargetFigure, ...]:
    """Return the targets of a row on latencies and late requests, with their values.

    Args:
        measures: K target measures.
        values: values of the measures, shape (K,).
        limits: limits on the measures, shape (K,); inf without a target.
    """
    return tuple(
        TargetFigure.of(measure, value, limit)
        for measure, value, limit in zip(measures, values.tolist(), limits.tolist(), strict=True)
        if measure != LOSS and np.isfinite(limit)
    )
