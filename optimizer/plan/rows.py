"""Converts pools of a plan to arrays for queue models, and metrics back to fields of pools."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates.arrays import SystemArrays, own_fields
from optimizer.candidates.measuring import ReplicaMetrics, parts
from optimizer.candidates.pairs import law_of
from optimizer.queueing.measures import MEANS, TargetMeasure
from optimizer.schema.pools import Pool, TargetFigure
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE


class PoolRows(NamedTuple):
    """Pools as server–accelerator pairs, shapes (R,)."""

    server: IntArray
    accelerator: IntArray
    max_batch: IntArray
    rate_rps: FloatArray
    """Load of one replica [requests/s]."""

    def take(self, rows: IntArray) -> "PoolRows":
        """Return a copy with only the rows with the given indices."""
        return PoolRows(self.server[rows], self.accelerator[rows], self.max_batch[rows], self.rate_rps[rows])


def pool_rows(arrays: SystemArrays, pools: Iterable[tuple[str, Pool]]) -> PoolRows:
    """Convert pools, given with their server names, to rows."""
    servers = {name: s for s, name in enumerate(arrays.server_names)}
    accelerators = {name: a for a, name in enumerate(arrays.accelerator_names)}
    rows = [
        (
            servers[name],
            accelerators[pool.accelerator],
            pool.max_batch,
            pool.arrival_rate_rpm / SECONDS_PER_MINUTE / max(pool.num_replicas, 1),
        )
        for name, pool in pools
    ]
    server, accelerator, max_batch, rate_rps = np.array(rows, np.float64).reshape(len(rows), 4).T
    return PoolRows(
        server.astype(np.int64), accelerator.astype(np.int64), max_batch.astype(np.int64), rate_rps
    )


MEANS_OF_POOLS = ("itl_ms", "ttft_ms", "wait_ms", "utilization", "loss")
"""Fields of `Performance` that pools state."""


def pool_figures(
    arrays: SystemArrays, system: System, pairs: tuple[IntArray, IntArray, IntArray], found: ReplicaMetrics
) -> Iterator[dict[str, Any]]:
    """Yield the metrics of pools with load: means, fields of their kinds, and targets other than means.

    Args:
        arrays: the system as arrays.
        system: the system.
        pairs: indices of server and accelerator, and batch limit; shapes (R,).
        found: performance of one replica of each pair.
    """
    targets = arrays.servers.targets.take(pairs[0])
    for i, (s, a, max_batch) in enumerate(zip(*(column.tolist() for column in pairs), strict=True)):
        means = {name: float(getattr(found.performance, name)[i]) for name in MEANS_OF_POOLS}
        own = {name: float(values[i]) for name, values in found.own.items() if not np.isnan(values[i])}
        shown = target_figures(targets.measures, found.targets[:, i], targets.limits[:, i])
        members = arrays.servers.is_queue[s]  # members have the targets
        settings = own_fields(arrays, system, s, a, max_batch)
        yield {**means, **settings, **own, "targets": () if members else shown}


IDLE = {"wait_ms": 0.0, "utilization": 0.0, "loss": 0.0, "targets": ()}
"""Metrics that are equal for all pools without load."""


def idle_figures(
    arrays: SystemArrays, system: System, pairs: tuple[IntArray, IntArray, IntArray]
) -> list[dict[str, Any]]:
    """Return the metrics of pools without load: means without queueing, and the fields of their kinds.

    Args:
        arrays: the system as arrays.
        system: the system.
        pairs: indices of server and accelerator, and batch limit; shapes (R,).
    """
    found: list[dict[str, Any]] = [{} for _ in pairs[0]]
    for rows, some in parts(arrays, *pairs):
        times, _ = law_of(arrays, some).idle_times(some.max_batch)
        ttft_ms = times.first_token_ms + arrays.servers.delay_ms[some.server, some.accelerator]
        for k, i in enumerate(rows.tolist()):
            means = {"itl_ms": float(times.itl_ms[k]), "ttft_ms": float(ttft_ms[k])}
            own = own_fields(arrays, system, *(int(column[i]) for column in pairs))
            found[i] = {**IDLE, **means, **own}
    return found


def origin_of(system: System, server: str, accelerator: str, in_flight: float) -> dict[str, Any]:
    """Return the fields of a pool that state the source of its token times.

    Args:
        system: the system.
        server: name of the server.
        accelerator: name of the accelerator.
        in_flight: mean number of requests in flight per replica.
    """
    owner = system.servers[server]
    profile = system.profiles[owner.model, accelerator]
    end, found, load = system.options.estimates, profile.provenance, owner.current.load
    return {
        "estimated": end if profile.is_estimated else None,
        "provenance": None if found is None else found.of_pair(owner.model, accelerator),
        "outside": ()
        if found is None
        else tuple(found.domain.misses(load.in_tokens, load.out_tokens, in_flight)),
    }


def target_figures(
    measures: Sequence[TargetMeasure], values: FloatArray, limits: FloatArray
) -> tuple[TargetFigure, ...]:
    """Return the targets of a row on statistics other than means, with their values.

    Args:
        measures: K target measures.
        values: values of the measures, shape (K,).
        limits: limits on the measures, shape (K,); inf without a target.
    """
    return tuple(
        TargetFigure(measure=measure.label, value=value, limit=limit)
        for measure, value, limit in zip(measures, values.tolist(), limits.tolist(), strict=True)
        if measure not in MEANS and np.isfinite(limit)
    )
