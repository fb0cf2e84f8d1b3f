"""Simulation of several classes of requests with priorities in the queue of one replica."""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from optimizer.documents import Document
from optimizer.errors import AnalysisError
from optimizer.kinds.replicas import Replica
from optimizer.kinds.request_classes import RequestClass
from optimizer.kinds.rows import OverloadedReplica, simulated_values
from optimizer.kinds.simulated import ReplicaSimulation, open_load, simulated_fields
from optimizer.kinds.token_batching import simulated_replica
from optimizer.simulation.engine import SimulatedRun
from optimizer.simulation.replicas import Effort, run_replica
from optimizer.simulation.summary import MIN_REQUESTS, summarise
from optimizer.simulation.workload import MergedLoad, OpenLoad


class SimulatedClass(ReplicaSimulation):
    """Simulation result of one class."""

    priority: int
    """Priority of the class."""


class ClassSimulation(Document):
    """Simulation result of the classes of a replica, in the row's order; null for a class without rate."""

    classes: tuple[SimulatedClass | None, ...] = Field(strict=False)


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
    simulated = simulated_replica(replica, replica.kv_capacity_tokens, replica.max_batch, None)
    streams = tuple(open_load(replica, one.rate_rps) for one in classes)
    load = MergedLoad(streams, tuple(one.priority for one in classes))
    runs = run_replica(load, simulated, effort)
    found: list[SimulatedClass | None] = []
    for i, one in enumerate(classes):
        own = runs_of(runs, streams[i], i, f"classes[{i}]")
        if not own:
            found.append(None)
            continue
        summary = summarise(own)
        if summary.overload is not None:
            return OverloadedReplica(overload=f"classes[{i}]: {summary.overload}")
        values = simulated_values(simulated_fields(summary), replace(effort, requests=len(own[0].requests)))
        found.append(SimulatedClass.model_validate(values | {"priority": one.priority}))
    return ClassSimulation(classes=tuple(found))


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
