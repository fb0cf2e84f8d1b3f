"""Common parts of all readers: the file, the result, and lookups of numbers with error messages."""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from optimizer.errors import FitError
from optimizer.fitting.runs import BenchmarkRun


class Benchmark(NamedTuple):
    """Content of a report."""

    runs: tuple[BenchmarkRun, ...]
    tool: str
    """Name of the tool, with its version if reported."""
    model: str | None = None
    """Name of the model in the client's requests."""
    date: str | None = None
    """Day of the benchmark, in ISO format."""
    notes: tuple[str, ...] = ()
    """Assumptions about values missing from the report."""


@dataclass(frozen=True)
class BenchmarkFile:
    """A file of a benchmark tool."""

    name: str
    """Name in messages."""
    text: str

    @cached_property
    def json(self) -> Any:
        """JSON content, a list if every line is a JSON object, None if it is not JSON."""
        head = self.text.lstrip()[:1]
        if head not in {"{", "["}:
            return None
        try:
            return json.loads(self.text)
        except json.JSONDecodeError as error:
            if (lines := self._json_lines()) is not None:
                return lines
            raise FitError(
                f"{self.name}: not valid JSON at line {error.lineno}, column {error.colno} ({error.msg}); "
                "the file may be cut short"
            ) from None
        except RecursionError:
            raise FitError(f"{self.name}: not valid JSON: it is nested too deeply") from None

    def _json_lines(self) -> list[Any] | None:
        """Return the JSON objects of a file with one per line; None for other files."""
        lines = [line for line in self.text.splitlines() if line.strip()]
        if len(lines) < 2 or not all(line.startswith("{") for line in lines):
            return None
        try:
            return [json.loads(line) for line in lines]
        except json.JSONDecodeError:
            return None

    @cached_property
    def first_line(self) -> str:
        """The first non-empty line."""
        return next((line for line in self.text.splitlines() if line.strip()), "")


class Reader(NamedTuple):
    """Reader of one format."""

    name: str
    """Name in messages and help."""
    recognises: Callable[[BenchmarkFile], bool]
    read: Callable[[BenchmarkFile], Benchmark]


def number(value: Any, place: str) -> float:
    """Return a finite number ≥ 0.

    Raises:
        FitError: the value is not such a number; the message names its place.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        shown = "missing" if value is None else f"{json.dumps(value, default=str)[:60]} is not a number >= 0"
        raise FitError(f"{place}: {shown}; the report is incomplete or of another tool")
    return float(value)


def at(value: Any, path: Sequence[str | int], place: str) -> Any:
    """Return the value at a path of keys.

    Args:
        value: nested dicts and lists.
        path: keys and indices.
        place: place of the value, for messages.

    Raises:
        FitError: a key is missing; the text names the first one.
    """
    for i, key in enumerate(path):
        inside = isinstance(value, dict) and key in value
        listed = isinstance(value, list) and isinstance(key, int) and key < len(value)
        if not (inside or listed):
            missing = ".".join(map(str, path[: i + 1]))
            raise FitError(f"{place}: {missing} is missing; the report is incomplete or of another tool")
        value = value[key]
    return value


def find(value: Any, *path: str) -> Any:
    """Return the value at a path of keys, None if a key is missing."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def cell_value(cell: Any) -> Any:
    """Return the number or the JSON in a cell, its text if it is neither, None if it is empty."""
    if not isinstance(cell, str):
        return cell
    for read in (float, json.loads):
        with suppress(ValueError):
            return read(cell)
    return cell or None


def number_at(value: Any, path: Sequence[str | int], place: str) -> float:
    """Return the number at a path of keys.

    Args:
        value: nested dicts and lists.
        path: keys and indices.
        place: place of the value, for messages.

    Raises:
        FitError: the value is missing or no number.
    """
    return number(at(value, path, place), f"{place}: {'.'.join(map(str, path))}")


def measured(value: Any) -> float | None:
    """Return a measured time or rate; None if it is missing or not a positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None
