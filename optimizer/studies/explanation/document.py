"""The answer of `explain` as a document: the same from the library, the command line and REST."""

from operator import not_
from typing import Literal

from pydantic import Field

from optimizer.documents import Document, is_none
from optimizer.plan import Plan
from optimizer.plan.document import CapacityUse, LimitUse, Placement
from optimizer.queueing.measures import LatencyName
from optimizer.studies.overload import Overload

Limit = Literal[
    "itl", "ttft", "e2e", "missed", "loss", "throughput", "stability", "stage", "step", "batch", "memory"
]
"""Constraints that can bind the largest rate of a replica."""


class ServiceChange(Document):
    """A server of which another share of the load is served."""

    server: str
    """The server."""
    priority: int
    """Its priority."""
    load_change_rpm: float = Field(alias="loadChange")
    """Load served after less load served before [requests/min]."""
    served_before: float = Field(alias="servedBefore")
    """Share of its load that is served before."""
    served_after: float = Field(alias="servedAfter")
    """Share of its load that is served after; of an idle server both are shares of its least replicas."""
    in_full_before: bool = Field(alias="inFullBefore")
    """Whether it is served in full before: all of its load, by its least number of replicas or more."""
    in_full_after: bool = Field(alias="inFullAfter")
    """Whether it is after."""

    @property
    def is_idle(self) -> bool:
        """Whether it has no load: only the share of its least replicas changes."""
        return not self.load_change_rpm and self.served_before != self.served_after


class EffectRange(Document):
    """Interval of the change of one level between two optima; the change of earlier levels is exact."""

    level: str
    """The first level that is not proved, by its name in the plan."""
    low: float
    """The least that the change can be [cents/h of the value, requests/min, or servers]."""
    high: float
    """The most that it can be."""


class Effect(Document):
    """Difference of the plan after one thing is changed and everything is solved again."""

    cost_change_cents_per_h: float = Field(alias="costChange")
    """Total cost after less total cost before [cents/h]."""
    value_change_cents_per_h: float = Field(alias="valueChange")
    """Objective after less objective before [cents/h]; the plan minimises this, after service."""
    serves: Literal["same", "more", "less"] = "same"
    """Whether more or less load is served: of the highest priority that differs, the load that is served in
    full, then the number of servers with load that are, then the load that is served at all."""
    service: tuple[ServiceChange, ...] = Field((), strict=False)
    """Servers served to another share than before, or newly in full or no longer, in the order of their
    priority."""
    without_reserve_change_rpm: float = Field(0.0, alias="withoutReserveChange", exclude_if=not_)
    """Increase of the load served without its reserve [requests/min]; absent if nothing changes."""
    open_cents_per_h: float | None = Field(None, alias="open")
    """Largest error of the value's change against that between two optima [cents/h]; 0 if both are proved;
    none if a level of service is unproved."""
    interval: EffectRange | None = Field(None, exclude_if=is_none)
    """Interval of the first unproved change between two optima; absent if all are proved."""


class Binding(Document):
    """A limit that, relaxed alone by a little, lets the largest rate of a replica rise."""

    limit: Limit
    """Name of the limit."""
    rate_gain: float = Field(alias="rateGain")
    """Rise of the largest rate when it is relaxed, as a share; 0 where only two limits together raise it."""
    stage: str | None = Field(None, exclude_if=is_none)
    """The stage that can serve no more, where that is the limit; else absent."""


class ChosenPool(Placement):
    """A pool of the plan, and what keeps its replicas from taking more load."""

    max_batch: int = Field(alias="maxBatch")
    """Batch limit of a replica."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost of the pool [cents/h]."""
    binding: tuple[Binding, ...] = Field(strict=False)
    """The binding constraints; empty for a server without load."""


class ForcedPool(Placement):
    """Pool of a server in a plan that was solved again."""

    cost_cents_per_h: float = Field(alias="cost")
    """Cost of the pool [cents/h]."""


class Alternative(Document):
    """A server kept to other accelerators than those it was given, and what the plan then is."""

    pools: tuple[ForcedPool, ...] = Field(strict=False)
    """Pools of the server then; empty if it cannot be served there, or not together with the others."""
    effect: Effect
    """The plan then, less the plan."""


class Option(Document):
    """A candidate of the server: an accelerator on which it can run."""

    accelerator: str
    """The accelerator's name."""
    num_replicas: int = Field(alias="numReplicas")
    """Replicas that carry the full load."""
    max_batch: int = Field(alias="maxBatch")
    """Batch limit of a replica."""
    type: str
    """The accelerator's type."""
    units: int
    """Units of the type."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost of the replicas [cents/h]."""
    max_arrival_rate_rpm: float = Field(alias="maxArrivalRatePerReplica")
    """Largest load of one replica [requests/min]."""
    binding: tuple[Binding, ...] = Field(strict=False)
    """Constraints that bind the largest load."""
    forced: Alternative | None = None
    """The plan with the server kept to this accelerator alone; only where one server is explained."""


class RejectedAccelerator(Document):
    """An accelerator on which the server cannot run, and by how much it misses."""

    accelerator: str
    """The accelerator's name."""
    reason: str
    """One of a closed set."""
    detail: str
    """The reason in numbers."""
    value: float | None = None
    """Found value: ms, tokens, requests or replicas, depending on the reason."""
    limit: float | None = None
    """Limit that it was compared with."""
    factor: float | None = None
    """The larger of the two over the smaller: 1.2 misses by 20 %; none where nothing was measured."""


class ServerExplanation(Document):
    """Reasons for the placement of a server."""

    server: str
    """The server."""
    service_class: str = Field(alias="class")
    """Its service class."""
    model: str
    """Its model."""
    priority: int
    """Its priority."""
    load_rpm: float = Field(alias="load")
    """Load that it has to serve [requests/min]: its arrival rate, or that of its throughput target."""
    served_fraction: float = Field(alias="servedFraction")
    """Share of the load that the plan serves."""
    pools: tuple[ChosenPool, ...] = Field(strict=False)
    """Its pools; empty if it is idle or not served."""
    headroom_rpm: float | None = Field(None, alias="headroom")
    """Load that it can still take before another replica is needed [requests/min]; below 0: what is missing;
    none: no load."""
    headroom_share: float | None = Field(None, alias="headroomShare")
    """Headroom as a share of the load."""
    headroom_wanted: float = Field(0.0, alias="headroomWanted", exclude_if=not_)
    """Required headroom as a share of the load; absent if there is none."""
    next_best: Alternative | None = Field(None, alias="runnerUp")
    """The plan without the accelerators chosen for this server; none for a server that has none."""
    options: tuple[Option, ...] = Field(strict=False)
    """All its candidates, in the order of their cost."""
    rejections: tuple[RejectedAccelerator, ...] = Field(strict=False)
    """The accelerators on which it cannot run, the nearest first."""


class UnitValues(Document):
    """Value of one unit more or fewer of a limited item."""

    one_more: Effect | None = Field(None, alias="oneMore")
    """The plan with one unit more, less the plan; none: not limited."""
    one_fewer: Effect | None = Field(None, alias="oneFewer")
    """The plan with one unit fewer, less the plan; none: not limited, or none to take away."""
    shadow_price_cents_per_h: float | None = Field(None, alias="lagrangianPrice")
    """Shadow price of a unit: value that a small fraction of one more unit would save, per unit, if replicas
    were divisible [cents/h of the objective]; for the servers that the plan serves in full."""


class _CardsLeft(CapacityUse):
    left: int | None = None
    """Units that it leaves."""


class TypeExplanation(UnitValues, _CardsLeft):  # pydantic takes the fields of the last base first
    """Value of the units of an accelerator type."""


class _LimitLeft(LimitUse):
    left: float
    """Unused amount."""


class LimitExplanation(UnitValues, _LimitLeft):
    """Value of the units of a limit other than cards."""


class _ModelLatency(Document):
    service_class: str = Field(alias="class")
    """The service class."""
    model: str
    """The model."""
    metric: LatencyName
    """Name of the target."""
    target_ms: float = Field(alias="target")
    """The target [ms]."""


class TargetPrice(_ModelLatency):
    """Cost of a target: the plan with the target relaxed by 10 %, minus the plan."""

    relaxed_ms: float = Field(alias="relaxed")
    """The relaxed target [ms]."""
    effect: Effect
    """The plan with it, less the plan."""


class UnitRepair(Document):
    """Units to add, with which every server is served in full that units can serve."""

    added: dict[str, int]
    """Units to add by accelerator type."""
    units: int
    """Their number."""
    total_cost_cents_per_h: float = Field(alias="totalCost")
    """Total cost of the plan with them [cents/h]."""
    effect: Effect
    """The plan with them, less the plan."""
    proved: bool
    """Whether it is proved that no repair of its kind is better."""


class Relaxation(_ModelLatency):
    """A target of a server that is not served in full, and the value at which everything is served."""

    needed_ms: float = Field(alias="needed")
    """The least value, to four digits, at which the plan serves everything [ms]."""
    effect: Effect
    """The plan with it, less the plan."""


class Beyond(Document):
    """A server that no number of units serves."""

    server: str
    """The server."""
    detail: str
    """Shortfall as a sentence."""


class RepairOptions(Document):
    """Changes that would serve every server in full; each part is an alternative to the others."""

    summary: str
    """The repairs in one sentence."""
    cheapest: UnitRepair | None = None
    """Units of all types together: least total cost of the plan, then the fewest units."""
    fewest: UnitRepair | None = None
    """Units of all types together: the fewest units, then the least value of the plan."""
    of_one_type: tuple[UnitRepair, ...] = Field((), alias="ofOneType", strict=False)
    """For every type that suffices alone, the fewest units of it."""
    relaxations: tuple[Relaxation, ...] = Field((), strict=False)
    """Targets of which one alone, relaxed, is enough with the units that exist, as far as answered."""
    common_factor: float | None = Field(None, alias="commonFactor")
    """The least factor by which the latency targets of all servers that are not served in full, relaxed
    together, are enough with the units that exist, to four digits; none: no factor is, or not answered."""
    beyond_units: tuple[Beyond, ...] = Field((), alias="beyondUnits", strict=False)
    """Servers that no number of units serves."""


class WishCost(Document):
    """An option that makes the plan hold tomorrow, and the plan without it."""

    option: str
    """The option, by its name in documents; all that state it together."""
    without: Effect
    """The plan without it, less the plan: a fall in cost is what the option costs."""


class LossPrice(Document):
    """Cost of the limit on the quality that a route loses: the plan with another limit, less the plan."""

    route: str
    """The route."""
    max_loss: float = Field(alias="maxLoss")
    """Its limit."""
    other: float
    """The other limit: none of the answers may be worse, twice as many, or all."""
    effect: Effect
    """The plan with it, less the plan."""


class Explanation(Document):
    """Reasons for a plan, and changes that would alter it."""

    plan: Plan
    """The plan that is explained."""
    server: str | None = None
    """The server that is explained in depth; none: all servers are explained."""
    notes: tuple[str, ...] = Field((), strict=False)
    """Notes that are needed to read the rest."""
    servers: tuple[ServerExplanation, ...] = Field(strict=False)
    """The servers, or the one that is explained."""
    types: tuple[TypeExplanation, ...] = Field((), strict=False)
    """The accelerator types; empty where one server is explained."""
    limits: tuple[LimitExplanation, ...] = Field((), exclude_if=not_, strict=False)
    """Limits other than cards; absent if there are none."""
    wishes: tuple[WishCost, ...] = Field((), exclude_if=not_, strict=False)
    """Costs of options: reserves, safety, limits, preferences, tiers and renting; absent without any."""
    losses: tuple[LossPrice, ...] = Field((), exclude_if=not_, strict=False)
    """Costs of the limits on the quality that routes lose; absent without routes."""
    overload: Overload | None = Field(None, exclude_if=is_none)
    """Options that serve more, if cards are left while load is not served; absent if there are none."""
    repair: RepairOptions | None = None
    """Changes that would serve everything; None if everything, or the explained server, is served."""
    targets: tuple[TargetPrice, ...] = Field((), strict=False)
    """The latency targets of the servers above that have load."""
    unanswered: tuple[str, ...] = Field((), strict=False)
    """Repairs and shadow prices that the time limit left without an answer, in words; no number above is for
    them."""
