"""Sections of a horizon study: its policies, reservations and hours."""

from optimizer.quantities import counted, percent, quantity
from optimizer.render.money import Money
from optimizer.render.service_text import lacking_columns
from optimizer.section import Column, Section, name, sentence, table
from optimizer.studies.horizon.horizon_document import Horizon, HourPlan


def horizon_sections(horizon: Horizon) -> list[Section]:
    """Return the sections of a horizon study."""
    sections = [sentence(_result(horizon), "bold"), sentence(_summary(horizon)), _policies(horizon)]
    if horizon.reservations:
        sections.append(_reservations(horizon))
    return [*sections, _hours(horizon)]


def _result(horizon: Horizon) -> str:
    """Return the cost of the plan, and the saving over the dearest policy that serves as much."""
    plan, *others = horizon.policies
    money = Money(horizon.currency)
    text = f"{plan.name}: {money.amount(plan.total_cost)} {money.sum_unit}"
    same = [item for item in others if item.unserved == plan.unserved and item.total_cost > plan.total_cost]
    if same and plan.total_cost > 0:
        dearest = max(same, key=lambda item: item.total_cost)
        saved = 1 - plan.total_cost / dearest.total_cost
        text += f"; {dearest.name}: {money.amount(dearest.total_cost)} ({saved:.0%} saved)"
    return text


def _summary(horizon: Horizon) -> str:
    """Return the number of hours and intervals, and the proved distance to the optimum."""
    summary = f"{counted(horizon.hours, 'hour')}, {counted(horizon.intervals, 'interval')}"
    if horizon.gap is None:
        return summary
    return f"{summary}; at most {percent(horizon.gap)} above the cheapest possible plan"


def _policies(horizon: Horizon) -> Section:
    money = Money(horizon.currency)
    columns = (
        name("policy", "name"),
        money.column("cost", lambda item: item.total_cost, unit=money.sum_unit),
        money.column("transitions", lambda item: item.transition_cost, 2, money.sum_unit),
        Column("unserved", "unserved", "requests", ",.0f"),
        Column("card-hours", "unit_hours", form=quantity, rank=1),
        Column("moves", "transitions", form=",d", rank=1),
        Column("starts", "startups", form=",d"),
        *(lacking_columns("lack_reserve") if horizon.policies[0].lack_reserve is not None else ()),
    )
    return table("Policies", columns, horizon.policies, "policies")


def _reservations(horizon: Horizon) -> Section:
    columns = (
        name("accelerator", "accelerator"),
        Money(horizon.currency).column("price", lambda item: item.cost_cents_per_h),
        Column("offered", "offered", form=",d"),
        Column("reserve", "reserved", form=",d"),
        Column("in use", lambda item: item.used_share if item.reserved else None, form=".0%"),
    )
    return table("Reservations", columns, horizon.reservations, "reservations")


def _hours(horizon: Horizon) -> Section:
    first = horizon.plans[0].time_s

    def rented(hour: HourPlan) -> str:
        parts = [f"{item.rented:,} × {item.accelerator}" for item in hour.use if item.rented]
        return ", ".join(parts) or "nothing"

    columns = (
        Column("hour", lambda hour: (hour.time_s - first) / 3600.0, "h", quantity),
        Column("load", "load_rpm", "req/min", ",.0f"),
        Column("served", lambda hour: hour.served_rpm / hour.load_rpm if hour.load_rpm else None, form=".0%"),
        Column("reserved in use", lambda hour: sum(item.reserved for item in hour.use), form=",d", rank=1),
        Column("rented", rented, content="words"),
        Column("starts", "started", form=",d", rank=1),
        *(lacking_columns("lacks_reserve") if horizon.requires_reserve else ()),
        Money(horizon.currency).column("cost", lambda hour: hour.cost_cents_per_h),
    )
    return table("Hours", columns, horizon.plans, "hours")
