"""Reads load traces from CSV files, or from records of the control loop: loads before each time.

The long format has the columns ``time,server,arrivalRate`` and optionally ``avgInTokens`` and
``avgOutTokens``. The wide format has ``time`` and a column with the rate of each server. Times are seconds,
or dates with times. A server without a row, or with an empty cell, was not reported at that time. A route is
listed like a server, with the rate of all its requests. The two servers of a route have no separate rates.
Records of the loop are a file with the ending ``.jsonl``; servers that the loop held are not reported.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from optimizer.errors import SpecError
from optimizer.schema import Route, Server
from optimizer.schema.files import read_text
from optimizer.spec.csv_rows import csv_rows
from optimizer.spec.loads import load_names, load_owner, loaded, noun_of
from optimizer.spec.system import System, planned_servers
from optimizer.units import UnitError, time_s

_FIELDS = {name.lower(): name for name in ("time", "server", "arrivalRate", "avgInTokens", "avgOutTokens")}
MAX_STEPS = 200_000
"""Maximum number of times in a trace."""


@dataclass(frozen=True)
class LoadStep:
    """The loads that a trace reports for one time."""

    time_s: float
    items: tuple[Server | Route, ...]
    """Reported servers and routes of documents, with their loads; servers come first."""
    planned: Mapping[tuple[str, str], Server | Route]
    """Reported planned servers and routes with their loads, by noun (server or route) and name. A shared
    queue is reported if one of its members is.
    """

    def reported(self, owner: Server | Route) -> Server | Route | None:
        """Return a planned server or a route with its reported load; None if it was not reported."""
        return self.planned.get((noun_of(owner), owner.name))

    @classmethod
    def of(cls, system: System, time_s: float, items: Iterable[Server | Route]) -> "LoadStep":
        """Create a step from the reported servers and routes of documents, with their loads.

        Args:
            time_s: time of the report [s].
            items: the servers and routes.
        """
        items = sorted(items, key=lambda item: isinstance(item, Route))
        servers = {item.name: item for item in items if isinstance(item, Server)}
        queues = {server.shared_queue for server in servers.values()} - {None}
        if queues:
            servers = {one.name: one for one in system.spec.servers if one.shared_queue in queues} | servers
        routes = (item for item in items if isinstance(item, Route))
        planned: list[Server | Route] = [*planned_servers(servers, system.service_classes).values(), *routes]
        return cls(time_s, tuple(items), {(noun_of(item), item.name): item for item in planned})


def with_step(system: System, step: LoadStep) -> System:
    """Return a copy of a system with the loads of a step; unreported servers and routes keep their loads."""
    return system.with_items(
        *(
            system.documented[item.name].with_load(item.current.load) if isinstance(item, Server) else item
            for item in step.items
        )
    )


def read_load_trace(system: System, path: str | os.PathLike[str]) -> tuple[LoadStep, ...]:
    """Read a load trace from a CSV file or from records of the loop, sorted by time.

    Raises:
        SpecError: the file cannot be read, a column or a server is unknown, or a value is invalid.
    """
    steps: dict[float, dict[str, Server | Route]] = {}
    is_records = str(path).endswith(".jsonl")
    rows = _recorded(path) if is_records else csv_rows(path, partial(_column, system=system), "time")
    for place, fields in rows:
        here = steps.setdefault(_seconds(fields.pop("time"), place), {})
        for name, given in _loads(fields):
            owner = loaded(system, name, given, place)
            if name in here:
                raise SpecError(f"{place}: {noun_of(owner)} {name!r} occurs twice at this time")
            if given and isinstance(owner, Server) and owner.deadline is not None:
                raise SpecError(f"{place}: server {name!r} has a deadline, which sets its load; remove it")
            if given:
                here[name] = owner
        if len(steps) > MAX_STEPS:
            raise SpecError(f"{place}: more than {MAX_STEPS:,} times; give fewer")
    if len(steps) < 2:
        raise SpecError(f"{path}: at least two times are needed, this has {len(steps)}")
    return tuple(LoadStep.of(system, when, steps[when].values()) for when in sorted(steps))


_RECORDED = {"arrivalRate": "arrived_rps", "avgInTokens": "in_tokens", "avgOutTokens": "out_tokens"}
"""Keys of loads in records of the loop, by field."""


def _recorded(path: str | os.PathLike[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the place and the fields of each measured load in records of the loop.

    Raises:
        SpecError: a line is not a record.
    """
    for number, line in enumerate(read_text(Path(path)).splitlines(), 1):
        place = f"{path}:{number}"
        try:
            record = json.loads(line)
            loads, now_s = record["loads"].items(), float(record["inputs"]["now_s"])
            measured = [(name, load) for name, load in loads if name not in record["holds"]]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SpecError(f"{place}: not a record of 'inferplan loop': {error!r}") from None
        for name, load in measured:
            known = {field: load[key] for field, key in _RECORDED.items() if load.get(key) is not None}
            if "arrivalRate" in known:
                known["arrivalRate"] = f"{known['arrivalRate']}/s"
                yield place, {"time": str(now_s), "server": name, **{k: str(v) for k, v in known.items()}}


def _column(name: str, names: list[str], system: System) -> str:
    """Return the name of a column: a known field or, in the wide format, a server or a route."""
    named = {*load_names(system)}
    in_rows = "server" in {other.lower() for other in names} and "server" not in named
    known = _FIELDS.get(name.lower())
    if known is None and not in_rows and name in named:
        load_owner(system, name)
        known = name
    if known is None:
        what = "time, server, arrivalRate, avgInTokens and avgOutTokens, or time and the names of servers"
        raise SpecError(f"unknown column {name!r}; the header must name {what}")
    return known


def _loads(fields: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name of each server and route in a row, with the non-empty fields of its load."""
    if "server" not in fields:
        for name, text in fields.items():
            yield name, {"arrivalRate": text} if text else {}
        return
    yield fields["server"], {column: text for column, text in fields.items() if column != "server" and text}


def _seconds(text: str, place: str) -> float:
    try:
        return time_s(text)
    except UnitError as error:
        raise SpecError(f"{place}: time: {error}") from None
