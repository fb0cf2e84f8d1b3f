"""Tables that fit where they are shown: a terminal, a pipe, a file for another program.

A table takes rows of plain values; when it is shown it leaves out the columns that matter least and shortens
names until the rest fits. Neither numbers nor words are ever broken.
"""

import csv
import io
import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table as Drawn
from rich.text import Text

from optimizer.errors import SpecError
from optimizer.render.columns import FOR_PROGRAMS, Column
from optimizer.render.names import shortened
from optimizer.render.text import printable, spreadsheet_text
from optimizer.spec.messages import did_you_mean

WIDTH_WITHOUT_TERMINAL = 80
"""Characters of a line where there is no terminal and no COLUMNS."""
UNBOUNDED = 1_000_000
"""Characters of a line where nothing is left out or shortened."""
NAME_CHARACTERS, LEAST_NAME_CHARACTERS = 20, 8
"""A name keeps so many before a column is left out, and so few where no more can be."""
WORDS_CHARACTERS = 24
"""Text keeps so many in a line before a column is left out."""
BETWEEN = 2
"""Spaces between two columns."""


Tables = RenderableType
"""Tables with what stands between them."""


class Said(NamedTuple):
    """A value that is written in a way of its own."""

    text: str
    value: str | float | None
    """What a program reads."""


class Pair(NamedTuple):
    """Values of both sides of a comparison, told once where they read the same."""

    first: Any
    second: Any


class Output(NamedTuple):
    """How tables are to be written."""

    wide: bool = False
    """All columns and whole names, however long the lines become."""
    as_csv: bool = False
    table: str | None = None
    """The one table that is wanted, by its name; none: all, as CSV the first."""


class Table:
    """A table that is laid out when it is shown."""

    def __init__(
        self,
        title: str,
        columns: Sequence[Column],
        name: str = "",
        *,
        may_be_empty: bool = False,
        on_request: bool = False,
    ) -> None:
        """Make a table without rows.

        Args:
            title: what stands above it.
            columns: what its rows hold.
            name: what it is called by who wants this table alone.
            may_be_empty: whether it is left out where it has no rows.
            on_request: whether it is shown only where it alone is wanted.
        """
        self.title, self.columns, self.name = title, tuple(columns), name or title.lower()
        self.may_be_empty, self.on_request = may_be_empty, on_request
        self.rows: list[tuple[Any, ...]] = []
        self.total: tuple[Any, ...] | None = None
        self.notes: list[str] = []

    def add_row(self, *values: Any) -> None:
        """Add a row, one value for each column."""
        assert len(values) == len(self.columns)
        self.rows.append(values)

    def csv(self) -> str:
        """Return all rows under headings with units; every digit, whole names, nothing where no value is."""
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow([heading for column in self.columns for heading in _csv_headings(column)])
        lines.writerows(
            [item for column, value in zip(self.columns, row, strict=True) for item in _plain(column, value)]
            for row in self.rows
        )
        return text.getvalue()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table as it fits."""
        if self.on_request or (self.may_be_empty and not self.rows):
            return
        rows = [*self.rows, *([] if self.total is None else [self.total])]
        held = [i for i, column in enumerate(self.columns) if column.none or not rows or _any_value(rows, i)]
        columns = [self.columns[i] for i in held]
        cells = [[_cell(self.columns[i], row[i]) for i in held] for row in rows]
        layout = _layout(columns, cells, options.max_width)
        yield Paragraph(self.title, "bold")
        yield _drawn(columns, cells, layout, total=self.total is not None)
        left_out = [
            _said(column)
            for column, width in zip(columns, layout, strict=True)
            if not width and column.rank < FOR_PROGRAMS
        ]
        if left_out:
            note = f"left out for want of room: {', '.join(left_out)}; --wide shows all"
            yield Text(_filled(note, options.max_width, " "), style="dim", no_wrap=True)
        for note in self.notes:
            yield Text(_filled(printable(note), options.max_width, " "), no_wrap=True)
        if left_out or self.notes:
            yield Text("")


class Paragraph:
    """Text in lines as long as there is room for, broken at spaces only."""

    def __init__(self, text: str, style: str = "", *, indent: str = "", hanging: str | None = None) -> None:
        """Make a paragraph.

        Args:
            text: what it says; characters that steer a terminal are shown as a question mark.
            style: its style at a terminal.
            indent: what its first line begins with.
            hanging: what the other lines begin with, if not with the same.
        """
        self.text, self.style, self.indent = printable(text, keep="\n"), style, indent
        self.hanging = indent if hanging is None else hanging

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        for line in self.text.split("\n"):
            text = _filled(line, options.max_width, self.indent, self.hanging)
            yield Text(text, style=self.style, no_wrap=True)


def show(renderable: Tables, file: IO[str], output: Output | None = None) -> None:
    """Write tables to a file: in colour and as wide as it is at a terminal, as plain text elsewhere.

    Without a terminal lines are as long as COLUMNS says, or `WIDTH_WITHOUT_TERMINAL`.

    Raises:
        SpecError: a table is wanted that there is none of.
    """
    output = output or Output()
    if output.as_csv or output.table is not None:
        chosen = _chosen(renderable, output.table)
        if output.as_csv:
            file.write(chosen.csv())
            return
        chosen.on_request = False
        renderable = chosen if chosen.rows else Paragraph(f"{chosen.title}: none")
    width = UNBOUNDED if output.wide else _columns()
    plain: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
    if file.isatty():
        height = width and 25  # any: of a simple terminal the library takes both, or neither
        console = Console(file=file, width=width, height=height, **plain)
        console.print(renderable, crop=False, overflow="ignore")
        return
    text = io.StringIO()
    console = Console(
        file=text, width=width or WIDTH_WITHOUT_TERMINAL, force_terminal=False, color_system=None, **plain
    )
    console.print(renderable, crop=False, overflow="ignore")
    file.writelines(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def _columns() -> int | None:
    """Return what COLUMNS says, if that is a width."""
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else None


def _tables(renderable: RenderableType) -> Iterator[Table]:
    if isinstance(renderable, Table):
        yield renderable
    elif isinstance(renderable, Group):
        for part in renderable.renderables:
            yield from _tables(part)


def _chosen(renderable: RenderableType, name: str | None) -> Table:
    tables = list(_tables(renderable))
    if not tables:
        raise SpecError("there is no table here; leave out --csv and --table, or ask for --json")
    found = [table for table in tables if name in {None, table.name}]
    if not found:
        names = [table.name for table in tables]
        hint = did_you_mean(str(name), names) or f"; there are {', '.join(names)}"
        raise SpecError(f"--table: {name!r} is not here{hint}")
    return found[0]


# --- layout -----------------------------------------------------------------------------------------------


def _layout(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the width of each column, 0 where it is left out."""
    natural = [
        max([_heading_width(column), *(cell_len(row[i]) for row in cells)])
        for i, column in enumerate(columns)
    ]
    least = [_least(column, need, NAME_CHARACTERS) for column, need in zip(columns, natural, strict=True)]
    room = width - 2
    chosen = [i for i, column in enumerate(columns) if not column.rank]
    if sum(least[i] + BETWEEN for i in chosen) - BETWEEN > room:
        least = [_least(c, need, LEAST_NAME_CHARACTERS) for c, need in zip(columns, natural, strict=True)]
    room -= sum(least[i] + BETWEEN for i in chosen) - BETWEEN
    for i in sorted(set(range(len(columns))) - set(chosen), key=lambda i: columns[i].rank):
        if least[i] + BETWEEN <= room:
            chosen.append(i)
            room -= least[i] + BETWEEN
    found = [least[i] if i in chosen else 0 for i in range(len(columns))]
    for kind in ("name", "words"):
        room = _grow(found, natural, [i for i in chosen if columns[i].kind == kind], room)
    return found


def _heading_width(column: Column) -> int:
    return max(cell_len(word) for word in (*column.name.split(), column.unit, " "))


def _least(column: Column, natural: int, name_characters: int) -> int:
    """Return how narrow a column may become."""
    if column.kind == "number":
        return natural
    least = name_characters if column.kind == "name" else max(name_characters, WORDS_CHARACTERS)
    return min(natural, max(least, _heading_width(column)))


def _grow(found: list[int], natural: Sequence[int], growing: Sequence[int], room: int) -> int:
    """Give columns the room that there is, evenly, until they need no more; return what is left."""
    while room > 0:
        open_columns = [i for i in growing if found[i] < natural[i]]
        if not open_columns:
            break
        for i in open_columns[:room]:
            found[i] += 1
        room -= min(len(open_columns), room)
    return room


def _drawn(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], layout: Sequence[int], *, total: bool
) -> Drawn:
    """Return the columns that have a width as a table; the last row may be a total."""
    shown = [i for i, width in enumerate(layout) if width]
    width = sum(layout) + BETWEEN * (len(shown) - 1) + 2
    drawn = Drawn(box=SIMPLE_HEAD, pad_edge=False, padding=(0, BETWEEN - 1, 0, 0), width=width)
    fitted = []
    for i in shown:
        texts = [row[i] for row in cells]
        fitted.append(_fit(columns[i].kind, texts, layout[i]))
        right = columns[i].kind == "number"
        heading = Text(_heading(columns[i], layout[i]))
        drawn.add_column(heading, justify="right" if right else "left", width=layout[i], no_wrap=True)
    for r, row in enumerate(zip(*fitted, strict=True)):
        drawn.add_row(*map(Text, row))
        if total and r == len(cells) - 2:
            drawn.add_section()
    return drawn


def _heading(column: Column, width: int) -> str:
    lines = textwrap.wrap(printable(column.name), max(width, 1), break_long_words=False)
    return "\n".join([*lines, *([column.unit] if column.unit else [])])


def _fit(kind: str, texts: Sequence[str], width: int) -> list[str]:
    """Return the cells of a column as they fit its width."""
    if kind == "name":
        short = shortened(texts, width, cell_len)
        return [short[text] for text in texts]
    if kind == "words":
        short = shortened((word for text in texts for word in text.split()), width, cell_len)
        return [_filled(" ".join(short[word] for word in text.split()), width) for text in texts]
    return list(texts)


def _filled(text: str, width: int, indent: str = "", hanging: str | None = None) -> str:
    return textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


# --- cells ------------------------------------------------------------------------------------------------


def _any_value(rows: Iterable[Sequence[Any]], i: int) -> bool:
    values = (row[i] for row in rows)
    return any((value.text if isinstance(value, Said) else value) not in {None, ""} for value in values)


def _cell(column: Column, value: Any) -> str:
    if isinstance(value, Pair):
        first, second = (_cell(column, side) for side in value)
        return first if first == second else f"{first} → {second}"
    return printable(value.text if isinstance(value, Said) else column.written(value))


def _said(column: Column) -> str:
    return printable(column.name)


def _csv_headings(column: Column) -> list[str]:
    unit = f" [{column.unit}]" if column.unit else ""
    return [f"{column.name}{side}{unit}" for side in _sides(column)]


def _sides(column: Column) -> list[str]:
    return [""] if column.sides is None else [f" {side}" for side in column.sides]


def _plain(column: Column, value: Any) -> list[Any]:
    """Return a value, or those of both sides, as a program reads them."""
    if isinstance(value, Pair):
        return [item for side in value for item in _plain(column._replace(sides=None), side)]
    if isinstance(value, Said):
        value = value.value
    return [spreadsheet_text(value)] * len(_sides(column))
