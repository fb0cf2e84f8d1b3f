"""Rows of replicas to analyse, as JSON lines: the reference's queue-analysis format, and what goes beyond it.

A row that names the queue model ``continuous`` gets percentiles beside the means; one that names none, or the
reference's, gets the reference's answer. Rates are requests per second, times ms.
"""

from abc import abstractmethod

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.compat.queue_service import QueueAnswer, QueueProblem, analyze_problem, size_problem
from optimizer.documents import Coefficient, Count, PositiveCount, Quantity, SignedQuantity
from optimizer.kinds.queue_models import REFERENCE, QueueModelName
from optimizer.kinds.replicas import (
    LatencyFigures,
    Percentiles,
    Replica,
    ReplicaPerformance,
    analyze_replicas,
)
from optimizer.kinds.rows import NoSteadyState, Overload, Row
from optimizer.kinds.simulated import ReplicaSimulation, simulate_replica
from optimizer.kinds.table import KINDS
from optimizer.kinds.token_batching import LENGTHS_NEEDED
from optimizer.queueing.measures import LATENCIES
from optimizer.simulation.replicas import Effort
from optimizer.spec.messages import validated
from optimizer.timing import (
    DEFAULT_MAX_NUM_TOKENS,
    Batching,
    DecodeParms,
    PerfParms,
    PrefillParms,
    SchedulerName,
)


class RowAnswer(LatencyFigures, QueueAnswer):
    """The reference's answer, and the latencies that it does not know."""


class _TokenRow(QueueProblem, Row):
    """A replica that answers in tokens, at one rate."""

    @abstractmethod
    def replica(self) -> Replica:
        """Return the replica that the row describes.

        Raises:
            SpecError: the queue model does not take its law, or its variability.
        """

    def analyze(self) -> QueueAnswer | NoSteadyState:
        """Return the performance at the row's rate."""
        return analyze_problem(self)

    def size(self) -> QueueAnswer:
        """Return the largest rates that meet the targets, and the performance at the smaller of them."""
        return size_problem(self)

    def simulate(self, effort: Effort) -> ReplicaSimulation | Overload:
        """Return what is simulated: of a queue that is not stated nothing is lost."""
        replica, stated = self.replica(), "max_queue" in self.model_fields_set
        simulated = replica if stated else replica.model_copy(update={"max_queue": None})
        return simulate_replica(simulated, self.rate_rps, effort)


class ReplicaRow(_TokenRow):
    """One replica at one rate: a problem of the reference's format, with what it cannot say."""

    per_sequence_ms: SignedQuantity = Field(0.0, alias="perSequence")
    """Of the iteration law [ms per request]."""
    prompt_attention_ms: Quantity = Field(0.0, alias="promptAttention")
    """Of the iteration law [ms per pair of a prompt's token and one before it]."""
    prompt_base_ms: SignedQuantity = Field(0.0, alias="promptBase")
    """Of the iteration law [ms]."""
    weight_read_ms: Quantity = Field(0.0, alias="weightRead")
    """Of the iteration law [ms]."""
    batch_base_ms: Quantity = Field(0.0, alias="batchBase")
    """Of the iteration law [ms]."""
    per_prompt_ms: Quantity = Field(0.0, alias="perPrompt")
    """Of the iteration law [ms per prompt]."""
    expert_read_ms: Quantity = Field(0.0, alias="expertRead")
    """Of the iteration law [ms]."""
    expert_share: Quantity = Field(0.0, alias="expertShare", lt=1)
    """Of the iteration law."""
    client_offset_ms: Quantity = Field(0.0, alias="clientOffset")
    """What a client sees beyond it [ms]."""
    pipeline_depth: Quantity = Field(0.0, alias="pipelineDepth")
    """The same in iterations, while other requests are in progress."""
    front_end_lag: Quantity = Field(0.0, alias="frontEndLag")
    """The same for each of them."""
    pause_offset_ms: Quantity = Field(0.0, alias="pauseOffset")
    """What it sees beyond it beside them, seconds after the last prompt [ms]."""
    queue_model: QueueModelName = Field(REFERENCE, alias="queueModel")
    """Performance model; the format is the reference's, and so is the queue of a row that names none."""
    scheduler: SchedulerName = "chunked"
    """How prompts are computed."""
    max_num_tokens: PositiveCount = Field(DEFAULT_MAX_NUM_TOKENS, alias="maxNumTokens")
    """Token budget of one iteration."""
    kv_capacity_tokens: Count | None = Field(None, alias="kvCapacity")
    """Tokens of KV cache; none: no limit."""
    arrival_cv: Coefficient = Field(1.0, alias="arrivalCV")
    """Coefficient of variation of the times between arrivals."""
    in_tokens_cv: Coefficient = Field(1.0, alias="inTokensCV")
    """Coefficient of variation of the input length."""
    out_tokens_cv: Coefficient = Field(1.0, alias="outTokensCV")
    """Coefficient of variation of the output length."""

    def replica(self) -> Replica:
        """Return the replica that the row describes.

        Raises:
            SpecError: the queue model does not take its law, or its variability.
        """
        terms = {name: getattr(self, name) for name in PerfParms.model_fields if hasattr(self, name)}
        three = {
            "base_ms": self.alpha,
            "compute_per_token_ms": self.beta,
            "kv_read_per_token_ms": self.gamma,
        }
        own = {name: getattr(self, name) for name in Replica.model_fields if hasattr(self, name)}
        # Only the reference's queue has room for no request by default.
        if self.queue_model != REFERENCE and "max_queue" not in self.model_fields_set:
            own["max_queue"] = None
        return validated(Replica, own | {"iteration": terms | three})

    def analyze(self) -> QueueAnswer | NoSteadyState:
        """Return the reference's answer, or more than that where the row names another queue model."""
        if self.queue_model == REFERENCE:
            return super().analyze()
        found = analyze_replicas([self.replica()], [self.rate_rps])[0]
        if self.rate_rps > found.stable_rate_rps:
            return NoSteadyState.beyond(self.rate_rps, found.stable_rate_rps)
        return _answer(found)


class LinearRow(_TokenRow):
    """One replica under the linear law at one rate, in continuous or in static batches."""

    decode: DecodeParms | None = Field(None, alias="decodeParms")
    """Linear law, decode."""
    prefill: PrefillParms | None = Field(None, alias="prefillParms")
    """Linear law, prefill."""
    batching: Batching = "continuous"
    """How requests share a batch."""
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
            SpecError: the queue model does not take its variability.
        """
        own = {name: getattr(self, name) for name in Replica.model_fields if hasattr(self, name)}
        return validated(Replica, {name: value for name, value in own.items() if value is not None})


ROWS: tuple[type[Row], ...] = (ReplicaRow, LinearRow, *(kind.row for kind in KINDS if kind.row))
"""All types of rows."""


def is_row(value: object) -> bool:
    """Return whether a value is a row: it has a rate or the key of a kind."""
    keys = {str(key).lower() for key in value} if isinstance(value, dict) else set()
    return bool(keys & {"rps", *(kind.gives.lower() for kind in KINDS if kind.row)})


def kind_of_row(value: object) -> type[Row]:
    """Return what a row is: one of the kind whose key it has, else a replica by its law."""
    keys = {str(key).lower() for key in value} if isinstance(value, dict) else set()
    if keys & {"decodeparms", "prefillparms", "batching"}:
        return LinearRow
    return next((kind.row for kind in KINDS if kind.row and kind.gives.lower() in keys), ReplicaRow)


def _answer(found: ReplicaPerformance) -> RowAnswer:
    figures = {
        name: getattr(found, name) for name in QueueAnswer.model_fields if name in type(found).model_fields
    }
    figures["e2e_ms"] = found.response_ms
    for metric in LATENCIES:
        percentiles = getattr(found, f"{metric}_percentiles")
        assert isinstance(percentiles, Percentiles)
        figures |= {f"{name[:-3]}_{metric}_ms": value for name, value in percentiles}
    return RowAnswer.model_validate(figures)
