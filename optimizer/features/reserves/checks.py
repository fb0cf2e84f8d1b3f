"""Checks the reserves that a plan states for its servers.

Rates and replicas are counted from the pools, and availability follows from the binomial distribution. Queue
models recompute all target measures at the load and at the load with headroom, each with all replicas and
without the spare ones.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from optimizer.candidates import Candidates
from optimizer.candidates.arrays import rolls_out
from optimizer.candidates.measuring import measure_pairs, targets_hold
from optimizer.features.reserves.offers import availability_of
from optimizer.plan.checks.facts import Facts
from optimizer.plan.checks.levels import headroom_of
from optimizer.plan.checks.pools import missed_targets
from optimizer.plan.checks.unserved import is_exact, shortages_of, true_reason
from optimizer.plan.document import Plan, Unserved
from optimizer.plan.rows import pool_pairs
from optimizer.plan.shortages import Shortages
from optimizer.plan.unneeded import unneeded_replicas
from optimizer.prices.table import prices_of
from optimizer.quantities import counted, precise
from optimizer.schema import Server
from optimizer.schema.pools import Pool
from optimizer.spec.streams import members_of
from optimizer.spec.system import System
from optimizer.tolerances import SAME
from optimizer.units import SECONDS_PER_MINUTE

NO_CHANCE = 1e-20
"""Size of a probability term below which the rest of a sum is negligible."""


def check_reserves(facts: Facts) -> list[str]:
    """Return an error for each server for which the plan wrongly states that it has or lacks its reserve."""
    problems = []
    for item in facts.plan.reserves:
        server = facts.system.servers.get(item.server)
        if server is None or not facts.pools_of(item.server):
            continue  # other checks find an incorrect list of reserves
        short = item.server in facts.short
        lacks = "is not served in full" if short else next(lacking(facts, server), None)
        if lacks is not None and item.has_reserve:
            problems.append(f"{item.server}: {lacks}")
        if lacks is None and not item.has_reserve:
            problems.append(f"{item.server}: keeps its reserve, the plan says that it does not")
    return problems


def lacking(facts: Facts, server: Server) -> Iterator[str]:
    """Yield a text for each part of a server's required reserve that the plan does not have."""
    pools, load = facts.pools_of(server.name), facts.load_rpm[server.name]
    grown, gone = load * (1 + headroom_of(facts.system, server)), server.spare_replicas
    left = sum(pool.max_arrival_rate_rpm * max(1 - gone / pool.num_replicas, 0.0) for pool in pools)
    without = f" without {gone} of its replicas" if gone else ""
    least, replicas = server.min_num_replicas, sum(pool.num_replicas for pool in pools)
    if (gone or server.availability_target is not None) and len(pools) > 1:
        yield f"has {len(pools)} pools, its spares or availability target require one"
        return
    if replicas < least + gone:
        yield f"has {counted(replicas, 'replica')}, its reserve requires {least} and {counted(gone, 'spare')}"
        return
    if left < grown * (1 - SAME):
        yield f"carries at most {precise(left)}{without}, its reserve requires {precise(grown)} requests/min"
        return
    if server.availability_target is not None:
        there = _availability(facts, server, grown)
        if there < server.availability_target * (1 - SAME):
            target = precise(server.availability_target)
            yield f"enough replicas are available with probability {precise(there)}, its target is {target}"
    others = sorted({(rate, spares) for rate in (load, grown) for spares in (0, gone)} - {(load, 0)})
    if others:  # `check_pools` measures the targets of all replicas at the load
        yield from _missed(facts, server, others)


def _availability(facts: Facts, server: Server, grown_rpm: float) -> float:
    """Return the probability that enough replicas are available for the load with headroom."""
    (pool,) = facts.pools_of(server.name)
    each = pool.max_arrival_rate_rpm / pool.num_replicas
    needed = max(math.ceil(grown_rpm / each * (1 - SAME)), server.min_num_replicas, 1)
    there = availability_of(facts.system, server.model, pool.accelerator)
    return enough_probability(pool.num_replicas, needed, there)


def _missed(facts: Facts, server: Server, cases: Sequence[tuple[float, int]]) -> Iterator[str]:
    """Yield a text for each target that is missed in cases of (load [requests/min], unavailable replicas)."""
    arrays, pools = facts.arrays, facts.pools_of(server.name)
    most, one = sum(pool.max_arrival_rate_rpm for pool in pools), range(len(pools))
    pairs, _ = pool_pairs(arrays, [(server.name, pool) for pool in pools])
    pairs = pairs.take(np.tile(one, len(cases)))
    each = [
        load * pool.max_arrival_rate_rpm / most / SECONDS_PER_MINUTE / max(pool.num_replicas - gone, 1)
        for load, gone in cases
        for pool in pools
    ]
    texts = [
        f"{precise(load)} requests/min" + f" without {gone} replicas" * (gone > 0) for load, gone in cases
    ]
    if arrays.servers.is_queue[pairs.server[0]]:
        holds = targets_hold(arrays, pairs, np.array(each))
        for row in np.flatnonzero(~holds).tolist():
            yield f"a server of the queue misses a target at {texts[row // len(pools)]}"
        return
    targets = measure_pairs(arrays, pairs, np.array(each)).targets
    for row, label, text in missed_targets(arrays.servers.targets.take(pairs.server), targets):
        yield f"{label} at {texts[row // len(pools)]} is {text}"


def check_before_reserves(facts: Facts, candidates: Candidates) -> Iterator[str]:
    """Yield an error for each server with unserved load that cards used for reserves could serve.

    Load has precedence over reserves. The cards could serve the server in full, or one more replica of it
    under the saturation policy.
    """
    if not facts.plan.reserves or not is_exact(facts):
        return
    lean = _without_reserves(facts)
    shortages = shortages_of(lean, candidates)
    for item in (item for item in facts.plan.unserved if item.reason == "capacity"):
        name = item.server
        if true_reason(lean, shortages, item).reason == "solver_stopped":
            yield f"{name}: cards of reserves could serve it in full, but load comes before reserves"
        elif _gets_another_replica(lean, shortages, item):
            yield f"{name}: cards of reserves could serve more of it, but load comes before reserves"


def _gets_another_replica(lean: Facts, shortages: Shortages, item: Unserved) -> bool:
    """Return whether the saturation policy certainly gives a server another replica if there are no reserves.

    This is certain only if the servers served in full cannot run elsewhere, so that they keep their cards
    while others are served in part.
    """
    system, server, pools = lean.whole, lean.whole.servers.get(item.server), lean.pools_of(item.server)
    other_costs = prices_of(system) or lean.renting
    if server is None or not lean.shares_leftover or other_costs or rolls_out(system, server):
        return False
    in_full = (
        name for name, of_server in lean.plan.allocations.items() if of_server and name not in lean.listed
    )
    most = server.max_num_replicas
    full = most is not None and sum(pool.num_replicas for pool in pools) >= most
    if full or any(_can_move(system, name) for name in in_full):
        return False
    table = shortages.candidates.table
    s = shortages.candidates.arrays.server_names.index(item.server)
    rows = np.flatnonzero((table.server == s) & table.meets_targets_below_max_rate)
    here = {pool.accelerator for pool in pools} if pools and not lean.mixed else system.accelerators.keys()
    return any(
        needs and needs[0].accelerator in here and all(need.missing <= 0 for need in needs)
        for needs in shortages.needs(item.server, rows, [1] * len(rows), ())
    )


def _can_move(system: System, name: str) -> bool:
    """Return whether a server could use other cards: it has several accelerators, or is a shared queue."""
    server = system.servers[name]
    return members_of(server) != (server,) or len(system.accelerators_of(server)) > 1


def _without_reserves(facts: Facts) -> Facts:
    """Return the facts of the plan without replicas that only reserves need.

    A server keeps them if its other replicas alone would miss a target.
    """
    pools = dict(facts.plan.allocations)
    for name in (item.server for item in facts.plan.reserves if item.server not in facts.short):
        server, of_server = facts.whole.servers[name], facts.pools_of(name)
        if members_of(server) != (server,) or rolls_out(facts.whole, server):
            continue
        unneeded = unneeded_replicas(of_server, facts.load_rpm[name], server.min_num_replicas)
        fewer = replace(facts, plan=_with_pools(facts.plan, {name: _reduced(of_server, unneeded)}))
        if not any(_missed(fewer, server, [(facts.load_rpm[name], 0)])):
            pools |= {name: fewer.pools_of(name)}
    return replace(facts, plan=_with_pools(facts.plan, pools))


def _with_pools(plan: Plan, pools: Mapping[str, tuple[Pool, ...]]) -> Plan:
    return plan.model_copy(update={"allocations": {**plan.allocations, **pools}})


def _reduced(pools: Sequence[Pool], fewer: Mapping[str, int]) -> tuple[Pool, ...]:
    """Return the pools without the numbers of replicas in `fewer`, which are by accelerator."""
    left = ((pool, pool.num_replicas - fewer[pool.accelerator]) for pool in pools)
    return tuple(
        pool.model_copy(
            update={
                "num_replicas": count,
                "cost_cents_per_h": pool.cost_cents_per_h * count / pool.num_replicas,
                "max_arrival_rate_rpm": pool.max_arrival_rate_rpm * count / pool.num_replicas,
            }
        )
        for pool, count in left
        if count
    )


def enough_probability(count: int, needed: int, there: float) -> float:
    """Return the probability that at least `needed` of `count` replicas are available.

    To be independent of the planner, it sums binomial terms of the tail on the smaller side of `needed`, from
    there outwards until the terms are negligible.
    """
    if there >= 1:
        return float(count >= needed)
    log_there, log_gone = math.log(there), math.log1p(-there)
    is_upper = needed > count * there
    total = 0.0
    for j in range(needed, count + 1) if is_upper else range(needed - 1, -1, -1):
        ways = math.lgamma(count + 1) - math.lgamma(j + 1) - math.lgamma(count - j + 1)
        chance = math.exp(ways + j * log_there + (count - j) * log_gone)
        total += chance
        if chance < NO_CHANCE:
            break
    return total if is_upper else 1 - total
