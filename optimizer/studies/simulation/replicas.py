"""One replica at one rate, simulated: what stands beside the figures of its queue model."""

from typing import overload

import numpy as np
from pydantic import Field

from optimizer.batch_rows import BatchRow
from optimizer.documents import Document
from optimizer.kinds.token_batching import simulated_replica
from optimizer.queueing.measures import LATENCIES
from optimizer.replica import Replica
from optimizer.replica_rows import LatencyFigures
from optimizer.simulation.lengths import Kind, Lengths
from optimizer.simulation.replicas import Effort, LineReplica, run_replica
from optimizer.simulation.summary import Distribution, Estimate, Summary, summarise
from optimizer.simulation.workload import OpenLoad
from optimizer.studies.simulation.pools import open_load

NO_TOKENS = Lengths(Kind.FIXED, 0.0)
ONE_ANSWER = Lengths(Kind.FIXED, 1.0)
"""Requests of a batch server have no tokens; the answer stands for one."""


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


class SimulatedBatches(Document):
    """What a simulation of one batch server shows."""

    mean_ms: float = Field(alias="avgLatency")
    """Mean time to the answer [ms]."""
    p50_ms: float = Field(alias="p50Latency")
    """Percentiles of it [ms]."""
    p90_ms: float = Field(alias="p90Latency")
    p95_ms: float = Field(alias="p95Latency")
    p99_ms: float = Field(alias="p99Latency")
    rejected: float
    """Share of requests that were turned away."""


class BatchSimulation(SimulatedBatches):
    """The same with intervals."""

    mean_batch: float = Field(alias="avgBatch")
    """Mean number of requests that are answered together."""
    half_width: SimulatedBatches = Field(alias="halfWidth")
    """Half of the 95 % interval of each figure."""
    requests: int
    """Requests sent; the first and the last tenth do not count."""
    seed: int
    """Where chance began."""


@overload
def simulate_replica(replica: Replica, rate_rps: float, effort: Effort) -> ReplicaSimulation | Overload: ...


@overload
def simulate_replica(replica: BatchRow, rate_rps: float, effort: Effort) -> BatchSimulation | Overload: ...


def simulate_replica(
    replica: Replica | BatchRow, rate_rps: float, effort: Effort
) -> ReplicaSimulation | BatchSimulation | Overload:
    """Run one replica at an arrival rate; a queue that is not stated has no limit.

    Raises:
        AnalysisError: too little is simulated, or an iteration would take no time.
    """
    if isinstance(replica, BatchRow):
        return _simulated_batches(replica, rate_rps, effort)
    load = open_load(replica, rate_rps)
    simulated = simulated_replica(replica, replica.kv_capacity_tokens, replica.max_batch, replica.max_queue)
    found = summarise(run_replica(load, simulated, effort))
    if found.overload is not None:
        return Overload(overload=found.overload)
    figures = _figures(found)
    values = {name: estimate.value for name, estimate in figures.items()}
    half_widths = {name: estimate.half_width for name, estimate in figures.items()}
    return ReplicaSimulation.model_validate(
        values | {"half_width": half_widths, "requests": effort.requests, "seed": effort.seed}
    )


def _simulated_batches(row: BatchRow, rate_rps: float, effort: Effort) -> BatchSimulation | Overload:
    load = OpenLoad(rate_rps, NO_TOKENS, ONE_ANSWER, row.arrival_cv)
    runs = run_replica(load, LineReplica(row.line()), effort)
    found = summarise(runs)
    if found.overload is not None:
        return Overload(overload=found.overload)
    figures = {f"p{percent}_ms": value for percent, value in found.e2e.percentiles.items()}
    figures |= {"mean_ms": found.e2e.mean, "rejected": found.loss}
    values = {name: estimate.value for name, estimate in figures.items()}
    half_widths = {name: estimate.half_width for name, estimate in figures.items()}
    answered = sum(int((~np.isnan(run.last_ms)).sum()) for run in runs)
    batches = sum(run.iterations for run in runs)
    own = {"mean_batch": answered / batches, "requests": effort.requests, "seed": effort.seed}
    return BatchSimulation.model_validate(values | own | {"half_width": half_widths})


def _figures(found: Summary) -> dict[str, Estimate]:
    """Return the simulated figures by the names of their fields."""
    figures = {}
    for metric in LATENCIES:
        latency: Distribution = getattr(found, metric)
        figures[f"{metric}_ms"] = latency.mean
        figures |= {f"p{p}_{metric}_ms": value for p, value in latency.percentiles.items()}
    return figures
