"""State file of the control loop: what survives a restart, for one loop at a time.

A file beside it is locked while a loop runs. The state file also has the random part of the loop's identity,
so that a restarted loop still holds its Lease, and a loop with another state file is another loop.
"""

import contextlib
import json
import secrets
from pathlib import Path
from typing import Any

from optimizer.errors import SpecError, reason_of
from optimizer.schema.files import read_text
from optimizer.spec.writing import write_text
from rest_server.file_lock import FileLock, InUseError
from rest_server.loop.deciding import LoopState
from rest_server.loop.records import json_object, state_of, state_values

SUFFIX = "identity"
"""Key of the random part of the loop's identity."""


def new_suffix() -> str:
    """Return a random part for the identity of a loop."""
    return secrets.token_hex(4)


class StateFile:
    """State of one loop in a file, read when it is opened and written in every cycle."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Open a state file, and lock it; it is created if it does not exist.

        Args:
            path: the file.
            read_only: whether the file is neither locked nor written.

        Raises:
            SpecError: the file cannot be read or written, is no state file, or another loop uses it.
        """
        self._path = path
        self._read_only = read_only
        shown = f"--state {path}"
        if path.is_dir():
            raise SpecError(f"{shown}: is a directory; name another file")
        self._lock = FileLock(path.with_name(f"{path.name}.lock"), "loop")
        with contextlib.ExitStack() as undo:
            undo.callback(self._lock.release)
            try:
                if not read_only:
                    self._lock.take()
                there = path.exists()
            except InUseError as error:
                raise SpecError(f"{shown}: {error}") from None
            except OSError as error:
                raise SpecError(f"{shown}: {reason_of(error)}; name another file") from None
            self.state, self.suffix = _read(path) if there else (LoopState(), new_suffix())
            self.write(self.state)
            undo.pop_all()

    def write(self, state: LoopState) -> None:
        """Write the state so that a crash leaves the old or the new state.

        Raises:
            SpecError: the file cannot be written.
        """
        if not self._read_only:
            write_text(json.dumps({**state_values(state), SUFFIX: self.suffix}) + "\n", self._path)
            self.state = state

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()


def _read(path: Path) -> tuple[LoopState, str]:
    """Return the state and the random part of the identity in a file.

    Raises:
        SpecError: the file cannot be read, or is no state file.
    """
    values: dict[str, Any] = json_object(read_text(path), str(path))
    suffix = values.pop(SUFFIX, None) or new_suffix()
    if not isinstance(suffix, str):
        raise SpecError(f"{path}: {SUFFIX}: must be text; remove the file to start anew")
    return state_of(values, str(path)), suffix
