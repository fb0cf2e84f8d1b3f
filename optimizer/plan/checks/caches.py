"""Check the effect of caches: hits, misses and the load of pools."""

from collections.abc import Iterator

from optimizer.plan.checks.facts import Facts, close, differing
from optimizer.plan.document import CacheUse
from optimizer.quantities import precise


def check_caches(facts: Facts) -> list[str]:
    """Return the errors of the caches."""
    wanted = [name for name, server in facts.system.servers.items() if server.cache_hit_rate]
    said = [item.server for item in facts.plan.caches]
    if said != wanted:
        return [f"caches: of {', '.join(wanted) or 'no server'}, not of {', '.join(said) or 'none'}"]
    return [f"{item.server}: {line}" for item in facts.plan.caches for line in _item(facts, item)]


def _item(facts: Facts, item: CacheUse) -> Iterator[str]:
    server = facts.system.servers[item.server]
    all_rpm, hit_rate = server.current.load.arrival_rate_rpm, server.cache_hit_rate
    misses = all_rpm - all_rpm * hit_rate
    for field, true, shown in (
        ("cacheHitRate", hit_rate, item.hit_rate),
        ("hits", all_rpm * hit_rate, item.hits_rpm),
        ("misses", misses, item.misses_rpm),
    ):
        yield from differing(f"{field} of its cache is", true, shown)
    target = facts.system.target_of(server)
    pools = [*facts.pools_of(item.server), *facts.on_cards.get(item.server, ())]
    carried = sum(pool.arrival_rate_rpm for pool in pools)
    few = facts.listed.get(item.server)
    served = misses * (1.0 if few is None else few.served_fraction)
    if item.server not in facts.rented and not (target and target.tps) and not close(carried, served):
        yield f"carries {precise(carried)} of {precise(served)} requests/min that its cache leaves"
