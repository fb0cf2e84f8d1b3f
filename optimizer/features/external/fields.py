"""Document fields for external services."""

from typing import Annotated

from pydantic import Field

from optimizer.documents import MAX_QUANTITY, Document, Milliseconds, is_none

MoneyPerMillion = Annotated[float, Field(ge=0, le=MAX_QUANTITY)]


class External(Document):
    """An external service that can serve all requests of a server instead of replicas.

    Only its mean latencies are known, so it meets no target on a percentile or a share of requests. The REST
    service with a running fleet does not rent it, and lists such servers in `notRented`.
    """

    in_per_million: MoneyPerMillion = Field(alias="inPerMillion")
    """Price of input tokens [cents per million]."""
    out_per_million: MoneyPerMillion = Field(alias="outPerMillion")
    """Price of output tokens [cents per million]."""
    ttft_ms: Milliseconds = Field(alias="ttft")
    """Mean time to first token [ms]."""
    itl_ms: Milliseconds = Field(alias="itl")
    """Mean inter-token latency [ms]."""


class ExternalField(Document):
    """External service of a server."""

    external: External | None = Field(None, exclude_if=is_none)
    """External service that can serve all requests of the server; absent if there is none."""
