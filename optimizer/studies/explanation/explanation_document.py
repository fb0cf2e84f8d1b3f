"""The answer of `explain`, as a document for the library, the command line and REST."""

from operator import not_
from typing import Literal

from pydantic import Field

from optimizer.documents import Document, is_none
from optimizer.plan import Plan
from optimizer.plan.document import CapacityUse, LimitUse
from optimizer.printed import Printed
from optimizer.queueing.measures import LatencyName
from optimizer.schema.pools import Placement
from optimizer.studies.overload import Overload

Limit = Literal[
    "itl", "ttft", "e2e", "missed", "loss", "throughput", "stability", "stage", "step", "batch", "memory"
]
"""Constraints that can bind the largest rate of a replica."""


class ServiceChange(Document):
    """A server whose served share of the load changes."""

    server: str
    """Name of the server."""
    priority: int
    """Priority of the server."""
    load_change_rpm: float = Field(alias="loadChange")
    """Served load after the change minus before [requests/min]."""
    served_before: float = Field(alias="servedBefore")
    """Served share of its load before the change."""
    served_after: float = Field(alias="servedAfter")
    """Served share of its load after the change; for an idle server, both are shares of its minimum
    replicas.
    """
    in_full_before: bool = Field(alias="inFullBefore")
    """Whether it was served in full before: all of its load, and at least its minimum replicas."""
    in_full_after: bool = Field(alias="inFullAfter")
    """Whether it is served in full after the change."""

    @property
    def is_idle(self) -> bool:
        """Whether it has no load, so that only the share of its minimum replicas changes."""
        return not self.load_change_rpm and self.served_before != self.served_after


class EffectRange(Document):
    """Interval of the change of one level between two optima; changes of earlier levels are exact."""

    level: str
    """Name of the first unproved level, as in the plan."""
    low: float
    """Lower bound of the change [cents/h of the value, requests/min, or servers]."""
    high: float
    """Upper bound of the change."""


class Effect(Document):
    """Difference of the plan after one change and a new solve."""

    cost_change_cents_per_h: float = Field(alias="costChange")
    """Total cost after the change minus before [cents/h]."""
    value_change_cents_per_h: float = Field(alias="valueChange")
    """Objective after the change minus before [cents/h]; the plan minimises it after service."""
    serves: Literal["same", "more", "less"] = "same"
    """Whether more or less load is served. The highest priority that differs decides: by the load served in
    full, then by the number of loaded servers served in full, then by the total served load.
    """
    service: tuple[ServiceChange, ...] = Field((), strict=False)
    """Servers whose served share or full service changes, in order of priority."""
    reserves_lost: tuple[str, ...] = Field((), alias="reservesLost", exclude_if=not_, strict=False)
    """Servers that have the required reserve before the change but not after it; absent if there are none."""
    reserves_gained: tuple[str, ...] = Field((), alias="reservesGained", exclude_if=not_, strict=False)
    """Servers that have the required reserve after the change but not before it; absent if there are none."""
    open_cents_per_h: float | None = Field(None, alias="open")
    """Maximum error of the value change relative to that between two optima [cents/h]; 0 if both are proved;
    null if a service level is unproved.
    """
    interval: EffectRange | None = Field(None, exclude_if=is_none)
    """Interval of the first unproved change between two optima; absent if all are proved."""


class Binding(Document):
    """A limit whose slight relaxation, alone, raises the largest rate of a replica."""

    limit: Limit
    """Name of the limit."""
    rate_gain: float = Field(alias="rateGain")
    """Relative increase of the largest rate if the limit is relaxed; 0 if only two limits together raise
    it.
    """
    stage: str | None = Field(None, exclude_if=is_none)
    """Name of the saturated stage, if a stage is the limit; otherwise absent."""


class ChosenPool(Placement):
    """A pool of the plan, and the constraints on the load of its replicas."""

    max_batch: int = Field(alias="maxBatch")
    """Batch limit of a replica."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost of the pool [cents/h]."""
    binding: tuple[Binding, ...] = Field(strict=False)
    """The binding constraints; empty for a server without load."""
    role: str | None = Field(None, exclude_if=is_none)
    """What the replicas are for, if not to serve the server's requests; absent for pools that do."""


class ForcedPool(Placement):
    """A pool of a server in a plan that was solved again."""

    cost_cents_per_h: float = Field(alias="cost")
    """Cost of the pool [cents/h]."""


class Alternative(Document):
    """The plan if a server is restricted to accelerators other than the chosen ones."""

    pools: tuple[ForcedPool, ...] = Field(strict=False)
    """Pools of the server in that plan; empty if it cannot be served there, alone or together with others."""
    rents: bool = Field(default=False, exclude_if=not_)
    """Whether an external service answers its requests in that plan; absent if not."""
    effect: Effect
    """That plan minus the original plan."""


class ReservedSize(Document):
    """Replicas of a candidate that carry the full load with the required reserve."""

    num_replicas: int = Field(alias="numReplicas")
    """Number of replicas."""
    units: int
    """Number of cards."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost of the replicas [cents/h]."""


class Option(Document):
    """A candidate of the server: an accelerator on which it can run."""

    accelerator: str
    """Name of the accelerator."""
    num_replicas: int = Field(alias="numReplicas")
    """Number of replicas that carry the full load."""
    max_batch: int = Field(alias="maxBatch")
    """Batch limit of a replica."""
    type: str
    """Accelerator type."""
    units: int
    """Number of cards of the type."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost of the replicas [cents/h]."""
    max_arrival_rate_rpm: float = Field(alias="maxArrivalRatePerReplica")
    """Largest load of one replica [requests/min]."""
    binding: tuple[Binding, ...] = Field(strict=False)
    """Constraints that bind the largest load."""
    with_reserve: ReservedSize | None = Field(None, alias="withReserve", exclude_if=is_none)
    """Size with the required reserve; absent if none is required, or if the server cannot have it there."""
    forced: Alternative | None = None
    """The plan with the server restricted to this accelerator; only if a single server is explained."""


class RejectedAccelerator(Document):
    """An accelerator on which the server cannot run, and the shortfall."""

    accelerator: str
    """Name of the accelerator."""
    reason: str
    """Reason code."""
    detail: str
    """The reason with numbers."""
    value: float | None = None
    """Measured value: ms, tokens, requests or replicas, depending on the reason."""
    limit: float | None = None
    """Limit with which the value was compared."""
    factor: float | None = None
    """The larger of value and limit divided by the smaller: 1.2 misses by 20 %; null if nothing was
    measured.
    """


class ServerExplanation(Document):
    """Reasons for the placement of a server."""

    server: str
    """Name of the server."""
    service_class: str = Field(alias="class")
    """Service class of the server."""
    model: str
    """Model of the server."""
    priority: int
    """Priority of the server."""
    load_rpm: float = Field(alias="load")
    """Load of the server [requests/min]: its arrival rate, or that of its throughput target."""
    served_fraction: float = Field(alias="servedFraction")
    """Share of the load that the plan serves."""
    pools: tuple[ChosenPool, ...] = Field(strict=False)
    """Pools of the server; empty if it is idle or unserved."""
    headroom_rpm: float | None = Field(None, alias="headroom")
    """Additional load before another replica is needed [requests/min], for the load and, if the server has
    its required reserve, to keep that; negative: missing capacity; null: no load.
    """
    headroom_share: float | None = Field(None, alias="headroomShare")
    """Headroom as a share of the load."""
    headroom_wanted: float = Field(0.0, alias="headroomWanted", exclude_if=not_)
    """Required headroom as a share of the load; absent if there is none."""
    has_reserve: bool | None = Field(None, alias="hasReserve", exclude_if=is_none)
    """Whether it has the reserve that it requires; absent if it requires none."""
    next_best: Alternative | None = Field(None, alias="runnerUp")
    """The plan without the accelerators chosen for this server; null if it has none."""
    options: tuple[Option, ...] = Field(strict=False)
    """All candidates of the server, by cost."""
    rejections: tuple[RejectedAccelerator, ...] = Field(strict=False)
    """Accelerators on which the server cannot run, the nearest miss first."""


class UnitValues(Document):
    """Value of one step more or one fewer of a limited item: one card, or `step` of another limit."""

    one_more: Effect | None = Field(None, alias="oneMore")
    """The plan with one step more minus the plan; null if not limited."""
    one_fewer: Effect | None = Field(None, alias="oneFewer")
    """The plan with one step fewer minus the plan; null if not limited, or if there is less than a step."""
    shadow_price_cents_per_h: float | None = Field(None, alias="lagrangianPrice")
    """Shadow price per unit [cents/h of the objective]: marginal saving by more units if replicas were
    divisible, for the servers that the plan serves in full.
    """


class _CardsLeft(CapacityUse):
    left: int | None = None
    """Number of unused cards; null if unlimited."""


class TypeExplanation(UnitValues, _CardsLeft):  # pydantic takes the fields of the last base first
    """Value of the units of an accelerator type."""


class _LimitLeft(LimitUse):
    left: float
    """Unused amount."""
    step: float
    """Amount that `oneMore` adds and `oneFewer` removes: the largest use of a replica of the plan, and at
    least the smallest amount that serves another server.
    """


class LimitExplanation(UnitValues, _LimitLeft):
    """Value of the units of a limit other than cards."""


class _ModelLatency(Document):
    service_class: str = Field(alias="class")
    """Name of the service class."""
    model: str
    """Name of the model."""
    metric: LatencyName
    """Latency that is limited."""
    target_ms: float = Field(alias="target")
    """The target [ms]."""


class TargetPrice(_ModelLatency):
    """Cost of a target: the plan with the target relaxed by 10 %, minus the plan."""

    relaxed_ms: float = Field(alias="relaxed")
    """The relaxed target [ms]."""
    effect: Effect
    """The plan with the relaxed target minus the plan."""


class UnitRepair(Document):
    """Cards to add so that every server is served in full, with its reserve, if more cards can do that."""

    added: dict[str, int]
    """Cards to add by accelerator type."""
    units: int
    """Total number of cards to add."""
    total_cost_cents_per_h: float = Field(alias="totalCost")
    """Total cost of the plan with these cards [cents/h]."""
    effect: Effect
    """The plan with these cards minus the plan."""
    proved: bool
    """Whether no better repair of this kind exists, as proved by the solver."""


class TargetRelaxation(_ModelLatency):
    """A target of a server that lacks service or its reserve, and the value with which none would."""

    needed_ms: float = Field(alias="needed")
    """Smallest target with which the plan serves everything with all reserves, to four digits [ms]."""
    effect: Effect
    """The plan with that target minus the plan."""


class Beyond(Document):
    """A server that cannot be served, or have its reserve, with any number of cards."""

    server: str
    """Name of the server."""
    detail: str
    """Shortfall as a sentence."""


class RepairOptions(Document):
    """Changes that would serve every server in full, with its reserve; the parts are alternatives."""

    summary: str
    """The repairs in one sentence."""
    cheapest: UnitRepair | None = None
    """Cards of all types with the minimum total cost of the plan, and then the fewest cards."""
    fewest: UnitRepair | None = None
    """The fewest cards of all types, and then the minimum value of the plan."""
    of_one_type: tuple[UnitRepair, ...] = Field((), alias="ofOneType", strict=False)
    """For every type that alone suffices, the fewest cards of it."""
    relaxations: tuple[TargetRelaxation, ...] = Field((), strict=False)
    """Targets whose relaxation alone suffices with the existing cards, as far as answered."""
    common_factor: float | None = Field(None, alias="commonFactor")
    """Smallest factor, to four digits, on the latency targets of all servers that lack service or their
    reserve that suffices with the existing cards; null if none does, or if not answered.
    """
    beyond_units: tuple[Beyond, ...] = Field((), alias="beyondUnits", strict=False)
    """Servers that cannot be served, together with the others, with any number of cards."""
    beyond_reserves: tuple[Beyond, ...] = Field((), alias="beyondReserves", exclude_if=not_, strict=False)
    """Servers that cannot have their reserve with any number of cards; absent if there are none."""


class WishCost(Document):
    """An option for robustness, and the plan without it."""

    option: str
    """Name of the option in documents; it covers all items that state the option."""
    without: Effect
    """The plan without the option minus the plan; a decrease in cost is the cost of the option."""


class LossPrice(Document):
    """Cost of a route's quality limit: the plan with another limit, minus the plan."""

    route: str
    """Name of the route."""
    max_loss: float = Field(alias="maxLoss")
    """Current limit."""
    other: float
    """The other limit: 0, twice the current one, or 1."""
    effect: Effect
    """The plan with the other limit minus the plan."""


class Explanation(Printed, Document):
    """Reasons for a plan, and changes that would alter it."""

    plan: Plan
    """The explained plan."""
    server: str | None = None
    """The server that is explained in depth; null if all servers are explained."""
    notes: tuple[str, ...] = Field((), strict=False)
    """Notes for interpreting the explanation."""
    servers: tuple[ServerExplanation, ...] = Field(strict=False)
    """Explained servers: all, or the one requested."""
    types: tuple[TypeExplanation, ...] = Field((), strict=False)
    """Accelerator types; empty if a single server is explained."""
    limits: tuple[LimitExplanation, ...] = Field((), exclude_if=not_, strict=False)
    """Limits other than cards; absent if there are none."""
    wishes: tuple[WishCost, ...] = Field((), exclude_if=not_, strict=False)
    """Costs of options: reserves, safety, limits, preferences, tiers and renting; absent if there are
    none.
    """
    losses: tuple[LossPrice, ...] = Field((), exclude_if=not_, strict=False)
    """Costs of the routes' quality limits; absent without routes."""
    overload: Overload | None = Field(None, exclude_if=is_none)
    """Options that serve more load, if cards remain while load is unserved; otherwise absent."""
    repair: RepairOptions | None = None
    """Changes that would serve everything with all reserves; null if everything, or the explained server, is
    served with its reserve.
    """
    targets: tuple[TargetPrice, ...] = Field((), strict=False)
    """Prices of the latency targets of the explained servers with load."""
    unanswered: tuple[str, ...] = Field((), strict=False)
    """Repairs and shadow prices not answered within the time limit; no number above includes them."""
