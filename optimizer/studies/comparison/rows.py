"""Rows of a comparison: two plans, grouped by server, class, model and accelerator type.

Each plan has its system if that is known. Sums are computed in decimal numbers and rounded once,
so that the rows of each type add up to the total.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isclose
from operator import itemgetter
from typing import NamedTuple

from optimizer.arrays import grouped
from optimizer.features.reserves.uses import ReserveUse
from optimizer.features.shared_queues.uses import QueueMember
from optimizer.kinds.table import KindPoolFields, kind_of_pool, kinds_of
from optimizer.plan import Plan, Pool
from optimizer.plan.document import EXTERNAL
from optimizer.plan.placements import PlacementRow, Serving, parts_of
from optimizer.schema import Load, Server
from optimizer.spec.streams import replica_load
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
from optimizer.studies.comparison.sums import less, total
from optimizer.studies.service import service_by_priority


@dataclass(frozen=True, slots=True)
class Case:
    """A plan to be compared and, if known, the system for which it was made."""

    plan: Plan
    system: System | None
    """System that was planned; None if unknown."""
    loads: Mapping[str, Load]
    """Load of the replicas of each server; empty if the system is unknown. Shared queues have no load, only
    their members have.
    """
    servers: Mapping[str, Server]
    """Settings of each server; empty if the system is unknown."""
    shares: Mapping[str, float]
    """Served share of the load of each server in the plan, sorted by name."""
    left_out: frozenset[str]
    """Names of the servers that are not served in full."""
    reserves: Mapping[str, ReserveUse]
    """Reserves of the servers that require one."""
    parts: Mapping[str, Sequence[tuple[PlacementRow, Serving]]]
    """Placements of each planned server, with the part that serves it."""
    groups: frozenset[str]
    """Names of planned servers whose replicas several servers share."""
    members: Mapping[str, QueueMember]
    """Served members of shared queues, by name."""


def case_of(plan: Plan, system: System | None) -> Case:
    """Return a plan in the form in which it is compared."""
    shares = dict.fromkeys([*plan.allocations, *plan.queued_servers], 1.0)
    shares |= {item.server: item.served_fraction for item in plan.unserved}
    left_out = frozenset(item.server for item in plan.unserved)
    loads, servers = ({}, {}) if system is None else (_loads(plan, system), system.in_plans)
    reserves = {item.server: item for item in plan.reserves}
    shares, parts = {name: shares[name] for name in sorted(shares)}, parts_of(plan)
    return Case(plan, system, loads, servers, shares, left_out, reserves, parts, plan.groups, plan.members)


def _loads(plan: Plan, system: System) -> dict[str, Load]:
    """Return the load of each server.

    A shared queue has none, and servers of routes have the divided load.
    """
    members = {name: item.load for name, item in system.streams.items() if name != item.group}
    return {
        name: replica_load(server) for name, server in system.as_served(plan.routed_rpm).items()
    } | members


def serve_the_same(one: Case, two: Case) -> bool:
    """Return whether the same servers are served to the same share of their loads in both plans."""
    same = one.shares.keys() == two.shares.keys()
    return same and all(_served_alike(one, two, name) for name in one.shares)


def _served_alike(one: Case, two: Case, server: str) -> bool:
    """Return whether a server has equal served shares in both plans, and is in full on both or neither."""
    same_share = isclose(one.shares[server], two.shares[server], rel_tol=1e-9)
    return same_share and (server in one.left_out) == (server in two.left_out)


def reserves_alike(one: Case, two: Case) -> bool:
    """Return whether the servers of both plans have the same reserves."""
    return all(
        _reserve_change(one, two, name) == "same" for name in one.reserves.keys() | two.reserves.keys()
    )


def _reserve_change(one: Case, two: Case, server: str) -> ReserveChange:
    """Return the change of a server's reserve; `same` if only one plan has the server."""
    if server not in one.shares or server not in two.shares:
        return "same"
    before, after = one.reserves.get(server), two.reserves.get(server)
    had, has = (item is not None and item.has_reserve for item in (before, after))
    if had != has:
        return "gained" if has else "lost"
    required = [item and item.model_copy(update={"cost_cents_per_h": 0.0}) for item in (before, after)]
    return "same" if required[0] == required[1] else "other"


def server_rows(one: Case, two: Case) -> tuple[ServerRow, ...]:
    """Return a row for every server of either plan, sorted by name."""
    rows = []
    for name in sorted(one.shares.keys() | two.shares.keys()):
        first, second = (
            _in_queue(case, name, figures_of(case, [name] if name in case.shares else []))
            for case in (one, two)
        )
        rows.append(
            ServerRow(
                **dict(row_of(first, second)),
                **_place(name, two, one)._asdict(),
                server=name,
                change=_server_change(first, second),
                service=_service_change(first, second),
                reserve=_reserve_change(one, two, name),
            )
        )
    return tuple(rows)


def _in_queue(case: Case, name: str, found: SideMetrics | None) -> SideMetrics | None:
    """Return the served load and the latencies of a server in a shared queue; None if it is in no queue.

    Its replicas and their cost are in the row of the queue.
    """
    member = case.members.get(name)
    if found is None or member is None:
        return found
    loaded = member.arrival_rate_rpm > 0
    latencies = {
        field: getattr(member, field) if loaded else None for field in ("itl_ms", "ttft_ms", "wait_ms")
    }
    return found.model_copy(update={"carried_rate_rpm": member.arrival_rate_rpm, **latencies})


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


class _Place(NamedTuple):
    """Service class, model and priority of a server; None for servers of plans from files."""

    service_class: str | None
    model: str | None
    priority: int | None


def _place(name: str, *cases: Case) -> _Place:
    """Return the class, model and priority of a server, from the first case whose system has it."""
    for case in cases:
        if case.system is not None and name in case.servers:
            server = case.servers[name]
            return _Place(server.service_class, server.model, case.system.priority(server))
    return _Place(None, None, None)


def priority_rows(one: Case, two: Case) -> tuple[PriorityRow, ...]:
    """Return the service of each priority, the highest first; empty if the system of a plan is unknown."""
    if one.system is None or two.system is None:
        return ()
    first, second = (
        {row.priority: row for row in service_by_priority(case.plan, system)}
        for case, system in ((one, one.system), (two, two.system))
    )
    places = [
        {name: stream.priority for name, stream in system.streams.items()}
        for system in (one.system, two.system)
    ]
    differing = {
        place[name]
        for name in places[0].keys() | places[1].keys()
        for place in places
        if name in place
        if places[0].get(name) != places[1].get(name) or not _served_alike(one, two, name)
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
        ClassRow(**dict(row), service_class=place.service_class, priority=place.priority)
        for place, row in _grouped(one, two, lambda place: place.service_class)
    ]
    return tuple(
        sorted(rows, key=lambda row: (row.priority is None, row.priority or 0, row.service_class or ""))
    )


def class_model_rows(one: Case, two: Case) -> tuple[ClassModelRow, ...]:
    """Return a row for every service class and model, sorted by name."""
    rows = [
        ClassModelRow(**dict(row), **place._asdict())
        for place, row in _grouped(one, two, lambda place: (place.service_class, place.model))
    ]
    return tuple(sorted(rows, key=lambda row: (row.service_class or "", row.model or "")))


def _grouped(
    one: Case, two: Case, key: Callable[[_Place], Hashable]
) -> Iterator[tuple[_Place, ComparisonRow]]:
    """Yield a row for the servers with equal keys, with class, model and priority of one of them.

    If the two systems differ about a server, each plan groups the server by its own system.
    """
    groups: dict[Hashable, tuple[list[str], list[str]]] = {}
    places: dict[Hashable, _Place] = {}
    for side, (case, other) in enumerate(((one, two), (two, one))):
        for name in case.shares:
            place = _place(name, case, other)
            groups.setdefault(key(place), ([], []))[side].append(name)
            places[key(place)] = place
    for group, (before, after) in groups.items():
        yield places[group], row_of(figures_of(one, before), figures_of(two, after))


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
    type_of = {} if system is None else {name: item.type for name, item in system.accelerators.items()}
    pools = [pool for name in case.plan.allocations for pool in case.plan.pools_of(name)]
    listed = {item.type for item in case.plan.capacity}
    known = all(type_of.get(pool.accelerator) in listed for pool in pools)
    return {
        item.type: TypeUse.taken_from(
            item,
            cost_cents_per_h=(
                total(pool.cost_cents_per_h for pool in pools if type_of[pool.accelerator] == item.type)
                if known
                else None
            ),
        )
        for item in case.plan.capacity
    }


def figures_of(case: Case, names: Iterable[str]) -> SideMetrics | None:
    """Return the combined metrics of some servers in one plan; None without servers."""
    names = list(names)
    if not names:
        return None
    parts = [part for name in names for _, part in case.parts.get(name, ())]
    pools = [part.figures for part in parts if isinstance(part.figures, Pool)]
    loads = [case.loads[name] for name in names] if case.loads else []
    arrives = any(load.arrival_rate_rpm for load in loads)
    weighted = [(load, load.arrival_rate_rpm if arrives else 1.0) for load in loads]
    servers = [name for name in names if name not in case.groups]
    return SideMetrics(
        servers=len(servers),
        served_in_full=sum(name not in case.left_out for name in servers),
        reserves=sum(name in case.reserves for name in names),
        lack_reserve=sum(name in case.reserves and not case.reserves[name].has_reserve for name in names),
        accelerators=tuple(_by_accelerator(parts)),
        num_replicas=sum(part.replicas for part in parts),
        cost_cents_per_h=total(part.cost_cents_per_h for part in parts),
        arrival_rate_rpm=total(load.arrival_rate_rpm for load in loads) if loads else None,
        carried_rate_rpm=total(part.rate_rpm * (1 - getattr(part.figures, "loss", 0.0)) for part in parts),
        in_tokens=_mean([(load.in_tokens, weight) for load, weight in weighted]),
        out_tokens=_mean([(load.out_tokens, weight) for load, weight in weighted]),
        **{field: _mean_pool(pools, field) for field in ("itl_ms", "ttft_ms", "wait_ms")},
        own=_own_means(pools),
    )


def _own_means(pools: Sequence[Pool]) -> dict[str, float]:
    """Return the load-weighted means of metrics that only some kinds of replicas have, by field name."""
    fields = {
        shown.field
        for kind in kinds_of(pools)
        for shown in kind.shown("comparison").values()
        if shown.field in KindPoolFields.model_fields
    }
    means = {
        field: _mean_pool([pool for pool in pools if field in kind_of_pool(pool).fields], field)
        for field in sorted(fields)
    }
    return {field: mean for field, mean in means.items() if mean is not None}


def alike(first: SideMetrics | None, second: SideMetrics | None) -> bool:
    """Return whether the metrics of both plans are equal, ignoring metrics that one plan lacks."""
    if first is None or second is None or None in {first.arrival_rate_rpm, second.arrival_rate_rpm}:
        loads = {"arrival_rate_rpm": None, "in_tokens": None, "out_tokens": None}
        first, second = (side and side.model_copy(update=loads) for side in (first, second))
    return first == second


def _by_accelerator(parts: Iterable[Serving]) -> Iterator[AcceleratorShare]:
    """Yield total replicas and cost by accelerator, sorted by name, then those of external services."""
    places = grouped((_place_of(part), part) for part in parts)
    for (_, name), mine in sorted(places.items(), key=itemgetter(0)):
        yield AcceleratorShare(
            accelerator=name,
            num_replicas=sum(part.replicas for part in mine),
            max_batch=max(getattr(part.figures, "max_batch", 0) for part in mine),
            cost_cents_per_h=total(part.cost_cents_per_h for part in mine),
        )


def _place_of(part: Serving) -> tuple[bool, str]:
    """Return a sort key: whether the server is rented, and the name of its accelerator."""
    pool = part.figures if isinstance(part.figures, Pool) else None
    return pool is None, EXTERNAL if pool is None else pool.placed_on


def total_figures(case: Case) -> SideMetrics | None:
    """Return the combined metrics of all servers in a plan, with costs of what they use together."""
    found = figures_of(case, case.shares)
    if found is None:
        return found
    tiers = (cost.amount_cents_per_h for cost in case.plan.shared_costs)
    return found.model_copy(update={"cost_cents_per_h": total([found.cost_cents_per_h, *tiers])})


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


def _mean_pool(pools: Sequence[Pool], field: str) -> float | None:
    return _mean([(getattr(pool, field), pool.arrival_rate_rpm) for pool in pools])


def _mean(weighted: Sequence[tuple[float, float]]) -> float | None:
    """Return the mean of values with weights (eq. 55); None if all weights are 0.

    `weighted` has pairs of value and weight.
    """
    weighted = [(value, weight) for value, weight in weighted if weight > 0]
    if len({value for value, _ in weighted}) <= 1:
        return weighted[0][0] if weighted else None  # exact conversion
    heaviest = max(weight for _, weight in weighted)
    shares = [weight / heaviest for _, weight in weighted]
    return fsum(value * share for (value, _), share in zip(weighted, shares, strict=True)) / fsum(shares)


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
