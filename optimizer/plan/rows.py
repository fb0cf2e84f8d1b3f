"""Pools of a plan as rows of arrays, for queue models; and metrics of rows as targets with their values."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.plan.document import Pool, TargetFigure
from optimizer.queueing.measures import MEANS, TargetMeasure
from optimizer.units import SECONDS_PER_MINUTE


class PoolRows(NamedTuple):
    """Pools as pairs of server and accelerator, shapes (R,)."""

    server: IntArray
    accelerator: IntArray
    max_batch: IntArray
    rate_rps: FloatArray
    """Load of one replica [requests/s]."""


def pool_rows(arrays: SystemArrays, pools: Iterable[tuple[str, Pool]]) -> PoolRows:
    """Return pools, given with their server names, as rows."""
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


def target_figures(
    measures: Sequence[TargetMeasure], values: FloatArray, limits: FloatArray
) -> tuple[TargetFigure, ...]:
    """Return the targets of a row other than means, with their values; limits are inf without a target.

    Args:
        measures: the measures, K of them.
        values: their values, shape (K,).
        limits: their limits, shape (K,).
    """
    return tuple(
        TargetFigure(measure=measure.label, value=value, limit=limit)
        for measure, value, limit in zip(measures, values.tolist(), limits.tolist(), strict=True)
        if measure not in MEANS and np.isfinite(limit)
    )
