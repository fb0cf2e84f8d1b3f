"""Opens a state file: creates a new file, reads one of inferplan, or rejects any other file unchanged.

All checks use a copy of the file, because opening a database can already change it. A lock prevents a second
service from using the file.
"""

import contextlib
import logging
import secrets
import shutil
import sqlite3
import tempfile
from pathlib import Path

from optimizer.errors import SpecError, reason_of
from optimizer.stabilisation.rules import Rules
from rest_server.file_lock import FileLock, InUseError
from rest_server.journal import FileJournal
from rest_server.logs import SERVICE
from rest_server.state import FleetStore, Snapshot
from rest_server.state_rows import APPLICATION_ID, SCHEMA_VERSION, TABLES, read_snapshot

_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_VERSION_AT, _APPLICATION_AT = 60, 68
_BESIDE = ("-wal", "-journal")
"""Suffixes of the files that SQLite leaves next to the state file after an interruption."""


def open_state(path: Path, rules: Rules | None = None) -> FleetStore:
    """Open a state file, and return its fleet and last plan; every later change is written to the file.

    Args:
        path: the file, created if missing.
        rules: stabilisation rules between plans and desired replicas; None if there are none.

    Raises:
        SpecError: the file cannot be read or created, belongs to another program or a newer version, is
            damaged, or is in use by another service; it is not changed.
    """
    shown = f"--state {path}"
    lock = FileLock(path)
    try:
        with contextlib.ExitStack() as undo:
            undo.callback(lock.release)
            lock.take()
            if not lock.size_bytes:
                _make(path)
            instance, snapshot = _read(path, shown)
            undo.pop_all()
    except InUseError as error:
        raise SpecError(f"{shown}: {error}") from None
    except OSError as error:
        raise SpecError(f"{shown}: {reason_of(error)}; name another file") from None
    except sqlite3.Error as error:
        raise SpecError(f"{shown}: a state file cannot be created here: {error}") from None
    if not lock.writable:
        logging.getLogger(SERVICE).warning("%s: read-only; requests that change the fleet will fail", shown)
    return FleetStore(instance=instance, resumed=snapshot, journal=FileJournal(path, lock), rules=rules)


def _make(path: Path) -> None:
    """Create a state file with an empty fleet atomically."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=EXTRA")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        for table in TABLES:
            connection.execute(table)
        row = "INSERT INTO fleet (only, instance, revision, changed_at, decisions) VALUES (0, ?, 0, 0, '')"
        connection.execute(row, (secrets.token_hex(4),))
        connection.execute("COMMIT")


def _read(path: Path, shown: str) -> tuple[str, Snapshot]:
    """Return the instance and the last snapshot in a state file, read from a copy of the file.

    Raises:
        SpecError: the file is not a state file, or this version cannot read it.
        OSError: the file cannot be read.
    """
    _check_header(path, shown)
    with tempfile.TemporaryDirectory(prefix="inferplan-") as place:
        copy = Path(place) / "state"
        shutil.copyfile(path, copy)
        for suffix in _BESIDE:
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        try:
            with contextlib.closing(sqlite3.connect(copy)) as connection:
                return _snapshot(connection)
        except (sqlite3.Error, ValueError, TypeError, KeyError, ArithmeticError) as error:
            problem = f"damaged; left untouched ({' '.join(str(error).split())[:200]})"
            raise SpecError(f"{shown}: {problem}; restore a copy, or name another file") from None


def _check_header(path: Path, shown: str) -> None:
    """Check that a file is a state file, and that this version can read it.

    Raises:
        SpecError: the file is not a state file, or is of a later version.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if not header.startswith(_MAGIC) or len(header) < _HEADER_BYTES:
        raise SpecError(f"{shown}: not a state file of inferplan; left untouched; name another file")
    if int.from_bytes(header[_APPLICATION_AT : _APPLICATION_AT + 4]) != APPLICATION_ID:
        raise SpecError(f"{shown}: a database of another program; left untouched; name another file")
    version = int.from_bytes(header[_VERSION_AT : _VERSION_AT + 4])
    if version < SCHEMA_VERSION:
        raise SpecError(
            f"{shown}: version {version} of state files, whose plans an older inferplan wrote; left "
            "untouched; name a new file, put the fleet and plan again"
        )
    if version > SCHEMA_VERSION:
        raise SpecError(
            f"{shown}: version {version} of state files, written by a newer inferplan; this one reads up to "
            f"{SCHEMA_VERSION}; start the newer one, or name another file"
        )


def _snapshot(connection: sqlite3.Connection) -> tuple[str, Snapshot]:
    (sound,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if sound != "ok":
        raise ValueError(sound)
    return read_snapshot(connection)
