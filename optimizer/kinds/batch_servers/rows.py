"""Analysis of single batch servers: performance at a rate, and the maximum rate within targets.

Rates are in requests per second, times in ms.
"""

from collections.abc import Sequence
from typing import TypeVar

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
from optimizer.kinds.batch_servers.stages import Stage, names_problem, slowest_part, stations_of
from optimizer.kinds.fields import LatencyTarget
from optimizer.kinds.rows import (
    OverloadedReplica,
    Row,
    UnstableReplica,
    answers,
    simulated_answer,
    unattainable,
)
from optimizer.queueing.bulk.limits import line_problem
from optimizer.queueing.bulk.model import BatchingPolicy, BulkQueues
from optimizer.queueing.measures import LOSS
from optimizer.queueing.sizing import largest_rate
from optimizer.queueing.targets import Targets
from optimizer.simulation.batches import TRIGGERS, BatchServer, QueueCounts, TriggerName
from optimizer.simulation.lengths import LengthDistribution, Lengths
from optimizer.simulation.limits import UNLIMITED
from optimizer.simulation.replicas import Effort, LineReplica, run_replica
from optimizer.simulation.tandem import ALL_JOBS, Tandem
from optimizer.simulation.workload import OpenLoad
from optimizer.timing import BatchParms

_Answer = TypeVar("_Answer", bound=Document)
NO_TOKENS = Lengths(LengthDistribution.FIXED, 0.0)
ONE_ANSWER = Lengths(LengthDistribution.FIXED, 1.0)
"""Output length of every request in the simulator: 1, because batch servers have no tokens."""


class BatchRow(Row):
    """A row (input line): one batch server at one arrival rate."""

    batch: BatchParms = Field(alias="batchParms")
    """Service time of a batch of n requests: `base` + `slope` × n [ms]."""
    max_batch: BatchLimit = Field(alias="maxBatchSize")
    """Batch limit [requests], at most 512."""
    trigger: TriggerName = "oldest"
    """Trigger of a batch that is not full, as `batchTrigger` of a server."""
    window_ms: Milliseconds = Field(0.0, alias="window")
    """Batching window [ms]."""
    max_queue: Count | None = Field(None, alias="maxQueueSize")
    """Maximum requests that wait, or that are in the server if `queueCounts` says so; at least the batch
    limit if there is a window; default: unlimited.
    """
    queue_counts: QueueCounts = Field("waiting", alias="queueCounts")
    """Whether `maxQueueSize` counts waiting requests only, or also those in service; `clock` counts waiting
    requests only.
    """
    arrival_cv: Coefficient = Field(1.0, alias="arrivalCV")
    """Coefficient of variation of the interarrival times, at most 3. For 1, results of a server without
    stages and jobs are exact, except with the trigger `gap`; others are simulated, with one or two million
    requests and a fixed seed.
    """
    stages: tuple[Stage, ...] = Field((), strict=False)
    """Processing stages before and after the batch, as those of a server."""
    jobs: PositiveCount | None = None
    """Maximum requests in the server and its stages, at most 1,024; further ones wait in front. Cannot be
    combined with a window or `maxQueueSize`; default: unlimited.
    """
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
        problem = names_problem(self.stages) or line_problem(line, self.arrival_cv, "window", "arrivalCV")
        if problem is not None:
            raise PydanticCustomError("batch_server", "{problem}", {"problem": ": ".join(problem)})
        return self

    def line(self) -> Tandem:
        """Convert the row to the form of the queue model and the simulator."""
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
        """Return the queue model of the server, with one row."""
        numbers = self.batch.base_ms, self.batch.slope_ms, self.max_batch, self.arrival_cv
        base_ms, slope_ms, max_batch, arrival_cv = (np.array([number]) for number in numbers)
        policy = BatchingPolicy.of_lines([self.line()])
        return BulkQueues(base_ms, slope_ms, max_batch, arrival_cv, policy)

    def targets(self) -> Targets:
        """Return the latency and rejection targets of the row."""
        limits = {target.measure: target.limit_ms for target in self.latency}
        if self.max_rejected is not None:
            limits[LOSS] = self.max_rejected
        return Targets.of_limits([limits], np.zeros(1, np.bool_))

    def analyze(self) -> "BatchAnswer | UnstableReplica":
        """Return the performance at the row's rate, or `UnstableReplica` if its queue would grow forever.

        Raises:
            AnalysisError: the rate is zero or almost zero.
        """
        if self.rate_rps < MIN_RATE:
            limit = f"more than 0 requests/s, at least {MIN_RATE:g}"
            raise AnalysisError(f"rate: must be {limit}, not {self.rate_rps:g}")
        queues = self.queues()
        if self.rate_rps > float(queues.longest_rate_rps[0]):
            return UnstableReplica.at(self.rate_rps, float(queues.stable_rate_rps[0]))
        return self._answer(BatchAnswer, queues, self.rate_rps)

    def size(self) -> "BatchSizing":
        """Return the maximum rate that meets the targets, and the performance there.

        Raises:
            AnalysisError: no rate meets the targets.
        """
        queues, targets = self.queues(), self.targets()
        result = largest_rate(queues, targets)
        if not result.attainable[0]:
            raise unattainable(targets, result.least[:, 0], ", or shorten the window")
        lowest_rps = result.lowest_rate_rps.tolist()
        return self._answer(BatchSizing, queues, float(result.max_rate_rps[0]), lowest_rps=lowest_rps)

    def _answer(
        self, answer_type: type[_Answer], queues: BulkQueues, rate_rps: float, **own: Sequence[object]
    ) -> _Answer:
        own |= {
            "binding": [slowest_part(self.line(), self.stages)],
            "stable_rate_rps": queues.stable_rate_rps.tolist(),
        }
        (answer,) = answers(answer_type, queues.analyze(np.array([rate_rps])), **own)
        return answer

    def simulate(self, effort: Effort) -> "BatchSimulation | OverloadedReplica":
        """Simulate the row; return its performance, or `OverloadedReplica` if it has no steady state."""
        load = OpenLoad(self.rate_rps, NO_TOKENS, ONE_ANSWER, self.arrival_cv)
        runs = run_replica(load, LineReplica(self.line()), effort)
        answered = sum(int((~np.isnan(run.last_ms)).sum()) for run in runs)
        mean_batch = answered / sum(run.iterations for run in runs)
        return simulated_answer(BatchSimulation, runs, effort, mean_batch=mean_batch)


class BatchLatencies(Document):
    """Mean and percentiles of the latency: the time from arrival to the response [ms]."""

    mean_ms: float = Field(alias="avgLatency")
    """Mean latency [ms]."""
    p50_ms: float = Field(alias="p50Latency")
    """Median of the latency [ms]."""
    p90_ms: float = Field(alias="p90Latency")
    """90th percentile of the latency [ms]."""
    p95_ms: float = Field(alias="p95Latency")
    """95th percentile of the latency [ms]."""
    p99_ms: float = Field(alias="p99Latency")
    """99th percentile of the latency [ms]."""


class BatchAnswer(BatchLatencies):
    """Performance of a batch server at an arrival rate."""

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
    """Fraction of requests that are rejected."""
    utilization: float
    """Utilisation: arrival rate divided by the throughput with full batches."""
    busy: float
    """Fraction of time in which the server computes; at low load much larger than the utilisation."""
    mean_batch: float = Field(alias="avgBatch")
    """Mean number of requests per batch."""
    binding: str | None = Field(None, exclude_if=is_none)
    """Bottleneck, if there are stages or jobs: `server`, `stage:` and a name, or `jobs`."""


class BatchSizing(BatchAnswer):
    """The maximum rate of a batch server within its targets, and the performance there."""

    lowest_rps: float = Field(alias="minRPS")
    """Minimum rate that meets the targets [requests/s]; at lower rates, requests wait too long for the
    window.
    """


class SimulatedBatches(BatchLatencies):
    """Simulated latencies and rejections of a batch server."""

    rejected: float
    """Fraction of requests that are rejected."""


class BatchSimulation(SimulatedBatches):
    """Simulated performance of a batch server, with confidence intervals."""

    mean_batch: float = Field(alias="avgBatch")
    """Mean number of requests per batch."""
    half_width: SimulatedBatches = Field(alias="halfWidth")
    """Half-width of the 95 % confidence interval of each metric."""
    requests: int
    """Number of simulated requests; the first and last tenth are excluded from the statistics."""
    seed: int
    """Random seed of the simulation."""
