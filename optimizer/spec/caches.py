"""Caches of results: what they leave of loads and targets for replicas (math.md section 27)."""

from optimizer.kinds.fields import Load
from optimizer.spec.schema import ModelTarget, Server


def replica_load(server: Server) -> Load:
    """Return the load that a server's replicas see: its own, or the misses of its cache (eq. 187)."""
    return thinned(server.current.load, 1 - server.cache_hit_rate)


def thinned(load: Load, share: float) -> Load:
    """Return a load of which each request remains with a probability.

    Since that is left to chance, arrivals that vary more or less than a Poisson process come closer to one.
    """
    if share == 1:
        return load
    return load.model_copy(
        update={
            "arrival_rate_rpm": load.arrival_rate_rpm * share,
            "arrival_cv": (1 + share * (load.arrival_cv**2 - 1)) ** 0.5,
        }
    )


def target_of_misses(target: ModelTarget, hit_rate: float) -> ModelTarget:
    """Return targets that the misses of a cache must meet so that all requests meet their own (eq. 188)."""
    if not hit_rate:
        return target
    percentile, share = _of_misses(target.percentile, hit_rate), target.goodput_share
    share = None if share is None else 1 - (1 - share) / (1 - hit_rate)
    changed: dict[str, object] = {"tps": target.tps * (1 - hit_rate)}
    if min(1.0 if percentile is None else percentile, 1.0 if share is None else share) <= 0:
        changed |= {"itl_ms": 0.0, "ttft_ms": 0.0, "e2e_ms": 0.0, "user_tps": 0.0}
        percentile = share = None
    limits = [(_of_misses(limit.percentile, hit_rate), limit) for limit in target.latency]
    changed["latency"] = tuple(
        limit.model_copy(update={"percentile": mapped})
        for mapped, limit in limits
        if mapped is None or mapped > 0
    )
    return target.model_copy(update=changed | {"percentile": percentile, "goodput_share": share})


def _of_misses(percentile: float | None, hit_rate: float) -> float | None:
    """Return the percentile of the misses that is a percentile of all requests; 0 or less: none is."""
    return None if percentile is None else 100 - (100 - percentile) / (1 - hit_rate)
