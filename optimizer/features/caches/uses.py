"""What a plan states of caches."""

from pydantic import Field

from optimizer.documents import Document


class CacheUse(Document):
    """Requests that a server's cache answers, and those left for its replicas."""

    server: str
    """Name of the server."""
    hit_rate: float = Field(alias="cacheHitRate")
    """Share of the requests that the cache answers."""
    hits_rpm: float = Field(alias="hits")
    """Requests that the cache answers [requests/min]."""
    misses_rpm: float = Field(alias="misses")
    """Requests left for replicas [requests/min]."""
