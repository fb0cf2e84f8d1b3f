"""Rows of a state file: its tables, and the conversion of the fleet's items from and to text."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import starmap
from typing import Any

from pydantic import TypeAdapter, ValidationError

from optimizer.documents import Document
from optimizer.schema import Accelerator, AllocationData, CurrentPool, Load, OptimizerOptions, Server
from optimizer.stabilisation.decisions import Decisions, ReplicaStatus
from rest_server.fleet import MODELS, SECTIONS, Entities, Key
from rest_server.history import Event, History, KeptPlan
from rest_server.state import PlanRecord, Snapshot

_adapter = cache(TypeAdapter)
"""Cached converter of a type from and to JSON; creating one takes milliseconds."""
APPLICATION_ID = 0x494E_4650
"""SQLite application id that marks a database as inferplan's state file (``INFP``)."""
SCHEMA_VERSION = 2
"""Version of the tables and of the plans in them; files with other versions are not read."""
TABLES = (
    """CREATE TABLE fleet (
        only INTEGER PRIMARY KEY CHECK (only = 0),
        instance TEXT NOT NULL, revision INTEGER NOT NULL, changed_at INTEGER NOT NULL,
        decisions TEXT NOT NULL
    )""",
    """CREATE TABLE items (
        section TEXT NOT NULL, key TEXT NOT NULL, position INTEGER NOT NULL, document TEXT NOT NULL,
        PRIMARY KEY (section, key)
    ) WITHOUT ROWID""",
    "CREATE TABLE events (number INTEGER PRIMARY KEY, document TEXT NOT NULL)",
    """CREATE TABLE plans (
        number INTEGER PRIMARY KEY,
        revision INTEGER NOT NULL UNIQUE, made_at REAL NOT NULL, packed BLOB NOT NULL
    )""",
)


def key_text(key: Key) -> str:
    """Return the names of an item as text, for the key of its row."""
    return json.dumps(key, ensure_ascii=False, separators=(",", ":"))


def document_text(item: Document | None) -> str:
    """Return an item as JSON text, with only the fields that were given."""
    return "" if item is None else item.model_dump_json(by_alias=True, exclude_unset=True)


def event_text(event: Event) -> str:
    """Return an event of the history as JSON text."""
    return json.dumps(asdict(event), ensure_ascii=False, separators=(",", ":"))


def read_entities(connection: sqlite3.Connection) -> Entities:
    """Read the fleet from a state file.

    Raises:
        ValueError: a row is not a valid item.
        sqlite3.Error: the file is damaged.
    """
    entities: dict[str, dict[Key, Any]] = {section: {} for section in SECTIONS}
    rows = connection.execute("SELECT section, key, document FROM items ORDER BY position")
    for section, key, text in rows:
        entities[section][tuple(json.loads(key))] = text and _item(SECTIONS[section].document, text)
    options = entities.pop("optimizer").get((), OptimizerOptions())
    models: dict[str, dict[str, Any]] = {model: {} for (model,) in entities.pop(MODELS)}
    for (model, accelerator), profile in entities.pop("models").items():
        models[model][accelerator] = profile
    named: dict[str, Any] = {
        SECTIONS[section].field: {name: item for (name,), item in items.items()}
        for section, items in entities.items()
    }
    return Entities(models=models, optimizer=options, **named)


def read_snapshot(connection: sqlite3.Connection) -> tuple[str, Snapshot]:
    """Read the instance and the last snapshot of a state file.

    Raises:
        ValueError: a row is invalid.
        sqlite3.Error: the file is damaged.
    """
    instance, revision, changed_at, text = connection.execute(
        "SELECT instance, revision, changed_at, decisions FROM fleet"
    ).fetchone()
    history = history_in(connection)
    last = history.plans[-1] if history.plans else None
    plan = None if last is None else PlanRecord(last.plan(), last.revision, last.made_at)
    known = _adapter(_Known).validate_json(text or "{}")
    more = known.decisions, known.replicas, known.loads_sent_at
    snapshot = Snapshot(revision, read_entities(connection), changed_at, plan, history, *more)
    return instance, snapshot


@dataclass(frozen=True, slots=True)
class _Known:
    """Desired and existing replicas and the times of loads, as stored in a state file."""

    decisions: Decisions | None = None
    replicas: Mapping[str, Mapping[str, ReplicaStatus]] = field(default_factory=dict)
    loads_sent_at: Mapping[str, float] = field(default_factory=dict)


def decisions_text(snapshot: Snapshot) -> str:
    """Return the desired and existing replicas and the times of loads of a snapshot as JSON text."""
    known = _Known(snapshot.decisions, snapshot.replicas, snapshot.loads_sent_at)
    return _adapter(_Known).dump_json(known).decode()


def read_positions(connection: sqlite3.Connection) -> dict[str, dict[Key, int]]:
    """Return the position of every item within its section."""
    positions: dict[str, dict[Key, int]] = {}
    for section, key, position in connection.execute("SELECT section, key, position FROM items"):
        positions.setdefault(section, {})[tuple(json.loads(key))] = position
    return positions


def _item(type_: type[Document], text: str) -> Document:
    """Convert JSON text to an item.

    Accelerators can lack a type, and the cost of desired allocations can exceed the maximum of documents.
    """
    values = json.loads(text)
    if type_ is Accelerator and "type" not in values:
        named = Accelerator.model_validate_json(json.dumps(values | {"type": values["name"]}))
        named.model_fields_set.discard("type")
        return named
    try:
        return type_.model_validate_json(text)
    except ValidationError:
        if type_ is not Server:
            raise
    allocations = {
        field: _allocation(values.pop(name)) for name, field in _ALLOCATIONS.items() if name in values
    }
    return Server.model_validate_json(json.dumps(values)).model_copy(update=allocations)


_ALLOCATIONS = {"currentAlloc": "current", "desiredAlloc": "desired"}


def _allocation(values: Mapping[str, Any]) -> AllocationData:
    """Return an allocation from stored values; its cost can exceed the maximum of documents."""
    parts: dict[str, Any] = {}
    if "load" in values:
        parts["load"] = Load.model_validate_json(json.dumps(values["load"]))
    if "pools" in values:
        parts["pools"] = tuple(_unchecked(CurrentPool, item) for item in values["pools"])
    allocation: AllocationData = _unchecked(AllocationData, {**values, **parts})
    return allocation


def _unchecked(model: type[Document], values: Mapping[str, Any]) -> Any:
    """Return a document with values by wire name, without checks."""
    names = {field.alias or name: name for name, field in model.model_fields.items()}
    given: dict[str, Any] = {names[wire]: value for wire, value in values.items()}
    return model.model_construct(_fields_set=set(given), **given)


def history_in(connection: sqlite3.Connection) -> History:
    """Read the history from a state file."""
    texts = connection.execute("SELECT document FROM events ORDER BY number")
    events = (json.loads(text) for (text,) in texts)
    plans = connection.execute("SELECT revision, made_at, packed FROM plans ORDER BY number")
    return History(tuple(map(_event, events)), tuple(starmap(KeptPlan, plans)))


def _event(values: dict[str, Any]) -> Event:
    return Event(**values | {"names": tuple(values["names"])})
