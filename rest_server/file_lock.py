"""Lock on a file that lasts until this process ends or releases it."""

import os
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # on Windows, where SQLite's own lock prevents other writers
    fcntl = None  # type: ignore[assignment]


class InUseError(Exception):
    """Raised when another process has locked the file."""


class FileLock:
    """An exclusive lock on a file.

    Closing any descriptor of a file releases SQLite's own locks on it, so release this lock only after
    closing the connection.
    """

    def __init__(self, path: Path, user: str = "service") -> None:
        """Prepare a lock on a file.

        Args:
            path: the file.
            user: word for the processes that use the file, for messages.
        """
        self._path = path
        self._user = user
        self._descriptor: int | None = None
        self.writable = False

    def take(self) -> None:
        """Open the file, creating it if necessary, and lock it.

        Raises:
            InUseError: another process has the lock.
            OSError: the file cannot be opened.
        """
        if self._descriptor is not None:
            return
        descriptor = self._opened()
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise InUseError(f"in use by another {self._user}; stop it, or name another file") from None
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _opened(self) -> int:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self.writable = True
        except OSError:
            if not self._path.is_file():
                raise
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            self.writable = False
        return descriptor

    @property
    def size_bytes(self) -> int:
        """Size of the file [bytes]."""
        return 0 if self._descriptor is None else os.fstat(self._descriptor).st_size

    @property
    def holds_path(self) -> bool:
        """Whether the path still refers to the locked file."""
        with suppress(OSError):
            return self._descriptor is not None and os.path.samestat(
                os.fstat(self._descriptor), self._path.stat()
            )
        return False

    def release(self) -> None:
        """Release the lock."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
