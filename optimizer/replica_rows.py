"""Rows of replicas to analyse, as JSON lines: the reference's queue-analysis format, and what goes beyond it.

A row that names the queue model ``continuous`` gets percentiles beside the means; one that names none, or the
reference's, gets the reference's answer. Rates are requests per second, times ms.
"""

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.batch_rows import (
    BatchAnswer,
    BatchRow,
    BatchSizing,
    NoLongRun,
    analyze_batch,
    size_batch,
)
from optimizer.compat.queue_service import QueueAnswer, QueueProblem, analyze_problem, size_problem
from optimizer.documents import Coefficient, Count, Document, PositiveCount, Quantity, SignedQuantity
from optimizer.kinds.queue_models import REFERENCE, QueueModelName
from optimizer.kinds.token_batching import LENGTHS_NEEDED
from optimizer.quantities import precise
from optimizer.queueing.measures import LATENCIES
from optimizer.replica import Percentiles, Replica, ReplicaPerformance, analyze_replicas
from optimizer.spec.messages import validated
from optimizer.timing import (
    DEFAULT_MAX_NUM_TOKENS,
    Batching,
    DecodeParms,
    PerfParms,
    PrefillParms,
    SchedulerName,
)


class ReplicaRow(QueueProblem):
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

    def replica_to_simulate(self) -> Replica:
        """Return the replica that is simulated: of a queue that is not stated nothing is lost.

        Raises:
            SpecError: the queue model does not take the row's law, or its variability.
        """
        replica = self.replica()
        stated = "max_queue" in self.model_fields_set
        return replica if stated else replica.model_copy(update={"max_queue": None})


class LinearRow(QueueProblem):
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

    def replica_to_simulate(self) -> Replica:
        """Return the replica that is simulated: of a queue that is not stated nothing is lost."""
        replica = self.replica()
        stated = "max_queue" in self.model_fields_set
        return replica if stated else replica.model_copy(update={"max_queue": None})


Row = ReplicaRow | LinearRow | BatchRow
"""What a line may be."""


class LatencyFigures(Document):
    """Mean and percentiles of what users see [ms]."""

    e2e_ms: float = Field(alias="avgE2E")
    """Mean time to the last token."""
    p50_ttft_ms: float = Field(alias="p50TTFT")
    p90_ttft_ms: float = Field(alias="p90TTFT")
    p95_ttft_ms: float = Field(alias="p95TTFT")
    p99_ttft_ms: float = Field(alias="p99TTFT")
    p50_itl_ms: float = Field(alias="p50ITL")
    p90_itl_ms: float = Field(alias="p90ITL")
    p95_itl_ms: float = Field(alias="p95ITL")
    p99_itl_ms: float = Field(alias="p99ITL")
    p50_e2e_ms: float = Field(alias="p50E2E")
    p90_e2e_ms: float = Field(alias="p90E2E")
    p95_e2e_ms: float = Field(alias="p95E2E")
    p99_e2e_ms: float = Field(alias="p99E2E")


class RowAnswer(LatencyFigures, QueueAnswer):
    """The reference's answer, and the latencies that it does not know."""


class NoSteadyState(Document):
    """The answer for a row whose queue grows without end."""

    offered_rps: float = Field(alias="offeredRPS")
    """Arrival rate [requests/s]."""
    stable_rate_rps: float = Field(alias="maxRPS")
    """Largest stable rate [requests/s]."""
    message: str
    """What is wrong."""


def kind_of_row(value: object) -> type[Row]:
    """Return what a row is: a batch server where it says how long batches take, else a replica by its law."""
    keys = {str(key).lower() for key in value} if isinstance(value, dict) else set()
    if keys & {"decodeparms", "prefillparms", "batching"}:
        return LinearRow
    return BatchRow if "batchparms" in keys else ReplicaRow


def analyze_row(row: Row) -> QueueAnswer | NoSteadyState | BatchAnswer | NoLongRun:
    """Return the performance at the row's rate, or that there is none in the long run.

    Raises:
        AnalysisError: the rate or a service time is zero.
        SpecError: the queue model does not take the row's law, or its variability.
    """
    if isinstance(row, BatchRow):
        return analyze_batch(row)
    if isinstance(row, LinearRow) or row.queue_model == REFERENCE:
        return analyze_problem(row)
    found = analyze_replicas([row.replica()], [row.rate_rps])[0]
    if row.rate_rps > found.stable_rate_rps:
        return NoSteadyState(
            offered_rps=row.rate_rps,
            stable_rate_rps=found.stable_rate_rps,
            message=f"no steady state: the rate {precise(row.rate_rps)} requests/s exceeds the largest "
            f"stable rate {precise(found.stable_rate_rps)}",
        )
    return _answer(found)


def size_row(row: Row) -> QueueAnswer | BatchSizing:
    """Return the largest rates that meet a row's targets, and the performance at the smaller of them.

    Raises:
        AnalysisError: no rate meets the targets.
        SpecError: the queue model does not take the row's law, or its variability.
    """
    return size_batch(row) if isinstance(row, BatchRow) else size_problem(row)


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
