"""Check the service of every server: replicas, accelerators, batches, loads of pools, unserved servers."""

from collections.abc import Iterator

from optimizer.candidates.arrays import profile_of
from optimizer.candidates.renting import missed_target
from optimizer.documents import MAX_BATCH_LIMIT
from optimizer.plan.checks.facts import RELATIVE_TOLERANCE, Facts, close, differing
from optimizer.plan.checks.prices import rent_of_a_million
from optimizer.plan.document import Pool
from optimizer.quantities import be, counted, precise
from optimizer.spec.places import may_serve
from optimizer.spec.schema import DEFAULT_MAX_BATCH, Server


def check_service(facts: Facts) -> list[str]:
    """Return the errors of each server's allocation."""
    checks = (_replicas, _accelerators, _batches, _loads, _listing)
    return [
        f"{name}: {line}"
        for name, server in facts.system.servers.items()
        if name not in facts.in_queues
        for check in checks
        for line in check(facts, server)
    ]


def is_well_formed(facts: Facts, name: str, pool: Pool) -> bool:
    """Return whether a pool has replicas, and a batch that queue models accept."""
    limit = batch_limit(facts, facts.system.servers[name], pool.accelerator)
    return pool.num_replicas >= 1 and 1 <= pool.max_batch <= min(limit, MAX_BATCH_LIMIT)


def batch_limit(facts: Facts, server: Server, accelerator: str) -> float:
    """Return the batch limit of a pool by the documents (eq. 25); an upper limit if optimised.

    Args:
        facts: the plan and its system.
        server: the server.
        accelerator: name of the accelerator.
    """
    profile, load = profile_of(facts.system, server, accelerator), server.current.load
    idle = not facts.load_rpm[server.name]
    limit = float(profile.max_batch_size or DEFAULT_MAX_BATCH)
    if profile.max_batch_size and profile.at_tokens and not idle:
        limit = max(limit * profile.at_tokens // load.out_tokens, 1.0)
    if server.max_batch_size:
        chosen = facts.system.options.batch_sizing == "optimal"
        limit = min(limit, server.max_batch_size) if chosen else float(server.max_batch_size)
    if profile.kv_capacity_tokens is not None and not idle:
        limit = min(limit, profile.kv_capacity_tokens // (load.in_tokens + load.out_tokens))
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
    if len(pools) > 1 and not facts.mixed:
        yield f"{len(pools)} pools, but the options allow one accelerator per server"
    if len({pool.accelerator for pool in pools}) < len(pools):
        yield "several pools on the same accelerator"


def _accelerators(facts: Facts, server: Server) -> Iterator[str]:
    for pool in facts.pools_of(server.name):
        accelerator = facts.system.accelerators.get(pool.accelerator)
        if accelerator is not None and not may_serve(server, accelerator):
            yield f"{pool.accelerator} is at a place that mayServeFrom does not list"
        if server.accelerators is not None and pool.accelerator not in server.accelerators:
            yield f"{pool.accelerator} is not in its list of accelerators"
        if server.keep_accelerator and server.current.accelerator not in ("", pool.accelerator):
            yield f"must keep {server.current.accelerator}, not {pool.accelerator}"
        if facts.system.target_of(server) is None:
            yield f"class {server.service_class} has no target for {server.model}"


def _batches(facts: Facts, server: Server) -> Iterator[str]:
    chosen = facts.system.options.batch_sizing == "optimal"  # `check_queues` checks which one
    for pool in facts.pools_of(server.name):
        limit = batch_limit(facts, server, pool.accelerator)
        if not 1 <= pool.max_batch <= limit or not (chosen or pool.max_batch == limit):
            yield f"batch {pool.max_batch} on {pool.accelerator}, the limit is {precise(limit)}"


def _loads(facts: Facts, server: Server) -> Iterator[str]:
    """Check that pools share the load in proportion to their maximum rates, up to these rates (eq. 49)."""
    load, pools = facts.load_rpm[server.name], facts.pools_of(server.name)
    if server.name in facts.rented:
        yield from _rented(facts, server)
        return
    if server.name in facts.on_cards:
        return
    carried = sum(pool.arrival_rate_rpm for pool in pools)
    maximum = sum(pool.max_arrival_rate_rpm for pool in pools)
    item = facts.listed.get(server.name)
    stated = 1.0 if item is None else item.served_fraction
    if not close(carried, load * stated):
        yield f"carries {precise(carried)} of {precise(load * stated)} requests/min"
    for pool in pools:
        if pool.arrival_rate_rpm > pool.max_arrival_rate_rpm * (1 + RELATIVE_TOLERANCE):
            yield (
                f"{pool.accelerator} carries {precise(pool.arrival_rate_rpm)} requests/min, "
                f"its maximum is {precise(pool.max_arrival_rate_rpm)}"
            )
        share = min(load, maximum) * pool.max_arrival_rate_rpm / maximum if maximum > 0 else 0.0
        if not close(pool.arrival_rate_rpm, share):
            yield (
                f"{pool.accelerator} carries {precise(pool.arrival_rate_rpm)} requests/min, "
                f"its share is {precise(share)}"
            )


def _rented(facts: Facts, server: Server) -> Iterator[str]:
    """Check that a renting server has load, no pools, and a service that meets its targets."""
    item, external, load = facts.rented[server.name], server.external, facts.load_rpm[server.name]
    if external is None or not load:
        yield f"rents, but has no {'load' if external else 'external service'}"
        return
    if facts.pools_of(server.name) or server.name in facts.listed:
        yield "rents, but has pools or is listed as unserved"
    missed = missed_target(server, facts.system.target_of(server))
    if missed:
        yield f"external: {missed}"
    for word, true, said in (
        ("cost", facts.rent_of(server.name), item.cost_cents_per_h),
        ("arrivalRate", load, item.arrival_rate_rpm),
        ("costPerMillion", rent_of_a_million(external, server.current.load, load), item.cost_per_million),
        ("itlAverage", external.itl_ms, item.itl_ms),
        ("ttftAverage", external.ttft_ms, item.ttft_ms),
    ):
        yield from differing(f"{word} of the external service is", true, said)


def _listing(facts: Facts, server: Server) -> Iterator[str]:
    """Check that servers with too few replicas or too little capacity are listed as unserved."""
    if server.name in facts.rented or server.name in facts.on_cards:
        return
    load, pools, minimum = facts.load_rpm[server.name], facts.pools_of(server.name), server.min_num_replicas
    maximum = sum(pool.max_arrival_rate_rpm for pool in pools)
    replicas = sum(pool.num_replicas for pool in pools)
    needed = max(minimum, 1)
    few = replicas < needed and facts.is_to_serve(server.name)
    item = facts.listed.get(server.name)
    if item is None:
        if few:
            yield f"{counted(replicas, 'replica')}, at least {needed} {be(needed)} required"
        elif maximum < load * (1 - RELATIVE_TOLERANCE):
            carried = f"{precise(maximum)} of {precise(load)} requests/min"
            yield f"carries at most {carried}, but is not listed as unserved"
        return
    if not few and maximum >= load:
        yield "fully served, but listed as unserved"
    served = min(maximum / load, 1.0) if load > 0 else min(replicas / max(minimum, 1), 1.0)
    if not close(served, item.served_fraction):
        yield f"{precise(served)} of it is served, the plan says {precise(item.served_fraction)}"
    if pools and not facts.shares_leftover:
        yield "partially served, which the options do not allow"
