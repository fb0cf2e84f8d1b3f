"""A plan as one table, from which every summary of it is a group-by.

A row is a server at one placement, with its replicas, cost, rate and metrics. Each row belongs to a load,
which is served or not: of a server, a shared queue, one of its members, or a version. Costs of no server are
rows, too. Sums are computed in decimal numbers and rounded once, so that those of all groups add up to that
of the table. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Any, Self, TypeVar

from optimizer.arrays import grouped
from optimizer.features.reserves.uses import ReserveUse
from optimizer.plan.document import Plan, PlanCost
from optimizer.plan.placements import PlanRow, all_rows
from optimizer.plan.sums import total
from optimizer.schema import Load
from optimizer.spec.streams import replica_load
from optimizer.spec.system import System

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class PlanLoad:
    """A load in a plan: of a server, of a shared queue or one of its members, or of a version."""

    name: str
    """Name in plans."""
    served_share: float
    """Fraction of the load that is served."""
    in_full: bool
    """Whether it is served in full, as an idle server is."""
    is_group: bool
    """Whether it is a shared queue, whose members are the servers."""
    reserve: ReserveUse | None = None
    """The reserve that it requires."""
    load: Load | None = None
    """Load of the replicas as the plan divides it between servers of routes, and the served part for shared
    queues; None if the system is unknown.
    """
    service_class: str | None = None
    """Service class; like model and priority, None if the system is unknown."""
    model: str | None = None
    priority: int | None = None
    same_requests_as: str = ""
    """Load with the same requests, which count once: for a prefill pool the decode pool."""


@dataclass(frozen=True)
class PlanTable:
    """Rows of a plan with their loads, and costs that belong to no server; or a group of them."""

    loads: Mapping[str, PlanLoad]
    """Loads by name, sorted."""
    rows: tuple[PlanRow, ...]
    """Rows of these loads."""
    costs: tuple[PlanCost, ...] = ()
    """Costs of no server, such as those of price tiers."""

    @classmethod
    def of(cls, plan: Plan, system: System | None) -> Self:
        """Return the table of a plan; without its system, loads have no classes, models and priorities."""
        system = None if system is None else plan.planned_in(system)
        short = {item.server: item.served_fraction for item in plan.unserved}
        reserves = {item.server: item for item in plan.reserves}
        known = {} if system is None else _known(plan, system)
        decode_of = {pools[0]: pools[1] for use in plan.disaggregation.values() if (pools := use.pool_names)}
        loads = {
            name: PlanLoad(
                name=name,
                served_share=short.get(name, 1.0),
                in_full=name not in short,
                is_group=name in plan.groups,
                reserve=reserves.get(name),
                same_requests_as=decode_of.get(name, ""),
                **known.get(name, {}),
            )
            for name in sorted({*plan.allocations, *plan.queued_servers, *short})
        }
        return cls(loads, tuple(all_rows(plan)), tuple(plan.shared_costs))

    def by(self, key: Callable[[PlanLoad], _Key]) -> dict[_Key, Self]:
        """Group the loads with their rows by a key of the load; costs of no server are in no group."""
        rows = grouped((row.server, row) for row in self.rows)
        return {
            value: replace(
                self,
                loads={load.name: load for load in loads},
                rows=tuple(row for load in loads for row in rows.get(load.name, ())),
                costs=(),
            )
            for value, loads in grouped((key(load), load) for load in self.loads.values()).items()
        }

    def with_classes_of(self, other: Self) -> Self:
        """Return a copy with classes, models and priorities of another table where its own are unknown."""
        loads = {
            name: replace(
                load,
                **{
                    field: getattr(other.loads[name], field)
                    for field in ("service_class", "model", "priority")
                },
            )
            if load.model is None and name in other.loads
            else load
            for name, load in self.loads.items()
        }
        return replace(self, loads=loads)

    @property
    def counted(self) -> list[PlanLoad]:
        """Loads of which none has the requests of another."""
        return [load for load in self.loads.values() if load.same_requests_as not in self.loads]

    @property
    def servers(self) -> list[PlanLoad]:
        """Loads of servers, members and versions that count, without shared queues."""
        return [load for load in self.counted if not load.is_group]

    @property
    def placed(self) -> list[PlanRow]:
        """Rows of replicas and rentals, without those that show the metrics of members of shared queues."""
        return [row for row in self.rows if not row.is_member]

    @property
    def cost_cents_per_h(self) -> float:
        """Cost of the rows, at list prices, plus the other costs [cents/h]."""
        others = (cost.amount_cents_per_h for cost in self.costs)
        return total([*(row.cost_cents_per_h for row in self.rows if not row.is_member), *others])


def _known(plan: Plan, system: System) -> dict[str, dict[str, Any]]:
    """Return the load, class, model and priority of each server, queue and member of a system, by name."""
    loads = {name: replica_load(server) for name, server in system.as_served(plan.routed_rpm).items()}
    loads |= {name: stream.load for name, stream in system.streams.items() if name != stream.group}
    return {
        name: {
            "load": loads[name],
            "service_class": server.service_class,
            "model": server.model,
            "priority": system.priority(server),
        }
        for name, server in system.in_plans.items()
    }


def rows_by_type(system: System | None, plan: Plan) -> dict[str | None, list[PlanRow]]:
    """Group the rows of replicas in a plan by accelerator type; None for unknown accelerators."""
    types = {} if system is None else {name: item.type for name, item in system.accelerators.items()}
    return grouped((types.get(row.pool.accelerator), row) for row in all_rows(plan) if row.pool is not None)


def cost_of(rows: Iterable[PlanRow]) -> float:
    """Return the cost of rows at list prices [cents/h]."""
    return total(row.cost_cents_per_h for row in rows)


def mean_of(rows: Iterable[PlanRow], field: str) -> float | None:
    """Return the mean of a metric of rows, weighted by their rates; None without requests.

    The latencies of external services are not counted.
    """
    return mean([(getattr(row.figures, field), row.rate_rpm) for row in rows if row.mode != "external"])


def mean(weighted: Sequence[tuple[float, float]]) -> float | None:
    """Return the mean of values with weights (eq. 55); None if all weights are 0.

    `weighted` has pairs of value and weight.
    """
    weighted = [(value, weight) for value, weight in weighted if weight > 0]
    if len({value for value, _ in weighted}) <= 1:
        return weighted[0][0] if weighted else None  # exact conversion
    # Weights relative to the largest one avoid overflow and underflow of the products.
    heaviest = max(weight for _, weight in weighted)
    shares = [weight / heaviest for _, weight in weighted]
    return fsum(value * share for (value, _), share in zip(weighted, shares, strict=True)) / fsum(shares)
