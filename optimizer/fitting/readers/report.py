"""Common parts of all readers: the file, and the values read from it."""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from optimizer.errors import FitError, SpecError
from optimizer.fitting.notes import Note, sentences
from optimizer.fitting.readers.paths import find
from optimizer.fitting.record import RunRecord
from optimizer.fitting.runs import BenchmarkRun
from optimizer.schema.files import plain_value, read_text


class Benchmark(NamedTuple):
    """Runs of a report, as they are replayed."""

    runs: tuple[BenchmarkRun, ...]
    tool: str
    """Name of the tool, with its version if reported."""
    model: str | None = None
    """Name of the model in the client's requests."""
    date: str | None = None
    """Day of the benchmark, in ISO format."""
    notes: tuple[str, ...] = ()
    """Assumptions about values missing from the report."""
    decisions: tuple[Note, ...] = ()
    """Decisions about values that contradict each other."""
    cards: int | None = None
    """Accelerators of one replica, if the report states them."""
    accepted_tokens: float = 1.0
    """Most tokens of a step with speculative decoding."""

    @property
    def told(self) -> list[str]:
        """Decisions and assumptions, as sentences."""
        return [*sentences(self.decisions), *self.notes]


class RunReport(NamedTuple):
    """Content of a report, as it is written there."""

    runs: tuple[RunRecord, ...]
    tool: str
    model: str | None = None
    date: str | None = None
    notes: tuple[str, ...] = ()


_FILLED = re.compile(r"\S")


@dataclass(frozen=True)
class BenchmarkFile:
    """A file of a benchmark tool."""

    name: str
    """Name in messages, and path of a file on disk."""
    text: str
    on_disk: bool = False

    @cached_property
    def tree(self) -> Any:
        """JSON or YAML content, a list of JSON values that follow each other, None for other files."""
        try:
            if self.text.lstrip()[:1] in {"{", "["}:
                return self._json()
            return (
                plain_value(self.text, self.name) if self.name.lower().endswith((".yaml", ".yml")) else None
            )
        except SpecError as error:
            raise FitError(str(error)) from None
        except json.JSONDecodeError as error:
            raise FitError(
                f"{self.name}: not valid JSON at line {error.lineno}, column {error.colno} ({error.msg}); "
                "the file might be truncated"
            ) from None
        except RecursionError:
            raise FitError(f"{self.name}: not valid JSON: it is nested too deeply") from None

    @property
    def rows(self) -> list[tuple[Any, str]]:
        """The tree with its place, or each item of a list with its own."""
        if isinstance(self.tree, list):
            return [(row, f"{self.name}: [{i}]") for i, row in enumerate(self.tree)]
        return [(self.tree, self.name)]

    def _json(self) -> Any:
        values, end = [], 0
        while start := _FILLED.search(self.text, end):
            value, end = json.JSONDecoder().raw_decode(self.text, start.start())
            values.append(value)
        return values if len(values) > 1 else values[0]

    def beside(self, name: str) -> Any:
        """Return the content of a file in the same folder; None if there is none."""
        path = Path(self.name).with_name(name)
        return BenchmarkFile(str(path), read_text(path)).tree if self.on_disk and path.is_file() else None

    @cached_property
    def first_line(self) -> str:
        """The first non-empty line."""
        return next((line for line in self.text.splitlines() if line.strip()), "")


class Reader(NamedTuple):
    """Reader of one format."""

    name: str
    """Name in messages and help."""
    recognises: Callable[[BenchmarkFile], bool]
    read: Callable[[BenchmarkFile], RunReport | Benchmark]


def having(*marks: Sequence[str]) -> Callable[[BenchmarkFile], bool]:
    """Return a test whether a report has one path of keys of each of some alternatives."""
    return lambda report: all(find(report.tree, *paths) is not None for paths in marks)


def day_of(value: Any) -> str | None:
    """Return the day of a time stamp: ISO text, `20260131-…`, or seconds since 1970."""
    from datetime import UTC, datetime

    if isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.fromtimestamp(value, UTC).date().isoformat() if 0 < value < 4e9 else None
    text = str(value or "")
    digits = text.partition("-")[0]
    if len(digits) == 8 and digits.isdigit():
        return f"{digits[:4]}-{digits[4:6]}-{digits[6:]}"
    return text[:10] if len(text) >= 10 and text[4] == "-" else None


def cell_value(cell: Any) -> Any:
    """Return the number or the JSON in a cell, its text if it is neither, None if it is empty."""
    if not isinstance(cell, str):
        return cell
    for read in (float, json.loads):
        with suppress(ValueError):
            return read(cell)
    return cell or None
