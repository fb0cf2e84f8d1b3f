"""Sections of a report: sections that the terminal also shows, and the report's own tables."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from optimizer.features.sections import feature_sections, group_sections
from optimizer.kinds.kind import Kind
from optimizer.kinds.shown import TableName
from optimizer.kinds.table import KINDS, kinds_of, shown_in
from optimizer.plan import Plan
from optimizer.plan.notebook import are_mixed
from optimizer.plan.placements import services_of
from optimizer.plan.token_costs import token_costs
from optimizer.prices.table import ORIGINS
from optimizer.quantities import be, counted, quantity
from optimizer.render.comparison_sections import limits_sections
from optimizer.render.decision_sections import (
    basis_sections,
    growth_sections,
    reason_sections,
    repair_sections,
    risk_sections,
)
from optimizer.render.estimates import estimates_notes, marked
from optimizer.render.figures import of_pool
from optimizer.render.money import Money
from optimizer.render.plan_sections import (
    estimates_section,
    limit_sections,
    overload_section,
    unserved_section,
)
from optimizer.render.plan_text import is_service, proof_text
from optimizer.render.report_memo import memo_section
from optimizer.render.simulation_sections import simulation_sections
from optimizer.section import RPM, Column, Paragraph, Section, name, table, words
from optimizer.spec.system import System
from optimizer.studies.overview import EmptyRow, Overview, PoolRow
from optimizer.studies.report import Report
from optimizer.studies.target_rows import TargetRow, server_rows
from optimizer.text import capitalised

NOTHING_RUNS = "No server runs."
WATTS_PER_KW = 1000.0
POWER_NOTE = (
    "Power is that of the cards at their load, estimated from the share of time in which they compute and "
    "from the part of it that grows with the tokens. The median error against published measurements is "
    "10% (docs/fidelity.md)."
)


def report_sections(
    report: Report,
    system: System,
    rows: Sequence[TargetRow] | None = None,
    load_factor: float | None = None,
) -> list[Section]:
    """Return all sections of a report: the memo of the first page, and then the appendix.

    Args:
        report: the report.
        system: the system that its plan serves.
        rows: the servers of the plan with their targets, if they are known.
        load_factor: factor on all loads of the document, which the first line states; None without one.
    """
    overview, plan = report.overview, report.plan
    rows = server_rows(system, plan, overview) if rows is None else rows
    unserved = [] if plan.complete else [unserved_section(plan)]
    if report.overload is not None:
        unserved.append(overload_section(report.overload, plan))
    has_limits = overview.limited or any(use.limit for use in report.comparison.second.plan.capacity)
    return [
        memo_section(report, system, rows, load_factor),
        Section("Targets", name="targets-picture", picture="targets"),
        _types(overview),
        *_targets(rows, Money.of(plan)),
        *unserved,
        *repair_sections(report),
        *growth_sections(report),
        *([] if report.estimates is None else [estimates_section(report.estimates, plan)]),
        *risk_sections(report, system),
        _assignment(overview),
        *reason_sections(report),
        *(limit_sections(plan) if report.explanation is None else ()),
        *group_sections(plan, overview.queues),
        *_of_features(overview, system),
        *_simulation(report),
        *(limits_sections(report.comparison) if has_limits else ()),
        *basis_sections(report, system),
    ]


MEMO = "memo", "targets-picture", "types"
"""Names of the sections of the first page."""


def _targets(rows: Sequence[TargetRow], money: Money) -> Iterator[Section]:
    """Yield the table of servers with their targets as shares of the limits."""
    columns = (
        name("server", "server"),
        Column("priority", "priority"),
        words("runs on", _runs_on),
        words("targets", _targets_text),
        Column("capacity in use", "capacity_share", form=".0%"),
        words("limited by", lambda row: row.limited_by or None),
        money.column("cost", lambda row: row.cost_cents_per_h),
    )
    yield table("Servers", columns, rows, "servers")


def _runs_on(row: TargetRow) -> str:
    return row.marked_place if row.in_full else f"{row.marked_place}: {row.served_text}"


def _targets_text(row: TargetRow) -> str:
    shown = sorted(row.targets, key=attrgetter("share"), reverse=True)
    return "; ".join(f"{item.percent} {item.name} {item.text}" for item in shown)


def _of_features(overview: Overview, system: System) -> Iterator[Section]:
    """Yield the sections on reserves, price tiers, rented services and token costs that the plan has."""
    plan = overview.plan
    others = plan.tiers, plan.requires_reserve, plan.limits, plan.deadlines, plan.caches, services_of(plan)
    shown = any(others)
    for section in feature_sections(plan, token_costs(plan, system)):
        if section.name != "tokens" or (shown and section.rows):
            section.on_request = False
            yield section


def status(overview: Overview) -> str:
    """Describe a plan in sentences: its completeness, and what is proved of it with the cards it can use."""
    plan = overview.plan
    proof = capitalised(proof_text(plan, unlimited=not overview.limited))
    missing = f" {capitalised(plan.reserve_text)}." if plan.requires_reserve else ""
    return f"{_completeness(overview)}{missing} {proof}.{_bound_text(plan)}"


def _bound_text(plan: Plan) -> str:
    """State the proved bound on the transition cost, if it applies to plans with the same service."""
    by_policy = any(0 < item.served_fraction < 1 for item in plan.unserved)
    if plan.bound is None or by_policy or any(level.gap for level in plan.levels if is_service(level)):
        return ""
    if not any(change.before for change in plan.changes):
        return ""
    money = Money.of(plan)
    return (
        " Its transition value, its extra cost over what runs now plus the penalty on moves, is "
        f"{money.text(plan.objective)}; no plan that serves as much is below "
        f"{money.amount(plan.bound)}."
    )


def _completeness(overview: Overview) -> str:
    if not overview.plan.complete:
        count = len(overview.plan.unserved)
        return f"{counted(count, 'server')} {be(count)} not served in full."
    if not overview.servers:
        return "There are no servers."
    if not overview.pools:
        return "Every server is idle and needs nothing."
    return "Every server is served in full."


# --- tables ----------------------------------------------------------------------------------------------


def _simulation(report: Report) -> list[Section]:
    """Return the sections of the simulation; empty if the report has none."""
    if report.simulation is None:
        return []
    first, *rest = simulation_sections(report.simulation)
    first.title, first.name = "Predicted and simulated", "simulation"
    first.text.append(
        Paragraph(
            "One replica of each pool is run request by request at its share of the load. "
            "Intervals (±) hold 95%."
        )
    )
    return [first, *rest]


def _pool(of: Callable[[PoolRow], Any], otherwise: Any = None) -> Callable[[PoolRow | EmptyRow], Any]:
    """Extend a function of pools to rows of servers without pools.

    Args:
        of: function that returns the value of a pool.
        otherwise: value for a server without pools.
    """
    return lambda row: of(row) if isinstance(row, PoolRow) else otherwise


def _has_tokens(row: PoolRow) -> bool:
    return row.in_tokens > 0 or row.out_tokens > 0


def _assignment(overview: Overview) -> Section:
    idle, mark = {row.server for row in overview.idle}, are_mixed(overview.pools)

    def place(row: PoolRow) -> str:
        return marked(row.placed_on, row.estimated if mark else None)

    lengths = (
        Column("input", _pool(lambda row: row.in_tokens if _has_tokens(row) else None), "tokens", quantity),
        Column("output", _pool(lambda row: row.out_tokens if _has_tokens(row) else None), "tokens", quantity),
    )
    columns = (
        name("server", "server"),
        name("class", "service_class"),
        name("model", "model"),
        name("accelerator", lambda row: _pool(place, "idle" if row.server in idle else "not served")(row)),
        Column("replicas", _pool(lambda row: row.num_replicas, 0), form=",d"),
        Column("batch", _pool(lambda row: row.max_batch), form=",d"),
        *(lengths if any(map(_has_tokens, overview.pools)) else ()),
        Column("load", _pool(lambda row: row.arrival_rate_rpm, 0.0), RPM, quantity),
        Column("capacity", _pool(lambda row: row.max_arrival_rate_rpm), RPM, quantity),
        *_utilisation(overview.pools),
    )
    text = [f"{note}." for note in estimates_notes(overview.plan)]
    text = text or ([] if overview.pools else [NOTHING_RUNS])
    rows = (*overview.pools, *overview.unplaced, *overview.idle)
    notes = [*_utilisation_notes(overview.pools)]
    return table("Assignment", columns, rows, text=[*map(Paragraph, text)], notes=notes)


def _types(overview: Overview) -> Section:
    plan, money = overview.plan, Money.of(overview.plan)
    total = plan.total_cost_cents_per_h
    columns = (
        name("type", "type"),
        Column("replicas", "replicas", form=",d"),
        Column("cards", "used", form=",d"),
        Column("exist", "limit", form=",d", none="unlimited"),
        Column("left", lambda row: None if row.limit is None else row.limit - row.used, form=",d"),
        Column("in use", lambda row: row.used / row.limit if row.limit else None, form=".0%"),
        money.column("cost", lambda row: row.cost_cents_per_h),
        Column("share of cost", lambda row: row.cost_cents_per_h / total if total else None, form=".1%"),
    )
    none = [row.type for row in overview.types if row.limit == 0]
    text = [Paragraph(f"There are no cards of {', '.join(none)}.")] if none else []
    section = table("Cards and cost by accelerator type", columns, overview.types, "types", text=text)
    section.rows += [
        (
            f"{ORIGINS[cost.origin]}: {cost.name}",
            *("",) * 5,
            money.number(cost.amount_cents_per_h),
            cost.amount_cents_per_h / total if total else None,
        )
        for cost in plan.costs_of_no_pool
    ]
    return section


def _utilisation(pools: Sequence[PoolRow]) -> Iterator[Column]:
    """Yield the columns of the utilisation of pools, and of their power."""
    kinds = kinds_of(pools)
    yield Column(_utilisation_heading(kinds), _pool(lambda row: row.utilization), form=".0%")
    for shown in shown_in("use", kinds):
        yield Column(shown.heading, _pool(partial(_value_text, shown.metric, "use")))
    if any(row.power_w is not None for row in pools):
        yield Column("power", _pool(lambda row: row.power_w), "W", ",.0f")
        yield Column("power per card", _pool(_power_per_card), "W", ",.0f")


def _utilisation_heading(kinds: Sequence[Kind]) -> str:
    return kinds[0].words.utilisation_heading if len(kinds) == 1 else "utilisation"


def _utilisation_notes(pools: Sequence[PoolRow]) -> Iterator[str]:
    """Yield the meaning of utilisation, and the power of all pools."""
    kinds = kinds_of(pools)
    if not pools:
        return
    unnamed = kinds[0] if len(kinds) == 1 else KINDS[0]
    meanings = [
        kind.words.utilisation if kind is unnamed else f"of {kind.name} {kind.words.utilisation}"
        for kind in kinds
    ]
    notes = [shown.note for shown in shown_in("use", kinds) if shown.note]
    yield " ".join((f"{_utilisation_heading(kinds).capitalize()} is {', '.join(meanings)}.", *notes))
    power = [row.power_w for row in pools if row.power_w is not None]
    if power:
        yield f"All pools together draw {quantity(sum(power) / WATTS_PER_KW)} kW. {POWER_NOTE}"


def _power_per_card(row: PoolRow) -> float | None:
    return row.power_w / row.cards if row.power_w is not None and row.cards else None


def _value_text(metric: str, where: TableName, pool: PoolRow) -> str | None:
    """Return a metric of a pool as text; None if the pool lacks the metric."""
    shown = of_pool(pool, metric, where)
    value = None if shown is None else getattr(pool, shown.field)
    return None if shown is None or value is None else shown.text(value)
