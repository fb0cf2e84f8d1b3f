"""Writes every snapshot of a fleet to its state file, in one durable transaction each.

SQLite syncs its write-ahead log (WAL) before a transaction is committed (``synchronous=FULL``). Only
differences are written. If a write fails, the file and the fleet stay unchanged.
"""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

from optimizer.errors import InferplanError
from rest_server.differences import SectionDiff, fleet_sections
from rest_server.file_lock import FileLock, InUseError
from rest_server.fleet import Key
from rest_server.history import MAX_EVENTS
from rest_server.state import Snapshot
from rest_server.state_rows import decisions_text, document_text, event_text, key_text, read_positions

BUSY_S = 5.0
"""Maximum time to wait for another process that uses the file [s]."""
_FULL = "SQLITE_FULL"


class StateNotWrittenError(InferplanError):
    """Raised when a change cannot be written to the state file, so that it is not made."""

    http_status = 503
    retry_after_s = 10

    def __init__(self, path: Path, problem: str, *, full: bool = False) -> None:
        super().__init__(f"the change is not made: {path.name} cannot be written: {problem}")
        if full:
            self.http_status = 507


class FileJournal:
    """The state file of a fleet, open for writing."""

    def __init__(self, path: Path, lock: FileLock) -> None:
        """Prepare for writing to a state file.

        Args:
            path: the file, which has already been read.
            lock: the lock on the file, already acquired.
        """
        self._path = path
        self._lock = lock
        self._connection: sqlite3.Connection | None = None
        self._positions: dict[str, dict[Key, int]] = {}

    def write(self, before: Snapshot, after: Snapshot) -> None:
        """Write the differences between two snapshots.

        Raises:
            StateNotWrittenError: the disk is full, or the file cannot be written; nothing was written.
        """
        try:
            connection = self._opened()
            positions = dict(self._positions)
            connection.execute("BEGIN IMMEDIATE")
            _check_revision(connection, before.revision)
            for section in fleet_sections(before.entities, after.entities):
                positions[section.name] = _write_section(connection, section, positions.get(section.name, {}))
            _write_rest(connection, before, after)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._give_up()
            full = getattr(error, "sqlite_errorname", "") == _FULL
            raise StateNotWrittenError(self._path, str(error), full=full) from None
        self._positions = positions

    def _opened(self) -> sqlite3.Connection:
        """Return the open connection to the file.

        Raises:
            StateNotWrittenError: the file is no longer at its path.
        """
        try:
            self._lock.take()
        except (OSError, InUseError) as error:
            raise sqlite3.OperationalError(str(error)) from None
        if not self._lock.holds_path:
            raise sqlite3.OperationalError("the file is gone or replaced; restart the service")
        if self._connection is None:
            self._connection = open_for_writing(self._path)
            self._positions = read_positions(self._connection)
        return self._connection

    def _give_up(self) -> None:
        """Roll back the transaction; if that fails, close the file, so that the next write opens it again."""
        connection = self._connection
        try:
            if connection is not None and connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        self._disconnect()
        self._lock.release()


def _check_revision(connection: sqlite3.Connection, revision: int) -> None:
    """Check that no other process has written to the file.

    Raises:
        StateNotWrittenError: the file is at another revision.
    """
    (written,) = connection.execute("SELECT revision FROM fleet").fetchone()
    if written != revision:
        raise sqlite3.OperationalError(f"it is at revision {written}, not {revision}; restart the service")


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Open a state file, and lock it against other writers."""
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _write_section(
    connection: sqlite3.Connection, section: SectionDiff, positions: Mapping[Key, int]
) -> dict[Key, int]:
    """Write the changes of a section, and return the new position of each item.

    Items are stored in order of arrival. If that order has changed, all items are written again.
    """
    gone = set(section.removed())
    placed = {key: place for key, place in positions.items() if key not in gone}
    free = max(placed.values(), default=-1) + 1
    items = section.items()
    for key in items:
        if key not in placed:
            placed[key] = free
            free += 1
    changed: Iterable[Key] = list(section.put())
    if not _in_order(items, placed):
        placed |= {key: free + i for i, key in enumerate(items)}
        changed = items
    connection.executemany(
        "DELETE FROM items WHERE section = ? AND key = ?", ((section.name, key_text(key)) for key in gone)
    )
    connection.executemany(
        "INSERT OR REPLACE INTO items (section, key, position, document) VALUES (?, ?, ?, ?)",
        ((section.name, key_text(key), placed[key], document_text(items[key])) for key in changed),
    )
    return placed


def _in_order(keys: Iterable[Key], placed: Mapping[Key, int]) -> bool:
    """Return whether keys are in the order of their positions.

    Profiles are ordered only within their model.
    """
    last: dict[Key, int] = {}
    for key in keys:
        owner = key[:-1]
        if placed[key] < last.get(owner, -1):
            return False
        last[owner] = placed[key]
    return True


def _write_rest(connection: sqlite3.Connection, before: Snapshot, after: Snapshot) -> None:
    """Write the revision, and the new entries of the history."""
    connection.execute("UPDATE fleet SET revision = ?, changed_at = ?", (after.revision, after.changed_at))
    known = attrgetter("decisions", "replicas", "loads_sent_at")
    if any(new is not old for new, old in zip(known(after), known(before), strict=True)):
        connection.execute("UPDATE fleet SET decisions = ?", (decisions_text(after),))
    last = before.history.number
    new = [event for event in after.history.events if event.number > last]
    rows = ((item.number, event_text(item)) for item in new)
    connection.executemany("INSERT INTO events (number, document) VALUES (?, ?)", rows)
    connection.execute("DELETE FROM events WHERE number <= ?", (after.history.number - MAX_EVENTS,))
    plans, kept = {item.revision: item for item in before.history.plans}, set()
    for item in after.history.plans:
        kept.add(item.revision)
        if plans.get(item.revision) is not item:
            connection.execute("DELETE FROM plans WHERE revision = ?", (item.revision,))
            connection.execute(
                "INSERT INTO plans (number, revision, made_at, packed) "
                "VALUES ((SELECT coalesce(max(number), 0) + 1 FROM plans), ?, ?, ?)",
                (item.revision, item.made_at, item.packed),
            )
    gone = [(revision,) for revision in plans if revision not in kept]
    connection.executemany("DELETE FROM plans WHERE revision = ?", gone)
