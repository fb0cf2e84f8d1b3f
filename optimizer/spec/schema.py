"""The documents as immutable pydantic models: one schema for YAML, JSON, Python and REST.

Wire names are the reference family's (``arrivalRate``) and are matched in any case; Python names carry the
unit (``arrival_rate_rpm``). Unknown keys, wrong types, NaN and infinity are errors with their path.
"""

from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

MAX_BATCH_LIMIT = 1_000_000
"""Largest batch that is analysed; a queue's table has one entry per batch."""
MAX_COUNT = 1_000_000_000
"""Largest count of replicas, units or accelerators in any document."""
MAX_TOKENS = 100_000_000
MAX_QUANTITY = 1e15
"""Largest rate, time, cost or memory: far beyond any real one, and sums of them stay exact enough."""


def _whole(value: object) -> object:
    """Let 1024.0 pass where a whole number is meant; other floats are refused by the strict check."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Name = Annotated[str, Field(min_length=1, max_length=253)]
Quantity = Annotated[float, Field(ge=0, le=MAX_QUANTITY)]
Tokens = Annotated[float, Field(ge=0, le=MAX_TOKENS)]
AnswerTokens = Annotated[float, Field(ge=1, le=MAX_TOKENS)]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT), BeforeValidator(_whole)]
PositiveCount = Annotated[int, Field(ge=1, le=MAX_COUNT), BeforeValidator(_whole)]
SliceCount = Annotated[int, Field(ge=1, le=10_000), BeforeValidator(_whole)]
BatchLimit = Annotated[int, Field(ge=1, le=MAX_BATCH_LIMIT), BeforeValidator(_whole)]
BatchSize = Annotated[int, Field(ge=0, le=MAX_BATCH_LIMIT), BeforeValidator(_whole)]
Priority = Annotated[int, Field(ge=1, le=100), BeforeValidator(_whole)]
Coefficient = Annotated[float, Field(ge=0, le=100)]


class Document(BaseModel):
    """Base of every document: frozen, strict, no unknown keys, keys in any case."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _match_keys_in_any_case(cls, data: Any) -> Any:
        """Spell the keys as the wire does, and drop those that are null: null means absent."""
        if not isinstance(data, dict):
            return data
        known = _wire_names(cls)
        if data.keys() <= known.exact and None not in data.values():
            return data
        matched: dict[Any, Any] = {}
        for key, value in data.items():
            name = str(key)
            name = known.any_case.get(name) or known.any_case.get(name.lower(), name)
            if name in matched:
                raise PydanticCustomError("duplicate_key", "key {key} occurs twice", {"key": repr(name)})
            if value is not None:
                matched[name] = value
        return matched


class _WireNames(NamedTuple):
    """The wire names of a document's fields."""

    exact: frozenset[str]
    any_case: dict[str, str]
    """By lower-case, exact and Python spelling."""


@cache
def _wire_names(model: type[BaseModel]) -> _WireNames:
    names: dict[str, str] = {}
    for name, field in model.model_fields.items():
        wire = field.alias or name
        names |= {wire: wire, wire.lower(): wire}
    for name, field in model.model_fields.items():
        names.setdefault(name, field.alias or name)
    return _WireNames(frozenset(names.values()), names)


class Power(Document):
    """Power curve of an accelerator: piecewise linear in the utilisation."""

    idle_w: Quantity = Field(0.0, alias="idle")
    """Power when idle [W]."""
    full_w: Quantity = Field(0.0, alias="full")
    """Power at full utilisation [W]."""
    mid_power_w: Quantity = Field(0.0, alias="midPower")
    """Power at the inflection point [W]."""
    mid_utilization: float = Field(0.0, alias="midUtil", ge=0, le=1)
    """Utilisation at the inflection point, 0 … 1."""


class Accelerator(Document):
    """A purchasable slice: one or more cards of one type (``4xA100``)."""

    name: Name
    """Unique name."""
    type: Name
    """The kind in stock; capacities are counted per type."""
    multiplicity: SliceCount = 1
    """Cards (units of the type) in the slice."""
    memory_gb: Quantity = Field(0.0, alias="memSize")
    """Memory of the slice [GB]."""
    memory_bandwidth_gb_per_s: Quantity = Field(0.0, alias="memBW")
    """Memory bandwidth of the slice [GB/s]."""
    power: Power = Power()
    """Power curve."""
    cost_cents_per_h: Quantity = Field(0.0, alias="cost")
    """Price of the slice [cents/h]."""


class DecodeParms(Document):
    """Decode step of the linear law: α + β·batch."""

    base_ms: Quantity = Field(0.0, alias="alpha")
    """α [ms]."""
    per_request_ms: Quantity = Field(0.0, alias="beta")
    """β [ms per request in the batch]."""


class PrefillParms(Document):
    """Prefill of the linear law: γ + δ·prompt tokens·batch."""

    base_ms: Quantity = Field(0.0, alias="gamma")
    """γ [ms]."""
    per_token_ms: Quantity = Field(0.0, alias="delta")
    """δ [ms per prompt token and request in the batch]."""


class PerfParms(Document):
    """Iteration law: α + β·(tokens computed) + γ·(KV tokens read)."""

    base_ms: Quantity = Field(0.0, alias="alpha")
    """α [ms]."""
    compute_per_token_ms: Quantity = Field(0.0, alias="beta")
    """β [ms per token computed]."""
    kv_read_per_token_ms: Quantity = Field(0.0, alias="gamma")
    """γ [ms per token of KV cache read]."""


class ModelProfile(Document):
    """One model on one accelerator: how many slices a replica takes, its batch limit and token times."""

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
    decode: DecodeParms | None = Field(None, alias="decodeParms")
    """Linear law, decode."""
    prefill: PrefillParms | None = Field(None, alias="prefillParms")
    """Linear law, prefill."""
    iteration: PerfParms | None = Field(None, alias="perfParms")
    """Iteration law; excludes the linear one."""
    kv_capacity_tokens: Count | None = Field(None, alias="kvCapacity")
    """Tokens of KV cache of one replica; caps the batch at this over the tokens of a request."""
    max_num_tokens: PositiveCount = Field(8192, alias="maxNumTokens")
    """Token budget of one iteration (chunked prefill; iteration law)."""
    queue_model: Literal["reference"] = Field("reference", alias="queueModel")
    """Performance model of the candidates: the law's own birth-death queue."""

    @property
    def is_linear(self) -> bool:
        """Whether the profile gives a linear law with any non-zero parameter."""
        decode, prefill = self.decode, self.prefill
        return (decode is not None and (decode.base_ms > 0 or decode.per_request_ms > 0)) or (
            prefill is not None and (prefill.base_ms > 0 or prefill.per_token_ms > 0)
        )

    @property
    def is_iteration(self) -> bool:
        """Whether the profile gives an iteration law with any non-zero parameter."""
        law = self.iteration
        return law is not None and (
            law.base_ms > 0 or law.compute_per_token_ms > 0 or law.kv_read_per_token_ms > 0
        )

    @model_validator(mode="after")
    def _one_law(self) -> "ModelProfile":
        if self.is_linear and self.is_iteration:
            raise PydanticCustomError(
                "two_laws", "both decodeParms/prefillParms and perfParms are given; keep one of the two laws"
            )
        return self


class ModelTarget(Document):
    """Service-level targets of a model in a service class; 0 means no target."""

    model: Name
    """The model."""
    itl_ms: Quantity = Field(0.0, alias="slo-itl")
    """Inter-token latency [ms]."""
    ttft_ms: Quantity = Field(0.0, alias="slo-ttft")
    """Time to first token [ms]."""
    tps: Quantity = Field(0.0, alias="slo-tps")
    """Token throughput [tokens/s]; replaces the arrival rate as the load."""
    percentile: float | None = Field(None, gt=0, lt=100)
    """Percentile at which the latency targets must hold; none: the mean."""


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

    arrival_rate_rpm: Quantity = Field(0.0, alias="arrivalRate")
    """Arrival rate [requests/min]."""
    throughput_rpm: Quantity = Field(0.0, alias="throughput")
    """Measured throughput [requests/min]; kept, not used."""
    in_tokens: Tokens = Field(0.0, alias="avgInTokens")
    """Mean prompt length [tokens]."""
    out_tokens: Tokens = Field(0.0, alias="avgOutTokens")
    """Mean answer length [tokens]."""
    arrival_cv: Coefficient = Field(1.0, alias="arrivalCV")
    """Coefficient of variation of the times between arrivals."""
    in_tokens_cv: Coefficient = Field(1.0, alias="inTokensCV")
    """Coefficient of variation of the prompt length."""
    out_tokens_cv: Coefficient = Field(1.0, alias="outTokensCV")
    """Coefficient of variation of the answer length."""


class AllocationData(Document):
    """What a server runs on, in the reference's format."""

    accelerator: str = ""
    """The accelerator's name; empty for none."""
    num_replicas: Count = Field(0, alias="numReplicas")
    """Replicas."""
    max_batch: Count = Field(0, alias="maxBatch")
    """Batch limit of a replica."""
    cost_cents_per_h: Quantity = Field(0.0, alias="cost")
    """Cost [cents/h]; 0 with replicas running: recomputed from the specs."""
    itl_ms: Quantity = Field(0.0, alias="itlAverage")
    """Mean inter-token latency [ms]."""
    ttft_ms: Quantity = Field(0.0, alias="ttftAverage")
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
    """Room to wait behind a full batch of a replica; none: 10 times the batch; 0 loses what finds it full."""
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
    gap: float | None = Field(None, ge=0, le=1)
    """Relative gap at which the solver may stop; none: 0 up to 2,000 columns, then 1e-4."""
    time_limit_s: float = Field(30.0, alias="timeLimit", gt=0, le=1e6)
    """Time for the whole solve [s]."""
    transition_penalty: float = Field(0.1, alias="transitionPenalty", ge=0, le=1e6)
    """Factor on old plus new cost when a server changes its accelerator."""


class SystemSpec(Document):
    """A whole system, or the part of one that a file of a directory holds."""

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
