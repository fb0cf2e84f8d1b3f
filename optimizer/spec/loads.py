"""Load snapshots from CSV files, which replace the loads of a document.

The columns are ``server`` and any of ``arrivalRate`` (requests/min), ``avgInTokens`` and ``avgOutTokens``, in
any case, with optional units. Empty cells keep the values of the document.
"""

import os
from collections.abc import Mapping

from optimizer.errors import SpecError
from optimizer.spec.assumptions import check_answers, check_load
from optimizer.spec.csv_rows import csv_rows
from optimizer.spec.messages import validated
from optimizer.spec.offline import with_deadline_of_load
from optimizer.spec.schema import Load, Server
from optimizer.spec.system import System
from optimizer.units import REQUESTS_PER_MINUTE, TOKENS, UnitError

_COLUMN_UNITS = {
    "arrivalRate": REQUESTS_PER_MINUTE, "avgInTokens": TOKENS, "avgOutTokens": TOKENS
}  # fmt: skip
_COLUMNS = {name.lower(): name for name in ("server", *_COLUMN_UNITS)}


def with_loads(system: System, path: str | os.PathLike[str]) -> System:
    """Return a system with the loads of a CSV file.

    Raises:
        SpecError: the file cannot be read, a column or a server is unknown, or a value is invalid.
    """
    changed: dict[str, Server] = {}
    stated = system.stated
    for place, fields in csv_rows(path, _column, "server"):
        name = fields.pop("server")
        if name not in stated:
            raise SpecError(f"{place}: server {name!r} does not exist in the system")
        if name in changed:
            raise SpecError(f"{place}: server {name!r} occurs twice")
        changed[name] = loaded_server(system, name, fields, place)
    return system.with_servers(changed)


def _column(name: str, _: list[str]) -> str:
    known = _COLUMNS.get(name.lower())
    if known is None:
        raise SpecError(f"unknown column {name!r}; known: {', '.join(_COLUMNS.values())}")
    return known


def loaded_server(system: System, name: str, fields: Mapping[str, str], place: str) -> Server:
    """Return a server with the load fields of a row; empty fields do not change.

    Args:
        system: the system of the server.
        name: the server.
        fields: text by column.
        place: file and line of the row, for messages.

    Raises:
        SpecError: a field is not a number, or the load is invalid.
    """
    values: dict[str, object] = {}
    for column, text in fields.items():
        if text:
            try:
                values[column] = _COLUMN_UNITS[column].read(text)
            except UnitError:
                raise SpecError(f"{place}: {column}: must be a number, not {text!r}") from None
    server = system.stated[name]
    before = server.current.load.model_dump(by_alias=True)
    load = validated(Load, before | values, f"{place}: ")
    check_load(load, f"{place}: ")
    check_answers(load, f"{place}: ", system.profiles_of(server.model))
    changed = server.with_load(load)
    return with_deadline_of_load(changed)
