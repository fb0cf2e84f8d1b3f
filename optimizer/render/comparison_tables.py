"""Tables of a comparison: the sum first, then classes, servers, figures, units."""

from collections.abc import Callable, Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from optimizer.plan import Plan
from optimizer.render.comparison_words import anything_runs, cost_of, headline, money_of
from optimizer.render.estimates import estimates_note
from optimizer.render.money import Money, signed
from optimizer.render.tables import empty_table
from optimizer.render.text import printable
from optimizer.studies.comparison.document import Comparison, Figures, Row, ServerRow, TypeRow
from optimizer.studies.figures.document import share_text

LABEL_WIDTH = 18
"""Longer labels are cut in the headings of tables."""
NOTHING = "-"
_CHANGES = {
    "moved": "to another accelerator",
    "scaled": "to other replicas only",
    "batch": "to another batch limit only",
    "started": "to something from nothing",
    "stopped": "to nothing",
    "added": "new",
    "removed": "gone",
}


def comparison_tables(found: Comparison) -> Group:
    """Return a comparison as tables: what it comes to, then where that comes from."""
    parts: list[RenderableType] = [_headline(found)]
    if not found.same and anything_runs(found):
        if _loads_differ(found):
            parts.append(_loads(found))
        if len(found.classes) > 1:
            parts.append(_classes(found))
        parts += [_servers(found), _figures(found), _units(found), *_type_costs(found)]
    if found.first.plan.unserved or found.second.plan.unserved:
        parts.append(_unserved(found))
    return Group(*parts)


# --- what it comes to ------------------------------------------------------------------------------------


def _headline(found: Comparison) -> Text:
    text = Text().append(printable(headline(found), keep="\n"), style="bold")
    text.append("\n" + printable(_served(found), keep="\n") + _changes(found))
    if found.transition_value_cents_per_h is not None and found.changed():
        value = money_of(found).text(found.transition_value_cents_per_h)
        text.append(f"\nTransition value: {value} (with the penalty on moves)")
    estimates = estimates_note(found.first.plan, found.second.plan)
    for note in (*found.notes, *([estimates] if estimates else [])):
        text.append(f"\nNote: {printable(note)}.", style="yellow")
    return text.append("\n")


def _served(found: Comparison) -> str:
    shares = []
    for side, figures in ((found.first, found.total.first), (found.second, found.total.second)):
        if figures is not None:
            shares.append(f"{side.label} {figures.served_in_full} of {figures.servers}")
    return f"Served in full: {', '.join(shares) or '0 of 0'}."


def _changes(found: Comparison) -> str:
    changed = found.changed()
    if found.same or not changed:
        return ""
    counts = [
        f"{sum(row.change == change for row in changed)} {words}"
        for change, words in _CHANGES.items()
        if any(row.change == change for row in changed)
    ]
    return f"\n{len(changed)} of {len(found.servers)} servers change: {', '.join(counts)}."


# --- where it comes from ---------------------------------------------------------------------------------


def _loads(found: Comparison) -> Table:
    table = empty_table(
        "Load",
        [
            ("server", False),
            ("req/min", True),
            ("difference", True),
            ("input\ntokens", True),
            ("output\ntokens", True),
        ],
    )
    changed = [row for row in _in_order(found.servers) if _load(row.first) != _load(row.second)]
    for row in changed:
        table.add_row(row.server, *_load_cells(row))
    rest = len(found.servers) - len(changed)
    if rest:
        table.add_row(f"… {rest:,} unchanged", *[""] * 4)
    table.add_section()
    table.add_row("all", *_load_cells(found.total))
    return table


def _load_cells(row: Row) -> list[str]:
    return [
        _both(row, lambda side: _quantity(side.arrival_rate_rpm)),
        _signed(row.difference.arrival_rate_rpm, ",.2f"),
        _both(row, lambda side: _quantity(side.in_tokens)),
        _both(row, lambda side: _quantity(side.out_tokens)),
    ]


def _classes(found: Comparison) -> Table:
    money = money_of(found)
    table = empty_table(
        f"Cost by service class, {money.unit}",
        [
            ("class", False),
            ("prio", True),
            ("servers", True),
            *((label, True) for label in _labels(found)),
            ("difference", True),
            ("", True),
        ],
    )
    for row in found.classes:
        priority = NOTHING if row.priority is None else str(row.priority)
        table.add_row(row.service_class or "not known", priority, *_cost_cells(row, money))
    table.add_section()
    table.add_row("all", "", *_cost_cells(found.total, money))
    return table


def _cost_cells(row: Row, money: Money) -> list[str]:
    before, difference = cost_of(row.first), row.difference.cost_cents_per_h
    return [
        _both(row, lambda side: str(side.servers)),
        *(NOTHING if side is None else money.amount(cost_of(side)) for side in (row.first, row.second)),
        money.change(difference),
        signed(difference / before, ".1%") if before and difference else "",
    ]


def _servers(found: Comparison) -> Table:
    money = money_of(found)
    table = empty_table(
        "Replicas by server",
        [
            ("server", False),
            *((label, False) for label in _labels(found)),
            ("change", False),
            (f"difference\n{money.unit}", True),
        ],
    )
    for row in _in_order(found.servers):
        table.add_row(
            row.server,
            _placed(row.first),
            _placed(row.second),
            _change(row),
            money.change(row.difference.cost_cents_per_h),
        )
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
    first, second = _labels(found)
    table = empty_table(
        f"Figures by server, {first} → {second} where they differ",
        [
            ("server", False),
            ("carried\nreq/min", True),
            ("batch", True),
            ("ITL ms", True),
            ("TTFT ms", True),
            ("wait ms", True),
        ],
    )
    for row in _in_order(found.servers):
        table.add_row(
            row.server,
            _both(row, lambda side: _quantity(side.carried_rate_rpm)),
            _both(row, lambda side: "/".join(str(item.max_batch) for item in side.accelerators) or NOTHING),
            _both(row, lambda side: _number(side.itl_ms, ",.1f")),
            _both(row, lambda side: _number(side.ttft_ms, ",.0f")),
            _both(row, lambda side: _number(side.wait_ms, ",.0f")),
        )
    return table


def _units(found: Comparison) -> Table:
    table = empty_table(
        "Units by accelerator type",
        [
            ("type", False),
            ("exist", True),
            *((label, True) for label in _labels(found)),
            ("difference", True),
        ],
    )
    for row in found.types:
        used = (NOTHING if use is None else f"{use.used:,}" for use in (row.first, row.second))
        table.add_row(row.type, _exist(row), *used, _signed(row.used_difference, ",d"))
    return table


def _type_costs(found: Comparison) -> Iterable[Table]:
    """Yield the costs by accelerator type; no table where they are not known."""
    known = [row.cost_difference_cents_per_h is not None for row in found.types]
    if not any(known):
        return
    money = money_of(found)
    table = empty_table(
        f"Cost by accelerator type, {money.unit}",
        [("type", False), *((label, True) for label in _labels(found)), ("difference", True)],
    )
    for row in found.types:
        costs = (
            NOTHING if use is None else _amount(use.cost_cents_per_h, money)
            for use in (row.first, row.second)
        )
        change = row.cost_difference_cents_per_h
        table.add_row(row.type, *costs, NOTHING if change is None else money.change(change))
    if all(known):
        table.add_section()
        table.add_row("all", *_cost_cells(found.total, money)[1:4])
    yield table


def _exist(row: TypeRow) -> str:
    limits = {use.limit for use in (row.first, row.second) if use is not None and use.limit is not None}
    if len(limits) == 2 and row.first is not None and row.second is not None:
        return f"{row.first.limit:,} → {row.second.limit:,}"
    return f"{limits.pop():,}" if limits else "unlimited"


def _unserved(found: Comparison) -> Table:
    table = empty_table(
        "Not served in full",
        [
            ("server", False),
            ("prio", True),
            *((f"served\n{label}", True) for label in _labels(found)),
            ("reason", False),
        ],
    )
    missed = [{item.server: item for item in plan.unserved} for plan in _plans(found)]
    for row in _in_order(found.servers):
        items = [some.get(row.server) for some in missed]
        if any(items):
            told = items[1] or items[0]
            table.add_row(
                row.server,
                str(told.priority if told else ""),
                *(
                    NOTHING if side is None else "100%" if item is None else share_text(item.served_fraction)
                    for item, side in zip(items, (row.first, row.second), strict=True)
                ),
                told.detail if told else "",
            )
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


def _labels(found: Comparison) -> list[str]:
    return [_short(printable(side.label, keep="\n")) for side in (found.first, found.second)]


def _short(label: str) -> str:
    return label if len(label) <= LABEL_WIDTH else f"…{label[1 - LABEL_WIDTH :]}"


def _both(row: Row, cell: Callable[[Figures], str]) -> str:
    """Return a figure of both sides, once where it reads the same."""
    cells = [NOTHING if side is None else cell(side) for side in (row.first, row.second)]
    return cells[0] if cells[0] == cells[1] else f"{cells[0]} → {cells[1]}"


def _amount(cents_per_h: float | None, money: Money) -> str:
    return NOTHING if cents_per_h is None else money.amount(cents_per_h)


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)


def _quantity(value: float | None) -> str:
    """Return a rate or a length with four digits, and large ones in full."""
    return _number(value, ",.0f" if value is not None and value >= 1000 else ".4g")


def _signed(value: float | None, form: str) -> str:
    return NOTHING if value is None else signed(value, form)
