"""The format of llm-inferno's queue-analysis service: problems and answers (iteration law only).

Rates are in requests per second, times in ms. As in llm-inferno, a missing ``maxQueueSize`` means 0.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from pydantic import Field

from optimizer.documents import NUMBERS_ONLY, AnswerTokens, BatchLimit, Count, Document, Quantity, Tokens
from optimizer.errors import AnalysisError, SpecError
from optimizer.kinds.queue_models import REFERENCE
from optimizer.kinds.replicas import LatencyTargets, Replica, analyze_as, size_replicas
from optimizer.kinds.rows import Row, UnstableReplica
from optimizer.kinds.simulated import simulate_replica
from optimizer.schema.files import json_value
from optimizer.schema.messages import validated
from optimizer.simulation.replicas import Effort

_Document = TypeVar("_Document", bound=Document)


class QueueAnswer(Document):
    """Answer of llm-inferno's queue-analysis service: the performance of one replica."""

    offered_rps: float = Field(alias="offeredRPS")
    """Arrival rate [requests/s]."""
    throughput_rps: float = Field(alias="throughput")
    """Completed requests [requests/s]."""
    response_ms: float = Field(alias="avgRespTime")
    """Mean response time: queueing plus service time [ms]."""
    wait_ms: float = Field(alias="avgWaitTime")
    """Mean queueing time [ms]."""
    in_service: float = Field(alias="avgNumInServ")
    """Mean number of requests in the batch."""
    ttft_ms: float = Field(alias="avgTTFT")
    """Mean time to first token [ms]."""
    itl_ms: float = Field(alias="avgITL")
    """Mean inter-token latency [ms]."""
    stable_rate_rps: float = Field(alias="maxRPS")
    """Maximum stable rate [requests/s]."""
    rate_ttft_rps: float = Field(0.0, alias="RPSTargetTTFT")
    """Maximum rate that meets the TTFT target [requests/s]; 0 in an analysis."""
    rate_itl_rps: float = Field(0.0, alias="RPSTargetITL")
    """Maximum rate that meets the ITL target [requests/s]; 0 in an analysis."""


class QueueProblem(Row):
    """Problem of llm-inferno's queue-analysis service: one replica with its load and targets."""

    max_batch: BatchLimit = Field(alias="maxBatchSize")
    """Batch limit [requests]."""
    in_tokens: Tokens = Field(alias="avgInputTokens")
    """Mean input length [tokens]."""
    out_tokens: AnswerTokens = Field(alias="avgOutputTokens")
    """Mean output length [tokens]."""
    alpha: Quantity = 0.0
    """α of the iteration law [ms]."""
    beta: Quantity = 0.0
    """β of the iteration law [ms per token computed]."""
    gamma: Quantity = 0.0
    """γ of the iteration law [ms per token of KV cache read]."""
    max_queue: Count = Field(0, alias="maxQueueSize")
    """Queue capacity: maximum number of requests that wait for a full batch."""
    target_ttft_ms: Quantity = Field(0.0, alias="targetTTFT")
    """Target of the time to first token [ms]; 0 for none."""
    target_itl_ms: Quantity = Field(0.0, alias="targetITL")
    """Target of the inter-token latency [ms]; 0 for none."""

    @property
    def derived(self) -> tuple[str, ...]:
        """Names of fields whose values follow from others."""
        return ()

    def law(self) -> dict[str, Any]:
        """Return the fields of a `Replica` for its latency model and queue model."""
        three = {"alpha": self.alpha, "beta": self.beta, "gamma": self.gamma}
        return {"queue_model": REFERENCE, "iteration": three}

    def replica(self) -> Replica:
        """Return the replica that the problem describes.

        Raises:
            SpecError: the queue model does not support the latency model or the coefficients of variation.
        """
        own = {name: getattr(self, name, None) for name in Replica.model_fields if name not in self.derived}
        given = {name: value for name, value in own.items() if value is not None}
        return validated(Replica, self.law() | given)

    def analyze(self) -> QueueAnswer | UnstableReplica:
        """Return the performance of the replica at the problem's arrival rate.

        Raises:
            AnalysisError: the rate or a service time is zero.
        """
        return analyze_as(QueueAnswer, self.replica(), self.rate_rps)

    def size(self) -> QueueAnswer:
        """Return the maximum rate for each target, and the performance at the smaller of these rates.

        Raises:
            AnalysisError: no rate meets the targets.
        """
        (sizing,) = size_replicas([self.replica()], [self.targets()])
        if isinstance(sizing, AnalysisError):
            raise sizing
        rates = {name: getattr(sizing, name) or 0.0 for name in ("rate_ttft_rps", "rate_itl_rps")}
        return QueueAnswer.taken_from(sizing.at_max_rate, **rates)

    def targets(self) -> LatencyTargets:
        """Return the latency targets of the problem."""
        return LatencyTargets(ttft_ms=self.target_ttft_ms, itl_ms=self.target_itl_ms)

    def simulate(self, effort: Effort) -> Document:
        """Simulate the replica; return its performance. Without `maxQueueSize` the queue is unlimited."""
        replica = self.replica()
        if "max_queue" not in self.model_fields_set:
            replica = replica.model_copy(update={"max_queue": None})
        return simulate_replica(replica, self.rate_rps, effort)


def read_problems(
    lines: Iterable[str], problem: type[_Document] | Callable[[object], type[_Document]]
) -> Iterator[_Document | SpecError]:
    """Read problems from JSON lines; empty lines are skipped, and an invalid line yields its error.

    As in the reference's format, numbers have no units.

    Args:
        problem: the document type of a line, or a function that determines it from the line's JSON value.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            place = f"line {number}"
            try:
                value = json_value(line, place)
                mine = problem if isinstance(problem, type) else problem(value)
                yield validated(mine, value, f"{place}: ", NUMBERS_ONLY)
            except SpecError as error:
                yield error
