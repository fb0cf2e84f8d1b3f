"""Sections of a horizon: its policies, reservations and hours."""

from collections.abc import Callable
from typing import Any

from optimizer.money import cost_unit, in_cost_unit
from optimizer.quantities import counted, percent, quantity
from optimizer.section import Column, Section, name, sentence, table, words
from optimizer.studies.horizon.horizon_document import Horizon, HourPlan
from optimizer.text import some_names


def horizon_sections(found: Horizon) -> list[Section]:
    """Return the tables of a horizon."""
    summary = f"{counted(found.hours, 'hour')}, {counted(found.intervals, 'interval')}"
    if found.gap is not None:
        summary += f"; the plan costs at most {percent(found.gap)} more than the optimum"
    sections = [sentence(summary), _policies(found)]
    if found.reservations:
        sections.append(_reservations(found))
    return [*sections, _hours(found)]


def _cost(found: Horizon, heading: str, unit: str, of: Callable[[Any], float], rank: int = 0) -> Column:
    return Column(heading, lambda item: in_cost_unit(of(item), found.currency), unit, ",.2f", rank)


def _policies(found: Horizon) -> Section:
    unit = found.currency or "cents"
    columns = (
        name("policy", "name"),
        _cost(found, "cost", unit, lambda item: item.total_cost),
        _cost(found, "transitions", unit, lambda item: item.transition_cost, 2),
        Column("unserved", "unserved", "requests", ",.0f"),
        Column("card-hours", "unit_hours", form=quantity, rank=1),
        Column("moves", "transitions", form=",d", rank=1),
        Column("starts", "startups", form=",d"),
        *(_reserves("lack_reserve") if found.policies[0].lack_reserve is not None else ()),
    )
    return table("Policies", columns, found.policies, "policies")


def _reserves(lacking: str) -> tuple[Column, Column]:
    """Return columns of the servers that lack their reserve, by the attribute with their names."""

    def names(item: Any) -> tuple[str, ...]:
        return getattr(item, lacking) or ()

    return (
        Column("lack reserve", lambda item: len(names(item)), "servers", ",d"),
        words("which lack it", lambda item: some_names(names(item)) or None, rank=3, none="none"),
    )


def _reservations(found: Horizon) -> Section:
    columns = (
        name("accelerator", "accelerator"),
        _cost(found, "price", cost_unit(found.currency), lambda item: item.cost_cents_per_h),
        Column("offered", "offered", form=",d"),
        Column("reserve", "reserved", form=",d"),
        Column("in use", lambda item: item.used_share if item.reserved else None, form=".0%"),
    )
    return table("Reservations", columns, found.reservations, "reservations")


def _hours(found: Horizon) -> Section:
    first = found.plans[0].time_s

    def rented(hour: HourPlan) -> str:
        parts = [f"{item.rented:,} × {item.accelerator}" for item in hour.use if item.rented]
        return ", ".join(parts) or "nothing"

    columns = (
        Column("hour", lambda hour: (hour.time_s - first) / 3600.0, "h", quantity),
        Column("load", "load_rpm", "req/min", ",.0f"),
        Column("served", lambda hour: hour.served_rpm / hour.load_rpm if hour.load_rpm else None, form=".0%"),
        Column("reserved in use", lambda hour: sum(item.reserved for item in hour.use), form=",d", rank=1),
        Column("rented", rented, kind="words"),
        Column("starts", "started", form=",d", rank=1),
        *(_reserves("lacks_reserve") if any(hour.reserves for hour in found.plans) else ()),
        _cost(found, "cost", cost_unit(found.currency), lambda hour: hour.cost_cents_per_h),
    )
    return table("Hours", columns, found.plans, "hours")
