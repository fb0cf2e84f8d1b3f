"""The documents as immutable pydantic models: one schema for YAML, JSON, Python and REST.

Wire names are those of the reference, llm-inferno (docs/glossary.md), matched in any case; Python names carry
the unit (``arrival_rate_rpm``). Unknown keys, wrong types, NaN and infinity are errors with their path.
"""

from collections.abc import Iterator
from math import inf
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from optimizer.documents import (
    FOLDER,
    BatchLimit,
    BatchSize,
    Coefficient,
    Cost,
    Count,
    Document,
    Gigabytes,
    GigabytesPerSecond,
    MaxLoss,
    Milliseconds,
    Name,
    PositiveCount,
    Priority,
    Quantity,
    RequestsPerMinute,
    Seconds,
    Share,
    SliceCount,
    Tokens,
    TokensPerSecond,
    Watts,
)
from optimizer.queueing.measures import LATENCIES, MISSED, LatencyName, Measure
from optimizer.queueing.performance import MS_PER_S
from optimizer.queueing.table import REFERENCE, QueueModelName, default_model, without_default
from optimizer.simulation.batches import QueueCounts, TriggerName
from optimizer.spec.provenance import Provenance
from optimizer.spec.stages import Stage
from optimizer.timing import LawFields, PerfParms, laws_given, laws_known

DEFAULT_MAX_BATCH = 256
"""Batch limit where a profile states none (the ceiling of llm-inferno's optimizer-light)."""


class Power(Document):
    """Power curve of an accelerator: piecewise linear in the utilisation."""

    idle_w: Watts = Field(0.0, alias="idle")
    """Power when idle [W]."""
    full_w: Watts = Field(0.0, alias="full")
    """Power at full utilisation [W]."""
    mid_power_w: Watts = Field(0.0, alias="midPower")
    """Power at the inflection point [W]."""
    mid_utilization: Share = Field(0.0, alias="midUtil")
    """Utilisation at the inflection point, 0 … 1."""


class Accelerator(Document):
    """A purchasable slice: one or more cards of one type (``4xA100``)."""

    name: Name
    """Unique name."""
    type: Name
    """The kind in stock; capacities are counted per type."""
    multiplicity: SliceCount = 1
    """Cards (units of the type) in the slice."""
    memory_gb: Gigabytes = Field(0.0, alias="memSize")
    """Memory of the slice [GB]."""
    memory_bandwidth_gb_per_s: GigabytesPerSecond = Field(0.0, alias="memBW")
    """Memory bandwidth of the slice [GB/s]."""
    power: Power = Power()
    """Power curve."""
    cost_cents_per_h: Cost = Field(0.0, alias="cost")
    """Price of the slice [cents/h]."""


class _ProfileKey(Document):
    """What a profile is of, and its batch limit."""

    name: Name
    """The model."""
    accelerator: Name = Field(alias="acc")
    """The accelerator's name."""
    acc_count: SliceCount = Field(1, alias="accCount")
    """Accelerators of one replica."""
    max_batch_size: BatchSize = Field(0, alias="maxBatchSize")
    """Batch limit at `atTokens` output tokens per request; 0 means 256."""
    at_tokens: Count = Field(0, alias="atTokens")
    """Request length at which the batch limit was found [output tokens]; 0: the limit is not scaled."""


EstimateEnd = Literal["upper", "middle", "lower"]
"""Which end of an estimate's interval is used: slow times and little memory, the middle, or the opposite."""


class EstimateSettings(Document):
    """What an estimate of the token times is for, as far as the names of the entry do not say it."""

    model: Name | None = None
    """The model's name in the catalogue; none: that of the entry."""
    config: Name | None = None
    """The model's config.json in place of a name, relative to the document; on the command line only."""
    accelerator: Name | None = None
    """The accelerator's name in the catalogue; none: that of the accelerator's type, else its own."""
    tp: PositiveCount | None = None
    """Devices of a replica (tensor parallelism); none: all of its cards."""
    weights: Name | None = None
    """Format of the weights; none: as published."""
    cache: Name = "bf16"
    """Format of the KV cache, `bf16` or `fp8`."""
    eager: bool = False
    """Whether the engine starts every kernel from the host, without captured graphs."""
    memory_utilization: Share = Field(0.9, alias="memoryUtilization")
    """Share of the device's memory that the engine takes."""
    max_requests: BatchLimit = Field(256, alias="maxRequests")
    """Most requests in the batch."""

    @field_validator("config")
    @classmethod
    def _in_its_folder(cls, config: str | None, info: ValidationInfo) -> str | None:
        """Find the file beside the document; a document from elsewhere names no files of this machine."""
        if config is None:
            return None
        folder = (info.context or {}).get(FOLDER)
        if folder is None:
            raise PydanticCustomError(
                "config", "files are read for documents in files only; name a model of the catalogue"
            )
        return str(folder / config)


class ProfileParms(PerfParms):
    """Iteration law of a profile: its coefficients, or that they are to be estimated."""

    estimate: EstimateSettings | None = Field(None, exclude_if=lambda settings: settings is None)
    """Estimate them from the architecture and the data sheet; the coefficients are then left out."""

    @model_validator(mode="before")
    @classmethod
    def _by_the_word(cls, data: object) -> object:
        """Read ``perfParms: estimate`` as an estimate whose names are those of the entry."""
        return {"estimate": {}} if isinstance(data, str) and data.lower() == "estimate" else data

    @model_validator(mode="after")
    def _one_source(self) -> "ProfileParms":
        given = [name for name in PerfParms.model_fields if getattr(self, name)]
        if self.estimate is not None and given:
            raise PydanticCustomError(
                "two_sources", "both coefficients and estimate are given; keep one of the two"
            )
        return self


def _or_the_word_estimate(schema: dict[str, Any]) -> None:
    schema["anyOf"].append({"const": "estimate"})


class ModelProfile(LawFields, _ProfileKey):
    """One model on one accelerator: how many slices a replica takes, its batch limit and token times."""

    iteration: ProfileParms | None = Field(
        None,
        alias="perfParms",
        json_schema_extra=_or_the_word_estimate,
    )
    """Iteration law, or `estimate` in place of its coefficients; excludes the linear one."""
    kv_capacity_tokens: Count | None = Field(None, alias="kvCapacity")
    """Tokens of KV cache of one replica; caps the batch at this over the tokens of a request."""
    queue_model: QueueModelName = Field(REFERENCE, alias="queueModel", json_schema_extra=without_default)
    """Performance model of the candidates; absent: `continuous` with `perfParms`, else `reference`."""
    provenance: Provenance | None = Field(None, exclude_if=lambda provenance: provenance is None)
    """Where token times that were fitted to benchmarks come from; absent: not stated."""

    @model_validator(mode="after")
    def _one_law(self) -> "ModelProfile":
        known = laws_known(self)
        if "queue_model" not in self.model_fields_set:  # it stays one that is not given
            object.__setattr__(self, "queue_model", default_model(known or laws_given(self)))
        if len(known) > 1:
            keys = " and ".join(law.keys(type(self)) for law in known)
            raise PydanticCustomError(
                "two_laws", "both {keys} are given; keep one of the two latency models", {"keys": keys}
            )
        if known and self.is_estimated:
            raise PydanticCustomError(
                "two_laws",
                "both {keys} and an estimate are given; keep one of the two",
                {"keys": known[0].keys(type(self))},
            )
        return self

    @property
    def is_estimated(self) -> bool:
        """Whether the token times are to be estimated."""
        return self.iteration is not None and self.iteration.estimate is not None


class LatencyTarget(Document):
    """A limit on the time to the whole answer."""

    percentile: float | None = Field(None, gt=0, lt=100)
    """Percentile at which it must hold; none: the mean."""
    limit_ms: Milliseconds = Field(alias="ms", gt=0)
    """The limit [ms]."""

    @property
    def measure(self) -> Measure:
        """What it is about."""
        return Measure("e2e", self.percentile)


class ModelTarget(Document):
    """Service-level targets of a model in a service class; 0 means no target."""

    model: Name
    """The model."""
    itl_ms: Milliseconds = Field(0.0, alias="slo-itl")
    """Inter-token latency [ms]."""
    ttft_ms: Milliseconds = Field(0.0, alias="slo-ttft")
    """Time to first token [ms]."""
    e2e_ms: Milliseconds = Field(0.0, alias="slo-e2e")
    """Time to the last token [ms]."""
    user_tps: TokensPerSecond = Field(0.0, alias="slo-user-tps")
    """Tokens/s that a user sees an answer grow by; the same as an inter-token latency of 1000 over it."""
    tps: TokensPerSecond = Field(0.0, alias="slo-tps")
    """Token throughput [tokens/s]; replaces the arrival rate as the load."""
    percentile: float | None = Field(None, gt=0, lt=100)
    """Percentile at which the latency targets must hold; none: the mean."""
    goodput_share: float | None = Field(None, alias="goodputShare", gt=0, lt=1)
    """Share of requests that must keep to all latency targets at once; excludes `percentile`."""
    max_loss: MaxLoss | None = Field(None, alias="maxLoss")
    """Largest share of requests that may find the queue full; absent: that of the options."""
    latency: tuple[LatencyTarget, ...] = Field((), strict=False, exclude_if=lambda limits: not limits)
    """Limits on the time to the whole answer, at several percentiles at once."""
    max_rejected: MaxLoss | None = Field(None, alias="maxRejected", exclude_if=lambda share: share is None)
    """Another name of `maxLoss`, for servers that turn requests away; one of the two."""

    @model_validator(mode="after")
    def _one_bound_on_loss(self) -> "ModelTarget":
        if self.max_loss is not None and self.max_rejected is not None:
            raise PydanticCustomError("two_losses", "maxLoss and maxRejected are the same; keep one")
        return self

    @property
    def largest_loss(self) -> float | None:
        """Largest share of requests that may be lost, by either name; none: that of the options."""
        return self.max_loss if self.max_rejected is None else self.max_rejected

    @model_validator(mode="after")
    def _goodput_has_limits(self) -> "ModelTarget":
        if self.goodput_share is not None and self.percentile is not None:
            raise PydanticCustomError(
                "goodput_percentile", "goodputShare and percentile exclude each other; keep one"
            )
        if self.goodput_share is not None and not self.request_limits():
            raise PydanticCustomError(
                "goodput_limits", "goodputShare needs a latency target that requests can keep to; add one"
            )
        return self

    def request_limits(self) -> dict[LatencyName, float]:
        """Return the limits on latencies [ms], by metric."""
        limits: dict[LatencyName, float] = {}
        for metric in LATENCIES:
            limit = getattr(self, f"{metric}_ms")
            if limit:
                limits[metric] = limit
        if self.user_tps:
            limits["itl"] = min(limits.get("itl", inf), MS_PER_S / self.user_tps)
        return limits

    def latency_targets(self) -> Iterator[tuple[Measure, float]]:
        """Yield what each latency target measures, once, and its limit."""
        limits: dict[Measure, float] = {}
        if self.goodput_share is not None:
            limits[MISSED] = 1 - self.goodput_share
        else:
            for metric, limit in self.request_limits().items():
                limits[Measure(metric, self.percentile)] = limit
        for target in self.latency:
            limits[target.measure] = min(limits.get(target.measure, inf), target.limit_ms)
        yield from limits.items()


class ServiceClass(Document):
    """A class of service: its priority and its targets by model."""

    name: Name
    """Unique name."""
    priority: Priority = 100
    """1 (highest) … 100 (lowest)."""
    model_targets: tuple[ModelTarget, ...] = Field((), alias="modelTargets", strict=False, fail_fast=True)
    """Targets by model."""


class Load(Document):
    """The statistics of a server's traffic."""

    arrival_rate_rpm: RequestsPerMinute = Field(0.0, alias="arrivalRate")
    """Arrival rate [requests/min]."""
    throughput_rpm: RequestsPerMinute = Field(0.0, alias="throughput")
    """Measured throughput [requests/min]; kept, not used."""
    in_tokens: Tokens = Field(0.0, alias="avgInTokens")
    """Mean input length [tokens]."""
    out_tokens: Tokens = Field(0.0, alias="avgOutTokens")
    """Mean output length [tokens]."""
    arrival_cv: Coefficient = Field(1.0, alias="arrivalCV")
    """Coefficient of variation of the times between arrivals."""
    in_tokens_cv: Coefficient = Field(1.0, alias="inTokensCV")
    """Coefficient of variation of the input length."""
    out_tokens_cv: Coefficient = Field(1.0, alias="outTokensCV")
    """Coefficient of variation of the output length."""


class AllocationData(Document):
    """What a server runs on, in the reference's format."""

    accelerator: str = ""
    """The accelerator's name; empty for none."""
    num_replicas: Count = Field(0, alias="numReplicas")
    """Replicas."""
    max_batch: Count = Field(0, alias="maxBatch")
    """Batch limit of a replica."""
    cost_cents_per_h: Cost = Field(0.0, alias="cost")
    """Cost [cents/h]; 0 with replicas running: recomputed from the specs."""
    itl_ms: Milliseconds = Field(0.0, alias="itlAverage")
    """Mean inter-token latency [ms]."""
    ttft_ms: Milliseconds = Field(0.0, alias="ttftAverage")
    """Mean time to first token [ms]."""
    avg_concurrency: Quantity = Field(0.0, alias="avgConcurrency")
    """Measured requests in service; kept, not used."""
    load: Load = Load()
    """The traffic."""

    @property
    def is_running(self) -> bool:
        """Whether there are replicas on an accelerator."""
        return bool(self.accelerator) and self.num_replicas > 0


class Server(Document):
    """One model for one service class, to be placed."""

    name: Name
    """Unique name."""
    service_class: Name = Field("Free", alias="class")
    """The service class."""
    model: Name
    """The model."""
    keep_accelerator: bool = Field(default=False, alias="keepAccelerator")
    """Whether the current accelerator, where there is one, must stay."""
    min_num_replicas: Count = Field(0, alias="minNumReplicas")
    """Fewest replicas, also when idle."""
    max_num_replicas: PositiveCount | None = Field(None, alias="maxNumReplicas")
    """Most replicas."""
    max_batch_size: BatchSize = Field(0, alias="maxBatchSize")
    """Batch limit; 0: the profile's, scaled to the request length."""
    max_queue_size: Count | None = Field(None, alias="maxQueueSize")
    """Queue capacity: requests that may wait behind a full batch; none: 10 times the batch; 0: none wait."""
    batch_trigger: TriggerName = Field(
        "oldest", alias="batchTrigger", exclude_if=lambda trigger: trigger == "oldest"
    )
    """What starts a batch that is not full, of a model with `batchParms`."""
    batch_timeout_ms: Milliseconds = Field(0.0, alias="batchTimeout", exclude_if=lambda window: window == 0)
    """How long a batch is collected: the window [ms]."""
    batch_window: Literal["given", "optimal"] = Field(
        "given", alias="batchWindow", exclude_if=lambda choice: choice == "given"
    )
    """Whether the window is `batchTimeout`, or the best of it, a half, a quarter and none of it."""
    queue_counts: QueueCounts = Field(
        "waiting", alias="queueCounts", exclude_if=lambda counted: counted == "waiting"
    )
    """Whether `maxQueueSize` counts those who wait, or those in service as well; with `batchParms`."""
    stages: tuple[Stage, ...] = Field((), strict=False, exclude_if=lambda stages: not stages)
    """What requests pass before their batch, and after it, in each replica of a model with `batchParms`."""
    jobs: PositiveCount | None = Field(None, exclude_if=lambda jobs: jobs is None)
    """Requests that are in a replica at once, in its stages and its batch; the others wait before it, as in
    front of a worker that takes jobs from a queue; none: any number. With `batchParms`."""
    accelerators: tuple[Name, ...] | None = Field(None, strict=False, fail_fast=True)
    """The accelerators it may use; none: all."""
    current: AllocationData = Field(AllocationData(), alias="currentAlloc")
    """What it runs on now, and its load."""
    desired: AllocationData = Field(AllocationData(), alias="desiredAlloc")
    """What was last recommended; kept, not used."""

    @model_validator(mode="after")
    def _replica_range(self) -> "Server":
        if self.max_num_replicas is not None and self.max_num_replicas < self.min_num_replicas:
            raise PydanticCustomError(
                "replica_range",
                "maxNumReplicas {most} is below minNumReplicas {least}; raise the one or lower the other",
                {"most": self.max_num_replicas, "least": self.min_num_replicas},
            )
        return self


class Capacity(Document):
    """How many units of an accelerator type exist."""

    type: Name
    """The accelerator type."""
    count: Count
    """Units (cards)."""


SaturationPolicy = Literal["None", "PriorityExhaustive", "PriorityRoundRobin", "RoundRobin"]


def _known_policy(value: object) -> object:
    """Match the policy in any case; like the reference, take an empty one for None."""
    known: tuple[str, ...] = SaturationPolicy.__args__  # type: ignore[attr-defined]
    spelling = {name.lower(): name for name in known} | {"": "None"}
    return spelling.get(value.lower(), value) if isinstance(value, str) else value


class OptimizerOptions(Document):
    """How to choose."""

    unlimited: bool = False
    """Ignore the capacities."""
    heterogeneous: bool = False
    """Let a server's replicas be spread over several accelerators (mixed plan)."""
    milp_solver: bool = Field(default=True, alias="milpSolver")
    """Solve a limited problem exactly (MILP); false: greedily."""
    use_cplex: bool = Field(default=False, alias="useCplex")
    """Use CPLEX in place of HiGHS."""
    delayed_best_effort: bool = Field(default=False, alias="delayedBestEffort")
    """Give out what is left only after every priority level is solved."""
    saturation_policy: Annotated[SaturationPolicy, BeforeValidator(_known_policy)] = Field(
        "None", alias="saturationPolicy"
    )
    """Who gets partial service when not everything fits."""
    batch_sizing: Literal["profile", "optimal"] = Field("profile", alias="batchSizing")
    """Batch limits as in the profiles, or chosen."""
    gap: Share | None = None
    """Relative gap at which the solver may stop; none: 0 up to 2,000 columns of the model, then 1e-4."""
    time_limit_s: Seconds = Field(30.0, alias="timeLimit")
    """Time limit of the solve [s]."""
    transition_penalty: float = Field(0.1, alias="transitionPenalty", ge=0, le=1e6)
    """Factor on old plus new cost when a server changes its accelerator."""
    estimates: EstimateEnd = Field("upper", exclude_if=lambda end: end == "upper")
    """End of the interval of estimated profiles to plan with: slow and small, middle, or fast and large."""
    max_loss: MaxLoss | None = Field(None, alias="maxLoss")
    """Largest share of requests that may find the queue of a replica full, `none` for any; absent: 0.001 for
    servers that state `maxQueueSize`, any for others."""


class SystemSpec(Document):
    """A complete system, or the part of one that a file of a directory holds."""

    accelerators: tuple[Accelerator, ...] = Field((), strict=False, fail_fast=True)
    """The accelerators that can be bought."""
    models: tuple[ModelProfile, ...] = Field((), strict=False, fail_fast=True)
    """Profiles: every model on every accelerator that it can run on."""
    service_classes: tuple[ServiceClass, ...] = Field(
        (), alias="serviceClasses", strict=False, fail_fast=True
    )
    """The service classes with their targets."""
    servers: tuple[Server, ...] = Field((), strict=False, fail_fast=True)
    """The servers to be placed, with their loads."""
    count: tuple[Capacity, ...] = Field((), strict=False, fail_fast=True)
    """Units by accelerator type; in limited mode a type that is not listed has none."""
    optimizer: OptimizerOptions = OptimizerOptions()
    """How to choose."""
