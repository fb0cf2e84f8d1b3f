"""Widgets of the web page: tables that can be sorted and filtered, key figures as cards, and error messages.

Names are always shown as plain text.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from nicegui import ui

from optimizer.render.report_memo import Tile
from rest_server.web.shown import Table, TableCell, row_differences, signed_text

ROWS_ON_A_PAGE = 30
ROWS_WITHOUT_FILTER = 12
SERVERS = {"unserved"}
"""Names of the tables in which a click on a row opens its server."""
TILES = "total cost", "served in full", "tightest target", "cards"
"""Names of the key figures that are shown without values before there is a plan."""
MAX_CELL_CHARACTERS = 40
"""Maximum number of characters of a cell that is shown on one line."""
_CELL = """
<q-td :props="props" :data-label="props.col.label">
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
    """Show a heading of a level and return it."""
    with ui.element(f"h{level}") as element:
        ui.label(text).style("display: inline")
    return element


class Tables:
    """Tables of sections, one below the other.

    A table keeps its filter, order and scroll position when updated.
    """

    def __init__(self, open_row: Callable[[str], Any] | None = None) -> None:
        """Create the object without sections.

        Args:
            open_row: function that is called with the name of a server when the first cell of its row is
                activated.
        """
        self._open_row = open_row
        self._box = ui.element("div").classes("results")
        self._panels: list[_Panel] = []

    def clear(self) -> None:
        """Remove all sections."""
        self._panels.clear()
        self._box.clear()

    def show(
        self,
        tables: Sequence[Table],
        *,
        pinned: Sequence[Table] = (),
        colours: Mapping[str, str] | None = None,
    ) -> None:
        """Show sections, replacing those shown before.

        Args:
            tables: the sections.
            pinned: sections of the pinned plan, with which numbers are compared.
            colours: colours by accelerator or accelerator type.
        """
        panels = list(_panels(tables))
        kept = 0
        for old, new in zip(self._panels, panels, strict=False):
            if old.shape != [_shape(table) for table in new]:
                break
            kept += 1
        for panel in self._panels[kept:]:
            panel.delete()
        with self._box:
            added = [_Panel(new, self._open_row) for new in panels[kept:]]
        self._panels = self._panels[:kept] + added
        earlier = {table.name: table for table in pinned}
        for panel, new in zip(self._panels, panels, strict=True):
            for table, view in zip(new, panel.views, strict=True):
                view.show(table, row_differences(table, earlier.get(table.name)), colours or {})


class _Panel:
    """Sections that share one frame."""

    def __init__(self, tables: Sequence[Table], open_row: Callable[[str], Any] | None) -> None:
        self.shape = [_shape(table) for table in tables]
        with ui.column().classes("panel") as self._box:
            self.views = [_TableView(table, open_row) for table in tables]

    def delete(self) -> None:
        """Remove the panel from the page."""
        self._box.delete()


def show_static_tables(tables: Sequence[Table], colours: Mapping[str, str] | None = None) -> None:
    """Show sections one below the other; they are never updated."""
    Tables().show(tables, colours=colours)


def _panels(tables: Sequence[Table]) -> Iterator[list[Table]]:
    """Yield the tables of each panel; consecutive sections of sentences share a panel."""
    for is_text, group in groupby(tables, lambda table: not (table.title or table.rows)):
        if is_text:
            yield list(group)
        else:
            yield from ([table] for table in group)


def _shape(table: Table) -> tuple[object, ...]:
    """Return the shape of a table; tables of equal shape differ only in texts and rows."""
    size = len(table.rows)
    return (
        *(table.name, table.title, table.headings, table.numeric, table.alert),
        *(len(table.text), len(table.notes), size > 0, size > ROWS_WITHOUT_FILTER, size > ROWS_ON_A_PAGE),
        _long_columns(table),
    )


def _long_columns(table: Table) -> frozenset[int]:
    """Return the indices of the columns whose text is wrapped."""
    long_columns = {
        i for row in table.rows for i, cell in enumerate(row) if len(cell.text) > MAX_CELL_CHARACTERS
    }
    return frozenset(i for i in long_columns if not table.numeric[i])


class _TableView:
    """A section: title, sentences, rows and notes."""

    def __init__(self, table: Table, open_row: Callable[[str], Any] | None) -> None:
        self._opens = open_row if table.name in SERVERS else None
        if table.title:
            heading(table.title)
        line = "tip error" if table.alert else "tip"
        self._lines = [ui.label().classes(line) for _ in table.text]
        self._grid = self._show_grid(table) if table.rows else None
        self._lines += [ui.label().classes("soft tip") for _ in table.notes]

    def _show_grid(self, table: Table) -> ui.table:
        title = _plain(table.title or "table")
        find = None
        if len(table.rows) > ROWS_WITHOUT_FILTER:
            find = ui.input(placeholder="Filter")
            find.props(f'dense outlined clearable debounce=200 aria-label="Filter {title}"')
        with ui.element("div").classes("region").props(f'tabindex=0 role=region aria-label="{title}"'):
            size = ROWS_ON_A_PAGE if len(table.rows) > ROWS_ON_A_PAGE else 0
            grid = ui.table(columns=_columns(table), rows=[], row_key="id", pagination=size)
            grid.props("flat dense" if size else "flat dense hide-pagination")
            grid.add_slot("body-cell", _CELL)
            grid.add_slot("header-cell", _HEADING)
        if find is not None:
            find.bind_value_to(grid, "filter")
        if self._opens is not None:
            opens = self._opens
            grid.on("open", lambda event: opens(str(event.args)))
        return grid

    def show(self, table: Table, changes: Sequence[Mapping[int, str]], colours: Mapping[str, str]) -> None:
        """Show the texts and rows of a table that has the same shape."""
        for label, text in zip(self._lines, (*table.text, *table.notes), strict=True):
            label.set_text(text)
        if self._grid is not None:
            rows = [
                _row(number, cells, change, colours, opens=self._opens is not None)
                for number, (cells, change) in enumerate(zip(table.rows, changes, strict=True))
            ]
            if rows != self._grid.rows:
                self._grid.rows = rows


def _columns(table: Table) -> list[dict[str, Any]]:
    long, last = _long_columns(table), len(table.headings) - 1
    return [
        {
            "name": f"c{i}",
            "label": text,
            "field": f"v{i}",
            "sortable": True,
            "align": "right" if numeric else "left",
            "classes": f"{'words' if i in long else ''} {_kept(text, i, last)}".strip(),
            "headerClasses": _kept(text, i, last),
        }
        for i, (text, numeric) in enumerate(zip(table.headings, table.numeric, strict=True))
    ]


def _kept(heading: str, i: int, last: int) -> str:
    """Return the CSS class of a column that stays visible: the first one, and costs at the end."""
    return "first" if not i else "last" if i == last and heading.startswith("cost") else ""


def _plain(text: str) -> str:
    """Escape text for a property that is parsed as markup."""
    return "".join(c if c.isalnum() or c in " ,.-()" else " " for c in text)


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


class TileBar:
    """Key figures as cards, each with its change from the pinned plan."""

    def __init__(self) -> None:
        """Show empty cards."""
        self._box = ui.element("div").classes("facts")
        self._cards: list[_TileCard] = []
        self.show(())

    def show(self, tiles: Sequence[Tile], pinned: Sequence[Tile] = ()) -> None:
        """Show key figures; without any, show empty cards."""
        tiles = tiles or [Tile(name, "…", 0.0) for name in TILES]
        if len(tiles) != len(self._cards):
            self._box.clear()
            with self._box:
                self._cards = [_TileCard() for _ in tiles]
        before = {tile.name: tile for tile in pinned}
        for card, tile in zip(self._cards, tiles, strict=True):
            card.show(tile, before.get(tile.name))


class _TileCard:
    """Card of a key figure, with its name, its change and a second line."""

    def __init__(self) -> None:
        with ui.element("div").classes("panel fact") as self._box:
            self._name = ui.label(" ").classes("name")
            with ui.element("div").classes("line"):
                self._value = ui.label(" ").classes("value")
                self._change = ui.label("").classes("change")
            self._note = ui.label(" ").classes("note")

    def show(self, tile: Tile, old: Tile | None) -> None:
        """Show a key figure with its change from an earlier value, if there is one."""
        self._name.set_text(tile.name)
        self._value.set_text(tile.value)
        self._note.set_text(tile.note or " ")
        self._change.set_text(
            "" if old is None else signed_text(tile.number - old.number, (tile.value, old.value), tile.unit)
        )
        self._box.classes(add=tile.state, remove=" ".join({"ok", "tight", "missed"} - {tile.state}))


def scroll_to(element: ui.element) -> None:
    """Scroll the page to an element."""
    ui.run_javascript(f"getElement({element.id}).scrollIntoView({{block: 'start'}})")


def complain(message: str) -> None:
    """Show an error message for some seconds."""
    ui.notify(
        message, type="negative", position="bottom", multi_line=True, timeout=8000, close_button="Close"
    )
