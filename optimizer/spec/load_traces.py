"""Load traces from CSV files: the load of each server in the interval before each time.

The long format has the columns ``time,server,arrivalRate`` and optionally ``avgInTokens`` and
``avgOutTokens``; the wide format has ``time`` and a column with the rate of each server. Times are seconds,
or a date with time. A server without a row or with an empty cell was not reported at that time.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from optimizer.errors import SpecError
from optimizer.spec.csv_rows import csv_rows
from optimizer.spec.loads import loaded_server
from optimizer.spec.schema import Server
from optimizer.spec.system import System
from optimizer.units import UnitError, time_s

_FIELDS = {name.lower(): name for name in ("time", "server", "arrivalRate", "avgInTokens", "avgOutTokens")}
MAX_STEPS = 200_000
"""Maximum times of a trace."""


@dataclass(frozen=True, slots=True)
class LoadStep:
    """The loads reported at one time."""

    time_s: float
    servers: Mapping[str, Server]
    """Reported servers with their loads, by name; those of a shared queue as one, split ones by version."""


def read_load_trace(system: System, path: str | os.PathLike[str]) -> tuple[LoadStep, ...]:
    """Read a load trace, sorted by time.

    Raises:
        SpecError: the file cannot be read, a column or a server is unknown, or a value is invalid.
    """
    steps: dict[float, dict[str, Server]] = {}
    for place, fields in csv_rows(path, partial(_column, system=system), "time"):
        here = steps.setdefault(_seconds(fields.pop("time"), place), {})
        for name, given in _loads(fields, system, place):
            if name in here:
                raise SpecError(f"{place}: server {name!r} occurs twice at this time")
            if given and system.stated[name].deadline is not None:
                raise SpecError(f"{place}: server {name!r} has a deadline, which is its load; leave it out")
            if given:
                here[name] = loaded_server(system, name, given, place)
        if len(steps) > MAX_STEPS:
            raise SpecError(f"{place}: more than {MAX_STEPS:,} times; give fewer")
    if len(steps) < 2:
        raise SpecError(f"{path}: at least two times are needed, this has {len(steps)}")
    return tuple(LoadStep(when, system.planned(steps[when])) for when in sorted(steps))


def _column(name: str, names: list[str], system: System) -> str:
    """Return the name of a column: a known field, or in the wide format a server."""
    in_rows = "server" in {other.lower() for other in names} and "server" not in system.stated
    known = _FIELDS.get(name.lower())
    if known is None and not in_rows and name in system.stated:
        known = name
    if known is None:
        what = "time, server, arrivalRate, avgInTokens and avgOutTokens, or time and the names of servers"
        raise SpecError(f"unknown column {name!r}; the header must name {what}")
    return known


def _loads(fields: Mapping[str, str], system: System, place: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield servers with the non-empty fields of their loads."""
    if "server" not in fields:
        for name, text in fields.items():
            yield name, {"arrivalRate": text} if text else {}
        return
    name = fields["server"]
    if name not in system.stated:
        raise SpecError(f"{place}: server {name!r} does not exist in the system")
    yield name, {column: text for column, text in fields.items() if column != "server" and text}


def _seconds(text: str, place: str) -> float:
    try:
        return time_s(text)
    except UnitError as error:
        raise SpecError(f"{place}: time: {error}") from None
