"""The length and the seed of a simulation, as options of requests."""

from typing import Annotated

from pydantic import Field

from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import PlanOptions
from optimizer.simulation.replicas import DEFAULT_REQUESTS, DEFAULT_SEED, MAX_REQUESTS, Effort
from optimizer.simulation.summary import MIN_REQUESTS


class EffortOptions(PlanOptions):
    """Length and seed of a simulation, and optimizer options that override the document's."""

    requests: Annotated[
        int, Flag("N", help=f"requests to the replica of each pool ({DEFAULT_REQUESTS:,})")
    ] = Field(DEFAULT_REQUESTS, ge=MIN_REQUESTS, le=MAX_REQUESTS)
    """Number of simulated requests to one replica of each pool."""
    seed: Annotated[int, Flag("S", help=f"random seed ({DEFAULT_SEED})")] = Field(
        DEFAULT_SEED, ge=0, lt=2**64
    )
    """Random seed."""

    @property
    def effort(self) -> Effort:
        """Length and seed of the simulation that the request asks for."""
        return Effort(requests=self.requests, seed=self.seed)
