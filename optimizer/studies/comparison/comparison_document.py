"""Comparison of two plans as a document for the library, the command line and REST.

Every difference is the second plan minus the first. There are rows per server, per service class and model,
per service class, per accelerator type, and for the fleet. The cost differences of each type of row add up to
that of the fleet, together with those of `costs`. Equation numbers refer to ``docs/math.md``.
"""

from operator import not_
from typing import Literal

from pydantic import Field

from optimizer.documents import OutputDocument
from optimizer.plan import Placement, Plan
from optimizer.plan.token_costs import cost_per_million
from optimizer.printed import Printed
from optimizer.schema import OptimizerOptions
from optimizer.studies.service import PriorityService

ComparisonType = Literal["scarcity", "options", "load_change", "plans"]
ServerChange = Literal["none", "batch", "scaled", "moved", "started", "stopped", "added", "removed"]
ServiceChange = Literal["same", "newly_served", "newly_unserved"]
ReserveChange = Literal["same", "lost", "gained", "other"]


class Side(OutputDocument):
    """One of the two compared plans, with its options."""

    label: str
    """Label of this plan for readers."""
    options: OptimizerOptions | None = None
    """Options with which the plan was solved; null for a plan from a file."""
    plan: Plan
    """The plan."""


class AcceleratorShare(Placement):
    """Replicas of some servers on one accelerator."""

    max_batch: int
    """Batch limit of a replica [requests]; the largest if several pools differ."""
    cost_cents_per_h: float
    """Cost of these replicas [cents/h]."""


class SideMetrics(OutputDocument):
    """Load, replicas and performance of some servers in one of the compared plans.

    Means are over requests (eq. 55). Token lengths are averaged over arriving requests, or over servers if
    none arrive; latencies over served requests, or null if there are none.
    """

    servers: int
    """Number of servers."""
    served_in_full: int
    """Number of servers served in full, including idle ones."""
    reserves: int = Field(0, exclude_if=not_)
    """Number of servers and shared queues that require a reserve; absent if none does."""
    lack_reserve: int = Field(0, exclude_if=not_)
    """Number of servers and shared queues that lack the reserve they require; absent if none does."""
    accelerators: tuple[AcceleratorShare, ...] = Field(strict=False)
    """Replicas by accelerator; empty if there are none."""
    num_replicas: int
    """Number of replicas on all accelerators."""
    cost_cents_per_h: float
    """Cost of these replicas [cents/h]."""
    arrival_rate_rpm: float | None = None
    """Offered load [requests/min]; null for a plan from a file."""
    carried_rate_rpm: float
    """Load that the plan serves [requests/min]."""
    in_tokens: float | None = None
    """Mean input length [tokens]."""
    out_tokens: float | None = None
    """Mean output length [tokens]."""
    itl_ms: float | None = None
    """Mean inter-token latency [ms]."""
    ttft_ms: float | None = None
    """Mean time to first token [ms]."""
    wait_ms: float | None = None
    """Mean queueing time [ms]."""
    own: dict[str, float] = Field(default_factory=dict, exclude_if=not_)
    """Means of metrics that only some kinds of replicas have, by field name; absent if there are none."""

    @property
    def cost_per_million(self) -> float | None:
        """Cost per million input and output tokens [cents]; None without tokens."""
        lengths = self.in_tokens or 0.0, self.out_tokens or 0.0
        return cost_per_million(self.cost_cents_per_h, self.carried_rate_rpm, *lengths)

    def figure(self, field: str) -> float | None:
        """Return the mean of a metric, given the name of its field in pools; None if unknown."""
        return self.own.get(field, getattr(self, field, None))


class Difference(OutputDocument):
    """Second plan minus first plan; a missing plan counts as 0."""

    num_replicas: int
    """Difference in the number of replicas."""
    cost_cents_per_h: float
    """Difference in cost [cents/h]."""
    arrival_rate_rpm: float | None = None
    """Difference in offered load [requests/min]; null unless both are known."""
    carried_rate_rpm: float
    """Difference in served load [requests/min]."""
    itl_ms: float | None = None
    """Difference in mean inter-token latency [ms]; null unless both plans have one."""
    ttft_ms: float | None = None
    """Difference in mean time to first token [ms]; null unless both plans have one."""
    wait_ms: float | None = None
    """Difference in mean queueing time [ms]; null unless both plans have one."""
    own: dict[str, float] = Field(default_factory=dict, exclude_if=not_)
    """Differences of metrics that only some kinds of replicas have, by field name; absent unless both plans
    have any.
    """


class ComparisonRow(OutputDocument):
    """Comparison of the same servers in both plans."""

    first: SideMetrics | None = None
    """First plan; null if it has none of these servers."""
    second: SideMetrics | None = None
    """Second plan; null if it has none of these servers."""
    difference: Difference
    """Second plan minus first plan."""

    @property
    def both(self) -> tuple[SideMetrics | None, SideMetrics | None]:
        """First and second plan; None for a missing plan."""
        return self.first, self.second


class ServerRow(ComparisonRow):
    """One server in both plans."""

    server: str
    """Name of the server."""
    service_class: str | None = None
    """Service class of the server; null if only plans from files are compared."""
    model: str | None = None
    """Model of the server; null if only plans from files are compared."""
    priority: int | None = None
    """Priority of the server; null if only plans from files are compared."""
    change: ServerChange
    """Change of the server's replicas from the first plan to the second."""
    service: ServiceChange
    """`newly_served` if only the second plan serves it in full, `newly_unserved` if only the first does, else
    `same`.
    """
    reserve: ReserveChange
    """Change of the server's reserve: `lost` or `gained` if only the first or only the second plan has it,
    `other` if the required reserve differs, else `same`.
    """


class PriorityRow(OutputDocument):
    """Service of the servers of one priority in both plans."""

    priority: int
    """The priority."""
    same: bool
    """Whether both plans have the same servers of this priority, and serve the same share of each one's load.
    """
    first: PriorityService | None = None
    """First plan; null if it has no servers of this priority."""
    second: PriorityService | None = None
    """Second plan; null if it has no servers of this priority."""


class ClassModelRow(ComparisonRow):
    """The servers of one service class and model in both plans."""

    service_class: str | None = None
    """The service class; null for the servers of plans from files."""
    model: str | None = None
    """The model; null for the servers of plans from files."""
    priority: int | None = None
    """Priority of the service class; null for the servers of plans from files."""


class ClassRow(ComparisonRow):
    """The servers of one service class in both plans."""

    service_class: str | None = None
    """The service class; null for the servers of plans from files."""
    priority: int | None = None
    """Priority of the service class; null for the servers of plans from files."""


class TypeUse(OutputDocument):
    """Use of an accelerator type in one of the compared plans."""

    used: int
    """Number of cards used by the plan."""
    limit: int | None = None
    """Number of available cards; null if unlimited."""
    cost_cents_per_h: float | None = None
    """Cost of the pools on this type [cents/h]; null if the types of the accelerators are unknown."""


class TypeComparison(OutputDocument):
    """One accelerator type in both plans."""

    type: str
    """The accelerator type."""
    first: TypeUse | None = None
    """First plan; null if it does not have the type."""
    second: TypeUse | None = None
    """Second plan; null if it does not have the type."""
    used_difference: int
    """Number of cards in the second plan minus that in the first."""
    cost_difference_cents_per_h: float | None = None
    """Cost in the second plan minus that in the first [cents/h]; null if one of them is unknown."""


class CostComparison(OutputDocument):
    """A cost beyond the list prices of pools in both plans; see `costs` of a plan."""

    name: str
    """Accelerator or cards with other prices than the list price, or server with a rented service."""
    origin: str
    """Origin of the cost: price tiers (`tiers`), whole nodes (`nodes`), or a rented service (`external`)."""
    first: float = Field(alias="firstCentsPerH")
    """Amount in the first plan [cents/h]."""
    second: float = Field(alias="secondCentsPerH")
    """Amount in the second plan [cents/h]."""
    difference_cents_per_h: float
    """Amount in the second plan minus that in the first [cents/h]."""


class Comparison(Printed, OutputDocument):
    """Comparison of two plans; every difference is the second plan minus the first."""

    kind: ComparisonType
    """What differs: only the limits on cards (`scarcity`), `options`, the load (`load_change`), or anything
    (`plans`).
    """
    same: bool
    """Whether both plans place and serve every server in the same way, at the same load and with the same
    reserve.
    """
    equal_service: bool
    """Whether both plans have the same servers and serve the same share of each one's load."""
    equal_reserves: bool
    """Whether every server requires the same reserve in both plans, and has it in both or in neither."""
    first: Side
    """First plan: the unlimited plan, or the one before a change."""
    second: Side
    """Second plan: the limited plan, or the one after a change."""
    total: ComparisonRow
    """Totals of the fleet; in a `scarcity` comparison, the cost difference is the price of scarcity."""
    relative_cost_difference: float | None = None
    """Cost difference divided by the cost of the first plan; null if the first plan costs nothing."""
    transition_value_cents_per_h: float | None = None
    """Transition cost of the second plan if the first plan is running [cents/h]; null unless `kind` is
    `load_change`.
    """
    priorities: tuple[PriorityRow, ...] = Field((), strict=False)
    """Service of each priority, the highest first; empty if either plan was read from a file."""
    classes: tuple[ClassRow, ...] = Field(strict=False)
    """Rows by service class, highest priority first."""
    class_models: tuple[ClassModelRow, ...] = Field(strict=False)
    """Rows by service class and model."""
    servers: tuple[ServerRow, ...] = Field(strict=False)
    """Rows by server."""
    types: tuple[TypeComparison, ...] = Field(strict=False)
    """Rows by accelerator type."""
    costs: tuple[CostComparison, ...] = Field((), strict=False, exclude_if=not_)
    """Costs beyond the list prices of pools; absent if there are none. The rows by accelerator type add up
    to the total with all of these. The rows by server and by class contain rented services, and add up to
    the total with the rows of price tiers.
    """
    notes: tuple[str, ...] = Field(strict=False)
    """Notes that qualify the numbers."""

    @property
    def both(self) -> tuple[Side, Side]:
        """First and second plan."""
        return self.first, self.second

    def changed(self, *changes: ServerChange) -> tuple[ServerRow, ...]:
        """Return the rows of servers with one of the given changes.

        Without arguments, of all changed servers.
        """
        return tuple(
            row for row in self.servers if (row.change in changes if changes else row.change != "none")
        )
