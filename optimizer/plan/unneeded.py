"""Finds the replicas of pools that the load does not need."""

from collections.abc import Sequence

from optimizer.schema.pools import Pool
from optimizer.tolerances import ROUNDING


def unneeded_replicas(pools: Sequence[Pool], load_rpm: float, least: int) -> dict[str, int]:
    """Return the number of replicas that the load does not need, by accelerator (eq. 146).

    Replicas are removed first from the pools with the highest cost per request, as long as the others carry
    the load and are at least `least`.
    """
    each = {pool.accelerator: pool.max_arrival_rate_rpm / pool.num_replicas for pool in pools}
    # Rate and number of replicas that could go; a removal needs both.
    spare = sum(pool.max_arrival_rate_rpm for pool in pools) - load_rpm * (1 - ROUNDING)
    beyond, result = sum(pool.num_replicas for pool in pools) - max(least, 1), dict[str, int]()
    for pool in dearest_first(pools):
        count = max(min(int(spare / each[pool.accelerator]), beyond, pool.num_replicas), 0)
        spare -= count * each[pool.accelerator]
        beyond -= count
        result[pool.accelerator] = count
    return result


def dearest_first(pools: Sequence[Pool]) -> list[Pool]:
    """Sort pools by their cost per request, the highest first."""
    return sorted(
        pools, key=lambda pool: (-pool.cost_cents_per_h / pool.max_arrival_rate_rpm, pool.accelerator)
    )
