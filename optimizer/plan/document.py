"""The plan as a document: the same from the library, the command line and REST."""

from collections.abc import Sized
from typing import Annotated, Any, Literal

from pydantic import Field

from optimizer.documents import Document, is_none
from optimizer.errors import IncompletePlanError, SpecError
from optimizer.kinds.table import KindPoolFields
from optimizer.money import cost_amount, cost_unit
from optimizer.plan.notebook import notebook_table
from optimizer.plan.tabular import data_frame
from optimizer.quantities import counted, precise, quantity
from optimizer.queueing.measures import MISSED
from optimizer.solvers.problem import SolverName
from optimizer.spec.schema import AllocationData, EstimateEnd, Load, Server
from optimizer.spec.system import System


def _is_empty(value: Sized) -> bool:
    return not len(value)


EXTERNAL = "external"
"""What changes name as the accelerator of a server that rents."""


class TargetFigure(Document):
    """A figure beside the limit that it must keep to."""

    measure: str
    """What is measured: a percentile of a latency, or the share of requests beyond a target."""
    value: float
    """The figure at the load [ms; a share is a number up to 1]."""
    limit: float
    """The limit, in the same unit."""

    @property
    def text(self) -> str:
        """The figure beside its limit: ``p95 TTFT 512 (800)``, ``97.6 % within (97 %)``."""
        if self.measure == MISSED.label:
            return f"{quantity(100 * (1 - self.value))} % within ({quantity(100 * (1 - self.limit))} %)"
        return f"{self.measure} {quantity(self.value)} ({precise(self.limit)})"


class _Figures(Document):
    """What every pool has, of whatever kind."""

    accelerator: str
    """The accelerator's name."""
    num_replicas: int = Field(alias="numReplicas")
    """Replicas."""
    max_batch: int = Field(alias="maxBatch")
    """Batch limit of a replica."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost of the pool [cents/h]."""
    arrival_rate_rpm: float = Field(alias="arrivalRate")
    """Load that the pool carries [requests/min]."""
    max_arrival_rate_rpm: float = Field(alias="maxArrivalRate")
    """Largest load at which the pool meets every target [requests/min]."""
    itl_ms: float = Field(alias="itlAverage")
    """Mean inter-token latency at the load [ms]."""
    ttft_ms: float = Field(alias="ttftAverage")
    """Mean time to first token at the load; of batch servers the mean latency [ms]."""
    wait_ms: float = Field(alias="waitAverage")
    """Mean wait before the batch at the load, part of the time to first token [ms]."""
    utilization: float
    """Mean batch over the batch limit, at the load; of batch servers the load over what they could answer."""
    loss: float
    """Share of requests that find the queue full, at the load."""


class _Grounds(Document):
    """What the figures of a pool are held against, and what they rest on."""

    targets: tuple[TargetFigure, ...] = Field((), exclude_if=_is_empty, strict=False)
    """What is measured against targets that are not about means; absent without any."""
    estimated: EstimateEnd | None = Field(None, exclude_if=is_none)
    """The end of the interval that its figures rest on, where token times are estimated; else absent."""
    provenance: str | None = Field(None, exclude_if=is_none)
    """Where its token times come from, where they were fitted to benchmarks; else absent."""
    outside: tuple[str, ...] = Field((), exclude_if=_is_empty, strict=False)
    """In what its load is outside what those benchmarks measured; absent where it is inside."""


class Pool(_Grounds, KindPoolFields, _Figures):  # the fields of the last come first
    """Replicas of one server on one accelerator, and what they are predicted to do at their load."""


class Unserved(Document):
    """A server that is not served in full, and why."""

    server: str
    """The server."""
    priority: int
    """Its priority."""
    reason: str
    """One of a closed set."""
    detail: str
    """The reason in numbers."""
    served_fraction: float = Field(0.0, alias="servedFraction")
    """Share of its load that is served."""


class CapacityUse(Document):
    """Units of one accelerator type."""

    type: str
    """The accelerator type."""
    limit: int | None = None
    """Units that exist; none: not limited."""
    used: int
    """Units that the plan uses."""


class LimitUse(Document):
    """What a plan uses of something that is limited beside cards."""

    limit: str
    """The limit."""
    item: str
    """What of it."""
    amount: float
    """How much there is."""
    used: float
    """How much the plan uses."""


class ReserveUse(Document):
    """What a server that is served in full has beyond its load."""

    server: str
    """The server."""
    has_reserve: bool = Field(alias="hasReserve")
    """Whether it has all the reserve that it is to have."""
    headroom_wanted: float = Field(0.0, alias="headroomWanted")
    """Share of its load by which it is to be able to grow."""
    spare_replicas: int = Field(0, alias="spareReplicas")
    """Replicas that are to be dispensable."""
    availability_target: float | None = Field(None, alias="availabilityTarget", exclude_if=is_none)
    """Least probability that enough replicas are there; absent: none is asked for."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost of the replicas that its load alone does not need [cents/h]."""


class Rented(Document):
    """A server whose requests an external service answers, all of them."""

    server: str
    """The server."""
    arrival_rate_rpm: float = Field(alias="arrivalRate")
    """Its load [requests/min]."""
    cost_cents_per_h: float = Field(alias="cost")
    """What the service costs at the load [cents/h]."""
    itl_ms: float = Field(alias="itlAverage")
    """Mean inter-token latency [ms]."""
    ttft_ms: float = Field(alias="ttftAverage")
    """Mean time to first token [ms]."""


class TierUse(Document):
    """What accelerators with tiers cost together."""

    accelerator: str
    """The accelerator."""
    used: int
    """How many of it the plan uses."""
    cost_cents_per_h: float = Field(alias="cost")
    """What they cost, with commitments that are not used [cents/h]."""
    difference_cents_per_h: float = Field(alias="difference")
    """That less their list price, at which pools stand [cents/h]."""


class Placement(Document):
    """An accelerator and a number of replicas."""

    accelerator: str
    """The accelerator's name."""
    num_replicas: int = Field(alias="numReplicas")
    """Replicas."""


class Kept(Placement):
    """Replicas that keep running beside the plan: no part of it, but their cards are in use."""

    server: str
    """The server: one that cannot be served, or one whose new replicas are not ready yet; with 0 replicas one
    that has to stop before it can be served elsewhere."""


class Change(Document):
    """A server whose accelerator or replicas differ from the current ones."""

    server: str
    """The server."""
    before: tuple[Placement, ...] = Field(alias="from", strict=False)
    """What it runs on now; empty for nothing."""
    after: tuple[Placement, ...] = Field(alias="to", strict=False)
    """What it is to run on; empty for nothing."""
    cost_change_cents_per_h: float = Field(alias="costChange")
    """Cost after less cost before [cents/h]."""


class Level(Document):
    """One objective of the lexicographic order, as reached."""

    name: str
    """What is minimised."""
    value: float
    """What was reached: requests/min, servers, cents/h or servers, by the name."""
    bound: float | None = None
    """No plan can do better, given the levels before; none where nothing is proved."""
    gap: float | None = None
    """Relative distance between value and bound."""


class Plan(Document):
    """What to run where; every server of the input is in `allocations` or in `unserved`."""

    status: Literal["optimal", "feasible", "heuristic"]
    """Proved within the gap, stopped early, or without proof."""
    solver: SolverName
    """What found the plan."""
    complete: bool
    """Whether every server is served in full."""
    objective: float
    """Transition value reached [cents/h]."""
    bound: float | None = None
    """Its proved lower bound [cents/h]."""
    gap: float | None = None
    """Relative distance between the two."""
    levels: tuple[Level, ...] = Field(strict=False)
    """Every objective in its order."""
    total_cost_cents_per_h: float = Field(alias="totalCost")
    """Cost of all allocations, with what tiers change of it and what is rented [cents/h]."""
    allocations: dict[str, Annotated[tuple[Pool, ...], Field(strict=False)]] = Field(strict=False)
    """Pools by server; none for an idle server that needs no replicas."""
    unserved: tuple[Unserved, ...] = Field(strict=False)
    """Servers that are not served in full."""
    capacity: tuple[CapacityUse, ...] = Field(strict=False)
    """Use of every accelerator type."""
    limits: tuple[LimitUse, ...] = Field((), exclude_if=_is_empty, strict=False)
    """Use of what is limited beside cards. Absent without other limits."""
    rented: tuple[Rented, ...] = Field((), exclude_if=_is_empty, strict=False)
    """Servers whose requests external services answer; they have no pools. Absent without any."""
    not_rented: tuple[str, ...] = Field((), alias="notRented", exclude_if=_is_empty, strict=False)
    """Servers whose external services the plan leaves out, as a service that plans for a running fleet does.
    Absent without any."""
    reserves: tuple[ReserveUse, ...] = Field((), exclude_if=_is_empty, strict=False)
    """What servers have beyond their loads. Absent where none is to have any."""
    tiers: tuple[TierUse, ...] = Field((), exclude_if=_is_empty, strict=False)
    """What accelerators with tiers cost. Absent where none has any."""
    changes: tuple[Change, ...] = Field(strict=False)
    """Servers whose allocation changes."""
    currency: str | None = Field(None, exclude_if=is_none)
    """The currency that the system's prices name; costs are hundredths of it. Absent where none is named."""

    rate_factors: dict[str, dict[str, float]] = Field(
        default_factory=dict, alias="rateFactors", exclude_if=_is_empty
    )
    """By server and accelerator, the share of its largest rate that a replica keeps its targets at where a
    simulation showed that it misses them above; 0: at none. Absent without any."""

    kept: tuple[Kept, ...] = Field((), exclude_if=_is_empty, strict=False)
    """Replicas that keep their cards beside the plan, from a service that plans for a running fleet; `used`
    of `capacity` does not count them. Absent without any."""

    def to_json(self) -> str:
        """Return the plan as JSON text, the same bytes for the same plan."""
        return self.model_dump_json(by_alias=True, indent=2)

    @property
    def factor_of_pair(self) -> dict[tuple[str, str], float]:
        """The factors on largest rates, by server and accelerator."""
        return {
            (server, accelerator): factor
            for server, factors in self.rate_factors.items()
            for accelerator, factor in factors.items()
        }

    @property
    def kept_replicas(self) -> dict[tuple[str, str], int]:
        """Replicas that are kept, by server and accelerator."""
        return {(item.server, item.accelerator): item.num_replicas for item in self.kept}

    @property
    def estimated_pools(self) -> int:
        """How many pools rest on estimated token times."""
        return sum(pool.estimated is not None for pools in self.allocations.values() for pool in pools)

    def to_dataframe(self) -> Any:
        """Return the plan as a pandas data frame: a row for each pool, and one for each server without any.

        The columns are `server`, the fields of `Pool` by their Python names, with their units, and
        `served_fraction` and `reason`.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return data_frame(self._rows(), _COLUMNS)

    def _repr_html_(self) -> str:
        """Return the plan as a notebook shows it."""
        servers = len(self._server_names())
        served = f"{servers - len(self.unserved):,} of {counted(servers, 'server')} served in full"
        cost = f"{cost_amount(self.total_cost_cents_per_h, self.currency)} {cost_unit(self.currency)}"
        estimated = "; ~ token times are estimated, not measured" if self.estimated_pools else ""
        caption = f"{self.status} plan, {cost}, {served}{estimated}"
        return notebook_table(caption, self._rows(), self.currency)

    def _rows(self) -> list[dict[str, object]]:
        unserved = {item.server: item for item in self.unserved}
        rows: list[dict[str, object]] = []
        for name in sorted(self._server_names()):
            item = unserved.get(name)
            fraction, reason = (1.0, None) if item is None else (item.served_fraction, item.reason)
            rest = {"server": name, "served_fraction": fraction, "reason": reason}
            pools = [{**dict(pool), "pool": pool} for pool in self.allocations.get(name, ())]
            rows += ({**_NO_POOL, **pool, **rest} for pool in pools or [{}])
        return rows

    def raise_for_status(self) -> None:
        """Raise if a server is not served in full.

        Raises:
            IncompletePlanError: names the unserved servers.
        """
        if self.complete:
            return
        names = [item.server for item in self.unserved]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise IncompletePlanError(f"{len(names)} of the servers cannot be served in full: {shown}")

    def applied_to(self, system: System) -> System:
        """Return the system as it is once the plan is carried out: what was planned is what runs.

        A server with several pools shows the largest of them, as its current allocation holds one.

        Raises:
            SpecError: the plan is not for the servers and accelerators of this system.
        """
        self._check_is_for(system)
        servers = {
            name: server.model_copy(
                update={"current": _as_allocation(self.allocations.get(name, ()), server.current.load)}
            )
            for name, server in system.servers.items()
        }
        return system.with_servers(servers)

    def allocation_of(self, server: Server) -> AllocationData:
        """Return what a server is to run, at the load that it has now; its largest pool if it has several.

        Raises:
            SpecError: the plan does not know the server.
        """
        if server.name not in self.allocations and server.name not in self._server_names():
            raise SpecError(
                f"servers.{server.name}: not in the plan; plan again with the servers of this system"
            )
        return _as_allocation(self.allocations.get(server.name, ()), server.current.load)

    def reference_answer(self, system: System) -> dict[str, Any]:
        """Return the answer in the reference's format, with every server that has an allocation.

        A server with several pools shows its largest in the reference's fields, and all under ``pools``.

        Raises:
            SpecError: the plan is not for the servers and accelerators of this system.
        """
        self._check_is_for(system)
        answer: dict[str, Any] = {}
        for name, pools in self.allocations.items():
            load = system.servers[name].current.load
            answer[name] = _reference_allocation(pools, load)
        return {"allocations": answer}

    def _server_names(self) -> set[str]:
        return {*self.allocations, *(item.server for item in self.unserved)}

    def _check_is_for(self, system: System) -> None:
        """Refuse a system whose servers are not those of the plan, or that lacks an accelerator of it."""
        hint = "the plan was made for another system"
        mine = self._server_names()
        for name in sorted(mine - system.servers.keys()):
            raise SpecError(f"servers.{name}: in the plan, but not in the system; {hint}")
        for name in sorted(system.servers.keys() - mine):
            raise SpecError(f"servers.{name}: in the system, but not in the plan; {hint}")
        for name, pools in self.allocations.items():
            for pool in pools:
                if pool.accelerator not in system.accelerators:
                    raise SpecError(
                        f"allocations.{name}: accelerator {pool.accelerator!r} is not in the system; {hint}"
                    )


_NO_POOL: dict[str, object] = {
    "pool": None,
    "accelerator": None,
    "num_replicas": 0,
    "cost_cents_per_h": 0.0,
    "arrival_rate_rpm": 0.0,
    "max_arrival_rate_rpm": 0.0,
}
"""A server's row where it runs on nothing; other figures are missing there."""
_COLUMNS = ("server", *Pool.model_fields, "served_fraction", "reason")


def _largest(pools: tuple[Pool, ...]) -> Pool | None:
    return max(pools, key=lambda pool: pool.arrival_rate_rpm, default=None)


def _as_allocation(pools: tuple[Pool, ...], load: Load) -> AllocationData:
    """Return the largest pool as an allocation of the documents, or the lack of one."""
    main = _largest(pools)
    if main is None:
        return AllocationData(load=load)
    return AllocationData.model_construct(  # what is planned may be dearer than any document may say
        accelerator=main.accelerator,
        num_replicas=main.num_replicas,
        max_batch=main.max_batch,
        cost_cents_per_h=main.cost_cents_per_h,
        itl_ms=main.itl_ms,
        ttft_ms=main.ttft_ms,
        load=load,
    )


def _reference_allocation(pools: tuple[Pool, ...], load: Load) -> dict[str, Any]:
    main = _largest(pools) or AllocationData()
    wire: dict[str, Any] = {
        "accelerator": main.accelerator,
        "numReplicas": main.num_replicas,
        "maxBatch": main.max_batch,
        "cost": main.cost_cents_per_h,
        "itlAverage": main.itl_ms,
        "ttftAverage": main.ttft_ms,
        "load": {
            "arrivalRate": load.arrival_rate_rpm,
            "avgInTokens": load.in_tokens,
            "avgOutTokens": load.out_tokens,
        },
    }
    if len(pools) > 1:
        wire["pools"] = [pool.model_dump(mode="json", by_alias=True) for pool in pools]
    return wire
