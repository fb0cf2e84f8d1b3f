"""Loads and targets of the requests that miss a result cache and reach replicas (math.md section 27)."""

from optimizer.kinds.fields import Load
from optimizer.schema import ModelTarget


def thinned(load: Load, share: float) -> Load:
    """Return the load of a random sample of the requests: each is kept with the probability `share`.

    The sample is closer to Poisson arrivals than the full load, so its coefficient of variation is nearer to
    1.
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
    """Return the targets for cache misses with which all requests together meet `target` (eq. 188).

    A minimum share of requests within the targets still refers to all requests.
    """
    if not hit_rate:
        return target
    percentile, share = _of_misses(target.percentile, hit_rate), target.goodput_share
    changed: dict[str, object] = {"tps": target.tps * (1 - hit_rate)}
    hits_suffice = share is not None and share <= hit_rate
    if hits_suffice or (percentile is not None and percentile <= 0):
        changed |= {"itl_ms": 0.0, "ttft_ms": 0.0, "e2e_ms": 0.0, "user_tps": 0.0}
        percentile = share = None
    limits = [(_of_misses(limit.percentile, hit_rate), limit) for limit in target.latency]
    changed["latency"] = tuple(
        limit.model_copy(update={"percentile": mapped})
        for mapped, limit in limits
        if mapped is None or mapped > 0
    )
    return target.of_misses(hit_rate, changed | {"percentile": percentile, "goodput_share": share})


def _of_misses(percentile: float | None, hit_rate: float) -> float | None:
    """Convert a percentile of all requests to one of cache misses; ≤ 0 if the hits alone suffice."""
    return None if percentile is None else 100 - (100 - percentile) / (1 - hit_rate)
