"""The home of numba: what compiles the state machine, and remembers the compiled code.

Only the entry points keep their compiled code on disk, beside the package where that can be written to,
else in the user's cache directory. Code under an entry comes from several files, while numba looks at the
entry's own file alone; the digest of all of them is therefore part of the name.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.event import Event, Listener, install_listener

_Function = TypeVar("_Function", bound=Callable[..., Any])

_jit: Any = partial(njit, nogil=True, error_model="numpy", _nrt=False)
"""Without checks of divisors, which are positive, and counts of references, as nothing is allocated."""


def compiled(function: _Function) -> _Function:
    """Compile a part of the machine; it is kept with the entries that call it."""
    part: _Function = _jit(function)
    return part


def entry(function: _Function) -> _Function:
    """Compile what Python calls, and keep it on disk."""
    point: Any = _jit(function)
    cached: Any = _MachineCache
    point._cache = cached(function)  # noqa: SLF001  # as numba's own enable_caching does
    kept: _Function = point
    return kept


@contextmanager
def announcing(announce: Callable[[], None]) -> Iterator[None]:
    """Call `announce` when an entry begins to compile in the body; code from the cache is not announced."""
    with install_listener("numba:compile", _Announcement(announce)):
        yield


class _Announcement(Listener):
    """Announces the first entry that compiles."""

    def __init__(self, announce: Callable[[], None]) -> None:
        self._announce: Callable[[], None] | None = announce

    def on_start(self, event: Event) -> None:
        kept = event.data["dispatcher"]._cache  # noqa: SLF001
        if self._announce is not None and isinstance(kept, _MachineCache):
            self._announce()
            self._announce = None

    def on_end(self, event: Event) -> None:
        """Do nothing at the end of it."""


class _Files(CompileResultCacheImpl):
    """Files of compiled code, named after everything that the code may be made of.

    The code of another version is thus never opened: it holds classes that may be there no longer.
    """

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        plain: Any = super()
        return f"{plain.get_filename_base(fullname, abiflags)}-{_digest()}"


class _MachineCache(FunctionCache):
    """Compiled code in files of our own naming."""

    _impl_class = _Files


@cache
def _digest() -> str:
    package = Path(__file__).parents[1]
    sources = sorted([*package.glob("*.py"), *package.glob("machine/*.py")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
