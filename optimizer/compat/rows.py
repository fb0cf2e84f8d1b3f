"""Rows of replicas to analyse, as JSON lines: the reference's queue-analysis format with extensions.

Rows with the queue model ``continuous`` also return percentiles. Rows without a queue model, or with the
reference's, return the reference's answer. Rates are in requests per second, times in ms.
"""

from abc import abstractmethod

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.compat.queue_service import QueueAnswer, QueueProblem, analyze_problem, answer_of, size_problem
from optimizer.documents import Coefficient, Count, PositiveCount
from optimizer.kinds.class_simulation import ClassSimulation
from optimizer.kinds.queue_models import REFERENCE, QueueModelName
from optimizer.kinds.replicas import (
    LatencyFigures,
    Percentiles,
    Replica,
    ReplicaPerformance,
    analyze_replicas,
)
from optimizer.kinds.rows import OverloadedReplica, Row, UnstableReplica
from optimizer.kinds.simulated import ReplicaSimulation, simulate_replica
from optimizer.kinds.token_batching import LENGTHS_NEEDED
from optimizer.queueing.measures import LATENCIES
from optimizer.schema.messages import validated
from optimizer.simulation.replicas import Effort
from optimizer.timing import (
    DEFAULT_MAX_NUM_TOKENS,
    Batching,
    DecodeParms,
    PrefillParms,
    SchedulerName,
)
from optimizer.timing.iteration import FurtherTerms


class RowAnswer(LatencyFigures, QueueAnswer):
    """The reference's answer, with percentiles and the end-to-end latency."""


class TokenRow(QueueProblem, Row):
    """A token replica at one rate."""

    @abstractmethod
    def replica(self) -> Replica:
        """Return the replica that the row describes.

        Raises:
            SpecError: the queue model does not support its law or its variability.
        """

    def analyze(self) -> QueueAnswer | UnstableReplica:
        """Return the performance at the row's rate."""
        return analyze_problem(self)

    def size(self) -> QueueAnswer:
        """Return the maximum rate for each target, and the performance at the smaller one."""
        return size_problem(self)

    def simulate(self, effort: Effort) -> ReplicaSimulation | ClassSimulation | OverloadedReplica:
        """Return the simulated performance; without `maxQueueSize` the queue is unlimited."""
        replica, stated = self.replica(), "max_queue" in self.model_fields_set
        simulated = replica if stated else replica.model_copy(update={"max_queue": None})
        return simulate_replica(simulated, self.rate_rps, effort)


class ReplicaRow(FurtherTerms, TokenRow):
    """One replica at one rate: a problem in the reference's format, with extensions."""

    queue_model: QueueModelName = Field(REFERENCE, alias="queueModel")
    """Queue model; default: the reference's, because the format is the reference's."""
    scheduler: SchedulerName = "chunked"
    """Scheduling of prompts."""
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

    def replica(self) -> Replica:
        """Return the replica that the row describes.

        Raises:
            SpecError: the queue model does not support its law or its variability.
        """
        terms = {name: getattr(self, name) for name in FurtherTerms.model_fields}
        three = {
            "base_ms": self.alpha,
            "compute_per_token_ms": self.beta,
            "kv_read_per_token_ms": self.gamma,
        }
        own = {name: getattr(self, name) for name in Replica.model_fields if hasattr(self, name)}
        # Only the reference's queue has a capacity of 0 by default.
        if self.queue_model != REFERENCE and "max_queue" not in self.model_fields_set:
            own["max_queue"] = None
        return validated(Replica, own | {"iteration": terms | three})

    def analyze(self) -> QueueAnswer | UnstableReplica:
        """Return the reference's answer, extended if the row has another queue model."""
        if self.queue_model == REFERENCE:
            return super().analyze()
        found = analyze_replicas([self.replica()], [self.rate_rps])[0]
        if self.rate_rps > found.stable_rate_rps:
            return UnstableReplica.beyond(self.rate_rps, found.stable_rate_rps)
        return _answer(found)


class LinearRow(TokenRow):
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

    def replica(self) -> Replica:
        """Return the replica that the row describes.

        Raises:
            SpecError: the queue model does not support its variability.
        """
        own = {name: getattr(self, name) for name in Replica.model_fields if hasattr(self, name)}
        return validated(Replica, {name: value for name, value in own.items() if value is not None})


def _answer(found: ReplicaPerformance) -> RowAnswer:
    metrics = dict(answer_of(found)) | {"e2e_ms": found.response_ms}
    for metric in LATENCIES:
        percentiles = getattr(found, f"{metric}_percentiles")
        assert isinstance(percentiles, Percentiles)
        metrics |= {f"{name[:-3]}_{metric}_ms": value for name, value in percentiles}
    return RowAnswer.model_validate(metrics)
