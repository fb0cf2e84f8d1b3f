"""Writes sections as text to a terminal or pipe, or one table as CSV.

If a table is too wide, the columns of the highest ranks are hidden, then names are shortened until the rest
fits. Numbers and words are never broken.
"""

import io
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from optimizer.errors import SpecError
from optimizer.render.names import shortened
from optimizer.schema.messages import did_you_mean
from optimizer.section import CSV_ONLY, FOR_PROGRAMS, Column, FormattedValue, Paragraph, Section
from optimizer.text import printable

WIDTH_WITHOUT_TERMINAL = 80
"""Line width without a terminal and without COLUMNS [characters]."""
UNBOUNDED = 1_000_000
"""Line width with ``--wide`` [characters]."""
USUAL_CHARACTERS, MIN_CHARACTERS = {"name": 20, "words": 24}, {"name": 8, "words": 16}
"""Minimum width of names and of text [characters]: first the usual one, then the one used if even the columns
that cannot be hidden do not fit.
"""
BETWEEN = 2
"""Number of spaces between two columns."""
HEADING_LINES = 2
"""Number of lines of the name in a heading, if there is space."""
STATE_STYLES = {"missed": "red", "tight": "yellow"}
"""Style of cells by state; all other text in tables has none."""


class Output(NamedTuple):
    """Options of the printed output."""

    wide: bool = False
    """Whether to show all columns and full names, whatever the line length."""
    as_csv: bool = False
    table: str | None = None
    """Name of the only table to write; None: all tables, or only the first as CSV."""
    width: int = 0
    """Line width [characters]; 0 selects the terminal's width, or COLUMNS."""
    hint: str = "--wide shows all"
    """Text after the names of hidden columns."""


def show(sections: Sequence[Section], file: IO[str], output: Output | None = None) -> None:
    """Write sections to a file: in colour and at full width on a terminal, else as plain text.

    Without a terminal, the line width is COLUMNS or `WIDTH_WITHOUT_TERMINAL`.

    Raises:
        SpecError: the requested table does not exist.
    """
    output = output or Output()
    if output.as_csv or output.table is not None:
        chosen = _chosen(sections, output.table)
        if output.as_csv:
            file.write(chosen.csv())
            return
        chosen.on_request, chosen.text = False, []
        sections = [chosen]
    width = UNBOUNDED if output.wide else output.width or _columns()
    plain: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "force_jupyter": False}
    text = io.StringIO()
    if file.isatty():
        height = width and 25  # any value: for a simple terminal the library needs both or neither
        console = Console(file=file, width=width, height=height, **plain)
    else:
        plain |= {"force_terminal": False, "color_system": None}
        console = Console(file=text, width=width or WIDTH_WITHOUT_TERMINAL, **plain)
    parts = [part for section in sections for part in _drawn(section, console.width, output.hint)]
    if output.table is not None and not sections[0].rows:
        parts = [Text(f"{sections[0].title}: none")]
    console.print(Group(*parts), sep="", end="", crop=False, overflow="ignore")
    file.writelines(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def _columns() -> int | None:
    """Return the line width that the environment variable COLUMNS gives; None if it is not a valid width."""
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else None


def _chosen(sections: Sequence[Section], name: str | None) -> Section:
    tables = [section for section in sections if section.columns]
    if not tables:
        raise SpecError("this output has no table; remove --csv and --table, or use --json")
    chosen = [table for table in tables if name in {None, table.name}]
    if not chosen:
        names = [table.name for table in tables]
        hint = did_you_mean(str(name), names) or f"; use one of {', '.join(names)}"
        raise SpecError(f"--table: this output has no table {name!r}{hint}")
    return chosen[0]


def _drawn(section: Section, width: int, hint: str) -> Iterator[RenderableType]:
    """Yield the title, sentences, table and notes of a section, laid out for a width [characters]."""
    if section.title and (section.text or not section.hidden):
        yield from _lines(Paragraph(section.title, "bold"), width)
    for paragraph in section.text:
        yield from _lines(paragraph, width)
    if section.text:
        yield Text("")
    if not section.hidden:
        yield from _table(section, width, hint)


def _table(section: Section, width: int, hint: str) -> Iterator[RenderableType]:
    held = [i for i in section.held() if section.columns[i].rank < CSV_ONLY]
    columns = [section.columns[i] for i in held]
    cells = [[section.columns[i].cell(row[i]) for i in held] for row in section.all_rows()]
    layout = _layout(columns, cells, width)
    styles = [[_style(row[i]) for i in held] for row in section.all_rows()]
    yield _grid(columns, cells, styles, layout, total=section.total is not None)
    dropped = [
        column.name
        for column, size in zip(columns, layout, strict=True)
        if not size and column.rank < FOR_PROGRAMS
    ]
    if dropped:
        text = f"hidden columns: {', '.join(dropped)}; {hint}"
        yield from _lines(Paragraph(text, "dim", " "), width)
    for note in section.notes:
        yield from _lines(Paragraph(note, indent=" "), width)
    if dropped or section.notes:
        yield Text("")


def _lines(paragraph: Paragraph, width: int) -> Iterator[Text]:
    """Yield the lines of a paragraph, wrapped to a width [characters]."""
    for line in printable(paragraph.text, keep="\n").split("\n"):
        text = _filled(line, width, paragraph.indent, paragraph.hanging)
        yield Text(text, style=paragraph.style, no_wrap=True)


# --- layout -----------------------------------------------------------------------------------------------


def _layout(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the width of each column [characters]; 0 for a hidden column."""
    natural = [
        max([_heading_width(column), *(cell_len(row[i]) for row in cells)])
        for i, column in enumerate(columns)
    ]
    least = [_least(c, need, USUAL_CHARACTERS) for c, need in zip(columns, natural, strict=True)]
    left = width - 2
    chosen = [i for i, column in enumerate(columns) if not column.rank]
    optional = set(range(len(columns))) - set(chosen)
    if sum(least[i] + BETWEEN for i in chosen) - BETWEEN > left:
        least = [_least(c, need, MIN_CHARACTERS) for c, need in zip(columns, natural, strict=True)]
        optional = set()  # names need the space
    left -= sum(least[i] + BETWEEN for i in chosen) - BETWEEN
    for i in sorted(optional, key=lambda i: columns[i].rank):
        if least[i] + BETWEEN <= left:
            chosen.append(i)
            left -= least[i] + BETWEEN
    layout = [least[i] if i in chosen else 0 for i in range(len(columns))]
    for content in ("name", "words"):
        left = _grow(layout, natural, [i for i in chosen if columns[i].content == content], left)
    _grow(layout, [_low_heading_width(column) for column in columns], chosen, left)
    return layout


def _heading_width(column: Column) -> int:
    return max(cell_len(word) for word in (*column.name.split(), column.unit, " "))


def _low_heading_width(column: Column) -> int:
    """Return the width at which the name in a heading takes at most `HEADING_LINES` lines [characters]."""
    widths = range(_heading_width(column), max(len(column.name), _heading_width(column)) + 1)
    return next(width for width in widths if len(textwrap.wrap(column.name, width)) <= HEADING_LINES)


def _least(column: Column, natural: int, characters: Mapping[str, int]) -> int:
    """Return the minimum width of a column [characters].

    Args:
        natural: width of its longest cell [characters].
        characters: minimum width by type of content [characters].
    """
    if column.content in {"number", "whole"}:
        return natural
    return min(natural, max(characters[column.content], _heading_width(column)))


def _grow(widths: list[int], natural: Sequence[int], growing: Sequence[int], left: int) -> int:
    """Widen columns evenly until none needs more width, and return the remaining width.

    Args:
        widths: widths of all columns [characters], which are changed.
        natural: widths that the columns need [characters].
        growing: indices of the columns to widen.
        left: width available for widening [characters].
    """
    while left > 0:
        open_columns = [i for i in growing if widths[i] < natural[i]]
        if not open_columns:
            break
        for i in open_columns[:left]:
            widths[i] += 1
        left -= min(len(open_columns), left)
    return left


def _style(value: Any) -> str:
    """Return the style of a cell, which shows only a state."""
    return STATE_STYLES.get(value.state, "") if isinstance(value, FormattedValue) else ""


def _grid(
    columns: Sequence[Column],
    cells: Sequence[Sequence[str]],
    styles: Sequence[Sequence[str]],
    layout: Sequence[int],
    *,
    total: bool,
) -> Table:
    """Return the table of the columns that are not hidden; `total` marks the last row as a total."""
    shown = [i for i, width in enumerate(layout) if width]
    width = sum(layout) + BETWEEN * (len(shown) - 1) + 2
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, BETWEEN - 1, 0, 0), width=width)
    fitted = []
    for i in shown:
        texts = [row[i] for row in cells]
        fitted.append(_fit(columns[i].content, texts, layout[i]))
        right = columns[i].content == "number"
        heading = Text(_heading(columns[i], layout[i]))
        drawn.add_column(heading, justify="right" if right else "left", width=layout[i], no_wrap=True)
    for r, row in enumerate(zip(*fitted, strict=True)):
        drawn.add_row(*(Text(text, style=styles[r][i]) for text, i in zip(row, shown, strict=True)))
        if total and r == len(cells) - 2:
            drawn.add_section()
    return drawn


def _heading(column: Column, width: int) -> str:
    lines = textwrap.wrap(printable(column.name), max(width, 1), break_long_words=False)
    return "\n".join([*lines, *([column.unit] if column.unit else [])])


def _fit(content: str, texts: Sequence[str], width: int) -> list[str]:
    """Fit the texts of a column to its width [characters].

    Names are shortened, text is wrapped, and numbers are unchanged.
    """
    if content == "name":
        short = shortened(texts, width, cell_len)
        return [short[text] for text in texts]
    if content == "words":
        short = shortened((word for text in texts for word in text.split()), width, cell_len)
        return [_filled(" ".join(short[word] for word in text.split()), width) for text in texts]
    return list(texts)


def _filled(text: str, width: int, indent: str = "", hanging: str | None = None) -> str:
    return textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
