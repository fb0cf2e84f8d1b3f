"""Check the replicas by purpose against the pools, reserves and roll-outs.

The binomial distribution is summed term by term, and the count from which both targets are compatible is
compared with its neighbours.
"""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from optimizer.candidates.measuring import measure_pairs
from optimizer.plan.checks.facts import RELATIVE_TOLERANCE, SHARE_TOLERANCE, Facts, close
from optimizer.plan.checks.prices import enough_probability, headroom_of
from optimizer.plan.checks.rollouts import counted_rollouts
from optimizer.plan.document import Pool, ReplicaPurposes, RolloutUse
from optimizer.plan.rows import pool_rows
from optimizer.quantities import counted
from optimizer.queueing.roots import smallest_integer
from optimizer.units import SECONDS_PER_MINUTE

WANTED_UTILIZATION = 0.8
ROUNDING = 1e-8
"""Difference of probabilities that counts as rounding, because they are computed from sums of logarithms."""
MAX_FOR_BOTH = 10_000
COMPARED = 60
"""Number of replica counts above the smallest one that are checked."""


def check_replica_counts(facts: Facts) -> list[str]:
    """Return the errors of the replicas by purpose."""
    said, problems, rollouts = facts.plan.replica_counts, list[str](), counted_rollouts(facts)
    reserves = {item.server: item for item in facts.plan.reserves}
    targeted = {name for name, item in reserves.items() if item.availability_target is not None}
    wanted = {name for name in targeted | rollouts.keys() if facts.pools_of(name)}
    for name in sorted(said.keys() ^ wanted):
        verb = "has" if name in said else "lacks"
        problems.append(f"{name}: the plan {verb} its replicas by purpose")
    for name in sorted(said.keys() & wanted):
        lines = _item(facts, name, said[name], rollouts.get(name), purposes=name in reserves)
        problems += [f"{name}: {line}" for line in lines]
    return problems


def _item(
    facts: Facts, name: str, item: ReplicaPurposes, rollout: RolloutUse | None, *, purposes: bool
) -> Iterator[str]:
    pools, extra = facts.pools_of(name), 0 if rollout is None else rollout.replicas
    replicas = sum(pool.num_replicas for pool in pools)
    if item.replicas != replicas:
        yield f"it has {counted(replicas, 'replica')}, its replicas by purpose are {item.replicas:,}"
    if item.rollout != extra:
        yield f"{extra:,} more replicas in its roll-out, its replicas by purpose say {item.rollout:,}"
    if not purposes or len(pools) > 1:
        true = ReplicaPurposes(replicas=replicas, load=replicas, rollout=extra)
    else:
        true = _purposes(facts, name, pools[0], item)
        yield from _both(facts, name, pools[0], item)
    for field in ("load", "headroom", "spares", "availability", "availability_target"):
        if getattr(true, field) != getattr(item, field):
            yield f"{field}: {getattr(true, field)}, its replicas by purpose say {getattr(item, field)}"


def _needed(facts: Facts, name: str, pool: Pool, load_rpm: float) -> int:
    each = pool.max_arrival_rate_rpm / pool.num_replicas
    least = facts.system.servers[name].min_num_replicas
    return max(math.ceil(load_rpm / each * (1 - RELATIVE_TOLERANCE)), least, 1)


def _purposes(facts: Facts, name: str, pool: Pool, item: ReplicaPurposes) -> ReplicaPurposes:
    """Return the replicas by purpose: the load first, then headroom, spares and availability.

    If rounding decides the replicas for availability, the stated number is returned.
    """
    server, load = facts.system.servers[name], facts.load_rpm[name]
    alone = _needed(facts, name, pool, load)
    grown = _needed(facts, name, pool, load * (1 + headroom_of(facts.system, server)))
    left = pool.num_replicas - alone
    headroom = min(grown - alone, left)
    spares = min(server.spare_replicas, left - headroom)
    available, target = 0, server.availability_target
    if target is not None:
        there = _there(facts, name, pool)
        most = max(pool.num_replicas - grown - spares, 0)

        def least(sign: int) -> int:
            holds = partial(_enough, needed=grown, there=there, target=target, sign=sign)
            return smallest_integer(lambda more: holds(grown + spares + more), -1, most)

        surely, perhaps = least(1), least(-1)
        available = min(max(item.availability, perhaps), surely)
    load_alone = pool.num_replicas - headroom - spares - available
    return ReplicaPurposes(
        replicas=pool.num_replicas,
        load=load_alone,
        headroom=headroom,
        spares=spares,
        availability=available,
        rollout=item.rollout,
        availability_target=target,
    )


def _there(facts: Facts, name: str, pool: Pool) -> float:
    count = facts.system.profiles[facts.system.servers[name].model, pool.accelerator].acc_count
    return facts.system.accelerators[pool.accelerator].availability ** count


def _both(facts: Facts, name: str, pool: Pool, item: ReplicaPurposes) -> Iterator[str]:
    """Yield the errors of the utilisations, and of the count from which both targets are compatible."""
    target = facts.system.servers[name].availability_target
    said = item.utilization, item.full_utilization, item.both_from
    if target is None or item.utilization is None or item.full_utilization is None:
        if (target is not None) or said != (None, None, None):
            yield f"utilisations {said} with an availability target of {target}"
        return
    arrays = facts.arrays
    rate_rps = pool.max_arrival_rate_rpm / pool.num_replicas / SECONDS_PER_MINUTE
    rows = pool_rows(arrays, [(name, pool)])._replace(rate_rps=np.array([rate_rps]))
    full = float(measure_pairs(arrays, *rows).performance.utilization[0])
    for text, one, other in (
        ("at its load", pool.utilization, item.utilization),
        ("at its largest rate", full, item.full_utilization),
    ):
        if not close(one, other, SHARE_TOLERANCE):
            yield f"utilisation {text} is {one:.4g}, its replicas by purpose say {other:.4g}"
    yield from _least(_there(facts, name, pool), target, item)


def _least(there: float, target: float, item: ReplicaPurposes) -> Iterator[str]:
    """Yield errors of the minimum replica count, given the utilisation at the largest rate."""
    assert item.full_utilization is not None
    share = WANTED_UTILIZATION / item.full_utilization if item.full_utilization else math.inf

    def both(needed: int, sign: int = 1) -> bool:
        """Return whether both targets are met: clearly for sign 1, up to rounding for sign -1."""
        most = math.floor(needed / share * (1 + SHARE_TOLERANCE))
        return most >= needed and _enough(most, needed, there, target, sign)

    if item.both_from is None:
        top = int(MAX_FOR_BOTH * share) if share <= 1 else 0
        if top and all(both(needed) for needed in range(max(top - COMPARED, 1), top + 3)):
            yield "no number of replicas is said to reach both targets, but large ones do"
        return
    needed = smallest_integer(
        lambda gone: _enough(item.both_from or 0, (item.both_from or 0) - gone, there, target, -1),
        -1,
        item.both_from,
    )
    needed = item.both_from - needed
    if needed == 0 or _enough(item.both_from - 1, needed, there, target):
        yield f"{item.both_from:,} replicas are not the fewest for any number of needed ones"
        return
    if not all(both(k, -1) for k in range(needed, needed + COMPARED)):
        yield f"from {item.both_from:,} replicas on both targets do not hold"
    if needed > 1 and both(needed - 1):
        yield f"both targets hold from fewer than {item.both_from:,} replicas on"


def _enough(replicas: int, needed: int, there: float, target: float, sign: int = 1) -> bool:
    """Return whether enough replicas are available: by a clear margin for sign 1, up to rounding for -1."""
    least = target + sign * min(ROUNDING, (1 - target) / 2)
    return replicas >= needed and enough_probability(replicas, needed, there) >= least
