"""Rows of a comparison: two plans, grouped by server, class, model and accelerator type.

Each plan has its system if that is known. Sums are computed in decimal numbers and rounded once,
so that the rows of each type add up to the total.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose
from operator import itemgetter
from typing import Self

from optimizer.arrays import grouped
from optimizer.kinds.table import KindPoolFields, kind_of_pool
from optimizer.plan import Plan
from optimizer.plan.document import EXTERNAL
from optimizer.plan.placements import PlanRow
from optimizer.plan.sums import less, total
from optimizer.plan.table import PlanLoad, PlanTable, cost_of, mean, mean_of, rows_by_type
from optimizer.spec.system import System
from optimizer.studies.comparison.comparison_document import (
    AcceleratorShare,
    ClassModelRow,
    ClassRow,
    ComparisonRow,
    CostComparison,
    Difference,
    PriorityRow,
    ReserveChange,
    ServerChange,
    ServerRow,
    ServiceChange,
    SideMetrics,
    TypeComparison,
    TypeUse,
)
from optimizer.studies.service import service_by_priority


@dataclass(frozen=True, slots=True)
class Case:
    """A plan to be compared, as a table, and the system for which it was made."""

    plan: Plan
    system: System | None
    """System that was planned; None if unknown."""
    table: PlanTable

    @classmethod
    def of(cls, plan: Plan, system: System | None) -> Self:
        """Return a plan in the form in which it is compared."""
        system = None if system is None else plan.planned_in(system)
        return cls(plan, system, PlanTable.of(plan, system))

    @property
    def loads(self) -> Mapping[str, PlanLoad]:
        """All loads by name, sorted."""
        return self.table.loads

    def with_classes_of(self, other: Self) -> Self:
        """Return a copy with classes, models and priorities of the other case where its own are unknown."""
        return replace(self, table=self.table.with_classes_of(other.table))


def serve_the_same(one: Case, two: Case) -> bool:
    """Return whether the same servers are served to the same share of their loads in both plans."""
    first, second = _by_server(one, two), _by_server(two, one)
    return first.keys() == second.keys() and all(_served_alike(first[name], second[name]) for name in first)


def have_same_servers(one: Case, two: Case) -> bool:
    """Return whether both plans are for the same servers of documents, in whatever pools."""
    return _by_server(one, two).keys() == _by_server(two, one).keys()


def _by_server(case: Case, other: Case) -> Mapping[str, PlanLoad]:
    """Return the loads by name, or joined by server of the document if the other plan has other pools."""
    if case.loads.keys() == other.loads.keys():
        return case.loads
    owner_of = case.plan.server_of
    owned = grouped((owner_of.get(name, name), load) for name, load in case.loads.items())
    return {
        name: replace(
            loads[0],
            name=name,
            served_share=min(load.served_share for load in loads),
            in_full=all(load.in_full for load in loads),
        )
        for name, loads in owned.items()
    }


def _served_alike(first: PlanLoad, second: PlanLoad) -> bool:
    """Return whether a server has equal served shares in both plans, and is in full on both or neither."""
    same_share = isclose(first.served_share, second.served_share, rel_tol=1e-9)
    return same_share and first.in_full == second.in_full


def reserves_alike(one: Case, two: Case) -> bool:
    """Return whether the servers of both plans have the same reserves."""
    return all(_reserve_change(one, two, name) == "same" for name in one.loads)


def _reserve_change(one: Case, two: Case, server: str) -> ReserveChange:
    """Return the change of a server's reserve; `same` if only one plan has the server."""
    if server not in one.loads or server not in two.loads:
        return "same"
    before, after = one.loads[server].reserve, two.loads[server].reserve
    had, has = (item is not None and item.has_reserve for item in (before, after))
    if had != has:
        return "gained" if has else "lost"
    required = [item and item.model_copy(update={"cost_cents_per_h": 0.0}) for item in (before, after)]
    return "same" if required[0] == required[1] else "other"


def server_rows(one: Case, two: Case) -> tuple[ServerRow, ...]:
    """Return a row for every server of either plan, sorted by name."""
    before, after = (case.table.by(lambda load: load.name) for case in (one, two))
    rows = []
    for name in sorted(before.keys() | after.keys()):
        first, second = (figures_of(side.get(name), members=True) for side in (before, after))
        load = two.loads.get(name) or one.loads[name]
        rows.append(
            ServerRow(
                **dict(row_of(first, second)),
                server=name,
                service_class=load.service_class,
                model=load.model,
                priority=load.priority,
                change=_server_change(first, second),
                service=_service_change(first, second),
                reserve=_reserve_change(one, two, name),
            )
        )
    return tuple(rows)


def _server_change(first: SideMetrics | None, second: SideMetrics | None) -> ServerChange:
    if first is None or second is None:
        return "added" if first is None else "removed"
    before, after = first.accelerators, second.accelerators
    if not before or not after:
        return "started" if after else "stopped" if before else "none"
    if [item.accelerator for item in before] != [item.accelerator for item in after]:
        return "moved"
    if [item.num_replicas for item in before] != [item.num_replicas for item in after]:
        return "scaled"
    return "none" if [x.max_batch for x in before] == [x.max_batch for x in after] else "batch"


def _service_change(first: SideMetrics | None, second: SideMetrics | None) -> ServiceChange:
    before = first is not None and first.served_in_full == 1
    after = second is not None and second.served_in_full == 1
    if before == after or first is None or second is None:
        return "same"
    return "newly_served" if after else "newly_unserved"


def priority_rows(one: Case, two: Case) -> tuple[PriorityRow, ...]:
    """Return the service of each priority, the highest first; empty if the system of a plan is unknown."""
    if one.system is None or two.system is None:
        return ()
    first, second = (
        {row.priority: row for row in service_by_priority(case.plan, system)}
        for case, system in ((one, one.system), (two, two.system))
    )
    loads = _by_server(one, two), _by_server(two, one)
    places = [{name: load.priority for name, load in some.items() if not load.is_group} for some in loads]
    differing = {
        place[name]
        for name in places[0].keys() | places[1].keys()
        for place in places
        if name in place
        if places[0].get(name) != places[1].get(name) or not _served_alike(loads[0][name], loads[1][name])
    }
    return tuple(
        PriorityRow(
            priority=priority,
            same=priority not in differing,
            first=first.get(priority),
            second=second.get(priority),
        )
        for priority in sorted(first.keys() | second.keys())
    )


def class_rows(one: Case, two: Case) -> tuple[ClassRow, ...]:
    """Return a row for every service class, highest priority first."""
    rows = [
        ClassRow(**dict(row), service_class=load.service_class, priority=load.priority)
        for load, row in _grouped(one, two, lambda load: load.service_class)
    ]
    return tuple(
        sorted(rows, key=lambda row: (row.priority is None, row.priority or 0, row.service_class or ""))
    )


def class_model_rows(one: Case, two: Case) -> tuple[ClassModelRow, ...]:
    """Return a row for every service class and model, sorted by name."""
    rows = [
        ClassModelRow(**dict(row), service_class=load.service_class, model=load.model, priority=load.priority)
        for load, row in _grouped(one, two, lambda load: (load.service_class, load.model))
    ]
    return tuple(sorted(rows, key=lambda row: (row.service_class or "", row.model or "")))


def _grouped(
    one: Case, two: Case, key: Callable[[PlanLoad], Hashable]
) -> Iterator[tuple[PlanLoad, ComparisonRow]]:
    """Yield a row for the loads with equal keys, and one of the loads.

    If the two systems differ about a server, each plan groups the server by its own system.
    """
    before, after = one.table.by(key), two.table.by(key)
    for group in dict.fromkeys((*before, *after)):
        tables = before.get(group), after.get(group)
        load = [*(tables[1] or tables[0] or one.table).loads.values()][-1]
        yield load, row_of(*map(figures_of, tables))


def type_rows(one: Case, two: Case) -> tuple[TypeComparison, ...]:
    """Return a row for every accelerator type, sorted by name."""
    before, after = _type_uses(one, two), _type_uses(two, one)
    rows = []
    for name in sorted(before.keys() | after.keys()):
        first, second = before.get(name), after.get(name)
        costs = [0.0 if use is None else use.cost_cents_per_h for use in (first, second)]
        rows.append(
            TypeComparison(
                type=name,
                first=first,
                second=second,
                used_difference=(second.used if second else 0) - (first.used if first else 0),
                cost_difference_cents_per_h=(
                    None if costs[0] is None or costs[1] is None else less(costs[1], costs[0])
                ),
            )
        )
    return tuple(rows)


def _type_uses(case: Case, other: Case) -> dict[str, TypeUse]:
    """Return the cards and costs by accelerator type.

    A plan without a system uses the other plan's accelerators.
    """
    system = case.system or other.system
    rows = rows_by_type(system, case.plan)
    known = rows.keys() <= {item.type for item in case.plan.capacity}
    return {
        item.type: TypeUse.taken_from(
            item, cost_cents_per_h=cost_of(rows.get(item.type, ())) if known else None
        )
        for item in case.plan.capacity
    }


def figures_of(table: PlanTable | None, *, members: bool = False) -> SideMetrics | None:
    """Return the combined metrics of the loads of a table; None without loads.

    Args:
        members: whether members of shared queues count with their own metrics; otherwise only their queues
            do, with those of the replicas.
    """
    if table is None or not table.loads:
        return None
    rows, loads = table.rows if members else table.placed, table.counted
    repeated = table.loads.keys() - {load.name for load in loads}
    stated = [item.load for item in loads if item.load is not None]
    arrives = any(load.arrival_rate_rpm for load in stated)
    weighted = [(load, load.arrival_rate_rpm if arrives else 1.0) for load in stated]
    reserves = [item.reserve for item in loads if item.reserve is not None]
    return SideMetrics(
        servers=len(table.servers),
        served_in_full=sum(item.in_full for item in table.servers),
        reserves=len(reserves),
        lack_reserve=sum(not item.has_reserve for item in reserves),
        accelerators=tuple(_by_accelerator(table.placed)),
        num_replicas=sum(row.replicas for row in rows),
        cost_cents_per_h=table.cost_cents_per_h,
        arrival_rate_rpm=total(load.arrival_rate_rpm for load in stated) if stated else None,
        carried_rate_rpm=total(
            row.rate_rpm * (1 - getattr(row.figures, "loss", 0.0))
            for row in rows
            if row.server not in repeated
        ),
        in_tokens=mean([(load.in_tokens, weight) for load, weight in weighted]),
        out_tokens=mean([(load.out_tokens, weight) for load, weight in weighted]),
        **{field: mean_of(rows, field) for field in ("itl_ms", "ttft_ms", "wait_ms")},
        own=_own_means([row for row in rows if row.pool is not None]),
    )


def _own_means(rows: Sequence[PlanRow]) -> dict[str, float]:
    """Return the load-weighted means of metrics that only some kinds of replicas have, by field name."""
    kinds = {row.spot: kind_of_pool(row.pool) for row in rows if row.pool is not None}
    fields = {
        shown.field
        for kind in kinds.values()
        for shown in kind.shown("comparison").values()
        if shown.field in KindPoolFields.model_fields
    }
    means = {
        field: mean_of([row for row in rows if field in kinds[row.spot].fields], field)
        for field in sorted(fields)
    }
    return {field: value for field, value in means.items() if value is not None}


def alike(first: SideMetrics | None, second: SideMetrics | None) -> bool:
    """Return whether the metrics of both plans are equal, ignoring metrics that one plan lacks."""
    if first is None or second is None or None in {first.arrival_rate_rpm, second.arrival_rate_rpm}:
        loads = {"arrival_rate_rpm": None, "in_tokens": None, "out_tokens": None}
        first, second = (side and side.model_copy(update=loads) for side in (first, second))
    return first == second


def _by_accelerator(rows: Iterable[PlanRow]) -> Iterator[AcceleratorShare]:
    """Yield total replicas and cost by accelerator, sorted by name, then those of external services."""
    places = grouped(((row.pool is None, row.pool.placed_on if row.pool else EXTERNAL), row) for row in rows)
    for (_, name), there in sorted(places.items(), key=itemgetter(0)):
        yield AcceleratorShare(
            accelerator=name,
            num_replicas=sum(row.replicas for row in there),
            max_batch=max(getattr(row.figures, "max_batch", 0) for row in there),
            cost_cents_per_h=cost_of(there),
        )


def cost_rows(one: Case, two: Case) -> tuple[CostComparison, ...]:
    """Return a row for every cost beyond the list prices of pools, in the order of the plans."""
    before, after = ({(cost.origin, cost.name): cost for cost in case.plan.costs} for case in (one, two))
    rows = []
    for key in dict.fromkeys((*before, *after)):
        amounts = [side[key].amount_cents_per_h if key in side else 0.0 for side in (before, after)]
        rows.append(
            CostComparison(
                origin=key[0],
                name=key[1],
                first=amounts[0],
                second=amounts[1],
                difference_cents_per_h=less(amounts[1], amounts[0]),
            )
        )
    return tuple(rows)


def row_of(first: SideMetrics | None, second: SideMetrics | None) -> ComparisonRow:
    """Return a row with the metrics of both plans and their difference."""
    return ComparisonRow(first=first, second=second, difference=_difference(first, second))


def _difference(first: SideMetrics | None, second: SideMetrics | None) -> Difference:
    """Return the second plan minus the first; a missing plan counts as no replicas, cost or load."""

    def change(name: str, absent: float | None) -> float | None:
        before = absent if first is None else getattr(first, name)
        after = absent if second is None else getattr(second, name)
        return None if before is None or after is None else less(after, before)

    before, after = (0 if side is None else side.num_replicas for side in (first, second))
    exact = {
        name: change(name, None if name.endswith("_ms") else 0)
        for name in Difference.model_fields
        if name not in {"num_replicas", "own"}
    }
    had, has = ({} if side is None else side.own for side in (first, second))
    own = {name: less(has[name], had[name]) for name in had.keys() & has.keys()}
    return Difference.model_validate({"num_replicas": after - before, "own": own} | exact)
