"""Result caches: the loads and targets that remain for replicas (math.md section 27)."""

from optimizer.kinds.fields import Load
from optimizer.schema import ModelTarget


def thinned(load: Load, share: float) -> Load:
    """Return a load thinned at random: each request is kept with the probability `share`.

    Random thinning moves the variability of arrivals towards that of a Poisson process.
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
    """Return targets that the misses of a cache must meet so that all requests meet their own (eq. 188).

    A share of requests within the targets stays one of all requests.
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
    """Return the percentile of misses that equals a percentile of all requests; at most 0 if none does."""
    return None if percentile is None else 100 - (100 - percentile) / (1 - hit_rate)
