"""Routes in the hours of a horizon."""

from operator import not_

from pydantic import Field

from optimizer.documents import OutputDocument
from optimizer.features.routes.replayed import RoutedLoad
from optimizer.features.routes.view import divisions_within
from optimizer.plan import Plan
from optimizer.spec.system import System


class HourlyRoute(OutputDocument):
    """Requests of a route in one interval."""

    small_rpm: float
    """Requests that the small model serves [requests/min]."""
    large_rpm: float
    """Requests that the large model serves, including reruns [requests/min]."""
    quality_lost: float
    """Fraction of responses that are worse because the small model produced them."""
    shares: tuple[float, ...] = Field(strict=False)
    """Fraction of each request kind that the small model serves, in the order of the document."""


class HourlyRoutesField(OutputDocument):
    """The routes of one hour."""

    routes: dict[str, HourlyRoute] = Field({}, exclude_if=not_)
    """Division of the requests of served routes, by route; absent if there are none."""


def hourly_routes(plan: Plan, system: System) -> dict[str, HourlyRoute]:
    """Return the division of the requests of routes at their rates in an hour, by route."""
    return {
        name: HourlyRoute.taken_from(
            RoutedLoad.of(system.routes[name], division.shares, routed=division.routed),
            shares=division.shares,
        )
        for name, division in divisions_within(plan, system).items()
        if division is not None
    }
