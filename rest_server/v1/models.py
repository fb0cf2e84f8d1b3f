"""The documents of /v1 that the library has none of: requests, answers, lists, the last plan."""

from typing import Any

from pydantic import AwareDatetime, Field, RootModel

from optimizer.documents import Count, Document, RequestsPerMinute, RequestsPerSecond, Tokens, is_none
from optimizer.jobs.comparing import CompareOptions as CompareOptions
from optimizer.jobs.explaining import ExplainOptions as ExplainOptions
from optimizer.jobs.figures import FigureOptions as FigureOptions
from optimizer.jobs.reporting import ReportOptions as ReportOptions
from optimizer.jobs.requests import ExactOptions as ExactOptions
from optimizer.jobs.requests import PlanOptions as PlanOptions
from optimizer.jobs.requests import SizingOptions as SizingOptions
from optimizer.jobs.simulating import EffortOptions as EffortOptions
from optimizer.jobs.simulating import SimulateOptions as SimulateOptions
from optimizer.kinds.replicas import LatencyTargets, Replica, ReplicaPerformance, ReplicaSizing
from optimizer.plan import Plan
from optimizer.spec.schema import (
    Accelerator,
    Capacity,
    EstimateEnd,
    ModelProfile,
    OptimizerOptions,
    Route,
    Server,
    ServiceClass,
)

MAX_ITEMS = 1_000
"""Maximum number of replicas in one request to analyse or to size."""


class WrappedSystem(Document):
    """A system document in the reference's wrappers."""

    system: dict[str, dict[str, Any]]
    """`acceleratorData`, `modelData`, `serviceClassData`, `serverData`, `capacityData`, `optimizerData`."""


class OtherSide(Document):
    """Other side of a comparison."""

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
    """Reason, with numbers."""


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
    estimated: EstimateEnd | None = Field(None, exclude_if=is_none)
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


class LoadUpdate(Document):
    """The load of a server, and its replicas, or the rate of a route; omitted values stay as they are."""

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


LoadChange = LoadUpdate
"""Earlier name of `LoadUpdate`."""


class LoadSnapshot(RootModel[dict[str, LoadUpdate]]):
    """Loads by server and by route; servers of a route have no load of their own."""


class LastPlan(Plan):
    """The last plan, with its age and the revision of the fleet that it is for."""

    age_s: float = Field(alias="age")
    """Time since it was made [s]."""
    revision: int
    """Revision of the fleet that it is for; later ones have changed since."""


class TargetAnswer(Document):
    """Desired replicas of a server on an accelerator."""

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
    """Time at which the plan was made."""
    age_s: float = Field(alias="ageSeconds")
    """Time since then [s]."""
    revision: int
    """Revision of the fleet that the plan is for."""
    reason: str
    """Reason for the number."""
    held: bool
    """Whether the plan says another number."""
    detail: str
    """Condition that a held number waits for."""


class TargetList(Document):
    """Desired replicas of every server."""

    targets: tuple[TargetAnswer, ...] = Field(strict=False)
    """Every server on every accelerator that it can run on."""


class FleetEvent(Document):
    """A change of the fleet, or a plan that was kept."""

    revision: int
    """Revision of the fleet after it."""
    made_at: AwareDatetime = Field(alias="at", strict=False)
    """Time of the change."""
    cause: str
    """`change`, `loads`, `plan`, `applied`, `imported`, or `fleet`: `/optimizeOne` brought another one."""
    changed: dict[str, int] = Field(default_factory=dict)
    """Items that were added, replaced or removed, by section of the documents."""
    names: tuple[str, ...] = Field((), strict=False)
    """Names of the changed items, if they are few: `servers/chat`."""
    plan: dict[str, Any] = Field(default_factory=dict)
    """For a plan: its `revision`, its `status`, `totalCost`, whether it is `complete`, and how
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


class RouteList(Document):
    """All routes of requests between a small and a large model."""

    routes: tuple[Route, ...] = Field(strict=False)
    """In the order in which they came."""


class CapacityList(Document):
    """All capacities."""

    count: tuple[Capacity, ...] = Field(strict=False)
    """In the order in which they came."""
