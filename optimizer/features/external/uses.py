"""The section of a plan about rented external services."""

from pydantic import Field

from optimizer.documents import Document


class Rented(Document):
    """A server whose requests an external service answers."""

    server: str
    """Name of the server."""
    arrival_rate_rpm: float = Field(alias="arrivalRate")
    """Load of the server [requests/min]."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost of the external service at the server's load [cents/h]."""
    cost_per_million: float = Field(alias="costPerMillion")
    """Cost of the external service per million tokens, input plus output [cents]."""
    itl_ms: float = Field(alias="itlAverage")
    """Mean inter-token latency [ms]."""
    ttft_ms: float = Field(alias="ttftAverage")
    """Mean time to first token [ms]."""
