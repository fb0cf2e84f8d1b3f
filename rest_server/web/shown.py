"""Contents of a web page as plain values, which a solver process can send."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.quantities import quantity
from optimizer.render.report_memo import Tile
from optimizer.schema.faults import Fault
from optimizer.section import FOR_PROGRAMS, FormattedValue, Section, SidePair
from optimizer.studies.overview import TypeUsage
from optimizer.studies.service import PriorityService
from optimizer.studies.target_rows import TargetRow
from optimizer.text import printable
from optimizer.units import SECONDS_PER_MINUTE

MAX_COLUMNS = 12
"""Number of columns up to which a table keeps its order."""
POINTS = "pp"
"""Unit of differences between fractions: percentage points."""
_DECIMALS = re.compile(r"^[^.\s]*\.(\d+)")


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell of a table."""

    text: str
    value: str | float | None
    """Value by which rows are sorted."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its headings and texts."""

    name: str
    title: str
    text: tuple[str, ...]
    headings: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    notes: tuple[str, ...]
    alert: bool = False


@dataclass(frozen=True, slots=True)
class Repair:
    """Changes of a document that would serve more."""

    text: str
    changes: dict[str, str]
    """Changes by key, as in `Changes`."""


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan, prepared for the web page."""

    status: str
    tiles: tuple[Tile, ...]
    servers: tuple[TargetRow, ...]
    tables: tuple[Table, ...]
    """Sections other than the servers."""
    types: tuple[TypeUsage, ...]
    service: tuple[PriorityService, ...]
    """Service by priority, the highest priority first."""
    cost: float
    """Total cost, in the cost unit of the document."""
    colours: dict[str, str]
    """Colours by accelerator and by accelerator type."""
    currency: str | None
    """Currency of the prices; None for cents."""
    plan: bytes
    """The plan as JSON, as written by `solve --json`."""
    warnings: tuple[str, ...] = ()
    """Warnings about the document with its changes."""
    answer: str = ""
    """Cost of the plan as a sentence."""
    shortage: str = ""
    """Load that is not served, as a sentence; empty if everything is served."""
    notes: tuple[str, ...] = ()
    """Where the token times come from, as sentences."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is worked out after a plan is shown: its typical cost, and what would serve everything."""

    answer: str
    """Cautious and typical cost, and what to measure first, as sentences."""
    cost_note: str
    """Typical cost, as the second line of the cost."""
    shortage: str
    """Load that is not served, and the cards that would serve it, as sentences."""
    remedy: Repair | None = None


@dataclass(frozen=True, slots=True)
class StudyView:
    """Result of a study, prepared for the web page."""

    tables: tuple[Table, ...]
    picture: bytes = b""
    """Figure as SVG; empty if there is none."""
    repairs: tuple[Repair, ...] = ()


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in a document that can be changed on the web page."""

    key: str
    """Key of the change, as in `Changes`."""
    name: str
    unit: str
    original: float | None
    """Value in the document; None if it is unlimited."""
    step: float
    currency: str | None = None
    """Currency of a price; None for other quantities, or for cents."""

    @property
    def title(self) -> str:
        """Name with the unit."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def read(self, text: str | None) -> float | None:
        """Return the value that the text of a change states; without a change, the value in the document."""
        return self.original if text is None else float(text.partition(" ")[0])

    def write(self, value: float | None) -> str | None:
        """Return a value as the text of a change; None if it equals the value in the document."""
        if value is None or value == self.original:
            return None
        if self.currency is not None:
            return f"{value:.6f}".rstrip("0").rstrip(".") + f" {self.currency}/h"
        return f"{value:.12g}"


RESERVES = (
    Quantity("headroom", "Headroom of all servers", "%", None, 10),
    Quantity("spares", "Spare replicas of each server", "", None, 1),
)
"""Reserves of all servers that can be changed."""


@dataclass(frozen=True, slots=True)
class Controls:
    """Values of a document that controls on the web page can change."""

    servers: tuple[str, ...]
    counts: tuple[Quantity, ...]
    """Numbers of cards by accelerator type."""
    prices: tuple[Quantity, ...]
    """Prices per card if all accelerators of a type agree, otherwise per accelerator."""
    targets: tuple[Quantity, ...]
    """Latency targets [ms]."""
    numbers: tuple[Quantity, ...]
    """Numeric options of the optimizer."""
    options: dict[str, str]
    """Display texts of the current values of options, by key."""
    cost_unit: str


@dataclass(frozen=True, slots=True)
class Opened:
    """A document that was opened, with its findings."""

    text: str
    errors: tuple[Fault, ...] = ()
    warnings: tuple[Fault, ...] = ()
    base: bytes = b""
    """The document as JSON; empty if it has errors."""
    controls: Controls | None = None
    notes: tuple[str, ...] = ()

    def title_of(self, key: str) -> str:
        """Return the title of the field that changes a key, or the key if there is none."""
        fields = list(RESERVES)
        if self.controls is not None:
            for quantities in (
                self.controls.counts, self.controls.prices, self.controls.targets, self.controls.numbers
            ):  # fmt: skip
                fields += quantities
        return next((item.title for item in fields if item.key == key), key)


def tables_of(sections: Iterable[Section]) -> tuple[Table, ...]:
    """Convert sections to plain values, without columns that have no values or only spell out marks."""
    return tuple(_table(section) for section in sections if _has_anything(section))


def _has_anything(section: Section) -> bool:
    notes = section.notes and not section.on_request
    return bool(section.text or notes or (section.rows and not section.hidden))


def _table(section: Section) -> Table:
    held = [] if section.hidden or not section.rows else section.held()
    held = [i for i in held if section.columns[i].rank < FOR_PROGRAMS]
    if len(held) > MAX_COLUMNS:  # a window shows the first ones: those that a narrow terminal never hides
        held.sort(key=lambda i: section.columns[i].rank > 0)
    columns = [section.columns[i] for i in held]
    rows = section.all_rows() if columns else []
    return Table(
        name=section.name,
        title=printable(section.title),
        text=tuple(printable(each.text) for each in section.text),
        headings=tuple(column.heading for column in columns),
        numeric=tuple(column.content == "number" for column in columns),
        rows=tuple(
            tuple(TableCell(section.columns[i].cell(row[i]), _value(row[i])) for i in held) for row in rows
        ),
        notes=tuple(printable(note) for note in section.notes),
        alert=section.alert,
    )


def _value(value: Any) -> str | float | None:
    """Return the sort value of a cell; for a pair, that of its second side."""
    if isinstance(value, SidePair):
        return _value(value.second)
    plain = value.value if isinstance(value, FormattedValue) else value
    return plain if plain is None or isinstance(plain, str | int | float) else str(plain)


def row_differences(now: Table, pinned: Table | None) -> list[dict[int, str]]:
    """Return, for each row of a table, the change of its numbers from the same row of an earlier table.

    Rows are matched by name; new rows and new columns have no changes.
    """
    if pinned is None or pinned.headings != now.headings:
        return [{} for _ in now.rows]
    before = {_key(pinned, row): row for row in reversed(pinned.rows)}
    return [_row_differences(row, before.get(_key(now, row))) for row in now.rows]


def _key(table: Table, row: tuple[TableCell, ...]) -> object:
    """Return the first name in a row, by which rows of two tables are matched."""
    return next((cell.value for cell, number in zip(row, table.numeric, strict=True) if not number), None)


def _row_differences(now: tuple[TableCell, ...], before: tuple[TableCell, ...] | None) -> dict[int, str]:
    changes = {}
    for i, (new, old) in enumerate(zip(now, before or (), strict=False)):
        if new.value == old.value:
            continue
        if isinstance(new.value, int | float) and isinstance(old.value, int | float):
            factor, unit = (100, POINTS) if new.text.endswith("%") else (1, "")
            changes[i] = signed_text(factor * (new.value - old.value), (new.text, old.text), unit)
        elif old.text != new.text:
            changes[i] = f"was {old.text}"
    return {i: text for i, text in changes.items() if text}


def in_words(
    now: Sequence[PriorityService], before: Sequence[PriorityService], costs: tuple[float, float], unit: str
) -> str:
    """Describe the differences in service and cost from the pinned plan in one sentence.

    Args:
        now: service by priority.
        before: service by priority of the pinned plan.
        costs: cost of the pinned and of the current plan, in `unit`.
        unit: unit of costs.
    """
    earlier = {item.priority: item for item in before}
    parts = []
    for item in now:
        old = earlier.get(item.priority)
        if old is not None and (old.served_rpm, old.load_rpm) == (item.served_rpm, item.load_rpm):
            continue
        more_rps = (item.served_rpm - (old.served_rpm if old else 0.0)) / SECONDS_PER_MINUTE
        text = quantity(abs(more_rps), 3)
        if text != "0":
            parts.append(f"{text} requests/s {_more_or_less(more_rps)} of priority {item.priority}")
    more, text = costs[0] - costs[1], f"{abs(costs[0] - costs[1]):,.2f}"
    found = [*parts, *([f"{text} {unit} {_more_or_less(more)}"] if float(text.replace(",", "")) else [])]
    return f"Against the pinned plan: {', '.join(found) or 'the same service and cost'}."


def _more_or_less(difference: float) -> str:
    return "more" if difference > 0 else "less"


def signed_text(difference: float, texts: Iterable[str], unit: str = "") -> str:
    """Return a difference as text with its sign and unit; empty if it would be shown as zero.

    Args:
        texts: both values as shown, which determine the number of decimals.
        unit: unit of the difference.
    """
    decimals = max(len(match[1]) if (match := _DECIMALS.search(text)) else 0 for text in texts)
    text = f"{difference:+,.{decimals}f}"
    return "" if float(text.replace(",", "")) == 0 else f"{text} {unit}".rstrip()
