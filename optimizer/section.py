"""Sections of a report (title, sentences, table and picture) as data that every renderer can show.

Each study has one function that converts its result to a list of sections. `render.terminal.show` fits them
to a terminal, `render.pages` writes them as Markdown or HTML, and `Section.csv` writes them for programs.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from optimizer.text import printable, spreadsheet_text

NOTHING = "-"
RPM = "req/min"
"""Unit of arrival rates in headings: requests/min."""
FOR_PROGRAMS = 10
"""Rank of columns that repeat a symbol in words; a terminal hides them without a note, and pages omit them.
"""
CSV_ONLY = 11
"""Rank of columns that appear only in CSV, because another column shows their values to human readers."""


class FormattedValue(NamedTuple):
    """A value together with the text that tables show for it."""

    text: str
    value: str | float | None
    """The value itself, for CSV."""
    state: str = ""
    """State that a colour shows: `missed`, `tight`, or empty for none."""


class SidePair(NamedTuple):
    """Values of both sides of a comparison, shown once if their texts are equal."""

    first: Any
    second: Any


class Column(NamedTuple):
    """A column of a table."""

    name: str
    of: str | Callable[[Any], Any] = ""
    """How to get the cell's value from an item: an attribute path or a function; empty if rows contain
    values.
    """
    unit: str = ""
    form: str | Callable[[Any], str] = ""
    """Format of numbers: a format specification, or a function."""
    rank: int = 0
    """Rank for hiding: a narrow terminal hides the columns of the highest rank first, and never those of rank
    0.
    """
    content: Literal["number", "whole", "name", "words"] = "number"
    """Type of content: numbers and whole texts are never broken, names are shortened in the middle, words are
    wrapped.
    """
    none: str = NOTHING
    """Text shown for a missing value; if it is empty, a column without any value is dropped."""
    sides: tuple[str, str] | None = None
    """Names of the two sides if values are pairs, such as ("before", "after"); None for single values."""
    in_csv: bool = True
    """Whether the column appears in CSV; false if other columns contain its values."""
    csv_name: str = ""
    """Name of the column in CSV; if empty, `name`."""

    def value(self, item: Any) -> Any:
        """Return the column's value for an item."""
        return self.of(item) if callable(self.of) else attrgetter(self.of)(item)

    def written(self, value: Any) -> str:
        """Format a value that is None, text or a number."""
        if value is None:
            return self.none
        if isinstance(value, str):
            return value
        return self.form(value) if callable(self.form) else format(value, self.form)

    def cell(self, value: Any) -> str:
        """Return the printable text of a cell; both values of a pair unless their texts are equal."""
        if isinstance(value, SidePair):
            first, second = (self.cell(side) for side in value)
            return first if first == second else f"{first} → {second}"
        return printable(value.text if isinstance(value, FormattedValue) else self.written(value))

    @property
    def heading(self) -> str:
        """Name of the column, with its unit in brackets if it has one."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def csv_headings(self) -> list[str]:
        """Return the CSV headings: one, or one for each side of pairs; empty if the column is not in CSV."""
        if not self.in_csv:
            return []
        name = self.csv_name or self.name
        names = [name] if self.sides is None else [f"{name} {side}" for side in self.sides]
        return [self._replace(name=name).heading for name in names]

    def csv_values(self, value: Any) -> list[Any]:
        """Return the unrounded CSV cells of a value: one, or one per side; empty if not in CSV."""
        if not self.in_csv:
            return []
        if isinstance(value, SidePair):
            return [plain for side in value for plain in self._replace(sides=None).csv_values(side)]
        plain = value.value if isinstance(value, FormattedValue) else value
        return [spreadsheet_text(plain)] * (1 if self.sides is None else 2)


def name(heading: str, of: str | Callable[[Any], Any] = "", rank: int = 0, none: str = "") -> Column:
    """Create a column of names; the arguments are fields of `Column`."""
    return Column(heading, of, content="name", rank=rank, none=none)


def words(heading: str, of: str | Callable[[Any], Any] = "", rank: int = 0, none: str = NOTHING) -> Column:
    """Create a column of wrapped text; the arguments are fields of `Column`."""
    return Column(heading, of, content="words", rank=rank, none=none)


class GroupRow(NamedTuple):
    """An item of a group; only the row of the first item shows the name of the group."""

    group: str
    item: Any
    is_first: bool


def group_rows(groups: Iterable[tuple[str, Iterable[Any]]]) -> list[GroupRow]:
    """Return the rows of the items of groups, given as names with their items."""
    return [GroupRow(group, item, i == 0) for group, items in groups for i, item in enumerate(items)]


def group_name(heading: str) -> Column:
    """Create a column of the names of groups, which repeats no name except in CSV."""
    return name(heading, lambda row: FormattedValue(row.group if row.is_first else "", row.group))


class Paragraph(NamedTuple):
    """A paragraph of text, wrapped at spaces only."""

    text: str
    style: str = ""
    """Style (such as a colour) in a terminal; empty for none."""
    indent: str = ""
    """Text in front of the first line."""
    hanging: str | None = None
    """Text in front of the other lines; None if it is the same as `indent`."""


@dataclass(slots=True)
class Section:
    """A part of a result: title, sentences, table and picture, each optional."""

    title: str = ""
    columns: Sequence[Column] = ()
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    name: str = ""
    """Name for links and for ``--table``; default: the title in lower case."""
    text: list[Paragraph] = field(default_factory=list)
    """Paragraphs above the table."""
    notes: list[str] = field(default_factory=list)
    """Notes below the table."""
    total: tuple[Any, ...] | None = None
    """Last row of the table, with totals, below a line; None for none."""
    picture: str = ""
    """Name of the picture that a page shows in this section; empty for none."""
    alert: bool = False
    """Whether a page highlights the section."""
    may_be_empty: bool = False
    """Whether to hide the table if it has no rows."""
    on_request: bool = False
    """Whether to show the table only if it is requested by name."""
    for_csv: "Section | None" = None
    """Section with the table that CSV has instead of this one; None for the same table."""

    def __post_init__(self) -> None:
        """Set the default of `name`, which is derived from the title."""
        self.name = self.name or self.title.lower()

    @property
    def hidden(self) -> bool:
        """Whether a terminal or page omits the table."""
        return not self.columns or self.on_request or (self.may_be_empty and not self.rows)

    def held(self) -> list[int]:
        """Return the indices of columns to show: those with any value, or with a text for missing values."""
        rows = self.all_rows()
        return [i for i, column in enumerate(self.columns) if column.none or not rows or _any_value(rows, i)]

    def all_rows(self) -> list[tuple[Any, ...]]:
        """Return the rows, followed by the row of totals if there is one."""
        return [*self.rows, *([] if self.total is None else [self.total])]

    def csv(self) -> str:
        """Return the table as CSV: headings with units, rows without the totals, every digit, full names."""
        if self.for_csv is not None:
            return self.for_csv.csv()
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow([heading for column in self.columns for heading in column.csv_headings()])
        lines.writerows(
            [
                item
                for column, value in zip(self.columns, row, strict=True)
                for item in column.csv_values(value)
            ]
            for row in self.rows
        )
        return text.getvalue()


def table(title: str, columns: Iterable[Column], items: Iterable[Any], name: str = "", **how: Any) -> Section:
    """Create a section with a table: one row for each item, whose cells the columns compute."""
    columns = tuple(columns)
    rows = [tuple(column.value(item) for column in columns) for item in items]
    return Section(title, columns, rows, name, **how)


def sentence(text: str, style: str = "") -> Section:
    """Create a section of one paragraph without a title."""
    return Section(text=[Paragraph(text, style)])


def titled_list(title: str, lines: Iterable[str], style: str = "", bullet: str = "") -> Iterator[Section]:
    """Yield one section with a title and a list of lines, or no section if there are no lines."""
    indent = bullet or "  "
    hanging = " " * len(bullet) if bullet else "    "
    paragraphs = [Paragraph(line, style, indent, hanging) for line in lines]
    if paragraphs:
        yield Section(title, text=paragraphs)


def _any_value(rows: Iterable[Sequence[Any]], i: int) -> bool:
    values = (row[i] for row in rows)
    return any(
        (value.text if isinstance(value, FormattedValue) else value) not in {None, ""} for value in values
    )
