"""Progress of work in a solver process, which is reported to the web page through shared memory."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory
from typing import Self

_COUNTS = struct.Struct("qq")


class SharedProgress:
    """Progress of work, in shared memory.

    The process that waits for the work uses it as a context manager.
    """

    def __init__(self) -> None:
        """Allocate the shared memory."""
        self._memory = SharedMemory(create=True, size=_COUNTS.size)
        _COUNTS.pack_into(_bytes(self._memory), 0, 0, 0)

    @property
    def name(self) -> str:
        """Name by which the other process opens the shared memory."""
        return self._memory.name

    def counts(self) -> tuple[int, int]:
        """Return the number of finished parts and of all parts; both are 0 before they are known."""
        done, total = _COUNTS.unpack_from(_bytes(self._memory))
        return done, total

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.close()
        self._memory.unlink()


@contextmanager
def reporting(name: str) -> Iterator[Callable[[int, int], None]]:
    """Context that yields the function by which work reports the numbers of finished and of all parts.

    Args:
        name: name of the `SharedProgress`; if it is empty or no longer exists, nothing is reported.
    """
    try:
        memory = SharedMemory(name) if name else None
    except FileNotFoundError:
        memory = None
    if memory is None:
        yield lambda _done, _total: None
        return
    try:
        yield lambda done, total: _COUNTS.pack_into(_bytes(memory), 0, done, total)
    finally:
        memory.close()


def _bytes(memory: SharedMemory) -> memoryview:
    assert memory.buf is not None  # the memory is open
    return memory.buf
