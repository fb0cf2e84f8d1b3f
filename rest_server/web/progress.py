"""Progress of work in a solver process, told to the page through a few bytes of shared memory."""

import struct
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from typing import Self

_COUNTS = struct.Struct("qq")


class SharedProgress:
    """How many of how many parts of some work are done; used in a ``with`` statement by who waits for it."""

    def __init__(self) -> None:
        """Take the memory."""
        self._memory = SharedMemory(create=True, size=_COUNTS.size)
        self._memory.buf[: _COUNTS.size] = _COUNTS.pack(0, 0)

    @property
    def name(self) -> str:
        """Name by which the other process finds it."""
        return self._memory.name

    def counts(self) -> tuple[int, int]:
        """Return how many parts are done, and how many there are; 0 of 0 before that is known."""
        done, total = _COUNTS.unpack(self._memory.buf[: _COUNTS.size])
        return done, total

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.close()
        self._memory.unlink()


def teller(name: str) -> Callable[[int, int], None]:
    """Return the function by which a solver process tells its progress; it does nothing without a name."""
    if not name:
        return lambda _done, _total: None

    def tell(done: int, total: int) -> None:
        try:
            memory = SharedMemory(name)
        except FileNotFoundError:
            return  # the page has stopped waiting
        memory.buf[: _COUNTS.size] = _COUNTS.pack(done, total)
        memory.close()

    return tell
