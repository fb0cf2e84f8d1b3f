"""Section of a report for those who decide: what the plan costs, what to buy, and what can go wrong."""

from collections.abc import Iterator

from optimizer.quantities import be, counted
from optimizer.queueing.measures import LATENCIES
from optimizer.render.money import Money
from optimizer.section import Column, Paragraph, Section, name, table, titled_list
from optimizer.studies.comparison.document import Comparison
from optimizer.studies.reports.report import Report
from optimizer.text import some_names

HOURS = {"hour": 1, "month (730 h)": 730, "year (8,760 h)": 8760}
"""Hours of each period for which a cost is stated."""
TIGHT = 0.05
"""Margin up to which a target is a risk."""


def decision_sections(report: Report) -> Iterator[Section]:
    """Yield the cost by period with what to run and to buy, and the risks."""
    money, plan = Money.of(report.plan), report.plan
    columns = (
        name("cost per", lambda item: item[0]),
        Column(
            "plan",
            lambda item: money.number(plan.total_cost_cents_per_h * item[1]),
            money.unit.removesuffix("/h"),
            ",.2f",
        ),
    )
    text = [*_cards(report), *_without_limits(report.comparison, money), *_measuring(report, money)]
    paragraphs = [*map(Paragraph, text)]
    yield table("Cost and cards", columns, HOURS.items(), "decision", text=paragraphs)
    yield from titled_list("Risks", _risks(report), bullet="- ")


def _cards(report: Report) -> Iterator[str]:
    used = [use for use in report.plan.capacity if use.used]
    if used:
        parts = [
            f"{use.used:,} {use.type}" if use.limit is None else f"{use.used:,} of {use.limit:,} {use.type}"
            for use in used
        ]
        yield f"The plan runs on {', '.join(parts)} cards."


def _without_limits(found: Comparison, money: Money) -> Iterator[str]:
    """Yield what more cards would bring: the plan without limits, and the cards that it needs."""
    free, limited = found.first.plan, found.second.plan
    limits = {use.type: use.limit for use in limited.capacity}
    buy = [
        f"{use.used - limit:,} more {use.type}"
        for use in free.capacity
        if (limit := limits.get(use.type)) is not None and use.used > limit
    ]
    if not buy:
        return
    cost = money.text(free.total_cost_cents_per_h)
    if len(free.unserved) < len(limited.unserved):
        count = counted(len(limited.unserved) - len(free.unserved), "more server")
        yield f"With {' and '.join(buy)}, {count} would be served in full, for {cost} in total."
    elif free.total_cost_cents_per_h < limited.total_cost_cents_per_h:
        saved = money.text(limited.total_cost_cents_per_h - free.total_cost_cents_per_h)
        yield f"With {' and '.join(buy)} the same service would cost {cost}, {saved} less."


def _measuring(report: Report, money: Money) -> Iterator[str]:
    """Yield what measured token times could save."""
    found = report.estimates
    if found is not None and found.middle is not None:
        upper, middle = found.upper.total_cost_cents_per_h, found.middle.total_cost_cents_per_h
        same = found.upper.served_in_full == found.middle.served_in_full
        if same and middle < upper:
            yield (
                f"Measuring the token times could save {money.text(upper - middle)}, the cost of planning "
                "with the slow end of the estimates instead of their middle."
            )


def _risks(report: Report) -> Iterator[str]:
    """Yield what can go wrong, the worst first."""
    plan, pools = report.plan, report.overview.pools
    short = {item.server for item in plan.unserved}
    if plan.unserved:
        names = some_names([item.server for item in plan.unserved])
        yield f"{counted(len(plan.unserved), 'server')} {be(len(plan.unserved))} not served in full: {names}."
    if plan.lacks_reserve:
        yield f"{plan.reserve_text[0].upper()}{plan.reserve_text[1:]}."
    if report.simulation is not None:
        doubtful = [pool.server for pool in report.simulation.pools if pool.verdict != "held"]
        if doubtful:
            yield f"In simulation targets are missed or too close to call: {some_names(doubtful)}."
    if plan.estimated_pools:
        count = f"{plan.estimated_pools:,} of {counted(len(pools), 'pool')}"
        yield f"Token times of {count} are estimated, not measured."
    tight = [
        f"{row.server} ({figure.measure} {1 - figure.value / figure.limit:.0%})"
        for row in pools
        if row.server not in short
        for metric in LATENCIES
        for figure in row.targets_on(metric)
        if figure.limit > 0 and figure.value > (1 - TIGHT) * figure.limit
    ]
    if tight:
        yield f"Less than {TIGHT:.0%} of a target is left: {some_names(tight)}."
