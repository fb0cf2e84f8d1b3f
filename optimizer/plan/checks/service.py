"""Checks the rules for every server: replicas, accelerators, batch limits, load of pools, served share.

Only plans that follow these rules are measured, so no time is spent on wrong numbers of replicas or batch
limits.
"""

import math
from collections.abc import Iterator

from optimizer.candidates.arrays import profile_of, rolls_out
from optimizer.documents import MAX_BATCH_LIMIT
from optimizer.features.external.offers import missed_target
from optimizer.kinds.fields import DEFAULT_MAX_BATCH
from optimizer.plan.checks.differences import close
from optimizer.plan.checks.facts import Facts
from optimizer.quantities import be, counted, precise
from optimizer.schema import Server
from optimizer.spec.streams import has_members, members_of
from optimizer.tolerances import SAME


def check_service(facts: Facts) -> list[str]:
    """Return the errors in the allocations of all servers."""
    checks, queued = (_replicas, _accelerators, _batches, _loads, _listing), facts.plan.queued_servers
    service = [
        f"{name}: {line}"
        for name, server in facts.system.servers.items()
        if name not in queued
        for check in checks
        for line in check(facts, server)
    ]
    return [*service, *_members(facts)]


def stated_limit(facts: Facts, server: Server, accelerator: str) -> float:
    """Return the batch limit of a pool according to documents (eq. 25); an upper limit if it is optimised.

    Args:
        facts: the plan and its system.
        accelerator: name of the accelerator.
    """
    profile, load = profile_of(facts.system, server, accelerator), server.current.load
    idle = not facts.load_rpm[server.name]
    limit = float(profile.max_batch_size or DEFAULT_MAX_BATCH)
    if profile.max_batch_size and profile.at_tokens and not idle:
        # The batch that was measured at `atTokens`, scaled to the output length of the load.
        limit = max(limit * profile.at_tokens // load.out_tokens, 1.0)
    if server.max_batch_size:
        chosen = facts.system.options.batch_sizing == "optimal"
        limit = min(limit, server.max_batch_size) if chosen else float(server.max_batch_size)
    if profile.kv_capacity_tokens is not None and not idle:
        # Prefixes that are stored once take their part of the KV cache from all requests.
        free = max(profile.kv_capacity_tokens - load.heads_tokens(), 0.0)
        limit = min(limit, free // load.request_tokens())
    return limit


def _replicas(facts: Facts, server: Server) -> Iterator[str]:
    pools = facts.pools_of(server.name)
    replicas = sum(pool.num_replicas for pool in pools)
    for pool in pools:
        if pool.num_replicas < 1:
            yield f"a pool of {counted(pool.num_replicas, 'replica')} on {pool.accelerator}"
    maximum = server.max_num_replicas
    if maximum is not None and replicas > maximum:
        yield f"{counted(replicas, 'replica')}, at most {maximum} {be(maximum)} allowed"
    if len(pools) > 1:
        if not facts.mixed:
            yield f"{len(pools)} pools, but the options allow one accelerator per server"
        why = _one_pool(facts, server)
        if why:
            yield f"{len(pools)} pools, {why} has only one"
    if len({pool.accelerator for pool in pools}) < len(pools):
        yield "several pools on the same accelerator"


def _one_pool(facts: Facts, server: Server) -> str | None:
    """Describe the property that limits a server to one pool; None if it can have several."""
    if facts.whole.servers.get(server.name) is not None and has_members(facts.whole.servers[server.name]):
        return "a shared queue"
    return "a server that rolls out" if rolls_out(facts.whole, server) else None


def _accelerators(facts: Facts, server: Server) -> Iterator[str]:
    for pool in facts.plan.allocations.get(server.name, ()):
        accelerator = facts.system.accelerators.get(pool.accelerator)
        if accelerator and not facts.system.may_serve(server, pool.accelerator):
            yield f"{pool.accelerator} is at a place that mayServeFrom does not list"
        if server.accelerators is not None and pool.accelerator not in server.accelerators:
            yield f"{pool.accelerator} is not in its list of accelerators"
        stays_on = server.current.accelerators if server.keep_accelerator else ()
        if stays_on and pool.accelerator not in stays_on:
            yield f"must keep {' and '.join(stays_on)}, not {pool.accelerator}"
        if facts.system.target_of(server) is None:
            yield f"class {server.service_class} has no target for {server.model}"


def _batches(facts: Facts, server: Server) -> Iterator[str]:
    chosen = facts.system.options.batch_sizing == "optimal"  # `check_pools` checks the value
    for pool in facts.plan.allocations.get(server.name, ()):
        limit = min(stated_limit(facts, server, pool.accelerator), MAX_BATCH_LIMIT)
        if not 1 <= pool.max_batch <= limit or not (chosen or pool.max_batch == limit):
            yield f"batch {pool.max_batch} on {pool.accelerator}, the limit is {precise(limit)}"


def _loads(facts: Facts, server: Server) -> Iterator[str]:
    """Yield an error unless pools share the load in proportion to their maximum rates (eq. 49)."""
    load, pools = facts.load_rpm[server.name], facts.pools_of(server.name)
    if server.name in facts.renting:
        yield from _rented(facts, server)
    maximum = math.fsum(pool.max_arrival_rate_rpm for pool in pools)
    for pool in pools:
        if not (0 < pool.max_arrival_rate_rpm < math.inf):
            yield f"the maximum rate on {pool.accelerator} is {precise(pool.max_arrival_rate_rpm)}"
            continue
        # Equal utilisation of all pools: each carries the load in proportion to its maximum rate.
        share = min(load, maximum) * pool.max_arrival_rate_rpm / maximum if maximum > 0 else 0.0
        carried = pool.arrival_rate_rpm
        if not close(carried, share) or carried < 0 or (carried > 0) != (share > 0):
            yield (
                f"{pool.accelerator} carries {precise(carried)} requests/min, its share is {precise(share)}"
            )


def _rented(facts: Facts, server: Server) -> Iterator[str]:
    """Yield an error unless a renting server has load, no pools, and a service that meets its targets."""
    external, load = server.external, facts.load_rpm[server.name]
    if external is None or not load:
        yield f"is rented, but has no {'load' if external else 'external service'}"
        return
    if facts.pools_of(server.name) or server.name in facts.listed:
        yield "is rented, but has pools or is listed as unserved"
    missed = missed_target(server, facts.system.target_of(server))
    if missed:
        yield f"external: {missed}"


def _listing(facts: Facts, server: Server) -> Iterator[str]:
    """Yield an error if a server is wrongly listed, or wrongly not listed, as unserved."""
    if server.name in facts.renting or server.name in facts.on_cards:
        return
    load, pools, minimum = facts.load_rpm[server.name], facts.pools_of(server.name), server.min_num_replicas
    maximum = sum(pool.max_arrival_rate_rpm for pool in pools)
    replicas = sum(pool.num_replicas for pool in pools)
    needed = max(minimum, 1)
    few = replicas < needed and (load > 0 or minimum > 0)
    item = facts.listed.get(server.name)
    if item is None:
        if few:
            yield f"{counted(replicas, 'replica')}, at least {needed} {be(needed)} required"
        elif maximum < load * (1 - SAME):
            carried = f"{precise(maximum)} of {precise(load)} requests/min"
            yield f"carries at most {carried}, but is not listed as unserved"
        return
    if not few and maximum >= load:
        yield "fully served, but listed as unserved"
    # An idle server is served by its minimum number of replicas.
    served = min(maximum / load, 1.0) if load > 0 else min(replicas / max(minimum, 1), 1.0)
    if not close(served, item.served_fraction):
        yield f"{precise(served)} of it is served, the plan says {precise(item.served_fraction)}"
    if pools and not facts.shares_leftover:
        yield "partially served, which the options do not allow"


def _members(facts: Facts) -> Iterator[str]:
    """Yield an error unless queue members are served in full or not at all."""
    for name, use in facts.plan.shared_queues.items():
        if not facts.pools_of(name) and any(member.arrival_rate_rpm for member in use.members.values()):
            yield f"{name}: serves requests without replicas"
        for part in members_of(facts.whole.servers[name]):
            load, item = part.current.load.arrival_rate_rpm, facts.listed.get(part.name)
            member = use.members.get(part.name)
            share = 0.0 if member is None else member.arrival_rate_rpm / load if load else 1.0
            if item is None and share < 1 - SAME:
                yield f"{name}: {part.name} is served {precise(share)}, but not in unserved"
            if item is not None and not close(item.served_fraction, share):
                said = precise(item.served_fraction)
                yield f"{name}: {part.name} is served {precise(share)}, the plan says {said}"
            if item is not None and share:
                yield f"{name}: {part.name} is partially served, which a shared queue does not allow"
