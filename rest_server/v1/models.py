"""Documents of /v1 that the library does not have: requests, responses, lists, and the last plan."""

from operator import not_
from typing import Annotated, Any

from pydantic import AwareDatetime, Field, RootModel

from optimizer.documents import (
    Count,
    Document,
    OutputDocument,
    RequestsPerMinute,
    RequestsPerSecond,
    Share,
    Tokens,
    is_none,
)
from optimizer.jobs.comparing import CompareOptions as CompareOptions
from optimizer.jobs.effort import EffortOptions as EffortOptions
from optimizer.jobs.explaining import ExplainOptions as ExplainOptions
from optimizer.jobs.figures import FigureOptions as FigureOptions
from optimizer.jobs.reporting import ReportOptions as ReportOptions
from optimizer.jobs.requests import ExactOptions as ExactOptions
from optimizer.jobs.requests import PlanOptions as PlanOptions
from optimizer.jobs.requests import SizingOptions as SizingOptions
from optimizer.jobs.simulating import SimulateOptions as SimulateOptions
from optimizer.kinds.replicas import LatencyTargets, Replica, ReplicaPerformance, ReplicaSizing
from optimizer.plan import Plan
from optimizer.plan.document import Warned
from optimizer.schema import (
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
"""Maximum number of replicas in one request to analyse or size."""


class WrappedSystem(Document):
    """A system document in the wrappers of llm-inferno."""

    system: dict[str, dict[str, Any]]
    """Sections of the system, each in its own wrapper: `acceleratorData`, `modelData`, `serviceClassData`,
    `serverData`, `capacityData`, `optimizerData`.
    """


class OtherSide(Document):
    """The other side of a comparison."""

    second: dict[str, Any] | None = None
    """The other system or plan; absent: the first system, with other options or another load."""
    second_options: OptimizerOptions | None = Field(None, alias="secondOptions")
    """Optimizer options of the second side only."""
    transition: bool = False
    """Whether the second system follows the first in time, so that the first plan is running."""


class TwoSides(OtherSide):
    """Two systems or plans to compare."""

    first: dict[str, Any]
    """A system to plan, or a plan."""


class Analysis(Document):
    """A replica, and the arrival rate at which to analyse it."""

    replica: Replica
    """The replica to analyse."""
    rate_rps: RequestsPerSecond = Field(alias="rate")
    """Arrival rate [requests/s]."""


class Analyses(Document):
    """Several replicas to analyse in one request."""

    items: tuple[Analysis, ...] = Field(strict=False, fail_fast=True, max_length=MAX_ITEMS)
    """The replicas with their arrival rates."""


class Performances(Document):
    """Performance of several replicas, in the order of the request."""

    items: tuple[ReplicaPerformance, ...] = Field(strict=False)
    """One result per replica."""


class SizingProblem(Document):
    """A replica to size, and the targets that it must meet."""

    replica: Replica
    """The replica to size."""
    targets: LatencyTargets = LatencyTargets()
    """Targets of the replica."""


class SizingProblems(Document):
    """Several replicas to size in one request."""

    items: tuple[SizingProblem, ...] = Field(strict=False, fail_fast=True, max_length=MAX_ITEMS)
    """The replicas with their targets."""


class Unattainable(Document):
    """Result for a replica that misses its targets at every rate."""

    message: str
    """Reason that no rate meets the targets, with numbers."""


class Sizings(Document):
    """Sizing results of several replicas, in the order of the request."""

    items: tuple[ReplicaSizing | Unattainable, ...] = Field(strict=False)
    """One result per replica."""


class CandidateColumn(OutputDocument):
    """A candidate: a server on an accelerator, with its replicas, cost and performance."""

    server: str
    """Name of the server."""
    accelerator: str
    """Name of the accelerator."""
    num_replicas: int
    """Number of replicas."""
    max_batch: int
    """Batch limit of a replica [requests]."""
    max_rate_rpm: float
    """Maximum rate of a replica that meets every target [requests/min]."""
    itl_ms: float
    """Mean inter-token latency at the load [ms]."""
    ttft_ms: float
    """Mean time to first token at the load [ms]."""
    utilization: float
    """Mean batch divided by the batch limit."""
    loss: float
    """Fraction of requests rejected because the queue is full."""
    batch_ceiling: int
    """Largest batch limit that is allowed [requests]."""
    best_rate_rpm: float
    """Maximum rate of a replica over all batch limits up to `batchCeiling` [requests/min]."""
    type: str
    """Accelerator type."""
    units: int
    """Number of cards of the type."""
    cost_cents_per_h: float
    """Cost of all replicas [cents/h]."""
    estimated: EstimateEnd | None = Field(None, exclude_if=is_none)
    """End of the interval of estimated token times that was used; absent if token times are not estimated."""


class RejectedPair(OutputDocument):
    """A pair of server and accelerator that cannot serve, with the reason."""

    server: str
    """Name of the server."""
    accelerator: str
    """Name of the accelerator."""
    reason: str
    """Code of the reason."""
    detail: str
    """The reason as text with numbers."""
    value: float | None
    """Number that breaks a limit; null if no numbers were compared."""
    limit: float | None
    """Limit with which the number was compared; null if no numbers were compared."""


class CandidateAnswer(Warned):
    """All pairs of server and accelerator: candidates and rejected pairs."""

    candidates: tuple[CandidateColumn, ...] = Field(strict=False)
    """Pairs that can serve."""
    rejections: tuple[RejectedPair, ...] = Field(strict=False)
    """Pairs that cannot serve."""


class ReplicaCount(Document):
    """Number of existing replicas of a server on one accelerator."""

    ready: Count
    """Number of existing replicas that respond."""
    pending: Count = 0
    """Number of requested replicas that do not respond yet."""


class ShapeUpdate(Document):
    """New share and hit rate of a request shape; omitted values do not change."""

    share: Share | None = None
    """Fraction of the requests that have this shape."""
    prefix_hit_rate: Share | None = Field(None, alias="prefixHitRate")
    """Fraction of the requests of this shape that find its prefix in the cache."""


class LoadUpdate(Document):
    """New load and replicas of a server, or new rate of a route; omitted values do not change."""

    arrival_rate_rpm: RequestsPerMinute | None = Field(None, alias="arrivalRate")
    """Arrival rate [requests/min]; values below 1e-12 are read as 0."""
    in_tokens: Tokens | None = Field(None, alias="avgInTokens")
    """Mean input length [tokens]."""
    out_tokens: Tokens | None = Field(None, alias="avgOutTokens")
    """Mean output length [tokens]."""
    throughput_rpm: RequestsPerMinute | None = Field(None, alias="throughput")
    """Measured throughput [requests/min]; stored but not used."""
    prefix_hit_rate: Share | None = Field(None, alias="prefixHitRate")
    """Fraction of the requests that find the prefix in the cache, for a load without shapes."""
    shapes: dict[str, ShapeUpdate] | None = None
    """New shares and hit rates of request shapes by name, for a load with shapes instead of lengths; the
    shares of all shapes must sum to 1.
    """
    replicas: dict[str, ReplicaCount] | None = None
    """Existing replicas by accelerator; accelerators that are not listed have none. They become the current
    allocation; if there are several accelerators, the one with the most replicas does.
    """


LoadChange = LoadUpdate
"""Earlier name of `LoadUpdate`."""


class LoadSnapshot(RootModel[dict[str, LoadUpdate]]):
    """Loads by name of server or route; servers of a route have no separate load."""


class MissingLoadNote(Document):
    """A server whose load lacks values, and what the plan does without them."""

    server: str
    """Name of the server."""
    values: tuple[str, ...] = Field(strict=False)
    """Names of the missing values: `arrivalRate`, `avgInTokens`, `avgOutTokens`."""
    detail: str
    """What the plan does without them."""


class LoadsAnswer(Plan):
    """The plan for a snapshot of loads, and the loads of which a part is missing."""

    missing_loads: tuple[MissingLoadNote, ...] = Field(
        (), alias="missingLoads", exclude_if=not_, strict=False
    )
    """Servers whose load lacks values, with what the plan does without them; absent if there are none."""

    @classmethod
    def of(cls, plan: Plan, missing: tuple[MissingLoadNote, ...]) -> "LoadsAnswer":
        """Return the answer with a plan."""
        return cls.model_construct(**dict(plan), missing_loads=missing)

    @property
    def plan(self) -> Plan:
        """The plan alone."""
        return Plan.model_construct(**{name: getattr(self, name) for name in Plan.model_fields})


class LastPlan(Plan):
    """The last plan, with its age and the revision of the fleet for which it was made."""

    age_s: float = Field(alias="ageSeconds")
    """Age of the plan [s]."""
    revision: int
    """Revision of the fleet for which the plan was made; later revisions have changed since."""


class TargetAnswer(Document):
    """Desired replicas of a server on an accelerator."""

    target: str
    """Name of the target, composed of server and accelerator."""
    server: str
    """Name of the server."""
    accelerator: str
    """Name of the accelerator."""
    desired_replicas: int = Field(alias="desiredReplicas")
    """Number of replicas that should run."""
    current_replicas: int = Field(alias="currentReplicas")
    """Number of existing replicas as last reported, or else in the current allocation."""
    max_batch_size: int = Field(alias="maxBatchSize")
    """Batch limit of a replica [requests]; 0 if there is none."""
    generated_at: AwareDatetime = Field(alias="generatedAt", strict=False)
    """Time at which the plan was made."""
    age_s: float = Field(alias="ageSeconds")
    """Age of the plan [s]."""
    load_age_s: float | None = Field(None, alias="loadAgeSeconds", exclude_if=is_none)
    """Time since the arrival rate was last sent, in a snapshot or a document [s]; the oldest one of a shared
    queue. Absent for shared cards and offline work.
    """
    revision: int
    """Revision of the fleet for which the plan was made."""
    reason: str
    """Code of the reason for the desired number."""
    held: bool
    """Whether the number differs from the plan."""
    detail: str
    """Explanation of a held number; empty if it is not held."""


class TargetList(Document):
    """Desired replicas of every server."""

    targets: tuple[TargetAnswer, ...] = Field(strict=False)
    """Targets of every server on every accelerator that it can use."""
    stale: tuple[str, ...] = Field((), exclude_if=not_, strict=False)
    """Servers without targets because their loads are too old; absent if there are none."""


class FleetEvent(Document):
    """A change of the fleet, or a stored plan."""

    revision: int
    """Revision of the fleet after the event."""
    made_at: AwareDatetime = Field(alias="at", strict=False)
    """Time of the event."""
    cause: str
    """`change`, `loads`, `plan`, `applied`, `imported`, or `fleet` if `/optimizeOne` replaced the fleet."""
    changed: dict[str, int] = Field(default_factory=dict)
    """Number of items that were added, replaced or removed, by section of the documents."""
    names: tuple[str, ...] = Field((), strict=False)
    """Names of the changed items, such as `servers/chat`; empty if they are too many."""
    plan: dict[str, Any] = Field(default_factory=dict)
    """For a plan: `revision`, `status` and `totalCostCentsPerH`, whether it is `complete`, and the numbers of
    servers not served in full (`unserved`) and changed (`changes`).
    """


class FleetHistory(Document):
    """The last changes and plans of the fleet."""

    events: tuple[FleetEvent, ...] = Field(strict=False)
    """Events, the newest first."""
    plans: tuple[int, ...] = Field(strict=False)
    """Revisions of the plans that can be read, the newest first."""


class AcceleratorList(Document):
    """All accelerators of the fleet."""

    accelerators: tuple[Accelerator, ...] = Field(strict=False)
    """Accelerators in order of arrival."""


class ModelList(Document):
    """All model profiles of the fleet."""

    models: tuple[ModelProfile, ...] = Field(strict=False)
    """Model profiles in order of arrival."""


class ServiceClassList(Document):
    """All service classes of the fleet."""

    service_classes: tuple[ServiceClass, ...] = Field(alias="serviceClasses", strict=False)
    """Service classes in order of arrival."""


class ServerList(Document):
    """All servers of the fleet."""

    servers: tuple[Server, ...] = Field(strict=False)
    """Servers in order of arrival."""
    load_sent_at: dict[str, Annotated[AwareDatetime, Field(strict=False)]] = Field(
        default_factory=dict, alias="loadSentAt", exclude_if=not_
    )
    """Time at which the arrival rate of each planned server was last sent, in a snapshot or a document.

    Offline work is absent.
    """


class RouteList(Document):
    """All routes of the fleet, which divide requests between a small and a large model."""

    routes: tuple[Route, ...] = Field(strict=False)
    """Routes in order of arrival."""


class CapacityList(Document):
    """All capacities of the fleet: the cards of each accelerator type."""

    count: tuple[Capacity, ...] = Field(strict=False)
    """Capacities in order of arrival."""
