"""What readers share: a file that is looked at, what it gives, and numbers by their place in it."""

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
    """What a report holds."""

    runs: tuple[BenchmarkRun, ...]
    tool: str
    """Which tool, and its version where the report says it."""
    model: str | None = None
    """The model's name, as the client called it."""
    date: str | None = None
    """When it was measured, an ISO day."""
    notes: tuple[str, ...] = ()
    """What was assumed, since the report does not say it."""


@dataclass(frozen=True)
class BenchmarkFile:
    """A file of a benchmark tool."""

    name: str
    """As messages call it."""
    text: str

    @cached_property
    def json(self) -> Any:
        """The JSON in it, a list where every line is an object of its own, or None where it is none."""
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
        """Return the objects of a file that a tool has appended to, one a line; none where it is no such."""
        lines = [line for line in self.text.splitlines() if line.strip()]
        if len(lines) < 2 or not all(line.startswith("{") for line in lines):
            return None
        try:
            return [json.loads(line) for line in lines]
        except json.JSONDecodeError:
            return None

    @cached_property
    def first_line(self) -> str:
        """The first line that is not empty."""
        return next((line for line in self.text.splitlines() if line.strip()), "")


class Reader(NamedTuple):
    """A format."""

    name: str
    """As messages and help name it."""
    recognises: Callable[[BenchmarkFile], bool]
    read: Callable[[BenchmarkFile], Benchmark]


def number(value: Any, place: str) -> float:
    """Return a finite number ≥ 0.

    Raises:
        FitError: it is none; the text names its place.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        shown = "missing" if value is None else f"{json.dumps(value, default=str)[:60]} is not a number >= 0"
        raise FitError(f"{place}: {shown}; the report is incomplete or of another tool")
    return float(value)


def at(value: Any, path: Sequence[str | int], place: str) -> Any:
    """Return what stands at a path of keys.

    Raises:
        FitError: it is not there; the text names the first key that is missing.
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
    """Return the value at a path of keys, None if there is none."""
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

    Raises:
        FitError: there is none.
    """
    return number(at(value, path, place), f"{place}: {'.'.join(map(str, path))}")


def measured(value: Any) -> float | None:
    """Return a measured time or rate; none where it is missing, or broken as some recorded means are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None
