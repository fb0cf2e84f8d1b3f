"""Reserves, price tiers, rented services and the cost of tokens, for terminals and reports.

Each is one table of values; terminal and report write the same rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from optimizer.money import CENTS
from optimizer.plan import Plan
from optimizer.plan.document import EXTERNAL
from optimizer.plan.token_costs import token_costs
from optimizer.quantities import counted, quantity
from optimizer.render.columns import RPM, Column, name
from optimizer.render.money import Money
from optimizer.render.section import Column as SectionColumn
from optimizer.render.section import Section
from optimizer.render.tables import Table
from optimizer.spec.system import System

MONEY = ",.2f"
RESERVES = (
    name("server"),
    Column("headroom", form=".0%"),
    Column("spares", form=",d"),
    Column("availability", form=".4g", none="none"),
    name("has it"),
    Column("cost", CENTS, MONEY),
)
TIERS = (
    name("accelerator"),
    Column("used", form=",d"),
    Column("cost", CENTS, MONEY),
    Column("list price", CENTS, MONEY),
    Column("tiers", CENTS, MONEY),
)
RENTED = (
    name("server"),
    Column("load", RPM, quantity),
    Column("TTFT", "ms", quantity),
    Column("ITL", "ms", quantity),
    Column("cost", CENTS, MONEY),
)
TOKENS = (name("server"), name("answered by"), Column("cost per million tokens", CENTS, MONEY))


class Rows(NamedTuple):
    """A table of plain values."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: Sequence[tuple[Any, ...]]
    note: str = ""


def robust_rows(plan: Plan) -> Iterator[Rows]:
    """Yield what a plan says of reserves, tiers and renting, as far as it says anything."""
    money = Money.of(plan)
    if plan.reserves:
        without = [item.server for item in plan.reserves if not item.has_reserve]
        cost = sum(item.cost_cents_per_h for item in plan.reserves)
        note = f"Reserves cost {money.text(cost)}; "
        note += f"{counted(len(without), 'server')} served without: {', '.join(without)}." if without else ""
        rows = [
            (
                item.server,
                item.headroom_wanted,
                item.spare_replicas,
                item.availability_target,
                "yes" if item.has_reserve else "no",
                money.number(item.cost_cents_per_h),
            )
            for item in plan.reserves
        ]
        yield Rows("reserves", "Reserves", RESERVES, rows, note if without else note.replace("; ", "."))
    if plan.tiers:
        yield Rows("tiers", "Price tiers", TIERS, [_tier(use, money) for use in plan.tiers])
    if plan.rented:
        services = [
            (x.server, x.arrival_rate_rpm, x.ttft_ms, x.itl_ms, money.number(x.cost_cents_per_h))
            for x in plan.rented
        ]
        yield Rows("rented", "Rented", RENTED, services)


def _tier(use: Any, money: Money) -> tuple[Any, ...]:
    listed = use.cost_cents_per_h - use.difference_cents_per_h
    costs = use.cost_cents_per_h, listed, use.difference_cents_per_h
    return use.accelerator, use.used, *(money.number(cost) for cost in costs)


def token_rows(plan: Plan, costs: Mapping[str, float]) -> Rows:
    """Return what a million input and output tokens of each server cost, by its name [cents]."""
    money, rented = Money.of(plan), {item.server for item in plan.rented}

    def by(server: str) -> str:
        pools = [pool.accelerator for pool in plan.allocations[server]]
        return EXTERNAL if server in rented else " + ".join(pools)

    rows = [(server, by(server), money.number(cost)) for server, cost in costs.items()]
    return Rows("tokens", "Cost per million input and output tokens", TOKENS, rows)


def tables_of(plan: Plan, system: System) -> Iterator[Table]:
    """Yield the tables of a plan; that of tokens stands unasked where a server rents."""
    money = Money.of(plan)
    for found in (*robust_rows(plan), token_rows(plan, token_costs(plan, system))):
        on_request = found.name == "tokens" and not plan.rented
        table = Table(
            found.title, _columns(found, money), found.name, on_request=on_request, may_be_empty=True
        )
        for row in found.rows:
            table.add_row(*row)
        if found.note:
            table.notes.append(found.note)
        yield table


def sections_of(plan: Plan, tokens: Rows) -> Iterator[Section]:
    """Yield the sections of a report; that of tokens where the plan has prices, reserves or limits."""
    has_tokens = tokens.rows and (plan.rented or plan.tiers or plan.reserves or plan.limits)
    for found in (*robust_rows(plan), *([tokens] if has_tokens else [])):
        columns = _columns(found, Money.of(plan))
        headings = [SectionColumn(_heading(column), numeric=column.kind == "number") for column in columns]
        rows = [
            tuple(column.written(value) for column, value in zip(columns, row, strict=True))
            for row in found.rows
        ]
        text = (found.note,) if found.note else ()
        yield Section(found.name, found.title, text, tuple(headings), tuple(rows))


def _heading(column: Column) -> str:
    return f"{column.name} [{column.unit}]" if column.unit else column.name


def _columns(found: Rows, money: Money) -> tuple[Column, ...]:
    """Return the columns with the unit of costs: of an hour, or of a million tokens."""
    columns = money.columns(found.columns)
    if found.name != "tokens":
        return columns
    unit = money.unit.removesuffix("/h")
    return tuple(column._replace(unit=unit) if column.unit else column for column in columns)
