"""Request shapes of planned pools: their latencies, and reasons to simulate before relying on them."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.measuring import ShapedReplica
from optimizer.candidates.pairs import Pairs
from optimizer.kinds.fields import Load
from optimizer.quantities import percent, quantity
from optimizer.queueing.measures import LATENCIES, TargetMeasure
from optimizer.queueing.shapes import shape_number
from optimizer.schema.pools import PoolShape, TargetFigure
from optimizer.spec.streams import replica_load
from optimizer.spec.system import System

MAX_LOAD = 0.8
"""Share of the maximum stable rate above which predictions beside long prompts are uncertain."""
MAX_MEMORY = 0.25
"""Share of the KV cache from which a single request blocks others."""
MAX_CV = 1.5
"""Coefficient of variation of the interarrival times from which predictions of mixes are uncertain."""
ERROR = 0.1
"""Relative error of percentiles of mixes (docs/fidelity.md)."""


def shape_fields(
    arrays: SystemArrays, system: System, pair: Pairs, shaped: ShapedReplica
) -> Mapping[str, Any]:
    """Return the fields of a pool that only loads with request shapes or shared prefixes have.

    Args:
        pair: the pool as one pair.
        shaped: one of its replicas.
    """
    server, accelerator = int(pair.server[0]), int(pair.accelerator[0])
    load = replica_load(system.servers[arrays.server_names[server]])
    if arrays.servers.is_queue[server] or not load.has_shapes:
        return {}
    limits = arrays.servers.targets.take(pair.server).limits_of(0)
    return fields_of_load(load, shaped, limits, float(arrays.servers.delay_ms[server, accelerator]))


def fields_of_load(
    load: Load, shaped: ShapedReplica, limits: Mapping[TargetMeasure, float], delay_ms: float
) -> Mapping[str, Any]:
    """Return the fields that a pool, or a member of a shared queue, has for its request shapes.

    Args:
        load: the load with shapes.
        shaped: one replica.
        limits: targets by measure.
        delay_ms: network latency that clients add [ms].
    """
    values = {measure: shaped.of(measure, delay_ms) for measure in limits if measure.metric in LATENCIES}
    return {
        "shapes": tuple(_shapes(load, shaped, limits, delay_ms)),
        "doubts": tuple(_doubts(load, shaped, {m: (value, limits[m]) for m, value in values.items()})),
    }


def _shapes(
    load: Load, shaped: ShapedReplica, limits: Mapping[TargetMeasure, float], delay_ms: float
) -> Iterator[PoolShape]:
    """Yield the request shapes of a load that occur, with their latencies and the targets for them."""
    latencies = shaped.latencies
    of_all = {m: limit for m, limit in limits.items() if not m.shape and m.metric in LATENCIES}
    for shape in (one for one in load.shapes if one.share):
        number = shape_number(shape.name)
        of_shape, own = latencies.of_shape(number), {m: x for m, x in limits.items() if m.shape == shape.name}
        # Own targets of the shape, or else those of all requests applied to it.
        targets = {measure._replace(shape=shape.name): limit for measure, limit in (own or of_all).items()}
        yield PoolShape(
            name=shape.name,
            share=shape.share or 0.0,
            hit_rate=shape.prefix_hit_rate,
            itl_ms=float(of_shape.itl_ms[0]),
            ttft_ms=float(of_shape.ttft_ms[0]) + delay_ms,
            stall_ms=float(np.where(latencies.shape == number, latencies.stalls_ms, 0.0).max()),
            targets=tuple(
                TargetFigure.of(measure, shaped.of(measure, delay_ms), limit)
                for measure, limit in targets.items()
            ),
        )


def _doubts(
    load: Load, shaped: ShapedReplica, targets: Mapping[TargetMeasure, tuple[float, float]]
) -> Iterator[str]:
    """Yield the reasons why the predictions of a pool are uncertain; one shape has none."""
    if not shaped.varies:
        return
    if shaped.is_long and shaped.load > MAX_LOAD:
        yield f"its load is {percent(shaped.load)} of the maximum, with prompts beyond the token budget"
    if shaped.largest_share > MAX_MEMORY:
        yield f"one request can fill {percent(shaped.largest_share)} of the KV cache"
    if load.arrival_cv >= MAX_CV:
        yield f"its requests arrive in bursts (arrivalCV {load.arrival_cv:g})"
    for measure, (value, limit) in targets.items():
        # Within the error of the model, a met target could be missed.
        if limit / (1 + ERROR) < value <= limit:
            shown = f"{quantity(value)} ms, within 10 % of the target {quantity(limit)} ms"
            yield f"its {measure.label} is {shown}"
