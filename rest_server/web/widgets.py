"""Sections as tables that sort and filter, figures as cards, errors as messages. Names are always text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from nicegui import ui

from rest_server.web.shown import PlanFact, Table, TableCell, differences, signed

ROWS_ON_A_PAGE = 30
_CELL = """
<q-td :props="props">
  <span v-if="props.row.s[props.col.name]" class="swatch"
    :style="{background: props.row.s[props.col.name]}"></span>
  <button v-if="props.row.o && props.col.name === 'c0'" @click="() => $parent.$emit('open', props.row.o)">{{
    props.row.t.c0 }}</button>
  <template v-else>{{ props.row.t[props.col.name] }}</template>
  <span v-if="props.row.d[props.col.name]" class="change">{{ props.row.d[props.col.name] }}</span>
</q-td>
"""
_HEADING = '<q-th :props="props"><button type="button">{{ props.col.label }}</button></q-th>'


def heading(text: str, level: int = 2) -> ui.element:
    """Show a heading."""
    with ui.element(f"h{level}") as found:
        ui.label(text).style("display: inline")
    return found


def show_tables(
    tables: Sequence[Table],
    *,
    pinned: Sequence[Table] = (),
    colours: Mapping[str, str] | None = None,
    open_row: Callable[[str], Any] | None = None,
) -> None:
    """Show sections one below the other.

    Args:
        tables: the sections.
        pinned: sections of the pinned plan, whose numbers they are compared with.
        colours: colours by accelerator or accelerator type.
        open_row: is called with the name of a row whose first cell was activated.
    """
    earlier = {table.name: table for table in pinned}
    for panel in _panels(tables):
        with ui.column().classes("panel"):
            for table in panel:
                if table.title:
                    heading(table.title)
                for line in table.text:
                    ui.label(line).classes("tip" + (" error" if table.alert else ""))
                if table.rows:
                    changes = differences(table, earlier.get(table.name))
                    opens = open_row if table.name == "allocations" else None
                    _show_table(table, changes, colours or {}, opens)
                for note in table.notes:
                    ui.label(note).classes("soft tip")


def _panels(tables: Sequence[Table]) -> Iterator[list[Table]]:
    """Yield the tables of each panel; sentences that follow one another share one."""
    for is_text, group in groupby(tables, lambda table: not (table.title or table.rows)):
        if is_text:
            yield list(group)
        else:
            yield from ([table] for table in group)


def _show_table(
    table: Table,
    changes: Sequence[Mapping[int, str]],
    colours: Mapping[str, str],
    open_row: Callable[[str], Any] | None,
) -> None:
    columns = [
        {
            "name": f"c{i}",
            "label": text,
            "field": f"v{i}",
            "sortable": True,
            "align": "right" if numeric else "left",
            "classes": "words" if not numeric and _is_long(table, i) else "",
        }
        for i, (text, numeric) in enumerate(zip(table.headings, table.numeric, strict=True))
    ]
    rows = [
        _row(number, cells, change, colours, opens=open_row is not None)
        for number, (cells, change) in enumerate(zip(table.rows, changes, strict=True))
    ]
    title = table.title or "table"
    find = None
    if len(rows) > 12:
        find = ui.input(placeholder="Filter").props(
            f'dense outlined clearable aria-label="Filter {_plain(title)}"'
        )
    with ui.element("div").classes("region").props(f'tabindex=0 role=region aria-label="{_plain(title)}"'):
        size = 0 if len(rows) <= ROWS_ON_A_PAGE else ROWS_ON_A_PAGE
        shown = ui.table(columns=columns, rows=rows, row_key="id", pagination=size).props("flat dense")
        shown.props("hide-pagination" if not size else "")
        shown.add_slot("body-cell", _CELL)
        shown.add_slot("header-cell", _HEADING)
    if find is not None:
        find.bind_value_to(shown, "filter")
    if open_row is not None:
        shown.on("open", lambda event: open_row(str(event.args)))


def _plain(text: str) -> str:
    """Return text for a property that is read as markup of its own."""
    return "".join(c if c.isalnum() or c in " ,.-()" else " " for c in text)


def _is_long(table: Table, i: int) -> bool:
    return any(len(row[i].text) > 40 for row in table.rows)


def _row(
    number: int,
    cells: Sequence[TableCell],
    change: Mapping[int, str],
    colours: Mapping[str, str],
    *,
    opens: bool,
) -> dict[str, Any]:
    swatches = {f"c{i}": colours.get(str(cell.value), "") for i, cell in enumerate(cells)} if colours else {}
    row: dict[str, Any] = {"id": number}
    row["t"] = {f"c{i}": cell.text for i, cell in enumerate(cells)}
    row["d"] = {f"c{i}": f"({text})" for i, text in change.items()}
    row["s"] = {name: colour for name, colour in swatches.items() if colour}
    row["o"] = str(cells[0].value) if opens and cells[0].text else ""
    return row | {f"v{i}": cell.value for i, cell in enumerate(cells)}


def show_facts(facts: Sequence[PlanFact], pinned: Sequence[PlanFact] = ()) -> None:
    """Show figures as cards, each with its change against the pinned plan."""
    before = {fact.name: fact.value for fact in pinned}
    with ui.element("div").classes("facts"):
        for fact in facts:
            with ui.column().classes("panel fact" + (" alert" if fact.alert else "")):
                ui.label(fact.name).classes("name")
                ui.label(fact.text).classes("value")
                change = signed(fact.value - before[fact.name]) if fact.name in before else ""
                ui.label(f"{change} against the pinned plan" if change else " ").classes("change")


def complain(message: str) -> None:
    """Show an error for some seconds."""
    ui.notify(
        message, type="negative", position="bottom", multi_line=True, timeout=8000, close_button="Close"
    )
