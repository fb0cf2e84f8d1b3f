"""Power that the pools of a plan draw at their loads."""

from collections.abc import Iterable

import numpy as np

from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.power import power_at_rates_w
from optimizer.plan.document import Pool
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE


def power_at_load_w(system: System, arrays: SystemArrays, pools: Iterable[tuple[str, Pool]]) -> float:
    """Return the power of pools, given with the names of their servers, at their loads [W]."""
    rows = [
        (
            arrays.server_names.index(name),
            arrays.accelerator_names.index(pool.accelerator),
            pool.max_batch,
            pool.arrival_rate_rpm / SECONDS_PER_MINUTE / max(pool.num_replicas, 1),
            pool.num_replicas,
        )
        for name, pool in pools
    ]
    if not rows:
        return 0.0
    server, accelerator, batch, rate_rps, count = np.array(rows, np.float64).T
    places = server.astype(np.int64), accelerator.astype(np.int64), batch.astype(np.int64)
    powers = [item.power for item in system.accelerators.values()]
    return float((power_at_rates_w(arrays, powers, *places, rate_rps) * count).sum())
