"""Input rows, one replica at one rate, as lines of JSON; common to all kinds."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field

from optimizer.documents import Document, Quantity
from optimizer.quantities import precise
from optimizer.simulation.replicas import Effort
from optimizer.simulation.summary import IntervalEstimate


class Row(Document):
    """A replica, its rate and its targets; results are documents of its kind."""

    rate_rps: Quantity = Field(0.0, alias="RPS")
    """Arrival rate [requests/s]; ignored in sizing."""

    @abstractmethod
    def analyze(self) -> Document:
        """Return the performance at the row's rate, or an `UnstableReplica`.

        Raises:
            AnalysisError: the rate or a service time is zero.
            SpecError: the queue model does not support the row's settings.
        """

    @abstractmethod
    def size(self) -> Document:
        """Return the maximum rate that meets the targets, and the performance there.

        Raises:
            AnalysisError: no rate meets the targets.
            SpecError: the queue model does not support the row's settings.
        """

    @abstractmethod
    def simulate(self, effort: Effort) -> Document:
        """Return the simulated performance, or an `OverloadedReplica`.

        Raises:
            AnalysisError: the simulation is too short, or a service time is zero.
            SpecError: the queue model does not support the row's settings.
        """


class UnstableReplica(Document):
    """Result for a row whose queue grows without bound."""

    offered_rps: float = Field(alias="offeredRPS")
    """Arrival rate [requests/s]."""
    stable_rate_rps: float = Field(alias="maxRPS")
    """Maximum stable rate [requests/s]."""
    message: str
    """Error message."""

    @classmethod
    def beyond(cls, rate_rps: float, stable_rate_rps: float) -> Self:
        """Return the result for a rate above the maximum stable rate."""
        message = (
            f"no steady state: the rate {precise(rate_rps)} requests/s exceeds the maximum stable rate "
            f"{precise(stable_rate_rps)}"
        )
        return cls(offered_rps=rate_rps, stable_rate_rps=stable_rate_rps, message=message)


class OverloadedReplica(Document):
    """Simulation result for a replica whose queue grows without bound."""

    overload: str
    """Reason why there is no steady state."""


def simulated_values(metrics: Mapping[str, IntervalEstimate], effort: Effort) -> dict[str, Any]:
    """Return simulated metrics by field, with the half-width of each interval and the simulation's effort."""
    return {
        **{name: estimate.value for name, estimate in metrics.items()},
        "half_width": {name: estimate.half_width for name, estimate in metrics.items()},
        "requests": effort.requests,
        "seed": effort.seed,
    }
