"""One replica at one rate as a line of JSON: what it is asked, whatever its kind."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field

from optimizer.documents import Document, Quantity
from optimizer.quantities import precise
from optimizer.simulation.replicas import Effort
from optimizer.simulation.summary import IntervalEstimate


class Row(Document):
    """A replica, its rate and its targets. What it answers are documents of its kind."""

    rate_rps: Quantity = Field(0.0, alias="RPS")
    """Arrival rate [requests/s]; of no matter for sizing."""

    @abstractmethod
    def analyze(self) -> Document:
        """Return what the replica does at its rate, or that there is no long run.

        Raises:
            AnalysisError: the rate or a service time is zero.
            SpecError: the queue model does not take what the row says.
        """

    @abstractmethod
    def size(self) -> Document:
        """Return the largest rates that meet its targets, and what it does at the smallest of them.

        Raises:
            AnalysisError: no rate meets the targets.
            SpecError: the queue model does not take what the row says.
        """

    @abstractmethod
    def simulate(self, effort: Effort) -> Document:
        """Return what it does when it is simulated, or that it is overloaded.

        Raises:
            AnalysisError: too little is simulated, or a service time is zero.
            SpecError: the queue model does not take what the row says.
        """


class NoSteadyState(Document):
    """The answer for a row whose queue grows without end."""

    offered_rps: float = Field(alias="offeredRPS")
    """Arrival rate [requests/s]."""
    stable_rate_rps: float = Field(alias="maxRPS")
    """Largest stable rate [requests/s]."""
    message: str
    """What is wrong."""

    @classmethod
    def beyond(cls, rate_rps: float, stable_rate_rps: float) -> Self:
        """Return the answer for a rate beyond the largest stable one."""
        message = (
            f"no steady state: the rate {precise(rate_rps)} requests/s exceeds the largest stable rate "
            f"{precise(stable_rate_rps)}"
        )
        return cls(offered_rps=rate_rps, stable_rate_rps=stable_rate_rps, message=message)


class Overload(Document):
    """What is said of a replica whose queue grows without end."""

    overload: str
    """Why there is no steady state."""


def simulated_values(figures: Mapping[str, IntervalEstimate], effort: Effort) -> dict[str, Any]:
    """Return simulated figures by their fields, with half of each interval, and how they were found."""
    return {
        **{name: estimate.value for name, estimate in figures.items()},
        "half_width": {name: estimate.half_width for name, estimate in figures.items()},
        "requests": effort.requests,
        "seed": effort.seed,
    }
