"""Requests of several classes with priorities in the queue of one replica: fields, answers, performance."""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from optimizer.documents import Document, Priority, Quantity
from optimizer.errors import AnalysisError
from optimizer.kinds.replicas import Replica, queues_of
from optimizer.kinds.rows import answers
from optimizer.queueing.measures import LATENCIES
from optimizer.queueing.priority.model import (
    UNLIMITED_QUEUE,
    ClassMix,
    ClassPerformance,
    PriorityQueues,
)

MAX_CLASSES = 100
PERCENTS = (50, 90, 95, 99)


class RequestClass(Document):
    """Requests of one class."""

    rate_rps: Quantity = Field(alias="RPS")
    """Arrival rate of the class [requests/s]."""
    priority: Priority
    """Priority, 1 is the highest; classes of equal priority are served first come, first served."""


class ClassFigures(Document):
    """Latencies of the requests of one class [ms]; waiting times include requests that do not wait."""

    priority: int
    """Priority of the class."""
    offered_rps: float = Field(alias="offeredRPS")
    """Arrival rate [requests/s]."""
    wait_ms: float = Field(alias="avgWaitTime")
    """Mean time before the prefill, mostly spent waiting for a batch slot."""
    p50_wait_ms: float = Field(alias="p50WaitTime")
    p90_wait_ms: float = Field(alias="p90WaitTime")
    p95_wait_ms: float = Field(alias="p95WaitTime")
    p99_wait_ms: float = Field(alias="p99WaitTime")
    ttft_ms: float = Field(alias="avgTTFT")
    """Mean time to the first token."""
    p50_ttft_ms: float = Field(alias="p50TTFT")
    p90_ttft_ms: float = Field(alias="p90TTFT")
    p95_ttft_ms: float = Field(alias="p95TTFT")
    p99_ttft_ms: float = Field(alias="p99TTFT")
    itl_ms: float = Field(alias="avgITL")
    """Mean inter-token latency."""
    response_ms: float = Field(alias="avgE2E")
    """Mean time to the last token."""
    p50_e2e_ms: float = Field(alias="p50E2E")
    p90_e2e_ms: float = Field(alias="p90E2E")
    p95_e2e_ms: float = Field(alias="p95E2E")
    p99_e2e_ms: float = Field(alias="p99E2E")


def class_queues(replica: Replica, classes: Sequence[RequestClass], work_cv: float) -> PriorityQueues:
    """Return the priority queue of a replica with unlimited capacity.

    Raises:
        AnalysisError: all rates are zero, or a service time is zero.
    """
    rates = [one.rate_rps for one in classes]
    if not any(rates):
        raise AnalysisError("classes: no class has a rate; give one RPS of more than 0 requests/s")
    unlimited = replica.model_copy(update={"max_queue": UNLIMITED_QUEUE})
    ((_, queues),) = queues_of([unlimited] * len(classes))
    mix = ClassMix.of(rates, [one.priority for one in classes])
    return PriorityQueues.of(queues, [mix], np.full(len(classes), work_cv))


def class_figures(found: ClassPerformance, classes: Sequence[RequestClass]) -> list[ClassFigures]:
    """Return the performance of each class, in the order of the classes."""
    waits = {f"p{percent}_wait_ms": found.wait_quantile(percent / 100).tolist() for percent in PERCENTS}
    return answers(ClassFigures, found, priority=[one.priority for one in classes], **waits)


def figures_of_all_classes(found: ClassPerformance) -> dict[str, float]:
    """Return the metrics over the requests of all classes, by field of an answer."""
    share = found.offered_rps / found.offered_rps.sum()
    figures = {"in_service": float(found.in_service.sum())}
    for name in ("response_ms", "wait_ms", "ttft_ms", "itl_ms"):
        figures[name] = float(share @ getattr(found, name))
    figures["e2e_ms"] = figures["response_ms"]
    for metric in LATENCIES:
        for percent in PERCENTS:
            figures[f"p{percent}_{metric}_ms"] = found.quantile_of_all(metric, percent)
    return figures
