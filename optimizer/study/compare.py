"""Compare two plans: limited with unlimited, two systems or sets of options, before and after a load change.

Takes systems, which are solved, or plans, gives a `Comparison`. Sums are taken with one rounding at the end,
so that the rows of each kind add up to the whole.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isclose
from typing import NamedTuple

from optimizer.errors import SpecError
from optimizer.pipeline import solve
from optimizer.plan import Plan, Pool
from optimizer.spec.schema import Load
from optimizer.spec.system import System
from optimizer.study.comparison import (
    AcceleratorShare,
    ClassModelRow,
    ClassRow,
    Comparison,
    Difference,
    Figures,
    Kind,
    Row,
    ServerChange,
    ServerRow,
    ServiceChange,
    Side,
    TypeRow,
    TypeUse,
)

LABELS: Mapping[Kind, tuple[str, str]] = {
    "scarcity": ("unlimited", "limited"),
    "options": ("as given", "changed"),
    "load_change": ("before", "after"),
    "plans": ("first", "second"),
}


def compare(
    first: System | Plan,
    second: System | Plan | None = None,
    *,
    second_options: Mapping[str, object] | None = None,
    transition: bool = False,
    labels: tuple[str, str] | None = None,
    backend: str = "highs",
    **options: object,
) -> Comparison:
    """Compare two plans; given only a system, its unlimited plan with its limited one.

    Args:
        first: a system, which is solved, or a plan as it is.
        second: the other system or plan; without it the first system again.
        second_options: optimizer options by their Python names for the second side alone.
        transition: the second system follows the first in time: its plan starts from the first plan as what
            runs, in place of its own current allocations.
        labels: what to call the sides.
        backend: what solves a MILP: ``highs``, or the name of a solver that PuLP knows (``CBC``).
        options: optimizer options by their Python names for every side that is solved.

    Raises:
        SpecError: there is nothing to compare or to solve, or an option is wrong.
        SolverError: the solver failed, or a plan does not pass verification.
    """
    if second is None:
        if isinstance(first, Plan):
            raise SpecError("a plan alone cannot be compared; name a second plan or system")
        if second_options is None:
            first = first.with_options(unlimited=True)
            second_options = {"unlimited": False}
        second = first
        kind: Kind = "options"
    else:
        kind = "plans"
    one = _solved(first, options, backend)
    if transition:
        second, kind = _following(one, second), "load_change"
    two = _solved(second, options | dict(second_options or {}), backend)
    if kind == "options" and _only_limits_differ(one, two):
        kind = "scarcity"
    return _comparison(kind, one, two, labels or LABELS[kind])


@dataclass(frozen=True, slots=True)
class _Case:
    """A plan, with the system it was made for where that is known."""

    plan: Plan
    system: System | None
    shares: Mapping[str, float]
    """Share of its load that each server of the plan is served, in the order of the names."""
    left_out: frozenset[str]
    """The servers that are not served in full."""


def _case(plan: Plan, system: System | None) -> _Case:
    shares = dict.fromkeys(plan.allocations, 1.0)
    shares |= {item.server: item.served_fraction for item in plan.unserved}
    left_out = frozenset(item.server for item in plan.unserved)
    return _Case(plan, system, {name: shares[name] for name in sorted(shares)}, left_out)


def _solved(source: System | Plan, options: Mapping[str, object], backend: str) -> _Case:
    if isinstance(source, Plan):
        return _case(source, None)
    system = source.with_options(**options)
    return _case(solve(system, backend=backend), system)


def _serve_the_same(one: _Case, two: _Case) -> bool:
    """Say whether the same servers are served to the same shares."""
    return (
        one.left_out == two.left_out
        and one.shares.keys() == two.shares.keys()
        and all(isclose(share, two.shares[name], rel_tol=1e-9) for name, share in one.shares.items())
    )


def _following(before: _Case, after: System | Plan) -> System:
    """Return a system in which what runs is the plan of the case before it."""
    if isinstance(after, Plan):
        raise SpecError("a plan that exists cannot start from another; give the system after the change")
    used = {pool.accelerator for pools in before.plan.allocations.values() for pool in pools}
    gone = sorted(used - after.accelerators.keys())
    if gone:
        raise SpecError(f"accelerator {gone[0]!r} of the first plan does not exist in the second system")
    return before.plan.applied_to(after)


def _only_limits_differ(one: _Case, two: _Case) -> bool:
    """Say whether the one is unlimited, the other limited, and nothing else differs."""
    if one.system is None or two.system is None:
        return False
    limited = one.system.options.model_copy(update={"unlimited": False})
    return one.system.options.unlimited and two.system.options == limited


# --- from two cases to a comparison ---------------------------------------------------------------------


def _comparison(kind: Kind, one: _Case, two: _Case, labels: tuple[str, str]) -> Comparison:
    servers = _server_rows(one, two)
    total = _row(_figures(one, one.shares), _figures(two, two.shares))
    cost = 0.0 if total.first is None else total.first.cost_cents_per_h
    difference = total.difference.cost_cents_per_h
    equal = _serve_the_same(one, two)
    return Comparison(
        kind=kind,
        same=equal and all(_alike(row.first, row.second) for row in servers),
        equal_service=equal,
        first=_side(one, labels[0]),
        second=_side(two, labels[1]),
        total=total,
        relative_cost_difference=difference / cost if cost else None,
        transition_value_cents_per_h=two.plan.objective if kind == "load_change" else None,
        classes=_class_rows(one, two),
        class_models=_class_model_rows(one, two),
        servers=servers,
        types=_type_rows(one, two),
        notes=tuple(_notes(kind, one, two, labels)),
    )


def _side(case: _Case, label: str) -> Side:
    return Side(label=label, options=None if case.system is None else case.system.options, plan=case.plan)


def _figures(case: _Case, names: Iterable[str]) -> Figures | None:
    """Return the figures of some servers together; none for no server."""
    names = list(names)
    if not names:
        return None
    pools = [pool for name in names for pool in case.plan.allocations.get(name, ())]
    loads = [] if case.system is None else [case.system.servers[name].current.load for name in names]
    return Figures(
        servers=len(names),
        served_in_full=sum(name not in case.left_out for name in names),
        accelerators=_by_accelerator(pools),
        num_replicas=sum(pool.num_replicas for pool in pools),
        cost_cents_per_h=fsum(pool.cost_cents_per_h for pool in pools),
        arrival_rate_rpm=fsum(load.arrival_rate_rpm for load in loads) if loads else None,
        carried_rate_rpm=fsum(pool.arrival_rate_rpm for pool in pools),
        in_tokens=_mean_load(loads, lambda load: load.in_tokens),
        out_tokens=_mean_load(loads, lambda load: load.out_tokens),
        itl_ms=_mean_pool(pools, lambda pool: pool.itl_ms),
        ttft_ms=_mean_pool(pools, lambda pool: pool.ttft_ms),
        wait_ms=_mean_pool(pools, lambda pool: pool.wait_ms),
    )


def _alike(first: Figures | None, second: Figures | None) -> bool:
    """Say whether figures are equal, as far as both sides know them."""
    if first is None or second is None or None in {first.arrival_rate_rpm, second.arrival_rate_rpm}:
        loads = {"arrival_rate_rpm": None, "in_tokens": None, "out_tokens": None}
        first, second = (side and side.model_copy(update=loads) for side in (first, second))
    return first == second


def _by_accelerator(pools: Sequence[Pool]) -> tuple[AcceleratorShare, ...]:
    shares = []
    for name in sorted({pool.accelerator for pool in pools}):
        mine = [pool for pool in pools if pool.accelerator == name]
        shares.append(
            AcceleratorShare(
                accelerator=name,
                num_replicas=sum(pool.num_replicas for pool in mine),
                max_batch=max(pool.max_batch for pool in mine),
                cost_cents_per_h=fsum(pool.cost_cents_per_h for pool in mine),
            )
        )
    return tuple(shares)


def _mean_load(loads: Sequence[Load], figure: Callable[[Load], float]) -> float | None:
    arrives = any(load.arrival_rate_rpm for load in loads)
    return _mean([(figure(load), load.arrival_rate_rpm if arrives else 1.0) for load in loads])


def _mean_pool(pools: Sequence[Pool], figure: Callable[[Pool], float]) -> float | None:
    return _mean([(figure(pool), pool.arrival_rate_rpm) for pool in pools])


def _mean(weighted: Sequence[tuple[float, float]]) -> float | None:
    """Return the mean of values by their weights (eq. 55); none where nothing has weight."""
    weighted = [(value, weight) for value, weight in weighted if weight > 0]
    if len({value for value, _ in weighted}) <= 1:
        return weighted[0][0] if weighted else None  # not a digit lost
    heaviest = max(weight for _, weight in weighted)
    shares = [weight / heaviest for _, weight in weighted]
    return fsum(value * share for (value, _), share in zip(weighted, shares, strict=True)) / fsum(shares)


def _row(first: Figures | None, second: Figures | None) -> Row:
    return Row(first=first, second=second, difference=_difference(first, second))


def _difference(first: Figures | None, second: Figures | None) -> Difference:
    """Return second less first; a side that is not there has no replicas, no cost and no load."""

    def less(name: str, absent: float | None) -> float | None:
        before = absent if first is None else getattr(first, name)
        after = absent if second is None else getattr(second, name)
        return None if before is None or after is None else after - before

    return Difference.model_validate(
        {name: less(name, None if name.endswith("_ms") else 0) for name in Difference.model_fields}
    )


# --- rows ------------------------------------------------------------------------------------------------


def _server_rows(one: _Case, two: _Case) -> tuple[ServerRow, ...]:
    rows = []
    for name in sorted(one.shares.keys() | two.shares.keys()):
        first = _figures(one, [name] if name in one.shares else [])
        second = _figures(two, [name] if name in two.shares else [])
        rows.append(
            ServerRow(
                **dict(_row(first, second)),
                **_place(name, two, one)._asdict(),
                server=name,
                change=_server_change(first, second),
                service=_service_change(first, second),
            )
        )
    return tuple(rows)


def _server_change(first: Figures | None, second: Figures | None) -> ServerChange:
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


def _service_change(first: Figures | None, second: Figures | None) -> ServiceChange:
    before = first is not None and first.served_in_full == 1
    after = second is not None and second.served_in_full == 1
    if before == after or first is None or second is None:
        return "same"
    return "newly_served" if after else "newly_unserved"


class _Place(NamedTuple):
    """Where a server belongs; nothing is known of the servers of plans from files alone."""

    service_class: str | None
    model: str | None
    priority: int | None


def _place(name: str, *cases: _Case) -> _Place:
    """Return where a server belongs, from the first of the cases that knows it."""
    for case in cases:
        if case.system is not None and name in case.system.servers:
            server = case.system.servers[name]
            return _Place(server.service_class, server.model, case.system.priority(server))
    return _Place(None, None, None)


def _class_rows(one: _Case, two: _Case) -> tuple[ClassRow, ...]:
    rows = [
        ClassRow(**dict(row), service_class=place.service_class, priority=place.priority)
        for place, row in _grouped(one, two, lambda place: place.service_class)
    ]
    return tuple(
        sorted(rows, key=lambda row: (row.priority is None, row.priority or 0, row.service_class or ""))
    )


def _class_model_rows(one: _Case, two: _Case) -> tuple[ClassModelRow, ...]:
    rows = [
        ClassModelRow(**dict(row), **place._asdict())
        for place, row in _grouped(one, two, lambda place: (place.service_class, place.model))
    ]
    return tuple(sorted(rows, key=lambda row: (row.service_class or "", row.model or "")))


def _grouped(one: _Case, two: _Case, key: Callable[[_Place], Hashable]) -> Iterator[tuple[_Place, Row]]:
    """Yield a row for the servers of each key, with one place that has the key.

    Where the systems say different things of a server, each side counts it as its own says.
    """
    groups: dict[Hashable, tuple[list[str], list[str]]] = {}
    places: dict[Hashable, _Place] = {}
    for side, (case, other) in enumerate(((one, two), (two, one))):
        for name in case.shares:
            place = _place(name, case, other)
            groups.setdefault(key(place), ([], []))[side].append(name)
            places[key(place)] = place
    for group, (before, after) in groups.items():
        yield places[group], _row(_figures(one, before), _figures(two, after))


def _type_rows(one: _Case, two: _Case) -> tuple[TypeRow, ...]:
    before, after = _type_uses(one, two), _type_uses(two, one)
    rows = []
    for kind in sorted(before.keys() | after.keys()):
        first, second = before.get(kind), after.get(kind)
        costs = [0.0 if use is None else use.cost_cents_per_h for use in (first, second)]
        rows.append(
            TypeRow(
                type=kind,
                first=first,
                second=second,
                used_difference=(second.used if second else 0) - (first.used if first else 0),
                cost_difference_cents_per_h=(
                    None if costs[0] is None or costs[1] is None else costs[1] - costs[0]
                ),
            )
        )
    return tuple(rows)


def _type_uses(case: _Case, other: _Case) -> dict[str, TypeUse]:
    """Return units and cost by accelerator type; a plan without a system borrows the other's catalogue."""
    system = case.system or other.system
    kinds = {} if system is None else {name: item.type for name, item in system.accelerators.items()}
    pools = [pool for mine in case.plan.allocations.values() for pool in mine]
    listed = {item.type for item in case.plan.capacity}
    known = all(kinds.get(pool.accelerator) in listed for pool in pools)
    return {
        item.type: TypeUse(
            used=item.used,
            limit=item.limit,
            cost_cents_per_h=(
                fsum(pool.cost_cents_per_h for pool in pools if kinds[pool.accelerator] == item.type)
                if known
                else None
            ),
        )
        for item in case.plan.capacity
    }


# --- what to know ---------------------------------------------------------------------------------------


def _notes(kind: Kind, one: _Case, two: _Case, labels: tuple[str, str]) -> Iterable[str]:
    """Yield what keeps the difference of the costs from being the whole story."""
    if one.shares.keys() != two.shares.keys():
        yield "the two sides do not have the same servers, so their costs are not for the same service"
    elif not _serve_the_same(one, two):
        yield "not every server is served to the same share, so the costs are not for the same service"
    for case, label in zip((one, two), labels, strict=True):
        if case.system is None:
            yield f"{label} is a finished plan and taken as it is: only with its system can it be verified"
        elif case.plan.status == "heuristic":
            yield f"{label} was found by a heuristic, without proof"
        elif case.plan.status == "feasible":
            yield f"the solver stopped early on {label}; there may be a cheaper plan"
        elif case.plan.gap:
            yield f"{label} is proved to within {case.plan.gap:.2%} of the least value, not to the last cent"
    if kind == "load_change" and any(len(pools) > 1 for pools in one.plan.allocations.values()):
        yield (
            f"the plan {labels[1]} starts from the largest pool of each server of the mixed plan "
            f"{labels[0]}; a current allocation has room for one"
        )
    runs = one.system is not None and any(server.current.is_running for server in one.system.servers.values())
    if kind == "scarcity" and runs:
        yield "both plans weigh what runs now: they are of least transition value, not of least cost"
