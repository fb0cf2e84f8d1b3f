"""Rows of replicas to analyse, as JSON lines: the reference's queue-analysis format with extensions.

Rows with the queue model ``continuous`` also return percentiles. Rows without a queue model, or with the
reference's, return the reference's answer. Rates are in requests per second, times in ms.
"""

from typing import Any

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.compat.queue_service import QueueAnswer, QueueProblem
from optimizer.documents import Coefficient, Count, PositiveCount
from optimizer.kinds.queue_models import REFERENCE, QueueModelName
from optimizer.kinds.replicas import LatencyFigures, Replica, analyze_as
from optimizer.kinds.rows import UnstableReplica
from optimizer.kinds.token_batching import LENGTHS_NEEDED
from optimizer.timing import (
    DEFAULT_MAX_NUM_TOKENS,
    Batching,
    DecodeParms,
    PrefillParms,
    SchedulerName,
)
from optimizer.timing.iteration import FurtherTerms


class RowAnswer(LatencyFigures, QueueAnswer):
    """The reference's answer, with percentiles and the end-to-end latency for `queueModel: continuous`."""


class ReplicaRow(FurtherTerms, QueueProblem):
    """One replica at one rate: a problem in the reference's format, with extensions."""

    queue_model: QueueModelName = Field(REFERENCE, alias="queueModel")
    """Queue model; with `continuous`, answers have percentiles, and the default of `maxQueueSize` is 10 times
    the batch limit.
    """
    scheduler: SchedulerName = "chunked"
    """Scheduler of prompts: in chunks next to the decodes, or full prompts first."""
    max_num_tokens: PositiveCount = Field(DEFAULT_MAX_NUM_TOKENS, alias="maxNumTokens")
    """Token budget of one iteration."""
    kv_capacity_tokens: Count | None = Field(None, alias="kvCapacity")
    """KV cache [tokens]; default: unlimited."""
    arrival_cv: Coefficient = Field(1.0, alias="arrivalCV")
    """Coefficient of variation of the interarrival times."""
    in_tokens_cv: Coefficient = Field(1.0, alias="inTokensCV")
    """Coefficient of variation of the input length."""
    out_tokens_cv: Coefficient = Field(1.0, alias="outTokensCV")
    """Coefficient of variation of the output length."""

    def law(self) -> dict[str, Any]:
        """Return the latency model and the queue model, by field of a replica."""
        law = super().law()
        law["iteration"] |= {name: getattr(self, name) for name in FurtherTerms.model_fields}
        return law

    def replica(self) -> Replica:
        """Return the replica that the row describes; only the reference's queue has no capacity by default.

        Raises:
            SpecError: the queue model does not support its law or its variability.
        """
        replica = super().replica()
        stated = self.queue_model == REFERENCE or "max_queue" in self.model_fields_set
        return replica if stated else replica.model_copy(update={"max_queue": None})

    def analyze(self) -> QueueAnswer | UnstableReplica:
        """Return the reference's answer, extended if the row has another queue model."""
        if self.queue_model == REFERENCE:
            return super().analyze()
        found = analyze_as(RowAnswer, self.replica(), self.rate_rps)
        if self.rate_rps > found.stable_rate_rps:
            return UnstableReplica.beyond(self.rate_rps, found.stable_rate_rps)
        return found


class LinearRow(QueueProblem):
    """One replica under the linear law at one rate, with continuous or static batching."""

    decode: DecodeParms | None = Field(None, alias="decodeParms")
    """Decode parameters of the linear law."""
    prefill: PrefillParms | None = Field(None, alias="prefillParms")
    """Prefill parameters of the linear law."""
    batching: Batching = "continuous"
    """Batching mode."""
    out_tokens_cv: Coefficient | None = Field(None, alias="outTokensCV")
    """Coefficient of variation of the output length; static batches need it."""

    @model_validator(mode="after")
    def _one_law(self) -> "LinearRow":
        if self.alpha or self.beta or self.gamma:
            raise PydanticCustomError(
                "two_laws", "decodeParms and prefillParms exclude alpha, beta and gamma; keep one law"
            )
        if self.batching != "continuous" and self.out_tokens_cv is None:
            raise PydanticCustomError("lengths", "{problem}", {"problem": f"outTokensCV: {LENGTHS_NEEDED}"})
        return self

    def law(self) -> dict[str, Any]:
        """Return nothing: the row has the fields of the linear law, which decides the queue model."""
        return {}
