"""Sections of plans and of candidates."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from optimizer.plan.notebook import are_mixed
from optimizer.plan.placements import PlanRow, place_name, rows_of
from optimizer.plan.token_costs import mean_token_cost, token_costs
from optimizer.quantities import counted, percent, quantity, share_text
from optimizer.render.answer_text import cost_interval_text, measure_first_text, shortage_text
from optimizer.render.estimates import ENDS, estimate_note, estimates_notes, marked
from optimizer.render.explanation_text import part_text
from optimizer.render.figures import MAX_ALWAYS, columns_of, limited_metrics, other_targets, plan_columns
from optimizer.render.money import Money
from optimizer.render.plan_text import figures_text, flags_text, level_unit, overload_notes, proof_text
from optimizer.render.pool_table import pool_table
from optimizer.render.service_text import service_text
from optimizer.render.shape_sections import shape_sections
from optimizer.schema import EstimateEnd
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
from optimizer.studies.overview import Overview, PoolRow, describe, kinds_of_servers, queue_rows
from optimizer.studies.shortage import Shortage
from optimizer.studies.target_rows import TargetRow, nearest_target, pool_targets, server_rows
from optimizer.text import capitalised
from optimizer.units import SECONDS_PER_MINUTE

PARTLY_SERVED = (
    "Objectives count a server that is not served in full with its whole load, even if the saturation policy "
    "serves a part of it."
)
"""Note on the table of objectives of a plan with servers that are served in part."""


class PlanOutlook(NamedTuple):
    """Results of other plans of a system, as far as they are known."""

    overload: Overload | None = None
    """Plans with other options that serve more."""
    price: EstimatePrice | None = None
    """Cautious and typical cost."""
    shortage: Shortage | None = None
    """Unserved load, with the cards that would serve it."""


NO_OUTLOOK = PlanOutlook()


def plan_sections(
    plan: Plan, system: System, outlook: PlanOutlook = NO_OUTLOOK, load_factor: float | None = None
) -> list[Section]:
    """Return the sections of a plan: its cost and service, allocations with their targets, and cards.

    Args:
        plan: the plan.
        system: the system that it serves.
        outlook: results of other plans of the system.
        load_factor: factor on all loads of the document, which is stated; None without one.
    """
    given, system = system, plan.planned_in(system)
    overview = describe(system, plan)
    rows, costs, price = server_rows(given, plan, overview), token_costs(plan, system), outlook.price
    return [
        headline(plan, system, rows, outlook, load_factor),
        _allocations(plan, system, overview, rows, costs),
        *group_sections(plan, queue_rows(system, plan), system),
        *shape_sections(plan),
        _cards(plan),
        *limit_sections(plan),
        *feature_sections(plan, costs),
        unserved_section(plan),
        overload_section(outlook.overload, plan),
        *([] if price is None else [replace(estimates_section(price, plan), on_request=True)]),
        _levels(plan),
    ]


def headline(
    plan: Plan,
    system: System,
    rows: Sequence[TargetRow],
    outlook: PlanOutlook = NO_OUTLOOK,
    load_factor: float | None = None,
) -> Section:
    """Return the first lines of a plan: unserved load, cost, targets and proof, in this order.

    Args:
        plan: the plan.
        system: the system that it serves.
        rows: its servers with their targets.
        outlook: results of other plans of the system.
        load_factor: factor on all loads of the document, which the first line states; None without one.
    """
    money, price, text = Money.of(plan), outlook.price, list[Paragraph]()
    if outlook.shortage is not None:
        text.append(Paragraph(shortage_text(outlook.shortage, money, load_factor), "bold red"))
        load_factor = None
    text.append(Paragraph(cost_interval_text(plan, price, load_factor), "bold"))
    text.append(_service(plan, rows, mean_token_cost(plan, system)))
    if plan.requires_reserve:
        text.append(Paragraph(f"{capitalised(plan.reserve_text)}.", "yellow" if plan.lacks_reserve else ""))
    text.append(Paragraph(f"{capitalised(proof_text(plan, unlimited=system.options.unlimited))}."))
    measure_first = measure_first_text(plan, price)
    return Section(text=[*text, *([Paragraph(f"{measure_first}.")] if measure_first else [])])


def _service(plan: Plan, rows: Sequence[TargetRow], token_cost: float | None) -> Paragraph:
    """Return the paragraph on served servers, cards, changes, and the target nearest to its limit.

    Args:
        plan: the plan.
        rows: its servers with their targets.
        token_cost: cost per million tokens [cents]; None without tokens.
    """
    moved = [change for change in plan.changes if change.before]
    cards = counted(sum(item.used for item in plan.capacity), "card")
    changed = f", {counted(len(plan.changes), 'change')} to what runs" if moved else ""
    nearest = nearest_target(row for row in rows if row.places)
    tight, style = "", "green"
    if nearest is not None:
        row, target = nearest
        tight = f"; tightest target: {row.server} {target.name} at {target.verdict}"
        style = "green" if target.share < 1 else ""
    style = style if plan.complete else "yellow"
    money = Money.of(plan)
    each = "" if token_cost is None else f", {money.amount(token_cost)} {money.sum_unit} per million tokens"
    return Paragraph(f"{capitalised(plan.service_text)} with {cards}{each}{changed}{tight}.", style)


class _TableRow(NamedTuple):
    """A row of the allocations table: a pool of a server, a server without pools, or a priority."""

    server: str
    priority: int
    pool: PoolRow | None
    row: TargetRow | None = None
    """The server; None for the heading of a priority."""
    is_first: bool = True
    elsewhere: Sequence[PlanRow] = ()
    """Rows on shared cards or of external services that serve the server instead of its own pools."""

    def once(self, value: str | int) -> FormattedValue:
        """Return a value of the server as a cell; the cell is empty except in the row of its first pool."""
        return FormattedValue(str(value) if self.is_first else "", value)


def _allocations(
    plan: Plan, system: System, overview: Overview, rows: Sequence[TargetRow], costs: Mapping[str, float]
) -> Section:
    pools = overview.pools
    columns = _allocation_columns(Money.of(plan), _kinds(pools, system), pools, costs)
    notes = [*estimates_notes(plan), *_bottlenecks(plan)]
    notes += ["Costs include those of the nodes, in proportion to cards."] if plan.nodes else []
    if any(0 < row.served_share < 1 for row in rows):
        notes.append("Percentages in brackets: served share of the load of a server.")
    items = [*_table_rows(plan, overview, rows)]
    return table("Allocations", columns, items, notes=notes, for_csv=pool_table(overview, system))


def _table_rows(plan: Plan, overview: Overview, rows: Sequence[TargetRow]) -> Iterator[_TableRow]:
    """Yield the rows of the allocations table: servers by priority, each with its pools."""
    pools, placed = grouped((pool.server, pool) for pool in overview.pools), rows_of(plan)
    own = {row.server for row in rows}
    parts = grouped((name, part) for part, name in plan.server_of.items() if part not in own)
    several = len({row.priority for row in rows}) > 1
    before: int | None = None
    for row in rows:
        if plan.group_of.get(row.server):
            continue  # members of queues have a table of their own
        if several and row.priority != before:
            yield _TableRow(f"Priority {row.priority}", row.priority, None)
            before = row.priority
        names = [row.server] if row.server in placed or row.server not in parts else parts[row.server]
        for part in names:
            elsewhere = [other for other in placed.get(part, ()) if other.mode != "own"]
            for i, pool in enumerate(pools.get(part, [None])):
                yield _TableRow(part, row.priority, pool, row, i == 0, elsewhere)


def _allocation_columns(
    money: Money, kinds: Sequence[Kind], pools: Sequence[PoolRow], costs: Mapping[str, float]
) -> list[Column]:
    metrics = plan_columns(kinds, pools)
    losses = metrics.pop(LOSS.metric, [])
    others = [column for some in metrics.values() for column in some]
    many = len(limited_metrics(kinds, pools)) > MAX_ALWAYS
    per_million = money.column(
        "per million tokens", lambda row: costs.get(row.server) if row.is_first else None, 4, money.sum_unit
    )
    return [
        name("server", _server),
        name("accelerators", partial(_place, mark=are_mixed(pools))),
        *([Column("tightest target", _tightest, content="whole")] if many else []),
        *map(_of_pool, (
            *others,
            words("targets", _targets, rank=1, none=""),
            Column("load of max", _load_share, form=".0%", rank=1),
        )),
        money.column("cost", _cost)._replace(none=""),
        words("limited by", _limited_by, rank=3, none=""),
        per_million._replace(none=""),
        *map(_of_pool, (
            Column("batch", "max_batch", form="d", rank=5),
            Column("cards", "cards", form=",d", rank=6, none=""),
            Column("load", "arrival_rate_rpm", RPM, quantity, rank=7),
            Column("max load", "max_arrival_rate_rpm", RPM, quantity, rank=8),
            *losses,
            Column(_in_use(kinds), "utilization", form=".0%", rank=9),
        )),
        _of_pool(name("estimated", "estimated", rank=FOR_PROGRAMS)),
    ]  # fmt: skip


def _in_use(kinds: Sequence[Kind]) -> str:
    """Return the heading of utilisations, which says of what they are."""
    return kinds[0].words.utilisation_heading if len(kinds) == 1 else "batch or throughput in use"


def _of_pool(column: Column) -> Column:
    """Convert a column of pools to a column of table rows, which show nothing if they lack a pool."""
    return column._replace(
        of=lambda row: FormattedValue("", None) if row.pool is None else column.value(row.pool)
    )


def _load_share(pool: PoolRow) -> float | None:
    return pool.arrival_rate_rpm / pool.max_arrival_rate_rpm if pool.max_arrival_rate_rpm else None


def _server(row: _TableRow) -> FormattedValue:
    state = "missed" if row.row is not None and not row.row.in_full else ""
    return FormattedValue(row.server if row.is_first else "", row.server, state)


def _limited_by(row: _TableRow) -> str:
    return row.row.limited_by if row.row is not None and row.is_first else ""


def _cost(row: _TableRow) -> float | None:
    if row.row is None:
        return None
    if row.elsewhere or row.pool is None:
        return sum((other.cost_cents_per_h for other in row.elsewhere), 0.0)
    return row.pool.cost_cents_per_h


def _place(row: _TableRow, *, mark: bool) -> FormattedValue:
    """Return replicas and accelerator: ``3 × H100``, with a mark if only some token times are estimates."""
    if row.row is None:
        return FormattedValue("", None)
    if row.pool is None:
        for other in row.elsewhere:
            return FormattedValue(place := place_name(*other.place), place)
        return (
            FormattedValue("idle", "idle")
            if row.row.in_full
            else FormattedValue("not served", None, "missed")
        )
    place = f"{row.pool.num_replicas:,} × {row.pool.placed_on}"
    partly = "" if row.row.in_full or not row.is_first else f" ({share_text(row.row.served_share)})"
    return FormattedValue(
        (marked(place, row.pool.estimated) if mark else place) + partly, place, "missed" if partly else ""
    )


def _tightest(row: _TableRow) -> FormattedValue:
    shares = [] if row.pool is None else pool_targets(row.pool)
    tightest = max(shares, key=lambda item: item.share, default=None)
    if tightest is None:
        return FormattedValue("", None)
    return FormattedValue(tightest.named_cell, tightest.share, tightest.state)


def _targets(pool: PoolRow) -> FormattedValue:
    return FormattedValue(figures_text(other_targets(pool, "plan")), figures_text(pool.other_targets))


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
    """Return the table of cards and costs of the cautious and of the typical plan."""
    money = Money.of(plan)
    columns = (
        words("token times", lambda item: ENDS[item.estimates]),
        Column(
            "served in full",
            "served_in_full",
            form=lambda served: f"{served:,} of {estimate_price.servers:,}",
        ),
        Column("cards", "cards", form=",d"),
        money.column("cost", lambda item: item.total_cost_cents_per_h),
    )
    middle = estimate_price.middle
    ends = [estimate_price.upper] if middle is None else [estimate_price.upper, middle]
    notes = ["Typical: not computed in time."] if middle is None else []
    if middle is not None and not estimate_price.same_service:
        notes.append("The two plans serve different loads, so their costs cannot be compared.")
    notes += [
        f"Measuring {gain.server} saves {money.text(gain.saving_cents_per_h)} if its token times are typical."
        for gain in estimate_price.measure_first
    ]
    return table("Estimated token times", columns, ends, "estimates", notes=notes)


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

    def estimated(c: int) -> EstimateEnd | None:
        return candidates.estimated(int(rows.server[c]), int(rows.accelerator[c]))

    ends = [estimated(c) for c in range(len(rows))]

    def accelerator(c: int) -> FormattedValue:
        accelerator = arrays.accelerator_names[rows.accelerator[c]]
        return FormattedValue(marked(accelerator, ends[c] if None in ends else None), accelerator)

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
    section.notes += [*filter(None, [estimate_note(ends, "candidate")])]
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
