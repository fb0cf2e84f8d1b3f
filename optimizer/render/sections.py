"""What a report says, section by section, in words and tables; how it looks is decided elsewhere.

Takes a `Report`, gives sections of plain text: one place for what every kind of page shows. Every number
stands under its unit.
"""

from collections.abc import Iterator

from optimizer.kinds.table import KINDS, kinds_of, shown_in
from optimizer.plan import Plan
from optimizer.quantities import be, counted, percent, quantity, share_text
from optimizer.render.comparison_words import changes_text, money_of
from optimizer.render.comparison_words import headline as comparison_headline
from optimizer.render.estimates import estimates_note, marked
from optimizer.render.latency_sections import NOTHING_RUNS, latency_sections, value_text
from optimizer.render.money import Money
from optimizer.render.overload_words import TITLE, overload_note, overload_rows
from optimizer.render.plan_words import is_service, proved
from optimizer.render.robust_tables import sections_of, token_rows
from optimizer.render.section import Column, Fact, Section
from optimizer.render.simulation_section import simulation_section
from optimizer.studies.comparison.document import Comparison, Figures, Row
from optimizer.studies.reports.overview import Overview
from optimizer.studies.reports.report import Report


def sections(report: Report) -> tuple[Section, ...]:
    """Return the sections of a report, in their order."""
    overview = report.overview
    simulated = () if report.simulation is None else (simulation_section(report.simulation),)
    unserved = (_unserved(overview), *_overload(report))
    complete = overview.plan.complete
    return (
        *(() if complete else unserved),
        _assignment(overview),
        _types(overview),
        *sections_of(overview.plan, token_rows(overview.plan, overview.token_costs)),
        *latency_sections(overview),
        *simulated,
        _use(overview),
        _capacity(overview),
        *(unserved if complete else ()),
        _comparison(report.comparison),
    )


def headline(overview: Overview) -> tuple[Fact, ...]:
    """Return the figures that sum up a plan."""
    plan = overview.plan
    replicas = sum(row.num_replicas for row in overview.pools)
    served = overview.servers - len(plan.unserved)
    return (
        Fact("total cost", Money.of(plan).text(plan.total_cost_cents_per_h)),
        Fact("served in full", f"{served:,} of {counted(overview.servers, 'server')}", not plan.complete),
        Fact("replicas", f"{replicas:,}"),
        Fact("cards", f"{sum(row.used for row in overview.types):,}"),
    )


def status(overview: Overview) -> str:
    """Say in one sentence what kind of plan it is and how close to the optimum it is known to be."""
    plan = overview.plan
    mode = "stays within the cards that exist" if overview.limited else "ignores how many cards exist"
    proof = {
        "optimal": proved(plan),
        "feasible": "the best found before the solver stopped",
        "heuristic": "found by a heuristic, without proof",
    }[plan.status]
    return f"The plan {mode}. It is {proof}.{_bound_text(plan)} {_completeness(overview)}"


def _bound_text(plan: Plan) -> str:
    """Return how far the value is proved, if that is for plans that serve as much."""
    by_policy = any(0 < item.served_fraction < 1 for item in plan.unserved)
    if plan.bound is None or by_policy or any(level.gap for level in plan.levels if is_service(level)):
        return ""
    above = f" Its value is at most {percent(plan.gap)} above the optimum." if plan.gap else ""
    if not any(change.before for change in plan.changes):
        return above
    money = Money.of(plan)
    return (
        " Its transition value, its extra cost over what runs now plus the penalty on moves, is "
        f"{money.text(plan.objective)}; no plan that serves as much is below "
        f"{money.amount(plan.bound)}.{above}"
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


# --- the sections --------------------------------------------------------------------------------------


def _assignment(overview: Overview) -> Section:
    money = Money.of(overview.plan)
    shares = {item.server: item.served_fraction for item in overview.plan.unserved}

    def served(server: str) -> str:
        return share_text(shares.get(server, 1.0))

    columns = (
        Column("server", numeric=False), Column("class", numeric=False), Column("model", numeric=False),
        Column("priority"), Column("served"), Column("accelerator", numeric=False), Column("replicas"),
        Column("batch"), Column("load [req/min]"), Column("capacity [req/min]"),
        Column(f"cost [{money.unit}]"),
    )  # fmt: skip
    rows = [
        (
            row.server, row.service_class, row.model, str(row.priority), served(row.server),
            marked(row.accelerator, row.estimated), f"{row.num_replicas:,}", f"{row.max_batch:,}",
            quantity(row.arrival_rate_rpm), quantity(row.max_arrival_rate_rpm),
            money.amount(row.cost_cents_per_h),
        )
        for row in overview.pools
    ]  # fmt: skip
    empty = [
        (
            row.server, row.service_class, row.model, str(row.priority), served(row.server), text, "0",
            "–", "0", "–", "0.00",
        )
        for text, found in (("not served", overview.unplaced), ("idle", overview.idle))
        for row in found
    ]  # fmt: skip
    note = estimates_note(overview.plan)
    text = (f"{note}.",) if note else () if overview.pools else (NOTHING_RUNS,)
    return Section("assignment", "Assignment", text, columns, (*rows, *empty), "assignment")


def _types(overview: Overview) -> Section:
    total, money = overview.plan.total_cost_cents_per_h, Money.of(overview.plan)
    columns = (
        Column("type", numeric=False), Column("replicas"), Column("cards"), Column(f"cost [{money.unit}]"),
        Column("share of cost"),
    )  # fmt: skip
    rows = [
        (
            row.type, f"{row.replicas:,}", f"{row.used:,}", money.amount(row.cost_cents_per_h),
            f"{row.cost_cents_per_h / total:.1%}" if total else "–",
        )
        for row in overview.types
    ]  # fmt: skip
    return Section("types", "Count and cost by accelerator type", (), columns, tuple(rows), "types")


def _use(overview: Overview) -> Section:
    kinds = kinds_of(overview.pools)
    own, heading = shown_in("use", kinds), "utilisation"
    if len(kinds) == 1:
        heading = kinds[0].words.utilisation_heading
    columns = (
        Column("server", numeric=False), Column("accelerator", numeric=False), Column("replicas"),
        Column(heading), Column("load / capacity"), *(Column(shown.title) for shown in own),
    )  # fmt: skip
    rows = [
        (
            row.server, marked(row.accelerator, row.estimated), f"{row.num_replicas:,}",
            f"{row.utilization:.0%}",
            f"{row.arrival_rate_rpm / row.max_arrival_rate_rpm:.0%}" if row.max_arrival_rate_rpm else "–",
            *(value_text(row, shown.metric, "use") for shown in own),
        )
        for row in overview.pools
    ]  # fmt: skip
    what = [KINDS[0].words.utilisation]
    what += [f"of {kind.name} {kind.words.utilisation}" for kind in kinds if kind is not KINDS[0]]
    notes = [shown.note for shown in own if shown.note]
    said = " ".join((f"{heading.capitalize()} is {', '.join(what)}.", *notes))
    text = (said if overview.pools else NOTHING_RUNS,)
    return Section("utilisation", "Utilisation", text, columns, tuple(rows))


def _capacity(overview: Overview) -> Section:
    columns = (
        Column("type", numeric=False), Column("used [cards]"), Column("exist [cards]"),
        Column("left [cards]"), Column("in use"),
    )  # fmt: skip
    rows = []
    for use in overview.plan.capacity:
        limit = use.limit
        left = "–" if limit is None else f"{limit - use.used:,}"
        share = f"{use.used / limit:.0%}" if limit else "–"
        rows.append((use.type, f"{use.used:,}", "unlimited" if limit is None else f"{limit:,}", left, share))
    none = sorted(use.type for use in overview.plan.capacity if use.limit == 0)
    text = (f"There are no cards of {', '.join(none)}.",) if none else ()
    return Section("capacity", "Capacity", text, columns, tuple(rows))


def _unserved(overview: Overview) -> Section:
    unserved = sorted(overview.plan.unserved, key=lambda item: (item.priority, item.server))
    if not unserved:
        return Section("unserved", "Not served in full", (_completeness(overview),))
    columns = (
        Column("server", numeric=False), Column("priority"), Column("served"),
        Column("reason", numeric=False), Column("detail", numeric=False),
    )  # fmt: skip
    rows = [
        (item.server, str(item.priority), share_text(item.served_fraction), item.reason, item.detail)
        for item in unserved
    ]
    return Section("unserved", "Not served in full", (), columns, tuple(rows), alert=True)


def _overload(report: Report) -> Iterator[Section]:
    """Yield what would serve more, if cards are left while load is not served."""
    found, plan = report.overload, report.plan
    if found is None:
        return
    money = Money.of(plan)
    columns = Column("with", numeric=False), Column("served", numeric=False), Column(f"cost [{money.unit}]")
    rows = [
        (row.flags, row.served, "–" if row.cost_cents_per_h is None else money.amount(row.cost_cents_per_h))
        for row in overload_rows(found, plan)
    ]
    yield Section("overload", TITLE, (f"{overload_note(found)}.",), columns, tuple(rows))


def _comparison(comparison: Comparison) -> Section:
    """Return what the limits cost, in total and by class, and the servers that they move."""
    money = money_of(comparison)
    text = [
        comparison_headline(comparison),
        changes_text(comparison),
        *(f"{note[0].upper()}{note[1:]}." for note in comparison.notes),
    ]
    if comparison.same:
        text = ["The limits change nothing: the limited plan is the unlimited one."]
    columns = (
        Column("what", numeric=False), Column("unlimited", numeric=False), Column("limited", numeric=False),
        Column(f"unlimited [{money.unit}]"), Column(f"limited [{money.unit}]"),
        Column(f"difference [{money.unit}]"),
    )  # fmt: skip
    total, classes = ("all servers", comparison.total), comparison.classes
    rows = [
        (name, "", "", *_costs(row, money))
        for name, row in (total, *((f"class {row.service_class}", row) for row in classes))
    ]
    rows += [
        (
            row.server, _runs_on(row.first), _runs_on(row.second), *_costs(row, money),
        )
        for row in sorted(comparison.changed(), key=lambda row: (row.priority or 0, row.server))
    ]  # fmt: skip
    return Section("comparison", "Limited and unlimited", tuple(text), columns, tuple(rows))


# --- words for figures ---------------------------------------------------------------------------------


def _costs(row: Row, money: Money) -> tuple[str, str, str]:
    """Return the costs of both sides, and the difference."""
    first, second = (
        "–" if side is None else money.amount(side.cost_cents_per_h) for side in (row.first, row.second)
    )
    return first, second, money.change(row.difference.cost_cents_per_h)


def _runs_on(figures: Figures | None) -> str:
    if figures is None or not figures.accelerators:
        return "nothing"
    return " + ".join(f"{item.num_replicas:,} × {item.accelerator}" for item in figures.accelerators)
