"""Computes the rented external services of a plan."""

from optimizer.features.external.offers import rented_per_million
from optimizer.features.external.uses import Rented
from optimizer.schema import Server


def rental(server: Server, rate_rpm: float, cost_cents_per_h: float) -> Rented:
    """Return the plan's entry for a server that rents its external service.

    Args:
        server: the server.
        rate_rpm: load of the server [requests/min].
        cost_cents_per_h: cost of the external service at that load [cents/h].
    """
    assert server.external is not None
    return Rented(
        server=server.name,
        arrival_rate_rpm=rate_rpm,
        cost_cents_per_h=cost_cents_per_h,
        cost_per_million=rented_per_million(server.external, server.current.load),
        itl_ms=server.external.itl_ms,
        ttft_ms=server.external.ttft_ms,
    )
