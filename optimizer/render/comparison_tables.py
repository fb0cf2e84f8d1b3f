"""Tables of a comparison: the sum first, then classes, servers, figures, cards."""

from collections.abc import Callable, Iterable, Sequence
from operator import methodcaller

from rich.console import Group, RenderableType
from rich.text import Text

from optimizer.kinds.kind import Kind
from optimizer.kinds.table import KINDS, in_order, kind_of_pool
from optimizer.plan import Plan
from optimizer.render import columns
from optimizer.render.columns import NOTHING
from optimizer.render.comparison_words import anything_runs, changes_text, cost_of, headline, money_of
from optimizer.render.estimates import estimates_note
from optimizer.render.figures import columns_of
from optimizer.render.money import Money, signed
from optimizer.render.names import shortened
from optimizer.render.tables import Pair, Paragraph, Said, Table
from optimizer.studies.comparison.document import Comparison, Figures, Row, ServerRow, TypeRow

LABEL_WIDTH = 18
"""Longer labels are shortened in the headings of tables."""
Value = float | str | None | Pair | Said
"""Of a cell."""


def comparison_tables(found: Comparison) -> Group:
    """Return a comparison as tables: what it comes to, then where that comes from."""
    parts: list[RenderableType] = [_headline(found)]
    if not found.same and anything_runs(found):
        if _loads_differ(found):
            parts.append(_loads(found))
        if len(found.classes) > 1:
            parts.append(_classes(found))
        parts += [_servers(found), _figures(found), _cards(found), *_type_costs(found), _tokens(found)]
    return Group(*parts, _unserved(found))


# --- what it comes to ------------------------------------------------------------------------------------


def _headline(found: Comparison) -> Group:
    parts: list[RenderableType] = [
        Paragraph(headline(found), "bold"),
        Paragraph(_served(found)),
    ]
    if found.changed():
        parts.append(Paragraph(changes_text(found)))
    if found.transition_value_cents_per_h is not None and found.changed():
        value = money_of(found).text(found.transition_value_cents_per_h)
        parts.append(Paragraph(f"Transition value: {value} (with the penalty on moves)"))
    estimates = estimates_note(found.first.plan, found.second.plan)
    notes = (*found.notes, *([estimates] if estimates else []))
    parts += [Paragraph(f"Note: {note}.", "yellow") for note in notes]
    return Group(*parts, Text(""))


def _served(found: Comparison) -> str:
    shares = []
    for side, figures in ((found.first, found.total.first), (found.second, found.total.second)):
        if figures is not None:
            shares.append(f"{side.label} {figures.served_in_full} of {figures.servers}")
    return f"Served in full: {', '.join(shares) or '0 of 0'}."


# --- where it comes from ---------------------------------------------------------------------------------


def _loads(found: Comparison) -> Table:
    table = Table("Load", columns.load_columns(_labels(found)))
    changed = [row for row in _in_order(found.servers) if _load(row.first) != _load(row.second)]
    for row in changed:
        table.add_row(row.server, *_load_values(row))
    rest = len(found.servers) - len(changed)
    if rest:
        table.notes.append(f"… {rest:,} unchanged")
    table.total = ("all", *_load_values(found.total))
    return table


def _load_values(row: Row) -> tuple[Value, ...]:
    return (
        _both(row, lambda side: side.arrival_rate_rpm),
        _signed(row.difference.arrival_rate_rpm, ",.2f"),
        _both(row, lambda side: side.in_tokens),
        _both(row, lambda side: side.out_tokens),
    )


def _classes(found: Comparison) -> Table:
    money = money_of(found)
    table = Table("Cost by service class", money.columns(columns.class_columns(_labels(found))), "classes")
    for row in found.classes:
        table.add_row(row.service_class or "not known", row.priority, *_cost_values(row, money))
    table.total = ("all", None, *_cost_values(found.total, money))
    return table


def _cost_values(row: Row, money: Money) -> tuple[Value, ...]:
    before, difference = cost_of(row.first), row.difference.cost_cents_per_h
    share = difference / before if before and difference else None
    return (
        _both(row, lambda side: side.servers),
        *(None if side is None else money.number(cost_of(side)) for side in (row.first, row.second)),
        _change_of_cost(difference, money),
        _signed(share, ".1%"),
    )


def _servers(found: Comparison) -> Table:
    money = money_of(found)
    table = Table("Replicas by server", money.columns(columns.replica_columns(_labels(found))), "replicas")
    for row in _in_order(found.servers):
        difference = _change_of_cost(row.difference.cost_cents_per_h, money)
        table.add_row(row.server, _placed(row.first), _placed(row.second), _change(row), difference)
    return table


def _change(row: ServerRow) -> str:
    """Return what becomes of a server, and whether that ends or begins full service."""
    words: list[str] = [] if row.change == "none" else [row.change]
    words += {"same": [], "newly_served": ["now in full"], "newly_unserved": ["not in full"]}[row.service]
    return ", ".join(words)


def _placed(figures: Figures | None) -> str:
    if figures is None:
        return NOTHING
    placed = ", ".join(f"{item.num_replicas} x {item.accelerator}" for item in figures.accelerators)
    return placed or ("nothing" if figures.served_in_full else "not served")


def _figures(found: Comparison) -> Table:
    sides = _labels(found)
    title = f"Figures by server, {sides[0]} → {sides[1]} where they differ"
    of_server = _kinds(found)
    kinds = [of_server.get(row.server, KINDS[0]) for row in found.servers]
    figures = columns_of("comparison", in_order({*kinds}), sides)
    headings = columns.figure_columns(sides, figures.values())
    table = Table(title, headings, "figures")
    names = [column.name for column in headings]
    for row in _in_order(found.servers):
        values: dict[str, Value] = {
            "server": row.server,
            "carried": _both(row, lambda side: side.carried_rate_rpm),
            "batch": _both(
                row, lambda side: "/".join(str(item.max_batch) for item in side.accelerators) or None
            ),
        }
        for shown in of_server.get(row.server, KINDS[0]).shown("comparison").values():
            values[figures[shown.metric].name] = _both(row, methodcaller("figure", shown.field))
        table.add_row(*map(values.get, names))
    return table


def _kinds(found: Comparison) -> dict[str, Kind]:
    """Return the kinds of the servers that one of the plans runs."""
    return {
        name: kind_of_pool(pools[0])
        for plan in _plans(found)
        for name, pools in plan.allocations.items()
        if pools
    }


def _cards(found: Comparison) -> Table:
    table = Table("Cards by accelerator type", columns.card_columns(_labels(found)), "cards")
    for row in found.types:
        used = (None if use is None else use.used for use in (row.first, row.second))
        table.add_row(row.type, _exist(row), *used, _signed(row.used_difference, ",d"))
    return table


def _tokens(found: Comparison) -> Table:
    """Return what a million tokens of each server cost on both sides; shown if it is asked for."""
    money = money_of(found)
    unit = money.unit.removesuffix("/h")
    headings = (
        columns.name("server"),
        columns.Column("cost per million tokens", unit, ",.2f", sides=_labels(found)),
    )
    table = Table("Cost per million input and output tokens", headings, "tokens", on_request=True)
    for row in _in_order(found.servers):
        costs = [None if side is None else side.cost_per_million for side in (row.first, row.second)]
        if any(cost is not None for cost in costs):
            table.add_row(row.server, Pair(*(money.number(cost) for cost in costs)))
    return table


def _type_costs(found: Comparison) -> Iterable[Table]:
    """Yield the costs by accelerator type; no table where they are not known."""
    known = [row.cost_difference_cents_per_h is not None for row in found.types]
    if not any(known):
        return
    money = money_of(found)
    headings = money.columns(columns.type_cost_columns(_labels(found)))
    table = Table("Cost by accelerator type", headings, "costs")
    for row in found.types:
        costs = (
            None if use is None else money.number(use.cost_cents_per_h) for use in (row.first, row.second)
        )
        table.add_row(row.type, *costs, _change_of_cost(row.cost_difference_cents_per_h, money))
    if all(known):
        table.total = ("all", *_cost_values(found.total, money)[1:4])
    yield table


def _exist(row: TypeRow) -> Value:
    limits = [use.limit for use in (row.first, row.second) if use is not None and use.limit is not None]
    return Pair(*limits) if len(limits) == 2 else limits[0] if limits else None


def _unserved(found: Comparison) -> Table:
    table = Table(
        "Not served in full", columns.unserved_columns(_labels(found)), "unserved", may_be_empty=True
    )
    missed = [{item.server: item for item in plan.unserved} for plan in _plans(found)]
    for row in _in_order(found.servers):
        items = [some.get(row.server) for some in missed]
        told = items[1] or items[0]
        if told is not None:
            shares = (
                None if side is None else 1.0 if item is None else item.served_fraction
                for item, side in zip(items, (row.first, row.second), strict=True)
            )  # fmt: skip
            table.add_row(row.server, told.priority, *shares, told.detail)
    return table


# --- cells -----------------------------------------------------------------------------------------------


def _plans(found: Comparison) -> tuple[Plan, Plan]:
    return found.first.plan, found.second.plan


def _loads_differ(found: Comparison) -> bool:
    """Say whether the loads of both sides are known, and any that both have differs."""
    known = found.first.options is not None and found.second.options is not None
    return known and any(
        row.first and row.second and _load(row.first) != _load(row.second) for row in found.servers
    )


def _load(side: Figures | None) -> tuple[float | None, ...]:
    return () if side is None else (side.arrival_rate_rpm, side.in_tokens, side.out_tokens)


def _in_order(rows: Sequence[ServerRow]) -> Iterable[ServerRow]:
    return sorted(rows, key=lambda row: (row.priority is None, row.priority or 0, row.server))


def _labels(found: Comparison) -> tuple[str, str]:
    short = shortened((found.first.label, found.second.label), LABEL_WIDTH)
    return short[found.first.label], short[found.second.label]


def _both(row: Row, value: Callable[[Figures], float | str | None]) -> Pair:
    """Return a figure of both sides."""
    first, second = (None if side is None else value(side) for side in (row.first, row.second))
    return Pair(first, second)


def _change_of_cost(cents_per_h: float | None, money: Money) -> Said | None:
    return _signed(money.number(cents_per_h), ",.2f")


def _signed(value: float | None, form: str) -> Said | None:
    """Return a difference with its sign."""
    return None if value is None else Said(signed(value, form), value)
