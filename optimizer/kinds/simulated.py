"""Simulation of one token replica at one rate, or with several classes of requests."""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from optimizer.documents import Document
from optimizer.errors import AnalysisError
from optimizer.kinds.fields import Load
from optimizer.kinds.replicas import LatencyFigures, Replica
from optimizer.kinds.request_classes import RequestClass
from optimizer.kinds.rows import OverloadedReplica, simulated_answer
from optimizer.kinds.token_batching import simulated_replica
from optimizer.simulation.engine import SimulatedRun
from optimizer.simulation.lengths import Lengths
from optimizer.simulation.replicas import Effort, run_replica
from optimizer.simulation.summary import MIN_REQUESTS
from optimizer.simulation.workload import MergedLoad, OpenLoad


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


class SimulatedClass(ReplicaSimulation):
    """Simulation result of one class."""

    priority: int
    """Priority of the class."""


class ClassSimulation(Document):
    """Simulation result of the classes of a replica, in the row's order; null for a class without rate."""

    classes: tuple[SimulatedClass | None, ...] = Field(strict=False)


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
    runs = _runs(replica, open_load(replica, rate_rps), replica.max_queue, effort)
    return simulated_answer(ReplicaSimulation, runs, effort)


def simulate_classes(
    replica: Replica, classes: Sequence[RequestClass], effort: Effort
) -> ClassSimulation | OverloadedReplica:
    """Simulate one replica, whose queue has no limit, with several classes of requests.

    Args:
        replica: the replica.
        classes: its classes of requests.
        effort: length of the simulation, for all classes together, and its seed.

    Raises:
        AnalysisError: a class has too few requests, or an iteration would take no time.
    """
    streams = tuple(open_load(replica, one.rate_rps) for one in classes)
    runs = _runs(replica, MergedLoad(streams, tuple(one.priority for one in classes)), None, effort)
    found: list[SimulatedClass | None] = []
    for i, one in enumerate(classes):
        own = runs_of(runs, streams[i], i, f"classes[{i}]")
        if not own:
            found.append(None)
            continue
        extent = replace(effort, requests=len(own[0].requests))
        answer = simulated_answer(SimulatedClass, own, extent, f"classes[{i}]: ", priority=one.priority)
        if isinstance(answer, OverloadedReplica):
            return answer
        found.append(answer)
    return ClassSimulation(classes=tuple(found))


def _runs(
    replica: Replica, load: OpenLoad | MergedLoad, max_queue: int | None, effort: Effort
) -> list[SimulatedRun]:
    simulated = simulated_replica(replica, replica.kv_capacity_tokens, replica.max_batch, max_queue)
    return run_replica(load, simulated, effort)


def runs_of(runs: Sequence[SimulatedRun], load: OpenLoad, stream: int, name: str) -> list[SimulatedRun]:
    """Return the runs with only the requests of one load, which errors call `name`; empty if it sends none.

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
