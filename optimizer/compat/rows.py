"""Rows: JSON lines that describe a replica to analyse, in llm-inferno's format with extensions.

Answers to rows with the queue model ``continuous`` also have percentiles. Rows without a queue model, or with
``reference``, get llm-inferno's answer. Rates are in requests per second, times in ms.
"""

from operator import not_
from typing import Any

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.compat.queue_service import QueueAnswer, QueueProblem
from optimizer.documents import AnswerTokens, Coefficient, Count, PositiveCount, Tokens
from optimizer.kinds.queue_models import REFERENCE, QueueModelName
from optimizer.kinds.replicas import LatencyFigures, Replica, analyze_as
from optimizer.kinds.request_shapes import (
    LENGTHS,
    PrefixFields,
    RowShape,
    ShapedRequests,
    check_lengths_given,
)
from optimizer.kinds.rows import UnstableReplica
from optimizer.kinds.token_batching import LENGTHS_NEEDED
from optimizer.queueing.continuous.model import ContinuousQueues
from optimizer.timing import DecodeParms, PrefillParms
from optimizer.timing.engine import SchedulerName
from optimizer.timing.iteration import DEFAULT_MAX_NUM_TOKENS, FurtherTerms
from optimizer.timing.linear import Batching


class RowAnswer(LatencyFigures, QueueAnswer):
    """llm-inferno's answer, extended by percentiles and the end-to-end latency."""


class ReplicaRow(FurtherTerms, ShapedRequests, QueueProblem):
    """One replica at one arrival rate: a problem in llm-inferno's format, with extensions."""

    in_tokens: Tokens = Field(0.0, alias="avgInputTokens")
    """Mean input length [tokens]; required without `shapes`."""
    out_tokens: AnswerTokens = Field(1.0, alias="avgOutputTokens")
    """Mean output length [tokens]; required without `shapes`."""
    shapes: tuple[RowShape, ...] = Field((), strict=False, exclude_if=not_)
    """Request shapes, at most 8, instead of the lengths: each with its share of the requests."""

    queue_model: QueueModelName = Field(REFERENCE, alias="queueModel")
    """Queue model; default with several shapes or a prefix: `continuous`. With `continuous`, answers have
    percentiles, and `maxQueueSize` is 10 times the batch limit by default.
    """
    scheduler: SchedulerName = "chunked"
    """Scheduler: prompts in chunks together with decodes (`chunked`), or entire prompts first
    (`prefill-first`).
    """
    max_num_tokens: PositiveCount = Field(DEFAULT_MAX_NUM_TOKENS, alias="maxNumTokens")
    """Maximum number of tokens in one iteration."""
    kv_capacity_tokens: Count | None = Field(None, alias="kvCapacity")
    """KV cache capacity [tokens]; unlimited by default."""
    arrival_cv: Coefficient = Field(1.0, alias="arrivalCV")
    """Coefficient of variation of the interarrival times."""
    in_tokens_cv: Coefficient = Field(1.0, alias="inTokensCV")
    """Coefficient of variation of the input length."""
    out_tokens_cv: Coefficient = Field(1.0, alias="outTokensCV")
    """Coefficient of variation of the output length."""

    @property
    def derived(self) -> tuple[str, ...]:
        """Names of the fields that follow from shapes, and those of a prefix that is not stated."""
        prefix = () if self.prefix_tokens else (*PrefixFields.model_fields,)
        return (*LENGTHS, *prefix) if self.shapes else prefix

    @model_validator(mode="after")
    def _lengths_given(self) -> "ReplicaRow":
        check_lengths_given(self)
        if self.has_shapes and "queue_model" not in self.model_fields_set:
            object.__setattr__(self, "queue_model", ContinuousQueues.name)
        return self

    def law(self) -> dict[str, Any]:
        """Return the fields of a `Replica` for its latency model and queue model."""
        law = super().law()
        law["iteration"] |= {name: getattr(self, name) for name in FurtherTerms.model_fields}
        return law

    def replica(self) -> Replica:
        """Return the replica that the row describes; by default only llm-inferno's queue has capacity 0.

        Raises:
            SpecError: the queue model does not support the latency model or the coefficients of variation.
        """
        replica = super().replica()
        stated = self.queue_model == REFERENCE or "max_queue" in self.model_fields_set
        return replica if stated else replica.model_copy(update={"max_queue": None})

    def analyze(self) -> QueueAnswer | UnstableReplica:
        """Analyse the replica; return llm-inferno's answer, extended if the row has another queue model."""
        if self.queue_model == REFERENCE:
            return super().analyze()
        performance = analyze_as(RowAnswer, self.replica(), self.rate_rps)
        if self.rate_rps > performance.stable_rate_rps:
            return UnstableReplica.at(self.rate_rps, performance.stable_rate_rps)
        return performance


class LinearRow(QueueProblem):
    """One replica with the linear latency model at one arrival rate, with continuous or static batching."""

    decode: DecodeParms | None = Field(None, alias="decodeParms")
    """Decode parameters of the linear law."""
    prefill: PrefillParms | None = Field(None, alias="prefillParms")
    """Prefill parameters of the linear law."""
    batching: Batching = "continuous"
    """Batching mode: continuous or static."""
    out_tokens_cv: Coefficient | None = Field(None, alias="outTokensCV")
    """Coefficient of variation of the output length; required for static batching."""

    @model_validator(mode="after")
    def _one_law(self) -> "LinearRow":
        if self.alpha or self.beta or self.gamma:
            raise PydanticCustomError(
                "two_laws",
                "decodeParms and prefillParms cannot be combined with alpha, beta and gamma; "
                "remove one latency model",
            )
        if self.batching != "continuous" and self.out_tokens_cv is None:
            raise PydanticCustomError("lengths", "{problem}", {"problem": f"outTokensCV: {LENGTHS_NEEDED}"})
        return self

    def law(self) -> dict[str, Any]:
        """Return no fields, because the row's fields for the linear law also determine the queue model."""
        return {}
