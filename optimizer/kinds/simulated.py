"""Simulation of one token replica at one rate, to compare with its queue model."""

from pydantic import Field

from optimizer.kinds.fields import Load
from optimizer.kinds.replicas import LatencyFigures, Replica
from optimizer.kinds.rows import OverloadedReplica, simulated_values
from optimizer.kinds.token_batching import simulated_replica
from optimizer.queueing.measures import LATENCIES
from optimizer.simulation.lengths import Lengths
from optimizer.simulation.replicas import Effort, run_replica
from optimizer.simulation.summary import Distribution, IntervalEstimate, Summary, summarise
from optimizer.simulation.workload import OpenLoad


class SimulatedFigures(LatencyFigures):
    """Mean and percentiles of simulated latencies [ms]."""

    ttft_ms: float = Field(alias="avgTTFT")
    """Mean time to the first token."""
    itl_ms: float = Field(alias="avgITL")
    """Mean inter-token latency, each request by its mean."""


class ReplicaSimulation(SimulatedFigures):
    """Simulation result of one replica, with confidence intervals."""

    half_width: SimulatedFigures = Field(alias="halfWidth")
    """Half-width of the 95 % confidence interval of each metric."""
    requests: int
    """Simulated requests; the first and last tenth are excluded from the statistics."""
    seed: int
    """Random seed."""


def open_load(requests: Load | Replica, rate_rps: float) -> OpenLoad:
    """Return the arrival process of a document's requests at a rate [requests/s]."""
    return OpenLoad(
        rate_rps,
        Lengths.with_cv(requests.in_tokens, requests.in_tokens_cv),
        Lengths.with_cv(requests.out_tokens, requests.out_tokens_cv, least=1),
        requests.arrival_cv,
    )


def simulate_replica(
    replica: Replica, rate_rps: float, effort: Effort
) -> ReplicaSimulation | OverloadedReplica:
    """Simulate one replica; without `max_queue` its queue is unlimited.

    Args:
        replica: the replica.
        rate_rps: arrival rate [requests/s].
        effort: length and seed of the simulation.

    Raises:
        AnalysisError: the simulation is too short, or an iteration would take no time.
    """
    simulated = simulated_replica(replica, replica.kv_capacity_tokens, replica.max_batch, replica.max_queue)
    found = summarise(run_replica(open_load(replica, rate_rps), simulated, effort))
    if found.overload is not None:
        return OverloadedReplica(overload=found.overload)
    return ReplicaSimulation.model_validate(simulated_values(simulated_fields(found), effort))


def simulated_fields(found: Summary) -> dict[str, IntervalEstimate]:
    """Return the simulated metrics by field."""
    figures = {}
    for metric in LATENCIES:
        latency: Distribution = getattr(found, metric)
        figures[f"{metric}_ms"] = latency.mean
        figures |= {f"p{p}_{metric}_ms": value for p, value in latency.percentiles.items()}
    return figures
