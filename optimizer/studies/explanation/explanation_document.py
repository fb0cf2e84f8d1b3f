"""Result of `explain`, as a document for the library, the command line and REST."""

from operator import not_
from typing import Literal

from pydantic import Field

from optimizer.documents import OutputDocument, is_none
from optimizer.plan import Plan
from optimizer.plan.document import CapacityUse, LimitUse, Warned
from optimizer.printed import Printed
from optimizer.queueing.measures import LatencyName
from optimizer.schema.pools import Placement
from optimizer.studies.overload import Overload

Limit = Literal[
    "itl", "ttft", "e2e", "missed", "loss", "throughput", "stability", "stage", "step", "batch", "memory"
]
"""Constraints that can bind the maximum rate of a replica."""


class ServiceChange(OutputDocument):
    """Change of a server whose served share or full service differs between two plans."""

    server: str
    """Name of the server."""
    priority: int
    """Priority of the server."""
    load_change_rpm: float
    """Served load after the change minus before [requests/min]."""
    served_before: float
    """Served share of the server's load before the change."""
    served_after: float
    """Served share of the server's load after the change; for an idle server, both are shares of its minimum
    replicas.
    """
    in_full_before: bool
    """Whether the server was served in full before the change: all of its load, with at least its minimum
    replicas.
    """
    in_full_after: bool
    """Whether the server is served in full after the change."""

    @property
    def is_idle(self) -> bool:
        """Whether the server has no load, so that only the share of its minimum replicas changes."""
        return not self.load_change_rpm and self.served_before != self.served_after


class EffectRange(OutputDocument):
    """Interval for the change of one objective between two optimal plans.

    Changes of earlier objectives are exact.
    """

    level: str
    """Name of the first objective that is not proved, as written in the plan."""
    unit: str
    """Unit of the bounds: `requests/min`, `servers` or `cents/h`."""
    low: float
    """Lower bound of the change."""
    high: float
    """Upper bound of the change."""


class Effect(OutputDocument):
    """Effect of one change: the plan solved again with the change, compared with the original plan."""

    cost_change_cents_per_h: float
    """Total cost after the change minus before [cents/h]."""
    value_change_cents_per_h: float
    """Transition cost after the change minus before [cents/h]; plans minimise it after service."""
    serves: Literal["same", "more", "less"] = "same"
    """Whether more or less load is served. The highest priority that differs decides: by the load served in
    full, then by the number of loaded servers served in full, then by the total served load.
    """
    service: tuple[ServiceChange, ...] = Field((), strict=False)
    """Servers whose served share or full service changes, in order of priority."""
    reserves_lost: tuple[str, ...] = Field((), exclude_if=not_, strict=False)
    """Servers that have the required reserve before the change but not after it; absent if there are none."""
    reserves_gained: tuple[str, ...] = Field((), exclude_if=not_, strict=False)
    """Servers that have the required reserve after the change but not before it; absent if there are none."""
    open_cents_per_h: float | None = None
    """Maximum error of the value change, compared with the difference between two optimal plans [cents/h]; 0
    if both are proved; null if a service level is unproved.
    """
    interval: EffectRange | None = Field(None, exclude_if=is_none)
    """Interval of the first change that is not proved; absent if all are proved."""


class Binding(OutputDocument):
    """A limit that raises the maximum rate of a replica if it alone is slightly relaxed."""

    limit: Limit
    """Name of the limit."""
    rate_gain: float
    """Relative increase of the maximum rate if the limit is relaxed; 0 if only two limits together raise it.
    """
    stage: str | None = Field(None, exclude_if=is_none)
    """Name of the saturated stage, if a stage is the limit; otherwise absent."""


class ChosenPool(Placement):
    """A pool of the plan, with the limits that bind the load of its replicas."""

    max_batch: int
    """Batch limit of a replica [requests]."""
    cost_cents_per_h: float
    """Cost of the pool [cents/h]."""
    binding: tuple[Binding, ...] = Field(strict=False)
    """Binding constraints of a replica; empty for a server without load."""
    limited_by: str = Field("", exclude_if=not_)
    """Limit that decides the number of replicas, such as `ITL target`, `throughput`, `memory` or
    `one replica`; absent for a server without load.
    """
    role: str | None = Field(None, exclude_if=is_none)
    """Purpose of replicas that do not serve the server's own requests; absent for other pools."""


class ForcedPool(Placement):
    """A pool of a server in a plan that was solved again with a change."""

    cost_cents_per_h: float
    """Cost of the pool [cents/h]."""


class Alternative(OutputDocument):
    """Plan in which a server is restricted to accelerators other than the chosen ones."""

    pools: tuple[ForcedPool, ...] = Field(strict=False)
    """Pools of the server in this plan; empty if it cannot be served there, alone or together with others."""
    rents: bool = Field(default=False, exclude_if=not_)
    """Whether an external service serves its requests in this plan; absent if not."""
    effect: Effect
    """Effect of the restriction: this plan minus the original plan."""


class ReservedSize(OutputDocument):
    """Replicas of a candidate that carry the full load with the required reserve."""

    num_replicas: int
    """Number of replicas."""
    units: int
    """Number of cards."""
    cost_cents_per_h: float
    """Cost of the replicas [cents/h]."""


class Option(OutputDocument):
    """A candidate of a server: an accelerator on which it can run."""

    accelerator: str
    """Name of the accelerator."""
    num_replicas: int
    """Number of replicas that carry the full load."""
    max_batch: int
    """Batch limit of a replica [requests]."""
    type: str
    """Accelerator type."""
    units: int
    """Number of cards of the type."""
    cost_cents_per_h: float
    """Cost of the replicas [cents/h]."""
    max_arrival_rate_rpm: float
    """Maximum load of one replica [requests/min]."""
    binding: tuple[Binding, ...] = Field(strict=False)
    """Constraints that bind the maximum load of a replica."""
    limited_by: str = Field("", exclude_if=not_)
    """Limit that decides the number of replicas; absent for a server without load."""
    with_reserve: ReservedSize | None = Field(None, exclude_if=is_none)
    """Size with the required reserve; absent if none is required, or if the server cannot have it on this
    accelerator.
    """
    forced: Alternative | None = None
    """Plan in which the server is restricted to this accelerator; only if a single server is explained."""


class RejectedAccelerator(OutputDocument):
    """An accelerator on which a server cannot run, with the reason and the shortfall."""

    accelerator: str
    """Name of the accelerator."""
    reason: str
    """Code of the reason."""
    detail: str
    """The reason as text with numbers."""
    value: float | None = None
    """Measured value that breaks a limit [ms, tokens, requests or replicas, depending on the reason]."""
    limit: float | None = None
    """Limit with which the value was compared, in its unit."""
    factor: float | None = None
    """The larger of value and limit divided by the smaller: 1.2 is a miss by 20 %. Null if nothing was
    measured.
    """


class ServerExplanation(OutputDocument):
    """Reasons for the placement of one server."""

    server: str
    """Name of the server."""
    service_class: str
    """Service class of the server."""
    model: str
    """Model of the server."""
    priority: int
    """Priority of the server; 1 is the highest."""
    load_rpm: float
    """Load of the server [requests/min]: its arrival rate, or the rate that its throughput target requires.
    """
    served_fraction: float
    """Share of the load that the plan serves."""
    pools: tuple[ChosenPool, ...] = Field(strict=False)
    """Pools of the server; empty if it is idle or unserved."""
    headroom_rpm: float | None = None
    """Additional load before another replica is needed [requests/min]. Replicas are needed for the load and,
    if the server has its required reserve, to keep the reserve. Negative if capacity is missing; null without
    load.
    """
    headroom_share: float | None = None
    """Headroom divided by the load."""
    headroom_wanted: float = Field(0.0, exclude_if=not_)
    """Required headroom divided by the load; absent if none is required."""
    has_reserve: bool | None = Field(None, exclude_if=is_none)
    """Whether the server has the reserve that it requires; absent if it requires none."""
    next_best: Alternative | None = None
    """Plan without the accelerators chosen for this server; null if it has none."""
    options: tuple[Option, ...] = Field(strict=False)
    """Candidates of the server, sorted by cost."""
    rejections: tuple[RejectedAccelerator, ...] = Field(strict=False)
    """Accelerators on which the server cannot run, the nearest miss first."""


class UnitValues(OutputDocument):
    """Value of one step more and one step fewer of a limited item: one card, or `step` of other limits."""

    one_more: Effect | None = None
    """Effect of one step more; null if the item is not limited."""
    one_fewer: Effect | None = None
    """Effect of one step fewer; null if the item is not limited, or if less than one step exists."""
    shadow_price_cents_per_h: float | None = None
    """Shadow price per unit [cents/h of the transition cost]: marginal saving by more units if replicas were
    divisible, for the servers that the plan serves in full.
    """


class _CardsLeft(CapacityUse):
    left: int | None = None
    """Number of cards that the plan leaves unused; null if unlimited."""


class TypeExplanation(UnitValues, _CardsLeft):  # pydantic takes the fields of the last base first
    """Value of the cards of one accelerator type."""


class _LimitLeft(LimitUse):
    left: float
    """Amount of the limit that the plan leaves unused."""
    step: float
    """Amount that `oneMore` adds and `oneFewer` removes: the largest amount that a replica of the plan uses,
    and at least the smallest amount that serves another server.
    """


class LimitExplanation(UnitValues, _LimitLeft):
    """Value of a limit other than cards."""


class _ModelLatency(OutputDocument):
    service_class: str
    """Name of the service class."""
    model: str
    """Name of the model."""
    metric: LatencyName
    """Latency that the target limits."""
    target_ms: float
    """Current target [ms]."""


class TargetPrice(_ModelLatency):
    """Cost of a latency target: the plan with the target relaxed by 10 %, minus the plan."""

    relaxed_ms: float
    """Relaxed target [ms]."""
    effect: Effect
    """Effect of relaxing the target."""


class UnitRepair(OutputDocument):
    """Cards to add so that every server is served in full with its reserve, if cards can achieve that."""

    added: dict[str, int]
    """Cards to add by accelerator type."""
    units: int
    """Total number of cards to add."""
    total_cost_cents_per_h: float
    """Total cost of the plan with these cards [cents/h]."""
    effect: Effect
    """Effect of adding the cards."""
    proved: bool
    """Whether the solver proved that no better repair of this kind exists."""


class TargetRelaxation(_ModelLatency):
    """A latency target of a server that lacks service or reserve, and the value that would suffice."""

    needed_ms: float
    """Smallest target, to four digits, with which the plan serves everything with all reserves [ms]."""
    effect: Effect
    """Effect of relaxing the target to that value."""


class Beyond(OutputDocument):
    """A server that no number of cards can serve, or give its reserve."""

    server: str
    """Name of the server."""
    detail: str
    """Explanation of the shortfall as a sentence."""


class RepairOptions(OutputDocument):
    """Changes that would serve every server in full with its reserve; the fields are alternatives."""

    summary: str
    """The alternatives in one sentence."""
    cheapest: UnitRepair | None = None
    """Cards to add, of any types, that minimise the total cost of the plan and then the number of cards."""
    fewest: UnitRepair | None = None
    """Cards to add, of any types, that minimise the number of cards and then the transition cost of the plan.
    """
    of_one_type: tuple[UnitRepair, ...] = Field((), strict=False)
    """For every type that suffices alone, the smallest number of its cards to add."""
    relaxations: tuple[TargetRelaxation, ...] = Field((), strict=False)
    """Targets whose relaxation alone suffices with the existing cards, as far as answered in time."""
    common_factor: float | None = None
    """Smallest factor, to four digits, that suffices with the existing cards if it multiplies the latency
    targets of all servers that lack service or reserve. Null if no factor suffices, or if not answered in
    time.
    """
    beyond_units: tuple[Beyond, ...] = Field((), strict=False)
    """Servers that no number of cards can serve together with the others."""
    beyond_reserves: tuple[Beyond, ...] = Field((), exclude_if=not_, strict=False)
    """Servers to which no number of cards can give their reserve; absent if there are none."""


class WishCost(OutputDocument):
    """Cost of an option of the system, such as a reserve or a limit: the plan without it."""

    option: str
    """Name of the option in documents; all items that state the option are covered."""
    without: Effect
    """Effect of removing the option; a decrease in cost is the cost of the option."""


class LossPrice(OutputDocument):
    """Cost of a route's limit on the quality loss: the plan with another limit, minus the plan."""

    route: str
    """Name of the route."""
    max_loss: float
    """Current limit on the quality loss."""
    other: float
    """Other limit on the quality loss: 0, twice the current one, or 1."""
    effect: Effect
    """Effect of using the other limit."""


class FreeNodeCards(OutputDocument):
    """Replicas that would fit into the free cards of nodes at no cost; the entries are alternatives."""

    server: str
    """Name of the server."""
    accelerator: str
    """Accelerator of the replicas."""
    num_replicas: int
    """Number of replicas that fit."""
    rate_rpm: float
    """Load that these replicas can carry within all targets [requests/min]."""


class NodeExplanation(OutputDocument):
    """Effects of one node more or fewer of a type, or of no spare ones, and the use of its free cards."""

    node: str
    """Name of the node type."""
    num_nodes: int
    """Number of nodes that the plan uses, with spare ones."""
    one_more: Effect | None = Field(None, exclude_if=is_none)
    """Effect of one node more; absent if the plan could have it already, or out of time."""
    one_fewer: Effect | None = Field(None, exclude_if=is_none)
    """Effect of one node fewer; absent if the plan uses none, or out of time."""
    without_spare: Effect | None = Field(None, exclude_if=is_none)
    """Effect of no spare nodes of the type; absent if there are none, or out of time."""
    free_cards: tuple[FreeNodeCards, ...] = Field((), exclude_if=not_, strict=False)
    """Replicas that would fit into the free cards; absent if none would."""


class PoolsExplanation(OutputDocument):
    """Load that the prefill and decode pools of a server carry, and the link that they need.

    Loads and bandwidths are the best over the divisions of the TTFT target.
    """

    server: str
    """Name of the server."""
    max_arrival_rate_rpm: float
    """Load that both pools can carry within all targets [requests/min]."""
    limited_by: Literal["prefill", "decode"]
    """Pool that limits this load."""
    one_more_rpm: dict[Literal["prefill", "decode"], float]
    """Load that both can carry with one more replica in a pool, by the role of that pool [requests/min]."""
    link_gbps: float
    """Bandwidth that the plan assumes: the lowest from the accelerator of the prefill pool to those on which
    the server can run [GB/s].
    """
    least_link_gbps: float
    """Lowest bandwidth with which these replicas meet all targets [GB/s]."""


HandoverField = Literal["linkBandwidth", "fixedMs"]


class HandoverEffect(OutputDocument):
    """Effect of a faster handover between prefill and decode pools: the plan with it, minus the plan."""

    field: HandoverField
    """Field of documents that is multiplied: the bandwidth of all links, or the fixed time of a handover."""
    factor: float
    """Factor by which it is multiplied."""
    effect: Effect
    """Effect of the change; pools are chosen anew."""


IGNORES_CAPACITIES = "the plan ignores the capacities, so that cards have no price"
"""Note of an explanation of an unlimited plan."""


class Explanation(Printed, Warned):
    """Reasons for a plan, and the effects of changes."""

    plan: Plan
    """The explained plan."""
    server: str | None = None
    """The server that is explained in depth; null if all servers are explained."""
    notes: tuple[str, ...] = Field((), strict=False)
    """Notes that help to interpret the explanation."""
    servers: tuple[ServerExplanation, ...] = Field(strict=False)
    """Explained servers: all, or the one requested."""
    types: tuple[TypeExplanation, ...] = Field((), strict=False)
    """Values of accelerator types; empty if a single server is explained."""
    limits: tuple[LimitExplanation, ...] = Field((), exclude_if=not_, strict=False)
    """Values of limits other than cards; absent if there are none."""
    wishes: tuple[WishCost, ...] = Field((), exclude_if=not_, strict=False)
    """Costs of options: reserves, limits, preferences, price tiers and renting; absent if there are none."""
    losses: tuple[LossPrice, ...] = Field((), exclude_if=not_, strict=False)
    """Costs of the routes' limits on the quality loss; absent without routes."""
    nodes: tuple[NodeExplanation, ...] = Field((), exclude_if=not_, strict=False)
    """Values of nodes; absent if the system has none."""
    disaggregation: tuple[PoolsExplanation, ...] = Field((), exclude_if=not_, strict=False)
    """Loads and links of prefill and decode pools; absent if the plan has none."""
    handovers: tuple[HandoverEffect, ...] = Field((), exclude_if=not_, strict=False)
    """Effects of faster handovers; absent if no server can have prefill and decode pools."""
    overload: Overload | None = Field(None, exclude_if=is_none)
    """Options that serve more load, if cards remain while load is unserved; otherwise absent."""
    repair: RepairOptions | None = None
    """Changes that would serve everything with all reserves; null if everything, or the explained server, is
    served with its reserve.
    """
    targets: tuple[TargetPrice, ...] = Field((), strict=False)
    """Costs of the latency targets of the explained servers with load."""
    unanswered: tuple[str, ...] = Field((), strict=False)
    """Repairs and shadow prices that were not answered within the time limit; no other number includes them.
    """
