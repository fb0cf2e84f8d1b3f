"""Requests of routes in a replay: their division, and the requests that exceed the ready replicas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optimizer.features.routes.streams import large_rpm, quality_lost, small_rpm
from optimizer.plan import Plan
from optimizer.schema import Route
from optimizer.spec.load_traces import LoadStep
from optimizer.spec.loads import rate_rpm
from optimizer.spec.system import System


@dataclass(frozen=True, slots=True)
class RoutedLoad:
    """Requests of a route, divided between its servers by shares of each kind [requests/min]."""

    route: str
    small: str
    """Name of the server with the small model."""
    large: str
    """Name of the server with the large model."""
    offered_rpm: float
    """Arrival rate of the route [requests/min]."""
    small_rpm: float
    """Requests at the small model [requests/min]."""
    large_rpm: float
    """Requests at the large model, including those that ran on the small one before [requests/min]."""
    quality_lost: float
    """Share of answers that are worse because the small model produced them."""

    @classmethod
    def of(cls, route: Route, shares: Sequence[float], *, routed: bool) -> "RoutedLoad":
        """Return the requests of a route, given the share of each kind at the small model."""
        both = small_rpm(route, shares), large_rpm(route, shares, routed=routed)
        lost = quality_lost(route, shares)
        return cls(route.name, route.small, route.large, route.arrival_rate_rpm, *both, lost)

    @property
    def by_server(self) -> dict[str, float]:
        """Arrival rate at each of the two servers [requests/min], by name."""
        return {self.small: self.small_rpm, self.large: self.large_rpm}

    @property
    def rerun_rpm(self) -> float:
        """Rate of requests that both models serve [requests/min]."""
        return max(0.0, self.small_rpm + self.large_rpm - self.offered_rpm)

    def missed_rpm(self, takes_rpm: Mapping[str, float]) -> dict[str, float]:
        """Return the requests that exceed each server's capacity [requests/min], by name.

        A request that the small model cannot serve is not sent to the large one, so no request counts twice.

        Args:
            takes_rpm: maximum rates of the ready replicas, by server.
        """
        small = max(0.0, self.small_rpm - takes_rpm[self.small])
        rerun = self.rerun_rpm * (1 - small / self.small_rpm) if self.small_rpm else 0.0
        direct = self.large_rpm - self.rerun_rpm
        return {self.small: small, self.large: max(0.0, direct + rerun - takes_rpm[self.large])}


def routed_loads(system: System, plan: Plan, step: LoadStep) -> list[RoutedLoad]:
    """Return the requests of each route in a time step, divided by the shares of the plan.

    Args:
        system: the system; a route that is missing in the step has its rate in the system.
        step: offered loads of the time step.
    """
    result = []
    for name, known in system.routes.items():
        rate, use = rate_rpm(step.reported(known) or known), plan.routes[name]
        route = known.model_copy(update={"arrival_rate_rpm": rate})
        result.append(RoutedLoad.of(route, [kind.small_share for kind in use.kinds], routed=use.routed))
    return result
