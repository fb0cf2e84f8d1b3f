"""Loads over time from a CSV file: what was counted of each server in the interval before a row.

Either in rows, ``time,server,arrivalRate`` and perhaps ``avgInTokens`` and ``avgOutTokens``, or in columns,
``time`` and then a rate for each server by its name. A time is a number of seconds, or a date with a time. A
server that a time does not name, or whose cell is empty, was not reported then.
"""

import csv
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite

from optimizer.errors import SpecError
from optimizer.spec.files import lines_of, read_text
from optimizer.spec.loads import loaded_server
from optimizer.spec.schema import Server
from optimizer.spec.system import System

_FIELDS = {name.lower(): name for name in ("time", "server", "arrivalRate", "avgInTokens", "avgOutTokens")}
MAX_STEPS = 200_000
"""Most times of a trace."""


@dataclass(frozen=True, slots=True)
class LoadStep:
    """What was reported at one time."""

    time_s: float
    servers: Mapping[str, Server]
    """Servers with their loads, by name: those that were reported."""


def read_load_trace(system: System, path: str | os.PathLike[str]) -> tuple[LoadStep, ...]:
    """Read loads over time, in the order of the times.

    Raises:
        SpecError: the file cannot be read, a column or a server is unknown, or a value is not a valid number.
    """
    rows = csv.reader(lines_of(read_text(path)), strict=True)
    steps: dict[float, dict[str, Server]] = {}
    try:
        header = _header(next(rows, []), system, path)
        for row in rows:
            if not any(row):
                continue
            place = f"{path}:{rows.line_num}"
            if len(row) != len(header):
                raise SpecError(f"{place}: {len(row)} fields, the header has {len(header)}")
            fields = dict(zip(header, (field.strip(" \t") for field in row), strict=True))
            time_s = _seconds(fields.pop("time"), place)
            here = steps.setdefault(time_s, {})
            for name, given in _loads(fields, system, place):
                if name in here:
                    raise SpecError(f"{place}: server {name!r} occurs twice at this time")
                if given:
                    here[name] = loaded_server(system.servers[name], given, place)
            if len(steps) > MAX_STEPS:
                raise SpecError(f"{place}: more than {MAX_STEPS:,} times; give fewer")
    except csv.Error as error:
        raise SpecError(f"{path}:{rows.line_num}: not valid CSV: {error}") from None
    if len(steps) < 2:
        raise SpecError(f"{path}: at least two times are needed, this has {len(steps)}")
    return tuple(LoadStep(time_s, steps[time_s]) for time_s in sorted(steps))


def _header(names: list[str], system: System, path: str | os.PathLike[str]) -> list[str]:
    """Return the columns by the names that they have here; a column of a server has the server's."""
    stripped = [name.strip() for name in names]
    in_rows = "server" in {name.lower() for name in stripped} and "server" not in system.servers
    header = []
    for name in stripped:
        known = _FIELDS.get(name.lower())
        if known is None and not in_rows and name in system.servers:
            known = name
        if known is None:
            what = "time, server, arrivalRate, avgInTokens and avgOutTokens, or time and the names of servers"
            raise SpecError(f"{path}:1: unknown column {name!r}; the header must name {what}")
        header.append(known)
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise SpecError(f"{path}:1: column {twice!r} occurs twice")
    if "time" not in header:
        raise SpecError(f"{path}:1: the header must name the column 'time'")
    return header


def _loads(fields: Mapping[str, str], system: System, place: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield servers with the fields of their loads that are not empty."""
    if "server" not in fields:
        for name, text in fields.items():
            yield name, {"arrivalRate": text} if text else {}
        return
    name = fields["server"]
    if name not in system.servers:
        raise SpecError(f"{place}: server {name!r} does not exist in the system")
    yield name, {column: text for column, text in fields.items() if column != "server" and text}


def _seconds(text: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            raise SpecError(
                f"{place}: time: {text!r} is neither a number of seconds nor a date with a time"
            ) from None
        value = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    if not isfinite(value):
        raise SpecError(f"{place}: time: {text!r} is not finite")
    return value
