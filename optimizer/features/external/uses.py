"""The part of a plan about rented external services."""

from optimizer.documents import OutputDocument


class Rented(OutputDocument):
    """A server whose requests an external service answers."""

    server: str
    """Name of the server."""
    arrival_rate_rpm: float
    """Load of the server [requests/min]."""
    cost_cents_per_h: float
    """Cost of the external service at the server's load [cents/h]."""
    cost_per_million: float
    """Cost of the external service per million tokens, input plus output [cents]."""
    itl_ms: float
    """Mean inter-token latency [ms]."""
    ttft_ms: float
    """Mean time to first token [ms]."""
