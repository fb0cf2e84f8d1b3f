"""Tables of plans and candidates for the terminal; every number with its unit."""

from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.text import Text

from optimizer.candidates import Candidates
from optimizer.kinds.kind import Kind
from optimizer.kinds.shown import LOSS
from optimizer.kinds.table import KINDS, in_order, kind_of_pool
from optimizer.plan import Plan
from optimizer.plan.document import EXTERNAL
from optimizer.quantities import counted, percent
from optimizer.render import columns
from optimizer.render.estimates import estimates_note, marked
from optimizer.render.explanation_words import part_text
from optimizer.render.figures import Value, columns_of, other_targets, plan_columns
from optimizer.render.money import Money
from optimizer.render.overload_words import TITLE, overload_note, overload_rows
from optimizer.render.plan_words import proved
from optimizer.render.robust_tables import tables_of
from optimizer.render.tables import Paragraph, Said, Table
from optimizer.render.target_words import figures_text
from optimizer.solvers.levels import VALUE
from optimizer.spec.system import System
from optimizer.studies.overload import Overload
from optimizer.studies.reports.overview import PoolRow, describe, kinds_of_servers

_Values = dict[str, Value]
"""Of a row, by heading."""


def plan_tables(plan: Plan, system: System, overload: Overload | None = None) -> Group:
    """Return a plan as tables: allocations against targets, cards, and what could not be served.

    Args:
        plan: the plan.
        system: what it was made for.
        overload: what would serve more, if that is known.
    """
    allocations, note = _allocations(plan, system), estimates_note(plan)
    if note:
        allocations.notes.append(note)
    allocations.notes.extend(_slowest(plan))
    return Group(
        _headline(plan, system),
        allocations,
        _cards(plan),
        *_limits(plan),
        *tables_of(plan, system),
        _unserved(plan),
        overload_table(overload, plan),
        _levels(plan),
    )


def overload_table(found: Overload | None, plan: Plan) -> Table:
    """Return what would serve more of an overloaded fleet as a table; without rows if nothing would."""
    money = Money.of(plan)
    table = Table(TITLE, money.columns(columns.OVERLOAD), "overload", may_be_empty=True)
    if found is not None:
        for row in overload_rows(found, plan):
            table.add_row(row.flags, row.served, money.number(row.cost_cents_per_h))
        table.notes.append(f"{overload_note(found)}.")
    return table


def _slowest(plan: Plan) -> Iterator[str]:
    """Say of replicas with stages what of each can serve the least."""
    for name, pools in plan.allocations.items():
        for pool in pools:
            if pool.binding:
                yield f"{name} on {pool.accelerator}: {part_text(pool.binding)} can serve the least."


def _headline(plan: Plan, system: System) -> Group:
    served = len(system.servers) - len(plan.unserved)
    proof = {
        "optimal": proved(plan),
        "feasible": "the solver stopped early",
        "heuristic": "found by a heuristic, without proof",
    }[plan.status]
    gap = "" if plan.gap is None else f", gap {percent(plan.gap)}"
    mode = "unlimited" if system.options.unlimited else "limited"
    cards = sum(item.used for item in plan.capacity)
    said = (
        f"{served:,} of {counted(len(system.servers), 'server')} served in full, "
        f"{len(plan.changes):,} changed; {counted(cards, 'card')}"
    )
    return Group(
        Paragraph(f"{Money.of(plan).text(plan.total_cost_cents_per_h)}   {mode} plan, {proof}{gap}", "bold"),
        Paragraph(said, "green" if plan.complete else "yellow"),
        Text(""),
    )


def _allocations(plan: Plan, system: System) -> Table:
    money, overview = Money.of(plan), describe(system, plan)
    figures = plan_columns(_kinds(overview.pools, system), overview.pools)
    losses = [column for column, _ in figures.get(LOSS.metric, ())]
    others = [column for metric in figures if metric != LOSS.metric for column, _ in figures[metric]]
    headings = columns.allocations(losses, others)
    table = Table("Allocations", money.columns(headings))
    names = [column.name for column in headings]
    rented = {item.server: item for item in plan.rented}
    pools: dict[str, list[PoolRow]] = {}
    for pool in overview.pools:
        pools.setdefault(pool.server, []).append(pool)
    order = sorted(plan.allocations, key=lambda name: (system.priority(system.servers[name]), name))
    for name in order:
        priority = system.priority(system.servers[name])
        if name not in pools:
            values: _Values = {"server": name, "prio": priority, "accelerator": "idle", "cost": 0.0}
            if name in rented:
                cost, load = rented[name].cost_cents_per_h, rented[name].arrival_rate_rpm
                values |= {"accelerator": EXTERNAL, "cost": money.number(cost), "load": load}
            table.add_row(*map(values.get, names))
        for i, pool in enumerate(pools.get(name, ())):
            first = (name, priority) if i == 0 else (Said("", name), Said("", priority))
            values = {"server": first[0], "prio": first[1], **_values(pool, money)}
            values |= {column.name: value(pool) for some in figures.values() for column, value in some}
            table.add_row(*map(values.get, names))
    return table


def _kinds(pools: Sequence[PoolRow], system: System) -> list[Kind]:
    """Return the kinds that run, and the default kind where any server is of it; without any all."""
    servers, run = kinds_of_servers(system), {kind_of_pool(pool) for pool in pools}
    if KINDS[0] in servers:
        run.add(KINDS[0])
    return in_order(run) if run else servers


def _values(pool: PoolRow, money: Money) -> _Values:
    """Return what is shown of a pool of any kind, by heading."""
    return {
        "accelerator": Said(marked(pool.accelerator, pool.estimated), pool.accelerator),
        "replicas": pool.num_replicas,
        "cards": pool.units,
        "batch": pool.max_batch,
        "load": pool.arrival_rate_rpm,
        "capacity": pool.max_arrival_rate_rpm,
        "targets": Said(figures_text(other_targets(pool, "plan")), figures_text(pool.targets)),
        "util": pool.utilization,
        "cost": money.number(pool.cost_cents_per_h),
        "estimated": pool.estimated,
    }


def _cards(plan: Plan) -> Table:
    table = Table("Cards by accelerator type", columns.CARDS, "cards")
    for item in plan.capacity:
        left = None if item.limit is None else item.limit - item.used
        table.add_row(item.type, item.used, item.limit, left)
    return table


def _limits(plan: Plan) -> Iterator[Table]:
    """Yield what is used of what is limited beside cards, if anything is."""
    if plan.limits:
        table = Table("Limits", columns.LIMITS, "limits")
        for use in plan.limits:
            table.add_row(use.limit, use.item, use.used, use.amount, use.amount - use.used)
        yield table


def _unserved(plan: Plan) -> Table:
    table = Table("Not served in full", columns.UNSERVED, "unserved", may_be_empty=True)
    for item in sorted(plan.unserved, key=lambda item: (item.priority, item.server)):
        table.add_row(item.server, item.priority, item.served_fraction, item.reason, item.detail)
    return table


def _levels(plan: Plan) -> Table:
    """Return what every objective reached; shown unasked if one is not closed."""
    closed = not any(level.gap for level in plan.levels)
    table = Table("Objectives", columns.OBJECTIVES, "objectives", on_request=closed)
    money = Money.of(plan)
    for level in plan.levels:
        reached, bound = (
            money.number(figure) if level.name == VALUE else figure for figure in (level.value, level.bound)
        )
        table.add_row(level.name, reached, bound, level.gap)
    return table


def candidate_tables(candidates: Candidates) -> Group:
    """Return the candidates and the rejected pairs of a system as tables."""
    arrays, rows, money = candidates.arrays, candidates.table, Money(candidates.system.currency)
    of_model = candidates.system.model_kinds()
    of_server = [of_model.get(server.model, KINDS[0]) for server in candidates.system.servers.values()]
    kinds = [of_server[s] for s in rows.server.tolist()]
    figures = columns_of("candidates", in_order({*kinds}))
    headings = columns.candidates(figures.values())
    table = Table(f"Candidates ({len(rows)})", money.columns(headings), "candidates")
    names = [column.name for column in headings]
    cards, cost = rows.units, rows.cost_cents_per_h
    for c, kind in enumerate(kinds):
        accelerator = arrays.accelerator_names[rows.accelerator[c]]
        estimated = candidates.estimated(int(rows.server[c]), int(rows.accelerator[c]))
        values: _Values = {
            "server": arrays.server_names[rows.server[c]],
            "accelerator": Said(marked(accelerator, estimated), accelerator),
            "replicas": int(rows.num_replicas[c]),
            "cards": int(cards[c]),
            "type": arrays.type_names[rows.kind[c]],
            "batch": int(rows.max_batch[c]),
            "rate per replica": float(rows.max_rate_rps[c] * 60),
            "cost": money.number(float(cost[c])),
            "estimated": estimated,
        }
        for metric, shown in kind.shown("candidates").items():
            values[figures[metric].name] = float(getattr(rows, shown.field)[c])
        table.add_row(*map(values.get, names))
    rejected = Table("Rejected pairs", columns.REJECTED, "rejected", may_be_empty=True)
    for item in candidates.rejections():
        rejected.add_row(item.server, item.accelerator, item.reason, item.detail)
    return Group(table, rejected)
