"""The reference's queue-analysis format: problems and answers of its service (iteration law).

Rates are in requests per second, times in ms. As in the reference, a missing ``maxQueueSize`` means 0.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pydantic import Field

from optimizer.documents import NUMBERS_ONLY, AnswerTokens, BatchLimit, Count, Document, Quantity, Tokens
from optimizer.errors import AnalysisError, SpecError
from optimizer.kinds.queue_models import REFERENCE
from optimizer.kinds.replicas import (
    LatencyTargets,
    Replica,
    ReplicaPerformance,
    analyze_replicas,
    size_replicas,
)
from optimizer.schema.files import json_value
from optimizer.schema.messages import validated
from optimizer.timing import PerfParms


class QueueProblem(Document):
    """One problem of the reference's queue-analysis service."""

    rate_rps: Quantity = Field(0.0, alias="RPS")
    """Arrival rate [requests/s]; ignored in sizing."""
    max_batch: BatchLimit = Field(alias="maxBatchSize")
    """Batch limit."""
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
    """Queue capacity behind a full batch."""
    target_ttft_ms: Quantity = Field(0.0, alias="targetTTFT")
    """Target of the time to first token [ms]; 0: none."""
    target_itl_ms: Quantity = Field(0.0, alias="targetITL")
    """Target of the inter-token latency [ms]; 0: none."""

    def replica(self) -> Replica:
        """Return the replica that the problem describes."""
        return Replica(
            max_batch=self.max_batch,
            max_queue=self.max_queue,
            in_tokens=self.in_tokens,
            out_tokens=self.out_tokens,
            iteration=PerfParms(
                base_ms=self.alpha, compute_per_token_ms=self.beta, kv_read_per_token_ms=self.gamma
            ),
            queue_model=REFERENCE,
        )


_Problem = TypeVar("_Problem", bound=Document)


class QueueAnswer(Document):
    """One answer of the reference's queue-analysis service."""

    offered_rps: float = Field(alias="offeredRPS")
    """Arrival rate [requests/s]."""
    throughput_rps: float = Field(alias="throughput")
    """Completed [requests/s]."""
    response_ms: float = Field(alias="avgRespTime")
    """Mean queueing and service time [ms]."""
    wait_ms: float = Field(alias="avgWaitTime")
    """Mean queueing time [ms]."""
    in_service: float = Field(alias="avgNumInServ")
    """Mean requests in the batch."""
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


def read_problems(
    lines: Iterable[str], kind: type[_Problem] | Callable[[object], type[_Problem]]
) -> Iterator[_Problem | SpecError]:
    """Read problems from JSON lines, skipping empty ones; an invalid line yields its error.

    As in the reference's format, numbers have no units.

    Args:
        lines: the lines.
        kind: the type of problem, or a function that determines it from the line's value.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            place = f"line {number}"
            try:
                value = json_value(line, place)
                mine = kind if isinstance(kind, type) else kind(value)
                yield validated(mine, value, f"{place}: ", NUMBERS_ONLY)
            except SpecError as error:
                yield error


def analyze_problem(problem: QueueProblem) -> QueueAnswer:
    """Return the performance at the problem's rate.

    Raises:
        AnalysisError: the rate or a service time is zero.
    """
    return answer_of(analyze_replicas([problem.replica()], [problem.rate_rps])[0])


def size_problem(problem: QueueProblem) -> QueueAnswer:
    """Return the maximum rate for each target, and the performance at the smaller one.

    Raises:
        AnalysisError: no rate meets the targets.
    """
    targets = LatencyTargets(ttft_ms=problem.target_ttft_ms, itl_ms=problem.target_itl_ms)
    sizing = size_replicas([problem.replica()], [targets])[0]
    if isinstance(sizing, AnalysisError):
        raise sizing
    return answer_of(sizing.at_max_rate, sizing.rate_ttft_rps or 0.0, sizing.rate_itl_rps or 0.0)


def answer_of(
    found: ReplicaPerformance, rate_ttft_rps: float = 0.0, rate_itl_rps: float = 0.0
) -> QueueAnswer:
    """Return an analysis as the reference's answer.

    Args:
        found: the analysis.
        rate_ttft_rps: maximum rate that meets the TTFT target [requests/s].
        rate_itl_rps: maximum rate that meets the ITL target [requests/s].
    """
    metrics = {
        name: getattr(found, name)
        for name in QueueAnswer.model_fields
        if name in ReplicaPerformance.model_fields
    }
    return QueueAnswer.model_validate(
        metrics | {"rate_ttft_rps": rate_ttft_rps, "rate_itl_rps": rate_itl_rps}
    )
