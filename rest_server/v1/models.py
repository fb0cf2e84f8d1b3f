"""The documents of /v1 that the library has none of: requests, answers, lists, the last plan."""

from dataclasses import replace
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, RootModel

from optimizer.documents import Count, Document, RequestsPerMinute, RequestsPerSecond, Tokens
from optimizer.jobs import SolveOptions
from optimizer.kinds.replicas import LatencyTargets, Replica, ReplicaPerformance, ReplicaSizing
from optimizer.plan import Plan
from optimizer.simulation.replicas import DEFAULT_REQUESTS, DEFAULT_SEED, MAX_REQUESTS
from optimizer.simulation.summary import MIN_REQUESTS
from optimizer.spec.schema import (
    Accelerator,
    AnyCasePolicy,
    Capacity,
    EstimateEnd,
    ModelProfile,
    OptimizerOptions,
    Server,
    ServiceClass,
)
from optimizer.studies.figures.kinds import KINDS

MAX_ITEMS = 1_000
"""Most replicas in one request to analyse or to size."""


class SizingOptions(BaseModel):
    """Options in place of the document's that decide what a replica can take."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    batch_sizing: Literal["profile", "optimal"] | None = None
    """The profiles' batch limits, or chosen ones."""
    estimates: EstimateEnd | None = None
    """End of the interval of estimated token times to plan with: slow, the middle, or fast."""

    def solve(self) -> SolveOptions:
        """Return the options for solving that are given."""
        return SolveOptions(batch_sizing=self.batch_sizing, estimates=self.estimates)

    def given(self) -> dict[str, object]:
        """Return the options that are given, by their Python names in the documents.

        Raises:
            SpecError: they contradict each other.
        """
        return self.solve().given()


class ExactOptions(SizingOptions):
    """Options in place of the document's, where the exact solver is used in any case."""

    unlimited: bool | None = None
    """Ignore the capacities."""
    mixed: bool | None = None
    """Let a server run on several accelerators."""
    gap: float | None = Field(None, ge=0, le=1)
    """Relative gap at which the solver may stop."""
    time_limit: float | None = Field(None, gt=0, le=1e6)
    """Time for a solve [s]; the request as a whole has the time that the service gives one."""
    saturation: AnyCasePolicy | None = None
    """Who is served in part if not everything fits: a saturation policy."""

    def solve(self) -> SolveOptions:
        """Return the options for solving that are given."""
        return replace(
            super().solve(),
            unlimited=self.unlimited,
            mixed=self.mixed,
            gap=self.gap,
            time_limit_s=self.time_limit,
            saturation=self.saturation,
        )


class PlanOptions(ExactOptions):
    """Options in place of the document's."""

    solver: Literal["milp", "greedy"] | None = None
    """Exact, or the greedy baseline."""

    def solve(self) -> SolveOptions:
        """Return the options for solving that are given."""
        return replace(super().solve(), solver=self.solver)


class ExplainOptions(ExactOptions):
    """What to explain, and options in place of the document's."""

    server: str | None = None
    """The server to explain in depth; none: all, and the accelerator types."""


class CompareOptions(PlanOptions):
    """A change of the load, and options in place of the document's."""

    scale: float | None = Field(None, ge=0, le=1e6, allow_inf_nan=False)
    """After: every arrival rate times this."""
    random_load: int | None = Field(None, ge=0, lt=2**64)
    """After: rates times 0.5 … 1.5 and token lengths times 0.8 … 1.2 at random, from this seed."""


class EffortOptions(PlanOptions):
    """How much to simulate, and options in place of the document's."""

    requests: int = Field(DEFAULT_REQUESTS, ge=MIN_REQUESTS, le=MAX_REQUESTS)
    """Requests to the replica of each pool."""
    seed: int = Field(DEFAULT_SEED, ge=0, lt=2**64)
    """Where chance begins."""


class SimulateOptions(EffortOptions):
    """What to simulate."""

    repair: bool = False
    """Plan again until pools keep their targets; the answer is then the plan with its simulation."""


class ReportOptions(EffortOptions):
    """In what form to answer, and options in place of the document's."""

    simulate: bool = False
    """Add a section: predicted beside simulated figures."""

    format: Literal["json", "html", "markdown", "csv"] = "json"
    """The numbers, one page with its pictures inside, the same without pictures, or a row for each pool."""


class FigureOptions(CompareOptions):
    """What to show and in what form, a change of the load, and options in place of the document's."""

    kind: str = Field("plan", json_schema_extra={"enum": list(KINDS)})
    """What to show: one of the kinds of `inferplan plot`."""
    format: Literal["json", "svg", "png", "pdf"] = "json"
    """The numbers that are shown, or the picture."""
    server: str | None = None
    """The server, for a kind that shows one."""
    accelerator: str | None = None
    """The accelerator, for a kind that shows one server; by default the plan's, or all."""


class WrappedSystem(Document):
    """A system document in the reference's wrappers."""

    system: dict[str, dict[str, Any]]
    """`acceleratorData`, `modelData`, `serviceClassData`, `serverData`, `capacityData`, `optimizerData`."""


class OtherSide(Document):
    """What to compare a system or a plan with."""

    second: dict[str, Any] | None = None
    """The other system or plan; without it the first system, with other options or another load."""
    second_options: OptimizerOptions | None = Field(None, alias="secondOptions")
    """Options of the second side alone."""
    transition: bool = False
    """Whether the second system follows the first in time: what the first plan says is then what runs."""


class TwoSides(OtherSide):
    """Two systems or plans to compare."""

    first: dict[str, Any]
    """A system, which is planned, or a plan as it is."""


class Analysis(Document):
    """A replica, and the rate at which to analyse it."""

    replica: Replica
    """The replica."""
    rate_rps: RequestsPerSecond = Field(alias="rate")
    """Arrival rate [requests/s]."""


class Analyses(Document):
    """Several replicas to analyse."""

    items: tuple[Analysis, ...] = Field(strict=False, fail_fast=True, max_length=MAX_ITEMS)
    """The replicas with their rates."""


class Performances(Document):
    """Answers to several analyses, in their order."""

    items: tuple[ReplicaPerformance, ...] = Field(strict=False)
    """One for each replica."""


class SizingProblem(Document):
    """A replica, and the targets that it must meet."""

    replica: Replica
    """The replica."""
    targets: LatencyTargets = LatencyTargets()
    """Its targets."""


class SizingProblems(Document):
    """Several replicas to size."""

    items: tuple[SizingProblem, ...] = Field(strict=False, fail_fast=True, max_length=MAX_ITEMS)
    """The replicas with their targets."""


class Unattainable(Document):
    """The answer for a replica that misses its targets at every rate."""

    message: str
    """Why, in numbers."""


class Sizings(Document):
    """Answers to several sizings, in their order."""

    items: tuple[ReplicaSizing | Unattainable, ...] = Field(strict=False)
    """One for each replica."""


class CandidateColumn(Document):
    """A server on an accelerator, with what it takes there."""

    server: str
    """The server."""
    accelerator: str
    """The accelerator's name."""
    num_replicas: int = Field(alias="numReplicas")
    """Replicas."""
    max_batch: int = Field(alias="maxBatch")
    """Batch limit of a replica."""
    max_rate_rpm: float = Field(alias="maxArrivalRatePerReplica")
    """Largest rate of a replica that meets every target [requests/min]."""
    itl_ms: float = Field(alias="itlAverage")
    """Mean inter-token latency at the load [ms]."""
    ttft_ms: float = Field(alias="ttftAverage")
    """Mean time to first token at the load [ms]."""
    utilization: float
    """Mean batch over the batch limit."""
    loss: float
    """Share of requests that find the queue full."""
    batch_ceiling: int = Field(alias="batchCeiling")
    """Largest batch that was allowed."""
    best_rate_rpm: float = Field(alias="bestArrivalRatePerReplica")
    """Largest rate over all batches up to the ceiling [requests/min]."""
    type: str
    """The accelerator type."""
    units: int
    """Units of the type."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost [cents/h]."""
    estimated: EstimateEnd | None = Field(None, exclude_if=lambda end: end is None)
    """The end of the interval that its figures rest on, where token times are estimated; else absent."""


class RejectedPair(Document):
    """A server on an accelerator that is no candidate, and why."""

    server: str
    """The server."""
    accelerator: str
    """The accelerator's name."""
    reason: str
    """One of a closed set."""
    detail: str
    """The reason in numbers."""
    value: float | None
    """The number compared, if any."""
    limit: float | None
    """The limit that it was compared with, if any."""


class CandidateAnswer(Document):
    """Every pair of server and accelerator: a candidate, or rejected."""

    candidates: tuple[CandidateColumn, ...] = Field(strict=False)
    """The candidates."""
    rejections: tuple[RejectedPair, ...] = Field(strict=False)
    """The pairs that are none."""


class ReplicaCount(Document):
    """Replicas of a server on one accelerator that are there."""

    ready: Count
    """Replicas that answer."""
    pending: Count = 0
    """Replicas that have been asked for and do not answer yet."""


class LoadChange(Document):
    """The load of a server, and its replicas; what is not given stays as it is."""

    arrival_rate_rpm: RequestsPerMinute | None = Field(None, alias="arrivalRate")
    """Arrival rate [requests/min]; below 1e-12 it is read as 0."""
    in_tokens: Tokens | None = Field(None, alias="avgInTokens")
    """Mean input length [tokens]."""
    out_tokens: Tokens | None = Field(None, alias="avgOutTokens")
    """Mean output length [tokens]."""
    throughput_rpm: RequestsPerMinute | None = Field(None, alias="throughput")
    """Measured throughput [requests/min]; kept, not used."""
    replicas: dict[str, ReplicaCount] | None = None
    """Replicas that are there, by accelerator; those that are not named are none. They become what the server
    runs on: with several accelerators the one with most replicas."""


class LoadSnapshot(RootModel[dict[str, LoadChange]]):
    """Loads by server."""


class LastPlan(Plan):
    """The last plan, with its age and the revision of the fleet that it is for."""

    age_s: float = Field(alias="age")
    """Time since it was made [s]."""
    revision: int
    """Revision of the fleet that it is for; later ones have changed since."""


class TargetAnswer(Document):
    """How many replicas are desired of a server on an accelerator."""

    target: str
    """Server and accelerator."""
    server: str
    """The server."""
    accelerator: str
    """The accelerator's name."""
    desired_replicas: int = Field(alias="desiredReplicas")
    """Desired replicas."""
    current_replicas: int = Field(alias="currentReplicas")
    """Replicas that are there, as last reported, or as the fleet has them."""
    max_batch_size: int = Field(alias="maxBatchSize")
    """Batch limit of a replica; 0 where there is none."""
    generated_at: AwareDatetime = Field(alias="generatedAt", strict=False)
    """When the plan was made."""
    age_s: float = Field(alias="ageSeconds")
    """Time since then [s]."""
    revision: int
    """Revision of the fleet that the plan is for."""
    reason: str
    """Why this number."""
    held: bool
    """Whether the plan says another number."""
    detail: str
    """What a held number waits for."""


class TargetList(Document):
    """What is desired of every server."""

    targets: tuple[TargetAnswer, ...] = Field(strict=False)
    """Every server on every accelerator that it can run on."""


class FleetEvent(Document):
    """A change of the fleet, or a plan that was kept."""

    revision: int
    """Revision of the fleet after it."""
    made_at: AwareDatetime = Field(alias="at", strict=False)
    """When."""
    cause: str
    """`change`, `loads`, `plan`, `applied`, `imported`, or `fleet`: `/optimizeOne` brought another one."""
    changed: dict[str, int] = Field(default_factory=dict)
    """Items that were added, replaced or removed, by section of the documents."""
    names: tuple[str, ...] = Field((), strict=False)
    """Which, as far as they are few: `servers/chat`."""
    plan: dict[str, Any] = Field(default_factory=dict)
    """Of a plan the `revision` that it is for, its `status`, `totalCost`, whether it is `complete`, and how
    many servers it does not serve in full (`unserved`) and changes (`changes`)."""


class FleetHistory(Document):
    """The last changes and plans of the fleet."""

    events: tuple[FleetEvent, ...] = Field(strict=False)
    """The newest first."""
    plans: tuple[int, ...] = Field(strict=False)
    """Revisions of the plans that can be read, the newest first."""


class AcceleratorList(Document):
    """All accelerators."""

    accelerators: tuple[Accelerator, ...] = Field(strict=False)
    """In the order in which they came."""


class ModelList(Document):
    """All model profiles."""

    models: tuple[ModelProfile, ...] = Field(strict=False)
    """In the order in which they came."""


class ServiceClassList(Document):
    """All service classes."""

    service_classes: tuple[ServiceClass, ...] = Field(alias="serviceClasses", strict=False)
    """In the order in which they came."""


class ServerList(Document):
    """All servers."""

    servers: tuple[Server, ...] = Field(strict=False)
    """In the order in which they came."""


class CapacityList(Document):
    """All capacities."""

    count: tuple[Capacity, ...] = Field(strict=False)
    """In the order in which they came."""
