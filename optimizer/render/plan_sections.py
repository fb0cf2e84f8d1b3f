"""Sections of plans and of candidates."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from optimizer.arrays import grouped
from optimizer.candidates import Candidates
from optimizer.features.sections import feature_sections, group_sections
from optimizer.kinds.kind import Kind
from optimizer.kinds.shown import LOSS
from optimizer.kinds.table import KINDS, in_order, kind_of_pool
from optimizer.limits.budget import BUDGET
from optimizer.limits.table import limit_named
from optimizer.plan import Plan
from optimizer.plan.document import CapacityUse
from optimizer.plan.placements import PlanRow, place_name, rows_of
from optimizer.plan.token_costs import token_costs
from optimizer.quantities import counted, percent, quantity, share_text
from optimizer.render.estimates import ENDS, estimates_notes, marked
from optimizer.render.explanation_text import part_text
from optimizer.render.figures import columns_of, other_targets, plan_columns
from optimizer.render.money import Money
from optimizer.render.plan_text import figures_text, flags_text, level_unit, overload_notes, proved
from optimizer.render.pool_table import pool_table
from optimizer.render.service_text import service_text
from optimizer.render.shape_sections import shape_sections
from optimizer.section import (
    FOR_PROGRAMS,
    RPM,
    Column,
    FormattedValue,
    Paragraph,
    Section,
    name,
    table,
    words,
)
from optimizer.solvers.objectives import VALUE
from optimizer.spec.system import System
from optimizer.studies.estimates import EstimatePrice
from optimizer.studies.overload import LIMIT_S, OtherOptions, Overload
from optimizer.studies.overview import PoolRow, describe, kinds_of_servers, queue_rows
from optimizer.units import SECONDS_PER_MINUTE

PARTLY_SERVED = (
    "Objectives count a server that is not served in full with its whole load, even if the saturation policy "
    "serves a part of it."
)
"""Note on the table of objectives of a plan with servers that are served in part."""


def plan_sections(
    plan: Plan, system: System, overload: Overload | None = None, price: EstimatePrice | None = None
) -> list[Section]:
    """Return the sections of a plan: allocations with their targets, cards, and unserved load.

    Args:
        system: the system that it serves.
        overload: plans with other options that serve more, if they are known.
        price: the plan with the middle of the estimates, if it is known.
    """
    system = plan.planned_in(system)
    return [
        _headline(plan, system),
        _allocations(plan, system),
        *group_sections(plan, queue_rows(system, plan), system),
        *shape_sections(plan),
        _cards(plan),
        *limit_sections(plan),
        *feature_sections(plan, token_costs(plan, system)),
        unserved_section(plan),
        overload_section(overload, plan),
        *([] if price is None else [estimates_section(price, plan)]),
        _levels(plan),
    ]


def _headline(plan: Plan, system: System) -> Section:
    served = len(system.streams) - len(plan.unserved)
    proof = {
        "optimal": proved(plan),
        "feasible": "the solver stopped early",
        "heuristic": "found by a heuristic, without proof",
    }[plan.status]
    gap = "" if plan.gap is None else f", gap {percent(plan.gap)}"
    mode = "unlimited" if system.options.unlimited else "limited"
    cost, cards = Money.of(plan).text(plan.total_cost_cents_per_h), sum(item.used for item in plan.capacity)
    service = (
        f"{served:,} of {counted(len(system.streams), 'server')} served in full, "
        f"{len(plan.changes):,} changed; {counted(cards, 'card')}"
    )
    text = [
        Paragraph(f"{cost}   {mode} plan, {proof}{gap}", "bold"),
        Paragraph(service, "green" if plan.complete else "yellow"),
    ]
    if plan.requires_reserve:
        text.append(Paragraph(plan.reserve_text, "yellow" if plan.lacks_reserve else "green"))
    return Section(text=text)


class _TableRow(NamedTuple):
    """A row of the allocations table: one pool of a server, or a server without pools."""

    server: str
    priority: int
    pool: PoolRow | None
    is_first: bool = True
    elsewhere: Sequence[PlanRow] = ()
    """Rows on shared cards or of external services that serve the server instead of its own pools."""

    def once(self, value: str | int) -> FormattedValue:
        """Return a value of the server as a cell; the cell is empty except in the row of its first pool."""
        return FormattedValue(str(value) if self.is_first else "", value)


def _allocations(plan: Plan, system: System) -> Section:
    overview = describe(system, plan)
    columns = _allocation_columns(Money.of(plan), _kinds(overview.pools, system), overview.pools)
    pools = grouped((pool.server, pool) for pool in overview.pools)
    placed = rows_of(plan)
    rows = (
        _TableRow(
            server,
            system.priority(system.servers[server]),
            pool,
            i == 0,
            [row for row in placed.get(server, ()) if row.mode != "own"],
        )
        for server in sorted(plan.allocations, key=lambda key: (system.priority(system.servers[key]), key))
        for i, pool in enumerate(pools.get(server, [None]))
    )
    notes = [*estimates_notes(plan), *_bottlenecks(plan)]
    notes += ["Costs include those of the nodes, in proportion to cards."] if plan.nodes else []
    return table("Allocations", columns, rows, notes=notes, for_csv=pool_table(overview, system))


def _allocation_columns(money: Money, kinds: Sequence[Kind], pools: Sequence[PoolRow]) -> list[Column]:
    metrics = plan_columns(kinds, pools)
    losses = metrics.pop(LOSS.metric, [])
    others = [column for some in metrics.values() for column in some]
    return [
        name("server", lambda row: row.once(row.server)),
        Column("prio", lambda row: row.once(row.priority), rank=6, none=""),
        name("accelerator", _accelerator),
        *map(_of_pool, (
            Column("replicas", "num_replicas", form=",d"),
            Column("cards", "units", form=",d", rank=4, none="0"),
            Column("batch", "max_batch", form="d", rank=5),
            Column("load", "arrival_rate_rpm", RPM, quantity, rank=4),
            *losses,
            Column("capacity", "max_arrival_rate_rpm", RPM, quantity, rank=8),
            *others,
            words("targets", _targets, rank=1, none=""),
            Column("util", "utilization", form=".0%", rank=9),
        )),
        money.column("cost", _cost),
        _of_pool(name("estimated", "estimated", rank=FOR_PROGRAMS)),
    ]  # fmt: skip


def _of_pool(column: Column) -> Column:
    """Convert a column of pools to a column of table rows, which show nothing if they lack a pool."""
    return column._replace(of=lambda row: None if row.pool is None else column.value(row.pool))


def _cost(row: _TableRow) -> float:
    if row.elsewhere or row.pool is None:
        return sum((other.cost_cents_per_h for other in row.elsewhere), 0.0)
    return row.pool.cost_cents_per_h


def _accelerator(row: _TableRow) -> FormattedValue:
    for other in row.elsewhere:
        return FormattedValue(place := place_name(*other.place), place)
    if row.pool is None:
        return FormattedValue("idle", "idle")
    return FormattedValue(marked(row.pool.placed_on, row.pool.estimated), row.pool.accelerator)


def _targets(pool: PoolRow) -> FormattedValue:
    return FormattedValue(figures_text(other_targets(pool, "plan")), figures_text(pool.targets))


def _kinds(pools: Iterable[PoolRow], system: System) -> list[Kind]:
    """Return the kinds of replicas whose metrics the table shows.

    They are the kinds that run, and the default kind if any server has it; all kinds if nothing runs.
    """
    servers, run = kinds_of_servers(system), {kind_of_pool(pool) for pool in pools}
    if KINDS[0] in servers:
        run.add(KINDS[0])
    return in_order(run) if run else servers


def _bottlenecks(plan: Plan) -> Iterator[str]:
    """Yield a note on the bottleneck stage of replicas that have several stages."""
    for server, pools in plan.allocations.items():
        for pool in pools:
            if pool.binding:
                yield f"{server} on {pool.accelerator}: {part_text(pool.binding)} is the bottleneck."


def _cards(plan: Plan) -> Section:
    in_nodes = {use.type for use in plan.nodes}

    def limit(item: CapacityUse) -> FormattedValue | None:
        if item.limit is None:
            return FormattedValue("in nodes", None) if item.type in in_nodes else None
        return FormattedValue(f"{item.limit:,d}", item.limit)

    columns = (
        name("type", "type"),
        Column("used", "used", form=",d"),
        Column("exist", limit, none="unlimited"),
        Column("left", lambda item: None if item.limit is None else item.limit - item.used, form=",d"),
    )
    return table("Cards by accelerator type", columns, plan.capacity, "cards")


def limit_columns(money: Money, **more: Callable[[Any], float]) -> tuple[Column, ...]:
    """Return the table columns of limits other than cards; budgets are shown in the unit of costs.

    Args:
        money: the currency.
        more: values of further columns in the limit's unit, by heading.
    """

    def shown(of: Callable[[Any], float | None]) -> Callable[[Any], float | None]:
        return lambda use: money.number(of(use)) if use.limit == BUDGET else of(use)

    values: dict[str, Callable[[Any], float | None]] = {
        "used": lambda use: use.used,
        "exist": lambda use: use.amount,
    }
    return (
        name("limit", "limit"),
        name("of", "item"),
        *(Column(heading, shown(of), form=quantity) for heading, of in (values | more).items()),
        name("unit", lambda use: limit_unit(use.limit, money)),
    )


def limit_unit(limit: str, money: Money) -> str:
    """Return the unit of a limit's amounts in tables; empty for a limit that this version does not know."""
    return money.unit if limit == BUDGET else getattr(limit_named(limit), "unit", "")


def limit_sections(plan: Plan) -> Iterator[Section]:
    """Yield the table with the use of limits other than cards, if there are any."""
    if plan.limits:
        columns = limit_columns(Money.of(plan), left=lambda use: use.amount - use.used)
        at_load = [use.used_at_load for use in plan.limits if use.used_at_load is not None]
        notes = [
            f"At the load all replicas draw {quantity(watts)} W; the limit counts their largest rates."
            for watts in at_load
        ]
        if plan.solver == "greedy" and plan.tiers and any(use.limit == BUDGET for use in plan.limits):
            notes.append(
                "The greedy solver spends the budget at list prices; with tiers it may leave a part unused."
            )
        yield table("Limits", columns, plan.limits, notes=notes)


def unserved_section(plan: Plan) -> Section:
    """Return the table of servers that are not served in full, with the reasons."""
    columns = (
        name("server", "server"),
        Column("prio", "priority", rank=2),
        Column("served", "served_fraction", form=share_text),
        name("reason", "reason", rank=1),
        words("detail", "detail"),
    )
    items = sorted(plan.unserved, key=lambda item: (item.priority, item.server))
    return table("Not served in full", columns, items, "unserved", may_be_empty=True, alert=bool(items))


def overload_section(overload: Overload | None, plan: Plan) -> Section:
    """Return the table of options that would serve more load; it has no rows if there are none.

    Args:
        overload: plans with other options; None if the fleet is not overloaded.
    """

    def served(item: OtherOptions) -> str:
        return f"not solved within {LIMIT_S:g} s" if item.service is None else service_text(item.service)

    def lacking(item: OtherOptions) -> int | None:
        return None if item.service is None else len(item.lacks_reserve)

    columns = (
        words("with", lambda item: flags_text(item) or "as it is"),
        words("served", served),
        *([Column("lack reserve", lacking, "servers", ",d")] if plan.requires_reserve else []),
        Money.of(plan).column("cost", lambda item: item.total_cost_cents_per_h),
    )
    rows, notes = [], []
    if overload is not None:
        cost = plan.total_cost_cents_per_h
        now = OtherOptions(
            service=overload.service, lacks_reserve=plan.lacks_reserve, total_cost_cents_per_h=cost
        )
        rows, notes = [now, *overload.options], [*overload_notes(overload)]
    return table("What would serve more", columns, rows, "overload", may_be_empty=True, notes=notes)


def estimates_section(estimate_price: EstimatePrice, plan: Plan) -> Section:
    """Return the table of cards and costs at the slow end and at the middle of estimated token times."""
    columns = (
        words("token times", lambda item: ENDS[item.estimates]),
        Column(
            "served in full",
            "served_in_full",
            form=lambda served: f"{served:,} of {estimate_price.servers:,}",
        ),
        Column("cards", "cards", form=",d"),
        Money.of(plan).column("cost", lambda item: item.total_cost_cents_per_h),
    )
    ends = (
        [estimate_price.upper]
        if estimate_price.middle is None
        else [estimate_price.upper, estimate_price.middle]
    )
    why = "The plan uses the slow end; the difference is the price of not measuring the token times."
    late = " The plan with their middle was not solved in time." if estimate_price.middle is None else ""
    return table("Estimated token times", columns, ends, "estimates", notes=[why + late])


def _levels(plan: Plan) -> Section:
    """Return the table of lexicographic objectives and their results.

    It is shown without request if any objective has a gap.
    """
    money = Money.of(plan)

    def column(heading: str, field: str) -> Column:
        def value(level: Any) -> FormattedValue | None:
            result: float | None = getattr(level, field)
            number = money.number(result) if level.name == VALUE else result
            if number is None:
                return None
            return FormattedValue(f"{number:,.2f}" if level.name == VALUE else quantity(number, 10), number)

        return Column(heading, value)

    columns = (
        name("objective", "name"),
        column("reached", "value"),
        column("bound", "bound"),
        name("unit", lambda level: level_unit(level.name, money)),
        Column("gap", "gap", form=percent),
    )
    is_partial = any(item.served_fraction for item in plan.unserved)
    notes = [PARTLY_SERVED] if is_partial else []
    on_request = not any(level.gap for level in plan.levels)
    return table("Objectives", columns, plan.levels, on_request=on_request, notes=notes)


def candidate_sections(candidates: Candidates) -> list[Section]:
    """Return the tables of candidates and of rejected pairs of a system."""
    arrays, rows, money = candidates.arrays, candidates.table, Money(candidates.system.currency)
    of_model = candidates.system.model_kinds()
    of_server = [of_model.get(server.model, KINDS[0]) for server in candidates.system.servers.values()]
    kinds = [of_server[s] for s in rows.server.tolist()]
    cost = rows.cost_cents_per_h

    def metric(key: str, column: Column) -> Column:
        def value(c: int) -> float | None:
            shown = kinds[c].shown("candidates").get(key)
            return None if shown is None else float(getattr(rows, shown.field)[c])

        return column._replace(of=value)

    def estimated(c: int) -> str | None:
        return candidates.estimated(int(rows.server[c]), int(rows.accelerator[c]))

    def accelerator(c: int) -> FormattedValue:
        accelerator = arrays.accelerator_names[rows.accelerator[c]]
        return FormattedValue(marked(accelerator, estimated(c)), accelerator)

    columns = (
        name("server", lambda c: arrays.server_names[rows.server[c]]),
        name("accelerator", accelerator),
        Column("replicas", lambda c: int(rows.num_replicas[c]), form=",d"),
        Column("cards", lambda c: int(rows.units[c]), form=",d"),
        name("type", lambda c: arrays.type_names[rows.type[c]], rank=5),
        Column("batch", lambda c: int(rows.max_batch[c]), form="d", rank=3),
        Column(
            "rate per replica",
            lambda c: float(rows.max_rate_rps[c] * SECONDS_PER_MINUTE),
            RPM,
            quantity,
            rank=4,
        ),
        *(metric(*item) for item in columns_of("candidates", in_order({*kinds})).items()),
        money.column("cost", lambda c: float(cost[c])),
        name("estimated", estimated, rank=FOR_PROGRAMS),
    )
    section = table(f"Candidates ({len(rows)})", columns, range(len(rows)), "candidates")
    section.notes += node_price_notes(candidates.system, money)
    pair = name("server", "server"), name("accelerator", "accelerator")
    return [section, rejected_section("Rejected pairs", candidates.rejections(), pair)]


def node_price_notes(system: System, money: Money) -> Iterator[str]:
    """Yield a note for each type of nodes on the price of its cards."""
    for pool in system.node_pools:
        price = f"{money.number(pool.card_price):,.2f} {money.unit}"
        yield f"Cards of {pool.type} are paid for in nodes: {price} for each card of a full node."


def rejected_section(title: str, items: Iterable[Any], columns: Iterable[Column]) -> Section:
    """Return the table of pairs that cannot serve, with the reasons after the given columns."""
    reasons = name("reason", "reason", rank=1), words("detail", "detail")
    return table(title, (*columns, *reasons), items, "rejected", may_be_empty=True)
