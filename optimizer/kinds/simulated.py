"""Simulates one token replica, to compare it with its queue model."""

from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, Field

from optimizer.errors import AnalysisError
from optimizer.kinds.fields import Load
from optimizer.kinds.replicas import LatencyFigures, Replica
from optimizer.kinds.request_shapes import RequestShape
from optimizer.kinds.rows import OverloadedReplica, simulated_answer
from optimizer.kinds.token_batching import simulated_replica
from optimizer.simulation.engine import SimulatedRun
from optimizer.simulation.lengths import Lengths
from optimizer.simulation.replicas import Effort, run_replica
from optimizer.simulation.summary import MIN_REQUESTS
from optimizer.simulation.workload import MergedLoad, OpenLoad, ShapeLengths

AnyProfile = TypeVar("AnyProfile", bound=BaseModel)


class SimulatedFigures(LatencyFigures):
    """Mean and percentiles of simulated latencies [ms]."""

    ttft_ms: float = Field(alias="avgTTFT")
    """Mean time to first token [ms]."""
    itl_ms: float = Field(alias="avgITL")
    """Mean inter-token latency, averaged per request [ms]."""


class ReplicaSimulation(SimulatedFigures):
    """Simulated performance of one replica, with confidence intervals."""

    half_width: SimulatedFigures = Field(alias="halfWidth")
    """Half-width of the 95 % confidence interval of each metric."""
    requests: int
    """Number of simulated requests; the first and last tenth are excluded from the statistics."""
    seed: int
    """Random seed of the simulation."""


def open_load(requests: Load | Replica, rate_rps: float) -> OpenLoad:
    """Return the arrivals of a document's requests (lengths and variability) at a rate [requests/s]."""
    return OpenLoad(
        rate_rps,
        Lengths.with_cv(requests.in_tokens, requests.in_tokens_cv),
        Lengths.with_cv(requests.out_tokens, requests.out_tokens_cv, least=1),
        requests.arrival_cv,
        tuple(map(_shape_lengths, requests.stated_shapes)) if requests.has_shapes else (),
    )


def _shape_lengths(shape: RequestShape | Load | Replica) -> ShapeLengths:
    """Return the lengths of one shape; a load without shapes is one."""
    share = shape.share or 0.0 if isinstance(shape, RequestShape) else 1.0
    prefix = round(shape.prefix_tokens)
    return ShapeLengths(
        share,
        Lengths.with_cv(shape.in_tokens - prefix, shape.in_tokens_cv),
        Lengths.with_cv(shape.out_tokens, shape.out_tokens_cv, least=1),
        prefix,
        shape.prefix_hit_rate,
        shape.prefix_stored == "once",
    )


def simulate_replica(
    replica: Replica, rate_rps: float, effort: Effort
) -> ReplicaSimulation | OverloadedReplica:
    """Simulate one replica; without `max_queue`, its queue is unlimited.

    Args:
        rate_rps: arrival rate [requests/s].
        effort: length and seed of the simulation.

    Raises:
        AnalysisError: the simulation is too short, or an iteration would take no time.
    """
    runs = runs_of_replica(replica, open_load(replica, rate_rps), replica.max_queue, effort)
    return simulated_answer(ReplicaSimulation, runs, effort)


def runs_of_replica(
    replica: Replica, load: OpenLoad | MergedLoad, max_queue: int | None, effort: Effort
) -> list[SimulatedRun]:
    """Simulate a replica under a load; return the runs. Without `max_queue`, the queue is unlimited."""
    capacity = replica.kv_capacity_tokens
    if capacity is not None:
        capacity = max(capacity - round(replica.heads_tokens()), 1)
    simulated = simulated_replica(replica, capacity, replica.max_batch, max_queue)
    return run_replica(load, simulated, effort)


def runs_of(runs: Sequence[SimulatedRun], load: OpenLoad, stream: int, name: str) -> list[SimulatedRun]:
    """Return the runs with only the requests of one load, called `name` in errors; empty if it sends none.

    Raises:
        AnalysisError: the load sent too few requests.
    """
    if not load.rate_rps:
        return []
    own = [run.of_stream(stream) for run in runs]
    fewest = min(len(run.requests) for run in own)
    if fewest < MIN_REQUESTS:
        raise AnalysisError(
            f"{name}: {fewest} of the simulated requests, and percentiles need {MIN_REQUESTS}; "
            "simulate more requests"
        )
    return own


def beside_heads(profile: AnyProfile, load: Load) -> AnyProfile:
    """Return a profile with the KV cache that remains beside the prefixes that are stored once."""
    heads, capacity = round(load.heads_tokens()), getattr(profile, "kv_capacity_tokens", None)
    if not heads or capacity is None:
        return profile
    return profile.model_copy(update={"kv_capacity_tokens": max(capacity - heads, 1)})
