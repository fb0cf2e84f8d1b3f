"""Reads load snapshots from CSV files, which replace the loads of a document.

The columns are ``server`` and any of ``arrivalRate`` (requests/min), ``avgInTokens`` and ``avgOutTokens``, in
any case, with optional units. An empty cell keeps the value of the document. The rate of a route is given
under its name, like that of a server. The two servers of a route have no separate rates.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from optimizer.errors import SpecError
from optimizer.features.offline.streams import with_deadline_of_load
from optimizer.schema import Load, Route, Server
from optimizer.schema.assumptions import check_lengths, check_load
from optimizer.schema.messages import validated
from optimizer.spec.csv_rows import csv_rows
from optimizer.spec.system import System, with_changed_load, with_changed_route
from optimizer.units import REQUESTS_PER_MINUTE, TOKENS, UnitError

_COLUMN_UNITS = {
    "arrivalRate": REQUESTS_PER_MINUTE, "avgInTokens": TOKENS, "avgOutTokens": TOKENS
}  # fmt: skip
_COLUMNS = {name.lower(): name for name in ("server", *_COLUMN_UNITS)}


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
    return system.with_owners(changed.values())


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
        system: the system.
        name: the server or the route.
        fields: text by column.
        place: location of the row, for messages.

    Raises:
        SpecError: the name cannot have a load, a field is not a number, or the load is invalid.
    """
    try:
        owner = system.owner_named(name)
    except SpecError as error:
        raise SpecError(f"{place}: {error}") from None
    values = _values(fields, place)
    return (
        _loaded_route(owner, values, place)
        if isinstance(owner, Route)
        else _loaded_server(system, owner, values, place)
    )


def _values(fields: Mapping[str, str], place: str) -> dict[str, object]:
    values: dict[str, object] = {}
    for column, text in fields.items():
        if text:
            try:
                values[column] = _COLUMN_UNITS[column].read(text)
            except UnitError:
                raise SpecError(f"{place}: {column}: must be a number, not {text!r}") from None
    return values


def _loaded_route(route: Route, values: dict[str, object], place: str) -> Route:
    for column in values:
        if column != "arrivalRate":
            text = f"the lengths of route {route.name!r} are those of its kinds; leave the cell empty"
            raise SpecError(f"{place}: {column}: {text}")
    return validated(Route, route.model_dump(by_alias=True) | values, f"{place}: ")


def _loaded_server(system: System, server: Server, values: dict[str, object], place: str) -> Server:
    before = server.current.load.model_dump(by_alias=True, exclude_unset=True)
    load = validated(Load, before | values, f"{place}: ")
    check_load(load, f"{place}: ")
    check_lengths(load, f"{place}: ", system.profiles_of(server.model))
    changed = server.with_load(load)
    return with_deadline_of_load(changed)


# --- all loads of a system -----------------------------------------------------------------------------


def rate_rpm(owner: Server | Route) -> float:
    """Return the arrival rate of a server or a route [requests/min]."""
    return owner.arrival_rate_rpm if isinstance(owner, Route) else owner.current.load.arrival_rate_rpm


def with_rates(system: System, rates_rpm: Iterable[float]) -> System:
    """Return a copy of a system with new arrival rates [requests/min] for its `owners`, in their order.

    Raises:
        SpecError: a rate is out of range.
    """
    owners = zip(system.owners, rates_rpm, strict=True)
    return system.with_owners(with_rate(owner, rate) for owner, rate in owners)


def with_rate(owner: Server | Route, rate: float) -> Server | Route:
    """Return a server or a route with another arrival rate [requests/min].

    Raises:
        SpecError: the rate is out of range.
    """
    if isinstance(owner, Server):
        return with_changed_load(owner, arrival_rate_rpm=rate)
    return with_changed_route(owner, arrival_rate_rpm=rate)
