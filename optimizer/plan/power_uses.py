"""Computes the power that the pools of a plan draw at their loads."""

from collections.abc import Sequence

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.replica_power import power_at_rates_w
from optimizer.plan.rows import pool_pairs
from optimizer.schema.pools import Pool
from optimizer.spec.system import System


def power_at_load_w(system: System, arrays: SystemArrays, pools: Sequence[tuple[str, Pool]]) -> FloatArray:
    """Return the power of R pools, given with their server names, at their loads [W], shape (R,)."""
    if not pools:
        return np.zeros(0)
    powers = [item.power for item in system.accelerators.values()]
    count = np.array([pool.num_replicas for _, pool in pools])
    return np.asarray(power_at_rates_w(arrays, powers, *pool_pairs(arrays, pools)) * count)
