"""Document fields for a result cache in front of a server's replicas."""

from operator import not_
from typing import Annotated

from pydantic import Field

from optimizer.documents import Document, In
from optimizer.units import SHARE

HitRate = Annotated[float, In(SHARE, lt=1)]


class CacheFields(Document):
    """Result cache of a server."""

    cache_hit_rate: HitRate = Field(0.0, alias="cacheHitRate", exclude_if=not_)
    """Share of the requests that a result cache answers in negligible time; replicas serve the others.
    Percentiles, `goodputShare` and `slo-tps` apply to all requests. Limits on means and on rejected requests
    apply to those at replicas, which is conservative.
    """
