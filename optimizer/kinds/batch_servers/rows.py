"""Analysis of batch servers, one per row: performance at a rate, and the maximum rate within targets.

Rates are in requests per second, times in ms.
"""

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.documents import (
    MIN_RATE,
    BatchLimit,
    Coefficient,
    Count,
    Document,
    MaxLoss,
    Milliseconds,
    PositiveCount,
    is_none,
)
from optimizer.errors import AnalysisError
from optimizer.kinds.batch_servers.stages import Stage, repeated_name, slowest_part, stage_names, stations_of
from optimizer.kinds.fields import LatencyTarget
from optimizer.kinds.rows import OverloadedReplica, Row, UnstableReplica, simulated_values
from optimizer.queueing.bulk.limits import line_problem, server_problem
from optimizer.queueing.bulk.model import BatchingPolicy, BulkPerformance, BulkQueues
from optimizer.queueing.measures import LOSS, TargetMeasure
from optimizer.queueing.performance import ReplicaLimits, Variability
from optimizer.queueing.sizing import largest_rate
from optimizer.queueing.targets import Targets
from optimizer.simulation.batches import TRIGGERS, BatchServer, QueueCounts, TriggerName
from optimizer.simulation.lengths import LengthDistributionKind, Lengths
from optimizer.simulation.limits import UNLIMITED
from optimizer.simulation.replicas import Effort, LineReplica, run_replica
from optimizer.simulation.summary import summarise
from optimizer.simulation.tandem import ALL_JOBS, Tandem
from optimizer.simulation.workload import OpenLoad
from optimizer.timing import BatchLaw, BatchParms, RequestShapes

NO_TOKENS = Lengths(LengthDistributionKind.FIXED, 0.0)
ONE_ANSWER = Lengths(LengthDistributionKind.FIXED, 1.0)
"""Output tokens per request in the simulator; batch servers have no tokens."""
_WIRE = {
    "size": "maxBatchSize",
    "room": "maxQueueSize",
    "window_ms": "window",
    "counts_system": "queueCounts",
    "arrival_cv": "arrivalCV",
    "jobs": "jobs",
}


class BatchRow(Row):
    """One batch server at one rate."""

    batch: BatchParms = Field(alias="batchParms")
    """Service time of a batch of n requests: base + slope·n [ms]."""
    max_batch: BatchLimit = Field(alias="maxBatchSize")
    """Batch limit."""
    trigger: TriggerName = "oldest"
    """Trigger of a partial batch."""
    window_ms: Milliseconds = Field(0.0, alias="window")
    """Batching window [ms]."""
    max_queue: Count | None = Field(None, alias="maxQueueSize")
    """Maximum requests waiting, or in the system; default: unlimited."""
    queue_counts: QueueCounts = Field("waiting", alias="queueCounts")
    """Whether `maxQueueSize` counts waiting requests only, or also those in service."""
    arrival_cv: Coefficient = Field(1.0, alias="arrivalCV")
    """Coefficient of variation of the interarrival times."""
    stages: tuple[Stage, ...] = Field((), strict=False)
    """Stages before and after the batch."""
    jobs: PositiveCount | None = None
    """Maximum requests in the server and its stages; others wait in front; default: unlimited."""
    latency: tuple[LatencyTarget, ...] = Field((), strict=False)
    """Latency targets, for sizing."""
    max_rejected: MaxLoss | None = Field(None, alias="maxRejected")
    """Maximum fraction of rejected requests, for sizing."""

    @model_validator(mode="after")
    def _can_be_analysed(self) -> "BatchRow":
        if self.batch.base_ms + self.batch.slope_ms <= 0:
            raise PydanticCustomError(
                "no_work", "the service time of a request is zero; give batchParms a base or a slope"
            )
        line = self.line()
        twice = repeated_name(self.stages)
        if twice is not None:
            raise PydanticCustomError(
                "stages",
                "stages: two stages have the name {name}; give each its own name",
                {"name": repr(twice)},
            )
        problem = line_problem(line) or server_problem(line.server, self.arrival_cv)
        if problem is not None:
            part, why = problem
            raise PydanticCustomError("batch_server", "{problem}", {"problem": f"{_WIRE[part]}: {why}"})
        return self

    def line(self) -> Tandem:
        """Return the server with its stages for the queue model and the simulator."""
        alone = BatchServer(
            self.max_batch,
            self.window_ms,
            self.batch.base_ms,
            self.batch.slope_ms,
            UNLIMITED if self.max_queue is None else self.max_queue,
            self.queue_counts == "system",
            TRIGGERS.index(self.trigger),
        )
        return Tandem(alone, stations_of(self.stages), ALL_JOBS if self.jobs is None else self.jobs)

    def queues(self) -> BulkQueues:
        """Return the queue model of the server."""
        none = np.zeros(1)
        law = BatchLaw.of_rows(
            np.array([[self.batch.base_ms], [self.batch.slope_ms]]), RequestShapes(none, none)
        )
        room = ReplicaLimits(
            np.array([self.max_batch]), np.array([0]), none, BatchingPolicy.of_lines([self.line()])
        )
        return BulkQueues.of_law(law, room, Variability(np.array([self.arrival_cv]), none, none))

    def targets(self) -> Targets:
        """Return the targets of the server."""
        limits = {target.measure: target.limit_ms for target in self.latency}
        if self.max_rejected is not None:
            limits[LOSS] = self.max_rejected
        return Targets.of_limits([limits], np.zeros(1, np.bool_))

    def analyze(self) -> "BatchAnswer | UnstableReplica":
        """Return the performance at the row's rate, or an `UnstableReplica`.

        Raises:
            AnalysisError: the rate is zero or almost zero.
        """
        if self.rate_rps < MIN_RATE:
            limit = f"more than 0 requests/s, at least {MIN_RATE:g}"
            raise AnalysisError(f"rate: must be {limit}, not {self.rate_rps:g}")
        queues = self.queues()
        stable_rps = float(queues.stable_rate_rps[0])
        if self.rate_rps > float(queues.longest_rate_rps[0]):
            return UnstableReplica.beyond(self.rate_rps, stable_rps)
        return BatchAnswer.model_validate(_figures(self, queues, self.rate_rps))

    def size(self) -> "BatchSizing":
        """Return the maximum rate that meets the targets, and the performance there.

        Raises:
            AnalysisError: no rate meets the targets.
        """
        queues, targets = self.queues(), self.targets()
        found = largest_rate(queues, targets)
        if not found.attainable[0]:
            missed = [
                f"the best {measure.label} is {measure.text(best, 4)}, target {measure.text(limit)}"
                for measure, best, limit in zip(
                    targets.measures, found.least[:, 0], targets.limits[:, 0], strict=True
                )
                if best > limit
            ]
            raise AnalysisError(
                f"no rate meets the targets: {' and '.join(missed)}; relax the target, or shorten the window"
            )
        rate_rps = float(found.max_rate_rps[0])
        return BatchSizing.model_validate(
            _figures(self, queues, rate_rps) | {"lowest_rps": float(found.lowest_rate_rps[0])}
        )

    def simulate(self, effort: Effort) -> "BatchSimulation | OverloadedReplica":
        """Return the simulated performance, or an `OverloadedReplica`."""
        load = OpenLoad(self.rate_rps, NO_TOKENS, ONE_ANSWER, self.arrival_cv)
        runs = run_replica(load, LineReplica(self.line()), effort)
        found = summarise(runs)
        if found.overload is not None:
            return OverloadedReplica(overload=found.overload)
        figures = {f"p{percent}_ms": value for percent, value in found.e2e.percentiles.items()}
        figures |= {"mean_ms": found.e2e.mean, "rejected": found.loss}
        answered = sum(int((~np.isnan(run.last_ms)).sum()) for run in runs)
        batches = sum(run.iterations for run in runs)
        return BatchSimulation.model_validate(
            simulated_values(figures, effort) | {"mean_batch": answered / batches}
        )


class BatchLatencies(Document):
    """Mean and percentiles of the time to the answer [ms]."""

    mean_ms: float = Field(alias="avgLatency")
    """Mean latency [ms]."""
    p50_ms: float = Field(alias="p50Latency")
    p90_ms: float = Field(alias="p90Latency")
    p95_ms: float = Field(alias="p95Latency")
    p99_ms: float = Field(alias="p99Latency")


class BatchAnswer(BatchLatencies):
    """Performance of a batch server at a rate."""

    p999_ms: float = Field(alias="p999Latency")
    """99.9th percentile of the latency [ms]."""
    offered_rps: float = Field(alias="offeredRPS")
    """Arrival rate [requests/s]."""
    throughput_rps: float = Field(alias="throughput")
    """Throughput of completed requests [requests/s]."""
    stable_rate_rps: float = Field(alias="maxRPS")
    """Maximum stable rate [requests/s]: 99.9 % of the throughput with full batches."""
    wait_ms: float = Field(alias="avgWaitTime")
    """Mean queueing time before the batch starts [ms]."""
    rejected: float
    """Fraction of requests rejected."""
    utilization: float
    """Arrival rate over the throughput with full batches."""
    busy: float
    """Fraction of time in which the server is busy."""
    mean_batch: float = Field(alias="avgBatch")
    """Mean requests per batch."""
    binding: str | None = Field(None, exclude_if=is_none)
    """Bottleneck, if there are stages or jobs: `server`, `stage:` and a name, or `jobs`."""


class BatchSizing(BatchAnswer):
    """The maximum rate of a batch server within its targets, and the performance there."""

    lowest_rps: float = Field(alias="minRPS")
    """Minimum rate that meets the targets [requests/s]; at lower rates the window is too long."""


class SimulatedBatches(BatchLatencies):
    """Simulated means and percentiles of a batch server."""

    rejected: float
    """Fraction of requests rejected."""


class BatchSimulation(SimulatedBatches):
    """Simulation result of a batch server, with confidence intervals."""

    mean_batch: float = Field(alias="avgBatch")
    """Mean requests per batch."""
    half_width: SimulatedBatches = Field(alias="halfWidth")
    """Half-width of the 95 % confidence interval of each metric."""
    requests: int
    """Simulated requests; the first and last tenth are excluded from the statistics."""
    seed: int
    """Random seed."""


PERCENTILES = {"p50_ms": 50.0, "p90_ms": 90.0, "p95_ms": 95.0, "p99_ms": 99.0, "p999_ms": 99.9}
"""Latency percentiles by field name."""


def _figures(row: BatchRow, queues: BulkQueues, rate_rps: float) -> dict[str, float | str | None]:
    found = queues.analyze(np.array([rate_rps]))
    assert isinstance(found, BulkPerformance)
    figures = {
        name: float(np.asarray(getattr(found, name))[0])
        for name in BatchAnswer.model_fields
        if hasattr(found, name)
    }
    percentiles = {
        name: float(found.figure(TargetMeasure("e2e", percent))[0]) for name, percent in PERCENTILES.items()
    }
    own: dict[str, float | str | None] = {name: float(values[0]) for name, values in found.own.items()}
    own |= {
        "binding": slowest_part(row.line(), stage_names(row.stages)),
        "mean_ms": float(found.response_ms[0]),
        "rejected": float(found.loss[0]),
        "stable_rate_rps": float(queues.stable_rate_rps[0]),
    }
    return figures | percentiles | own
