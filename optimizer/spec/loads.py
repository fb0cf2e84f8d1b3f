"""Reads load snapshots from CSV files, which replace the loads of a document.

The columns are ``server`` and any of ``arrivalRate`` (requests/min), ``avgInTokens`` and ``avgOutTokens``, in
any case, with optional units. An empty cell keeps the value of the document. The rate of a route is given
under its name, like that of a server. The two servers of a route have no separate rates.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from optimizer.errors import SpecError
from optimizer.schema import Route, Server
from optimizer.schema.assumptions import check_lengths
from optimizer.schema.messages import did_you_mean, validated
from optimizer.spec.csv_rows import csv_rows
from optimizer.spec.system import System, with_changed_load
from optimizer.units import REQUESTS_PER_MINUTE, TOKENS, UnitError

_FIELDS = {
    "arrivalRate": ("arrival_rate_rpm", REQUESTS_PER_MINUTE), "avgInTokens": ("in_tokens", TOKENS),
    "avgOutTokens": ("out_tokens", TOKENS),
}  # fmt: skip
"""Python name and units of the load field in each column."""
_COLUMNS = {name.lower(): name for name in ("server", *_FIELDS)}


def with_loads(system: System, path: str | os.PathLike[str]) -> System:
    """Return a copy of a system with the loads in a CSV file.

    Raises:
        SpecError: the file cannot be read, a column or a server is unknown, or a value is invalid.
    """
    if "=" in str(path) and not Path(path).exists():
        raise SpecError(f"load: {str(path)!r} is not a file; write a CSV file with server,arrivalRate")
    changed: dict[str, Server | Route] = {}
    for place, fields in csv_rows(path, _column, "server"):
        name = fields.pop("server")
        if name in changed:
            raise SpecError(f"{place}: {noun_of(changed[name])} {name!r} occurs twice")
        changed[name] = loaded(system, name, fields, place)
    return system.with_items(*changed.values())


def _column(name: str, _: list[str]) -> str:
    known = _COLUMNS.get(name.lower())
    if known is None:
        raise SpecError(f"unknown column {name!r}; known: {', '.join(_COLUMNS.values())}")
    return known


def noun_of(owner: Server | Route) -> str:
    """Return the word for an owner of a load in messages: server or route."""
    return "route" if isinstance(owner, Route) else "server"


def loaded(system: System, name: str, fields: Mapping[str, str], place: str) -> Server | Route:
    """Return a server or a route with the load fields of a CSV row; empty fields keep their values.

    Args:
        name: the server or the route.
        fields: text by column.
        place: location of the row, for messages.

    Raises:
        SpecError: the name cannot have a load, a field is not a number, or the load is invalid.
    """
    try:
        owner = load_owner(system, name)
    except SpecError as error:
        raise SpecError(f"{place}: {error}") from None
    values: dict[str, float] = {}
    for column, text in fields.items():
        if text:
            field, units = _FIELDS[column]
            try:
                values[field] = units.read(text)
            except UnitError:
                raise SpecError(f"{place}: {column}: must be a number, not {text!r}") from None
    if isinstance(owner, Server):
        changed = with_changed_load(owner, values, f"{place}: ")
        check_lengths(changed.current.load, f"{place}: ", system.profiles_of(owner.model))
        return changed
    for column in fields:
        if fields[column] and column != "arrivalRate":
            text = f"the lengths of route {name!r} are those of its kinds; leave the cell empty"
            raise SpecError(f"{place}: {column}: {text}")
    return validated(Route, owner.model_dump() | values, f"{place}: ")


def load_owner(system: System, name: str) -> Server | Route:
    """Return the server or the route of the documents for which a load of this name is stated.

    Raises:
        SpecError: there is neither, there are both, or the server gets its load from a route.
    """
    server, route, owner = system.documented.get(name), system.routes.get(name), system.routed.get(name)
    if server is not None and owner is None and route is not None:
        raise SpecError(f"{name!r} is the name of a server and of a route; rename one of them")
    if server is not None and owner is not None and route is None:
        raise SpecError(
            f"server {name!r} gets its load from route {owner.name!r}; give the load of that route"
        )
    result = route or server
    if result is None:
        hint = did_you_mean(name, load_names(system))
        raise SpecError(f"server {name!r} does not exist in the system{hint}")
    return result


def load_names(system: System) -> list[str]:
    """Return the names of the servers and routes for which loads can be stated."""
    return [*system.documented, *system.routes]


# --- all loads of a system -----------------------------------------------------------------------------


def stated_loads(system: System) -> tuple[Server | Route, ...]:
    """Return the servers and routes of the documents that have their own load: first servers, then routes."""
    servers = (server for server in system.spec.servers if server.name not in system.routed)
    return (*servers, *system.spec.routes)


def planned_loads(system: System) -> tuple[Server | Route, ...]:
    """Return the planned servers and the routes that have their own load: first servers, then routes."""
    servers = (server for name, server in system.servers.items() if name not in system.routed)
    return (*servers, *system.routes.values())


def rate_rpm(owner: Server | Route) -> float:
    """Return the arrival rate of a server or a route; for offline work, of its deadline [requests/min]."""
    if isinstance(owner, Route):
        return owner.arrival_rate_rpm
    return owner.deadline.rate_rpm if owner.deadline is not None else owner.current.load.arrival_rate_rpm


def with_rate(owner: Server | Route, rate: float) -> Server | Route:
    """Return a server or a route with another arrival rate [requests/min].

    Raises:
        SpecError: the rate is out of range.
    """
    changes = {"arrival_rate_rpm": rate}
    if isinstance(owner, Server):
        return with_changed_load(owner, changes)
    return validated(Route, owner.model_dump() | changes, f"routes.{owner.name}.")
