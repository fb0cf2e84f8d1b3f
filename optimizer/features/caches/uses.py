"""The section of a plan about result caches."""

from pydantic import Field

from optimizer.documents import Document


class CacheUse(Document):
    """Requests that a server's result cache answers, and those that its replicas serve."""

    server: str
    """Name of the server."""
    hit_rate: float = Field(alias="cacheHitRate")
    """Share of the requests that the cache answers."""
    hits_rpm: float = Field(alias="hits")
    """Requests that the cache answers [requests/min]."""
    misses_rpm: float = Field(alias="misses")
    """Requests that replicas serve [requests/min]."""
