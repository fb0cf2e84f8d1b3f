"""One replica at one rate, simulated: what stands beside the figures of its queue model."""

from pydantic import Field

from optimizer.documents import Document
from optimizer.queueing.measures import LATENCIES
from optimizer.replica import Replica
from optimizer.replica_rows import LatencyFigures
from optimizer.simulation.replicas import Effort, run_replica
from optimizer.simulation.summary import Distribution, Estimate, Summary, summarise
from optimizer.studies.simulation.pools import limits_of, open_load, times_of


class SimulatedFigures(LatencyFigures):
    """Mean and percentiles of simulated latencies [ms]."""

    ttft_ms: float = Field(alias="avgTTFT")
    """Mean time to the first token."""
    itl_ms: float = Field(alias="avgITL")
    """Mean inter-token latency, each request by its mean."""


class ReplicaSimulation(SimulatedFigures):
    """What a simulation of one replica shows."""

    half_width: SimulatedFigures = Field(alias="halfWidth")
    """Half of the 95 % interval of each figure."""
    requests: int
    """Requests sent; the first and the last tenth do not count."""
    seed: int
    """Where chance began."""


class Overload(Document):
    """What is said of a replica whose queue grows without end."""

    overload: str
    """Why there is no steady state."""


def simulate_replica(replica: Replica, rate_rps: float, effort: Effort) -> ReplicaSimulation | Overload:
    """Run one replica at an arrival rate; a queue that is not stated has no limit.

    Raises:
        AnalysisError: too little is simulated, or an iteration would take no time.
    """
    load = open_load(replica, rate_rps)
    limits = limits_of(replica, replica.max_batch, replica.max_queue)
    found = summarise(run_replica(load, times_of(replica), limits, effort))
    if found.overload is not None:
        return Overload(overload=found.overload)
    figures = _figures(found)
    values = {name: estimate.value for name, estimate in figures.items()}
    half_widths = {name: estimate.half_width for name, estimate in figures.items()}
    return ReplicaSimulation.model_validate(
        values | {"half_width": half_widths, "requests": effort.requests, "seed": effort.seed}
    )


def _figures(found: Summary) -> dict[str, Estimate]:
    """Return the simulated figures by the names of their fields."""
    figures = {}
    for metric in LATENCIES:
        latency: Distribution = getattr(found, metric)
        figures[f"{metric}_ms"] = latency.mean
        figures |= {f"p{p}_{metric}_ms": value for p, value in latency.percentiles.items()}
    return figures
