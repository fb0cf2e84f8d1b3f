"""Computes the hits and misses of result caches in a plan (math.md section 27)."""

from optimizer.features.caches.uses import CacheUse
from optimizer.spec.system import System


def cache_uses(system: System) -> tuple[CacheUse, ...]:
    """Return the hits and misses of every server with a result cache."""
    return tuple(
        CacheUse(
            server=name,
            hit_rate=server.cache_hit_rate,
            hits_rpm=server.current.load.arrival_rate_rpm * server.cache_hit_rate,
            misses_rpm=server.current.load.arrival_rate_rpm * (1 - server.cache_hit_rate),
        )
        for name, server in system.servers.items()
        if server.cache_hit_rate
    )
