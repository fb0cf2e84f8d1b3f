"""Common parts of all readers: a benchmark file, and the values that are read from it."""

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
    """Runs of a report in the form that can be replayed."""

    runs: tuple[BenchmarkRun, ...]
    tool: str
    """Name of the tool, with its version if reported."""
    model: str | None = None
    """Name of the model in the client's requests."""
    date: str | None = None
    """Date of the benchmark, in ISO format."""
    notes: tuple[str, ...] = ()
    """Sentences on assumptions about values missing from the report."""
    decisions: tuple[Note, ...] = ()
    """Notes on decisions about values that contradict each other."""
    cards: int | None = None
    """Number of accelerators of one replica; None if the report does not state it."""
    accepted_tokens: float = 1.0
    """Largest number of tokens per decode step over all runs; above 1 with speculative decoding."""

    @property
    def remarks(self) -> list[str]:
        """Decisions and assumptions, as sentences."""
        return [*sentences(self.decisions), *self.notes]


class RunReport(NamedTuple):
    """Content of a report before conversion: records of its runs."""

    runs: tuple[RunRecord, ...]
    tool: str
    model: str | None = None
    date: str | None = None
    notes: tuple[str, ...] = ()


_FILLED = re.compile(r"\S")


@dataclass(frozen=True)
class BenchmarkFile:
    """An output file of a benchmark tool."""

    name: str
    """Name of the file for messages."""
    text: str
    path: Path | None = None
    """Path of the file; None if it is not on disk."""

    @cached_property
    def tree(self) -> Any:
        """Content as nested data: JSON, YAML, or a list of consecutive JSON values; None for other files."""
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
        """The content with its name for messages; for a list, each item with its own name."""
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
        """Return the content of another file in the same folder; None if there is none."""
        path = None if self.path is None else self.path.with_name(name)
        return None if path is None or not path.is_file() else BenchmarkFile(str(path), read_text(path)).tree

    @cached_property
    def first_line(self) -> str:
        """First non-empty line of the text."""
        return next((line for line in self.text.splitlines() if line.strip()), "")


class Reader(NamedTuple):
    """Reader of one format: how to recognise and read it."""

    name: str
    """Name of the format in messages and help."""
    recognises: Callable[[BenchmarkFile], bool]
    read: Callable[[BenchmarkFile], RunReport | Benchmark]


def having(*marks: Sequence[str]) -> Callable[[BenchmarkFile], bool]:
    """Return a function that tests whether a report has, from each of `marks`, at least one path of keys."""
    return lambda report: all(find(report.tree, *paths) is not None for paths in marks)


def day_of(value: Any) -> str | None:
    """Return the ISO date of a time stamp: ISO text, `20260131-…`, or seconds since 1970."""
    from datetime import UTC, datetime

    if isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.fromtimestamp(value, UTC).date().isoformat() if 0 < value < 4e9 else None
    text = str(value or "")
    digits = text.partition("-")[0]
    if len(digits) == 8 and digits.isdigit():
        return f"{digits[:4]}-{digits[4:6]}-{digits[6:]}"
    return text[:10] if len(text) >= 10 and text[4] == "-" else None


def cell_value(cell: Any) -> Any:
    """Parse a CSV cell: return its number or JSON value, otherwise its text; None if it is empty."""
    if not isinstance(cell, str):
        return cell
    for read in (float, json.loads):
        with suppress(ValueError):
            return read(cell)
    return cell or None
