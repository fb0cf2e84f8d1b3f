"""A section: title, sentences, table and picture, as data for all renderers.

Each study has one function that turns its document into a list of sections. `terminal.show` fits them to a
terminal, `pages` writes them as Markdown or HTML, and `Section.csv` writes them for programs.
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
"""Unit of rates in headings."""
FOR_PROGRAMS = 10
"""Rank of columns that spell out a mark; a terminal hides them without a note, and pages omit them."""
CSV_ONLY = 11
"""Rank of columns that only CSV has, because another column shows their values to readers."""


class FormattedValue(NamedTuple):
    """A value with its own text representation."""

    text: str
    value: str | float | None
    """The value itself, for programs."""


class SidePair(NamedTuple):
    """Values of both sides of a comparison, shown once if their texts are equal."""

    first: Any
    second: Any


class Column(NamedTuple):
    """A column of a table."""

    name: str
    of: str | Callable[[Any], Any] = ""
    """Value of an item: an attribute path, or a function. Empty if rows are given as values."""
    unit: str = ""
    form: str | Callable[[Any], str] = ""
    """Format of numbers: a format specification, or a function."""
    rank: int = 0
    """Priority: 0 is always shown; a narrow terminal hides the highest ranks first."""
    content: Literal["number", "name", "words"] = "number"
    """Numbers are never broken; names are shortened in their middle; words are wrapped."""
    none: str = NOTHING
    """Text of a missing value; if empty, a column without any value is dropped."""
    sides: tuple[str, str] | None = None
    """Names of both sides if values are pairs, such as before and after."""
    in_csv: bool = True
    """Whether CSV has the column; false if other columns have its values."""
    csv_name: str = ""
    """Name in CSV; default: the name."""

    def value(self, item: Any) -> Any:
        """Return the value of an item."""
        return self.of(item) if callable(self.of) else attrgetter(self.of)(item)

    def written(self, value: Any) -> str:
        """Return a plain value as text."""
        if value is None:
            return self.none
        if isinstance(value, str):
            return value
        return self.form(value) if callable(self.form) else format(value, self.form)

    def cell(self, value: Any) -> str:
        """Return any value as printable text."""
        if isinstance(value, SidePair):
            first, second = (self.cell(side) for side in value)
            return first if first == second else f"{first} → {second}"
        return printable(value.text if isinstance(value, FormattedValue) else self.written(value))

    @property
    def heading(self) -> str:
        """Name and unit in one line."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def csv_headings(self) -> list[str]:
        """Return the heading, or one for each side; none if CSV lacks the column."""
        if not self.in_csv:
            return []
        name = self.csv_name or self.name
        names = [name] if self.sides is None else [f"{name} {side}" for side in self.sides]
        return [self._replace(name=name).heading for name in names]

    def csv_values(self, value: Any) -> list[Any]:
        """Return the value, or one for each side, with every digit; none if CSV lacks the column."""
        if not self.in_csv:
            return []
        if isinstance(value, SidePair):
            return [plain for side in value for plain in self._replace(sides=None).csv_values(side)]
        plain = value.value if isinstance(value, FormattedValue) else value
        return [spreadsheet_text(plain)] * (1 if self.sides is None else 2)


def name(heading: str, of: str | Callable[[Any], Any] = "", rank: int = 0, none: str = "") -> Column:
    """Return a column of names."""
    return Column(heading, of, content="name", rank=rank, none=none)


def words(heading: str, of: str | Callable[[Any], Any] = "", rank: int = 0, none: str = NOTHING) -> Column:
    """Return a column of text."""
    return Column(heading, of, content="words", rank=rank, none=none)


class Paragraph(NamedTuple):
    """Text that is wrapped at spaces only."""

    text: str
    style: str = ""
    """Style at a terminal."""
    indent: str = ""
    """Start of the first line."""
    hanging: str | None = None
    """Start of the other lines, if it differs."""


@dataclass(slots=True)
class Section:
    """A part of a study's result; each of its fields can be missing."""

    title: str = ""
    columns: Sequence[Column] = ()
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    name: str = ""
    """Name for links and for ``--table``; default: the title in small letters."""
    text: list[Paragraph] = field(default_factory=list)
    """Paragraphs above the table."""
    notes: list[str] = field(default_factory=list)
    """Notes below the table."""
    total: tuple[Any, ...] | None = None
    """Last row of the table, below a line."""
    picture: str = ""
    """Name of its picture on a page."""
    alert: bool = False
    """Whether a page highlights it."""
    may_be_empty: bool = False
    """Whether its table is hidden while it has no rows."""
    on_request: bool = False
    """Whether its table is shown only if it is requested by name."""

    def __post_init__(self) -> None:
        """Derive the name from the title."""
        self.name = self.name or self.title.lower()

    @property
    def hidden(self) -> bool:
        """Whether a terminal or page omits the table."""
        return not self.columns or self.on_request or (self.may_be_empty and not self.rows)

    def held(self) -> list[int]:
        """Return the indices of columns that have a value, or a text for missing values."""
        rows = self.all_rows()
        return [i for i, column in enumerate(self.columns) if column.none or not rows or _any_value(rows, i)]

    def all_rows(self) -> list[tuple[Any, ...]]:
        """Return the rows, and the total as the last one."""
        return [*self.rows, *([] if self.total is None else [self.total])]

    def csv(self) -> str:
        """Return all rows under headings with units, with every digit and full names."""
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


class Fact(NamedTuple):
    """A number that summarises a plan."""

    name: str
    value: str
    number: float
    """The value as a number."""
    unit: str = ""
    """Unit of the number."""
    alert: bool = False
    """Whether a page highlights it."""


def table(title: str, columns: Iterable[Column], items: Iterable[Any], name: str = "", **how: Any) -> Section:
    """Return a section with a row for each item, whose cells are computed by the columns."""
    columns = tuple(columns)
    rows = [tuple(column.value(item) for column in columns) for item in items]
    return Section(title, columns, rows, name, **how)


def sentence(text: str, style: str = "") -> Section:
    """Return a section of one paragraph."""
    return Section(text=[Paragraph(text, style)])


def titled_list(title: str, lines: Iterable[str], style: str = "", bullet: str = "") -> Iterator[Section]:
    """Yield a title followed by lines; nothing if there are no lines."""
    indent = bullet or "  "
    hanging = " " * len(bullet) if bullet else "    "
    found = [Paragraph(line, style, indent, hanging) for line in lines]
    if found:
        yield Section(title, text=found)


def _any_value(rows: Iterable[Sequence[Any]], i: int) -> bool:
    values = (row[i] for row in rows)
    return any(
        (value.text if isinstance(value, FormattedValue) else value) not in {None, ""} for value in values
    )
