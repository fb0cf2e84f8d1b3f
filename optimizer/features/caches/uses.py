"""The part of a plan about result caches."""

from optimizer.documents import OutputDocument


class CacheUse(OutputDocument):
    """Requests that a server's result cache answers, and those that its replicas serve."""

    server: str
    """Name of the server."""
    hit_rate: float
    """Share of the requests that the cache answers."""
    hits_rpm: float
    """Requests that the cache answers [requests/min]."""
    misses_rpm: float
    """Requests that replicas serve [requests/min]."""
