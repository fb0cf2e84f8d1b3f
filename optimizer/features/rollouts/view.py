"""Computes the extra replicas of servers during roll-outs."""

from collections import Counter
from collections.abc import Iterable, Mapping

from optimizer.features.rollouts.uses import RolloutUse
from optimizer.limits.rollout import extra_replicas
from optimizer.schema.pools import Pool
from optimizer.spec.system import System


def rollout_uses(system: System, pools: Mapping[str, Iterable[Pool]]) -> dict[str, RolloutUse]:
    """Return the extra replicas and their cards for each server that has replicas and a surge (eq. 185)."""
    result: dict[str, RolloutUse] = {}
    for name, of_server in pools.items():
        surge = system.servers[name].surge if name in system.servers else 0.0
        replicas, cards = 0, Counter[str]()
        for pool in of_server if surge else ():
            type_name, each = system.units_per_replica(name, pool.accelerator)
            extra = extra_replicas(surge, pool.num_replicas)
            replicas += extra
            cards[type_name] += extra * each
        if replicas:
            result[name] = RolloutUse(replicas=replicas, cards=dict(cards))
    return result
