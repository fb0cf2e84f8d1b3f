"""Key figures of a plan, and the memo at the start of a report: cost, service, targets, and what to do."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from optimizer.checking.sizes import STEEP
from optimizer.money import in_cost_unit
from optimizer.quantities import be, counted, counted_of, parts_text, precise, requests_text
from optimizer.render.answer_text import TYPICAL, cost_interval_text, measure_first_text, shortage_text
from optimizer.render.money import Money
from optimizer.section import Paragraph, Section
from optimizer.spec.system import System
from optimizer.studies.estimates import EstimatePrice
from optimizer.studies.overview import Overview
from optimizer.studies.report import Report
from optimizer.studies.service import PriorityService, service_by_priority
from optimizer.studies.shortage import WayOut, shortage_of, way_out
from optimizer.studies.target_rows import State, TargetRow, nearest_target
from optimizer.text import capitalised, some_names
from optimizer.units import SECONDS_PER_MINUTE

PERIODS = {"cost per month (730 h)": 730, "cost per year (8,760 h)": 8760}
"""Hours of each period for which a report states the cost."""


class Tile(NamedTuple):
    """A key figure of a plan."""

    name: str
    value: str
    number: float
    unit: str = ""
    """Unit of the number."""
    note: str = ""
    """Second line."""
    state: State = "ok"


def key_figures(
    overview: Overview,
    rows: Sequence[TargetRow],
    service: Sequence[PriorityService],
    price: EstimatePrice | None = None,
) -> Iterator[Tile]:
    """Yield the key figures of a plan: cost, service, reserves, the tightest target, and cards.

    Args:
        overview: overview of the plan.
        rows: its servers with their targets.
        service: its service by priority.
        price: its cautious and typical cost, if they are known.
    """
    plan = overview.plan
    money, cost = Money.of(plan), plan.total_cost_cents_per_h
    yield Tile(
        "total cost", money.text(cost), in_cost_unit(cost, plan.currency), money.unit,
        typical_text(price, money),
    )  # fmt: skip
    servers = len(plan.documented)
    full = servers - len(plan.short_servers)
    rates = [sum(getattr(item, field) for item in service) / SECONDS_PER_MINUTE for field in _RATES]
    served, _, load = parts_text(*rates)
    of_servers = counted_of(full, servers, "server")
    yield Tile(
        "served in full",
        of_servers,
        full,
        "servers",
        requests_text(served, load),
        "ok" if plan.complete else "missed",
    )
    if plan.requires_reserve:
        required, lacking = len(plan.requires_reserve), len(plan.lacks_reserve)
        text = counted_of(required - lacking, required, "server")
        yield Tile(
            "have their reserve", text, required - lacking, "servers", "", "missed" if lacking else "ok"
        )
    yield _tightest(rows)
    used = sum(item.used for item in overview.types)
    gone = [item.type for item in overview.types if item.limit and item.used >= item.limit]
    yield Tile("cards", f"{used:,}", used, "cards", f"all in use: {', '.join(gone)}" if gone else "")


def _tightest(rows: Sequence[TargetRow]) -> Tile:
    nearest = nearest_target(rows)
    if nearest is None:
        return Tile("tightest target", "none", 0.0, note="no served server has a latency target")
    row, target = nearest
    note = f"{row.server}: {target.name} {target.text}"
    return Tile("tightest target", target.verdict, 100 * target.share, "pp", note, target.state)


_RATES = "served_rpm", "load_rpm"


def typical_text(price: EstimatePrice | None, money: Money, hours: int = 1) -> str:
    """Return the typical cost as the second line of the cost; empty without estimated token times.

    Args:
        price: cautious and typical cost.
        money: currency of the costs.
        hours: number of hours for which the cost is stated.
    """
    if price is None:
        return ""
    if price.middle is None:
        return f"{TYPICAL}: not computed in time"
    served = counted_of(price.middle.served_in_full, price.servers, "server")
    service = "" if price.same_service else f" with {served}"
    amount = money.amount(hours * price.middle.total_cost_cents_per_h)
    return f"{TYPICAL}: {amount} {money.unit if hours == 1 else money.sum_unit}{service}"


def memo_figures(report: Report, system: System, rows: Sequence[TargetRow]) -> list[Tile]:
    """Return the key figures of a report: those of the plan, and its cost per month and year."""
    plan, price = report.plan, report.estimates
    money = Money.of(plan)
    service = service_by_priority(plan, system)
    cost, *others = key_figures(report.overview, rows, service, price)
    periods = [
        Tile(
            name, f"{money.amount(hours * plan.total_cost_cents_per_h)} {money.sum_unit}", 0.0, "",
            typical_text(price, money, hours),
        )
        for name, hours in PERIODS.items()
    ]  # fmt: skip
    return [cost, *periods, *others]


def memo_section(
    report: Report, system: System, rows: Sequence[TargetRow], load_factor: float | None = None
) -> Section:
    """Return the sentences of the memo, the most important first.

    Args:
        report: the report.
        system: the system that its plan serves.
        rows: the servers of the plan with their targets.
        load_factor: factor on all loads of the document, which the first line states; None without one.
    """
    plan, money = report.plan, Money.of(report.plan)
    text = []
    if not plan.complete:
        shortage = shortage_of(system, plan, _way_out(report))
        text.append(Paragraph(shortage_text(shortage, money, load_factor), "red"))
        load_factor = None
    text.append(Paragraph(f"{cost_interval_text(plan, report.estimates, load_factor)}.", "bold"))
    text += [Paragraph(line) for line in (_growth(report), _targets(rows)) if line]
    measure_first = measure_first_text(plan, report.estimates)
    text += [Paragraph(f"{measure_first}.")] if measure_first else []
    text += [Paragraph(line) for line in _cheaper(report, money)]
    return Section(name="memo", text=text)


def _way_out(report: Report) -> WayOut | None:
    """Return the cards that the unlimited plan needs beyond those that exist."""
    free, limited = report.comparison.first.plan, report.comparison.second.plan
    return way_out(limited, free) if report.overview.limited else None


def _growth(report: Report) -> str:
    """State how far all load can grow, and which cards are then short."""
    points = [] if report.growth is None else report.growth.points
    full = [point for point in points if not point.unserved]
    short = next((point for point in points if point.unserved), None)
    if not full:
        return ""
    most = precise(full[-1].values[0])
    if short is None:
        return f"All targets hold up to {most} times the load, the largest that was planned."
    kinds = [bind.item for bind in short.binds if bind.limit == "cards" and bind.unserved]
    of_what = f", for lack of {some_names(kinds)}" if kinds else ""
    return (
        f"All targets hold up to {most} times the load; at {precise(short.values[0])} times, "
        f"{counted(short.unserved, 'server')} {be(short.unserved)} not served in full{of_what}."
    )


def _targets(rows: Sequence[TargetRow]) -> str:
    """State the tightest target, and the number of targets that are missed or nearly reached."""
    nearest = nearest_target(rows)
    if nearest is None:
        return ""
    server, worst = nearest[0].server, nearest[1]
    targets = [target for row in rows for target in row.targets]
    missed = sum(target.state == "missed" for target in targets)
    tight = sum(target.state == "tight" for target in targets)
    held = f"{missed:,} of {counted(len(targets), 'target')} missed; " if missed else ""
    many = f"; {tight:,} of {counted(len(targets), 'target')} are at 95% or more" if tight > 1 else ""
    return capitalised(
        f"{held}the tightest target is {worst.name} of {server}: {worst.text} ({worst.verdict}){many}."
    )


def _cheaper(report: Report, money: Money) -> Iterator[str]:
    """Yield a sentence on cards with which the same service would cost less."""
    free, limited = report.comparison.first.plan, report.comparison.second.plan
    steep = any(
        warning.code == STEEP
        for side in (report.comparison.first, report.comparison.second)
        for warning in side.plan.warnings
    )
    added = way_out(limited, free).added
    saved = limited.total_cost_cents_per_h - free.total_cost_cents_per_h
    if report.overview.limited and not steep and added and limited.complete and saved > 0:
        cards = " and ".join(f"{count:,} more {name}" for name, count in added.items())
        cost = money.text(free.total_cost_cents_per_h)
        yield f"With {cards} the same service would cost {cost}, {money.text(saved)} less."
