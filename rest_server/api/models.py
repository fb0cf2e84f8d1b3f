"""The documents of /v1 that the library has none of: requests, answers, lists, the last plan."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

from optimizer.plan import Plan
from optimizer.replica import LatencyTargets, Replica, ReplicaPerformance, ReplicaSizing
from optimizer.spec.schema import (
    MAX_QUANTITY,
    Accelerator,
    Capacity,
    Document,
    ModelProfile,
    Server,
    ServiceClass,
    Tokens,
)
from optimizer.spec.system import System

MAX_ITEMS = 1_000
"""Most replicas in one request to analyse or to size."""


class PlanOptions(BaseModel):
    """Options in place of the document's."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    solver: Literal["milp", "greedy"] | None = None
    """Exact, or the greedy baseline."""
    unlimited: bool | None = None
    """Ignore the capacities."""
    mixed: bool | None = None
    """Let a server run on several accelerators."""
    gap: float | None = Field(None, ge=0, le=1)
    """Relative gap at which the solver may stop."""
    time_limit: float | None = Field(None, gt=0, le=1e6)
    """Time for the whole solve [s]; at most nine tenths of the time that the service gives a request."""

    def applied_to(self, system: System) -> System:
        """Return a system with these options in place of its own."""
        given = {
            "milp_solver": None if self.solver is None else self.solver == "milp",
            "unlimited": self.unlimited,
            "heterogeneous": self.mixed,
            "gap": self.gap,
            "time_limit_s": self.time_limit,
        }
        return system.with_options(**{name: value for name, value in given.items() if value is not None})


class WrappedSystem(Document):
    """A system document in the reference's wrappers."""

    system: dict[str, dict[str, Any]]
    """`acceleratorData`, `modelData`, `serviceClassData`, `serverData`, `capacityData`, `optimizerData`."""


class Analysis(Document):
    """A replica, and the rate at which to analyse it."""

    replica: Replica
    """The replica."""
    rate_rps: float = Field(alias="rate", gt=0, le=MAX_QUANTITY)
    """Arrival rate [requests/s]."""


class Analyses(Document):
    """Several replicas to analyse."""

    items: tuple[Analysis, ...] = Field(strict=False, fail_fast=True, max_length=MAX_ITEMS)
    """The replicas with their rates."""


class Performances(Document):
    """Answers to several analyses, in their order."""

    items: tuple[ReplicaPerformance, ...]
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

    items: tuple[ReplicaSizing | Unattainable, ...]
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

    candidates: tuple[CandidateColumn, ...]
    """The candidates."""
    rejections: tuple[RejectedPair, ...]
    """The pairs that are none."""


class LoadChange(Document):
    """The load of a server; what is not given stays as it is."""

    arrival_rate_rpm: float | None = Field(None, alias="arrivalRate", ge=0, le=MAX_QUANTITY)
    """Arrival rate [requests/min]."""
    in_tokens: Tokens | None = Field(None, alias="avgInTokens")
    """Mean prompt length [tokens]."""
    out_tokens: Tokens | None = Field(None, alias="avgOutTokens")
    """Mean answer length [tokens]."""
    throughput_rpm: float | None = Field(None, alias="throughput", ge=0, le=MAX_QUANTITY)
    """Measured throughput [requests/min]; kept, not used."""


class LoadSnapshot(RootModel[dict[str, LoadChange]]):
    """Loads by server."""


class LastPlan(Plan):
    """The last plan, with its age and the revision of the fleet that it is for."""

    age_s: float = Field(alias="age")
    """Time since it was made [s]."""
    revision: int
    """Revision of the fleet that it is for; later ones have changed since."""


class AcceleratorList(Document):
    """All accelerators."""

    accelerators: tuple[Accelerator, ...]
    """In the order in which they came."""


class ModelList(Document):
    """All model profiles."""

    models: tuple[ModelProfile, ...]
    """In the order in which they came."""


class ServiceClassList(Document):
    """All service classes."""

    service_classes: tuple[ServiceClass, ...] = Field(alias="serviceClasses")
    """In the order in which they came."""


class ServerList(Document):
    """All servers."""

    servers: tuple[Server, ...]
    """In the order in which they came."""


class CapacityList(Document):
    """All capacities."""

    count: tuple[Capacity, ...]
    """In the order in which they came."""
