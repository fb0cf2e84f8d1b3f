"""JSON lines (rows) that describe one replica with several classes of requests in its queue.

Such a row has `classes` instead of `RPS`. Rates are in requests per second, times in ms.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.compat.queue_service import QueueAnswer, QueueProblem
from optimizer.compat.rows import LinearRow, ReplicaRow, RowAnswer
from optimizer.documents import Coefficient, Document, Priority, Quantity
from optimizer.errors import AnalysisError
from optimizer.kinds.replicas import LatencyTargets, queues_of
from optimizer.kinds.rows import OverloadedReplica, UnstableReplica, answers, simulated_answer
from optimizer.kinds.simulated import ReplicaSimulation, open_load, runs_of, runs_of_replica
from optimizer.queueing.measures import LATENCIES
from optimizer.queueing.priority.model import UNLIMITED_QUEUE, ClassMix, ClassPerformance, PriorityQueues
from optimizer.queueing.sizing import largest_rate
from optimizer.queueing.targets import Targets
from optimizer.simulation.replicas import Effort
from optimizer.simulation.summary import PERCENTILES
from optimizer.simulation.workload import MergedLoad

MAX_CLASSES = 100


class RequestClass(Document):
    """A class of requests: its arrival rate and priority."""

    rate_rps: Quantity = Field(alias="RPS")
    """Arrival rate of the class [requests/s]."""
    priority: Priority
    """Priority; 1 is the highest. Requests of equal priority are served first come, first served."""


class ClassFigures(Document):
    """Latencies of the requests of one class [ms]; queueing times of 0 count in means and percentiles."""

    priority: int
    """Priority of the class."""
    offered_rps: float = Field(alias="offeredRPS")
    """Arrival rate of the class [requests/s]."""
    wait_ms: float = Field(alias="avgWaitTime")
    """Mean queueing time: from arrival to the start of the prefill [ms]."""
    p50_wait_ms: float = Field(alias="p50WaitTime")
    """Median of the queueing time [ms]."""
    p90_wait_ms: float = Field(alias="p90WaitTime")
    """90th percentile of the queueing time [ms]."""
    p95_wait_ms: float = Field(alias="p95WaitTime")
    """95th percentile of the queueing time [ms]."""
    p99_wait_ms: float = Field(alias="p99WaitTime")
    """99th percentile of the queueing time [ms]."""
    ttft_ms: float = Field(alias="avgTTFT")
    """Mean time to first token [ms]."""
    p50_ttft_ms: float = Field(alias="p50TTFT")
    """Median of the time to first token [ms]."""
    p90_ttft_ms: float = Field(alias="p90TTFT")
    """90th percentile of the time to first token [ms]."""
    p95_ttft_ms: float = Field(alias="p95TTFT")
    """95th percentile of the time to first token [ms]."""
    p99_ttft_ms: float = Field(alias="p99TTFT")
    """99th percentile of the time to first token [ms]."""
    itl_ms: float = Field(alias="avgITL")
    """Mean inter-token latency [ms]."""
    response_ms: float = Field(alias="avgE2E")
    """Mean end-to-end latency: time to the last token [ms]."""
    p50_e2e_ms: float = Field(alias="p50E2E")
    """Median of the time to the last token [ms]."""
    p90_e2e_ms: float = Field(alias="p90E2E")
    """90th percentile of the time to the last token [ms]."""
    p95_e2e_ms: float = Field(alias="p95E2E")
    """95th percentile of the time to the last token [ms]."""
    p99_e2e_ms: float = Field(alias="p99E2E")
    """99th percentile of the time to the last token [ms]."""


class SimulatedClass(ReplicaSimulation):
    """Simulated performance of one class of requests."""

    priority: int
    """Priority of the class."""


class ClassSimulation(Document):
    """Simulated performance of each class of a replica, in the row's order; null for a class without rate."""

    classes: tuple[SimulatedClass | None, ...] = Field(strict=False)


class ClassAnswer(QueueAnswer):
    """Answer to a row with classes: means over all requests, and the performance of each class."""

    classes: tuple[ClassFigures, ...] = Field(strict=False)
    """Performance of each class, in the order of the row."""


class ClassRowAnswer(RowAnswer):
    """Answer to a row with classes, with percentiles over all requests."""

    classes: tuple[ClassFigures, ...] = Field(strict=False)
    """Performance of each class, in the order of the row."""


class _ClassFields(QueueProblem):
    """A token replica whose queue has several classes of requests."""

    classes: tuple[RequestClass, ...] = Field(strict=False, min_length=1, max_length=MAX_CLASSES)
    """Classes of requests, instead of `RPS`; the queue is unlimited. Sizing keeps the proportions of their
    rates.
    """
    work_cv: Coefficient | None = Field(None, alias="workCV")
    """Coefficient of variation of a request's work (batch time); default: `outTokensCV`, or 1 without it."""

    @model_validator(mode="after")
    def _only_classes(self) -> "_ClassFields":
        for name, why in (
            ("rate_rps", "the classes give their rates"),
            ("max_queue", "the queue of a row with classes has no limit"),
        ):
            if name in self.model_fields_set:
                alias = type(self).model_fields[name].alias
                raise PydanticCustomError(
                    "classes", "{field}: {why}; remove it", {"field": alias, "why": why}
                )
        if getattr(self, "batching", "continuous") != "continuous":
            raise PydanticCustomError(
                "classes", "classes: only a continuous batch has classes; remove batching, or classes"
            )
        return self

    def queues(self) -> PriorityQueues:
        """Return the model of the queue that the classes share, with a row for each class; it is unlimited.

        Raises:
            AnalysisError: all rates are zero, or a service time is zero.
        """
        rates = [one.rate_rps for one in self.classes]
        if not any(rates):
            raise AnalysisError("classes: no class has a rate; give one RPS of more than 0 requests/s")
        replica = self.replica().model_copy(update={"max_queue": UNLIMITED_QUEUE})
        ((_, queues),) = queues_of([replica])
        mix = ClassMix.of(rates, [one.priority for one in self.classes])
        work_cv = replica.out_tokens_cv if self.work_cv is None else self.work_cv
        return PriorityQueues.of(
            queues.take(np.zeros(len(rates), np.int64)), [mix], np.full(len(rates), work_cv)
        )

    def analyze(self) -> ClassAnswer | ClassRowAnswer | UnstableReplica:
        """Return the performance of all requests and of each class; `UnstableReplica` at too high a rate."""
        rate_rps = sum(one.rate_rps for one in self.classes)
        queues = self.queues()
        stable_rate_rps = float(queues.stable_rate_rps[0])
        if rate_rps > stable_rate_rps:
            return UnstableReplica.at(rate_rps, stable_rate_rps)
        return self._answer(queues, rate_rps)

    def size(self) -> ClassAnswer | ClassRowAnswer:
        """Return the performance at the maximum total rate at which every class meets the targets."""
        queues, wanted = self.queues(), self.targets()
        rates = {f"rate_{name}_rps": _largest(queues, wanted.only(f"{name}_ms")) for name in ("ttft", "itl")}
        rate_rps = _largest(queues, wanted)
        if np.isnan(rate_rps):
            raise AnalysisError(
                "no rate meets the targets in every class; relax the target or use faster token times"
            )
        return self._answer(queues, rate_rps, **rates)

    def simulate(self, effort: Effort) -> ClassSimulation | OverloadedReplica:
        """Simulate the replica; return the performance of each class. `work_cv` varies the output lengths.

        Raises:
            AnalysisError: a class has too few requests, or an iteration would take no time.
        """
        replica = self.replica()
        if self.work_cv is not None:
            replica = replica.model_copy(update={"out_tokens_cv": self.work_cv})
        streams = tuple(open_load(replica, one.rate_rps) for one in self.classes)
        load = MergedLoad(streams, tuple(one.priority for one in self.classes))
        runs = runs_of_replica(replica, load, None, effort)
        simulated_class: list[SimulatedClass | None] = []
        for i, one in enumerate(self.classes):
            own = runs_of(runs, streams[i], i, f"classes[{i}]")
            if not own:
                simulated_class.append(None)
                continue
            extent = replace(effort, requests=len(own[0].requests))
            answer = simulated_answer(SimulatedClass, own, extent, f"classes[{i}]: ", priority=one.priority)
            if isinstance(answer, OverloadedReplica):
                return answer
            simulated_class.append(answer)
        return ClassSimulation(classes=tuple(simulated_class))

    def _answer(
        self, queues: PriorityQueues, rate_rps: float, **rates: float
    ) -> ClassAnswer | ClassRowAnswer:
        performance = queues.analyze(np.full(len(self.classes), rate_rps))
        of_each: dict[str, list[object]] = {"priority": [one.priority for one in self.classes]}
        for percent in PERCENTILES:
            of_each[f"p{percent}_wait_ms"] = performance.wait_quantile(percent / 100).tolist()
        figures: dict[str, Any] = _figures_of_all(performance) | rates
        figures |= dict.fromkeys(("offered_rps", "throughput_rps"), rate_rps)  # no request is rejected
        figures |= {"stable_rate_rps": float(queues.stable_rate_rps[0])}
        figures |= {"classes": answers(ClassFigures, performance, **of_each)}
        answer_type = ClassAnswer if queues.queues.means_only else ClassRowAnswer
        return answer_type.model_validate(
            {name: figures[name] for name in answer_type.model_fields if name in figures}
        )


class ReplicaClassRow(_ClassFields, ReplicaRow):
    """One replica with several classes of requests, in llm-inferno's format with extensions."""


class LinearClassRow(_ClassFields, LinearRow):
    """One replica under the linear law with several classes of requests."""


def _largest(queues: PriorityQueues, wanted: LatencyTargets) -> float:
    """Return the maximum total rate [requests/s] at which all classes meet the targets; NaN if none."""
    count = len(queues.share)
    targets = Targets.of_limits([wanted.limits()] * count, np.zeros(count, np.bool_))
    return float(largest_rate(queues, targets).max_rate_rps.min())


def _figures_of_all(class_performance: ClassPerformance) -> dict[str, float]:
    """Return means and percentiles over the requests of all classes, by field of an answer."""
    share = class_performance.offered_rps / class_performance.offered_rps.sum()
    figures = {"in_service": float(class_performance.in_service.sum())}
    for name in ("response_ms", "wait_ms", "ttft_ms", "itl_ms"):
        figures[name] = float(share @ getattr(class_performance, name))
    figures["e2e_ms"] = figures["response_ms"]
    for metric in LATENCIES:
        for percent in PERCENTILES:
            figures[f"p{percent}_{metric}_ms"] = class_performance.quantile_of_all(metric, percent)
    return figures
