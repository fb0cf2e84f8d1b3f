"""Two plans side by side, as a document: the same from the library, the command line and REST.

Every difference is the second side minus the first. Rows exist per server, per service class and model, per
service class, per accelerator type and for the fleet; the cost differences of each kind of row add up
to that of the fleet. Equation numbers refer to ``docs/math.md``.
"""

from operator import not_
from typing import Literal

from pydantic import Field

from optimizer.documents import Document
from optimizer.plan import Placement, Plan
from optimizer.plan.token_costs import cost_per_million
from optimizer.spec.schema import OptimizerOptions
from optimizer.studies.service import PriorityService

Kind = Literal["scarcity", "options", "load_change", "plans"]
ServerChange = Literal["none", "batch", "scaled", "moved", "started", "stopped", "added", "removed"]
ServiceChange = Literal["same", "newly_served", "newly_unserved"]


class Side(Document):
    """One of the two plans, with its options."""

    label: str
    """Label of the side."""
    options: OptimizerOptions | None = None
    """The options it was solved with; None for a plan from a file."""
    plan: Plan
    """The plan."""


class AcceleratorShare(Placement):
    """Replicas on one accelerator."""

    max_batch: int = Field(alias="maxBatch")
    """Batch limit of a replica; the largest of several."""
    cost_cents_per_h: float = Field(alias="cost")
    """Their cost [cents/h]."""


class SideMetrics(Document):
    """Load, replicas and performance of some servers on one side.

    Means are over requests (eq. 55): token lengths over those that arrive (where none do, over the servers),
    latencies over those that are carried; None if there are none.
    """

    servers: int
    """Servers."""
    served_in_full: int = Field(alias="servedInFull")
    """Servers that are served in full, including idle ones."""
    accelerators: tuple[AcceleratorShare, ...] = Field(strict=False)
    """Replicas by accelerator; empty if there are none."""
    num_replicas: int = Field(alias="numReplicas")
    """Replicas, all accelerators together."""
    cost_cents_per_h: float = Field(alias="cost")
    """Their cost [cents/h]."""
    arrival_rate_rpm: float | None = Field(None, alias="arrivalRate")
    """Offered load [requests/min]; None for a plan from a file."""
    carried_rate_rpm: float = Field(alias="carriedRate")
    """Carried load [requests/min]."""
    in_tokens: float | None = Field(None, alias="avgInTokens")
    """Mean input length [tokens]."""
    out_tokens: float | None = Field(None, alias="avgOutTokens")
    """Mean output length [tokens]."""
    itl_ms: float | None = Field(None, alias="itlAverage")
    """Mean inter-token latency [ms]."""
    ttft_ms: float | None = Field(None, alias="ttftAverage")
    """Mean time to first token [ms]."""
    wait_ms: float | None = Field(None, alias="waitAverage")
    """Mean queueing time [ms]."""
    own: dict[str, float] = Field(default_factory=dict, exclude_if=not_)
    """Means of what only some kinds of replicas have, by field; absent without any."""

    @property
    def cost_per_million(self) -> float | None:
        """Cost of a million input and output tokens [cents]; None without tokens."""
        lengths = self.in_tokens or 0.0, self.out_tokens or 0.0
        return cost_per_million(self.cost_cents_per_h, self.carried_rate_rpm, *lengths)

    def figure(self, field: str) -> float | None:
        """Return a mean by the field of a pool."""
        return self.own.get(field, getattr(self, field, None))


class Difference(Document):
    """Second side minus first side; a missing side counts as 0."""

    num_replicas: int = Field(alias="numReplicas")
    """Replicas."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost [cents/h]."""
    arrival_rate_rpm: float | None = Field(None, alias="arrivalRate")
    """Offered load [requests/min]; None unless it is known on both sides."""
    carried_rate_rpm: float = Field(alias="carriedRate")
    """Carried load [requests/min]."""
    itl_ms: float | None = Field(None, alias="itlAverage")
    """Mean inter-token latency [ms]; None unless both sides have one, as for the next two."""
    ttft_ms: float | None = Field(None, alias="ttftAverage")
    """Mean time to first token [ms]."""
    wait_ms: float | None = Field(None, alias="waitAverage")
    """Mean queueing time [ms]."""
    own: dict[str, float] = Field(default_factory=dict, exclude_if=not_)
    """Means of what only some kinds of replicas have, by field; absent without any on both sides."""


class ComparisonRow(Document):
    """Comparison of the same servers on both sides."""

    first: SideMetrics | None = None
    """First side; None if it has no such servers."""
    second: SideMetrics | None = None
    """Second side; None if it has no such servers."""
    difference: Difference
    """Second minus first."""


class ServerRow(ComparisonRow):
    """One server on both sides."""

    server: str
    """The server."""
    service_class: str | None = Field(None, alias="class")
    """Its service class; None if only plans from files are compared."""
    model: str | None = None
    """Its model; None if only plans from files are compared."""
    priority: int | None = None
    """Its priority; None if only plans from files are compared."""
    change: ServerChange
    """Change of its replicas from the first side to the second."""
    service: ServiceChange
    """Whether only one of the sides serves it in full."""


class PriorityRow(Document):
    """Service of one priority on both sides."""

    priority: int
    """The priority."""
    same: bool
    """Whether both sides have the same servers of it and serve each to the same share."""
    first: PriorityService | None = None
    """First side; None if it has no such servers."""
    second: PriorityService | None = None
    """Second side; None if it has no such servers."""


class ClassModelRow(ComparisonRow):
    """The servers of one service class and model on both sides."""

    service_class: str | None = Field(None, alias="class")
    """The service class; None for the servers of plans from files."""
    model: str | None = None
    """The model; None for the servers of plans from files."""
    priority: int | None = None
    """The priority of the class."""


class ClassRow(ComparisonRow):
    """The servers of one service class on both sides."""

    service_class: str | None = Field(None, alias="class")
    """The service class; None for the servers of plans from files."""
    priority: int | None = None
    """Its priority."""


class TypeUse(Document):
    """Use of an accelerator type on one side."""

    used: int
    """Cards that the plan uses."""
    limit: int | None = None
    """Available cards; None if unlimited."""
    cost_cents_per_h: float | None = Field(None, alias="cost")
    """Cost of the pools on the type [cents/h]; None if the types of the accelerators are unknown."""


class TypeComparison(Document):
    """One accelerator type on both sides."""

    type: str
    """The accelerator type."""
    first: TypeUse | None = None
    """First side; None if it does not have the type."""
    second: TypeUse | None = None
    """Second side; None if it does not have the type."""
    used_difference: int = Field(alias="usedDifference")
    """Second number of cards minus first."""
    cost_difference_cents_per_h: float | None = Field(None, alias="costDifference")
    """Second cost minus first [cents/h]; None if one of them is unknown."""


class Comparison(Document):
    """Two plans side by side; every difference is the second minus the first."""

    kind: Kind
    """Kind of difference: only whether units are limited, other options, the load in time, or anything."""
    same: bool
    """Whether both sides place and serve every server the same way, at the same load."""
    equal_service: bool = Field(alias="equalService")
    """Whether every server is on both sides and served to the same share there."""
    first: Side
    """The one plan: the unlimited one, or the one before."""
    second: Side
    """The other: the limited one, or the one after."""
    total: ComparisonRow
    """The fleet; of kind `scarcity` its cost difference is the price of scarcity."""
    relative_cost_difference: float | None = Field(None, alias="relativeCostDifference")
    """Cost difference relative to the first side; None if that costs nothing."""
    transition_value_cents_per_h: float | None = Field(None, alias="transitionValue")
    """Transition value of the second plan [cents/h], where the first is what runs when it is made."""
    priorities: tuple[PriorityRow, ...] = Field((), strict=False)
    """Service of each priority, the highest first; empty if a side is a plan from a file."""
    classes: tuple[ClassRow, ...] = Field(strict=False)
    """By service class, highest priority first."""
    class_models: tuple[ClassModelRow, ...] = Field(alias="classModels", strict=False)
    """By service class and model."""
    servers: tuple[ServerRow, ...] = Field(strict=False)
    """By server."""
    types: tuple[TypeComparison, ...] = Field(strict=False)
    """By accelerator type."""
    notes: tuple[str, ...] = Field(strict=False)
    """Notes on the numbers."""

    def changed(self, *changes: ServerChange) -> tuple[ServerRow, ...]:
        """Return the servers with one of the given changes; without any, all that change."""
        return tuple(
            row for row in self.servers if (row.change in changes if changes else row.change != "none")
        )
