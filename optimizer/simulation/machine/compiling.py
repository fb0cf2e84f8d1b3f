"""Compilation with numba, and the cache of compiled code.

Only the entry points keep their compiled code on disk, next to the package if it is writable, otherwise in
the user's cache directory. Code under an entry comes from several files, but numba checks only the entry's
own file; the digest of all of them is therefore part of the file name.
"""

import hashlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.event import Event, Listener, install_listener
from numba.core.types import unliteral

_Function = TypeVar("_Function", bound=Callable[..., Any])

_jit: Any = partial(njit, nogil=True, error_model="numpy", no_cfunc_wrapper=True, _nrt=False)
"""Compilation without checks of divisors, which are positive, or reference counts, as nothing is
allocated.
"""
_allocating_jit: Any = partial(njit, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
"""Compilation of functions that allocate arrays."""


def compiled(function: _Function) -> _Function:
    """Compile an internal function; it is cached with the entries that call it, and Python cannot call it."""
    part: _Function = _for_any_number(_jit(function, no_cpython_wrapper=True))
    return part


def inlined(function: _Function) -> _Function:
    """Compile an internal function, like `compiled`, as a part of its callers."""
    part: _Function = _for_any_number(_jit(function, no_cpython_wrapper=True, forceinline=True))
    return part


def compiled_with_arrays(function: _Function) -> _Function:
    """Compile an internal function, like `compiled`, that allocates arrays."""
    part: _Function = _for_any_number(_allocating_jit(function, no_cpython_wrapper=True))
    return part


def entry(function: _Function) -> _Function:
    """Compile a function called from Python, and cache it on disk."""
    return _kept(_jit(function))


def entry_with_arrays(function: _Function) -> _Function:
    """Compile a function called from Python that allocates arrays, and cache it on disk."""
    return _kept(_allocating_jit(function))


def _for_any_number(part: Any) -> Any:
    """Compile a function once for all integers; numba otherwise compiles it again for each literal."""
    template = part.get_call_template

    def of_types(args: Sequence[Any], keywords: dict[str, Any]) -> Any:
        plain = {name: unliteral(value) for name, value in keywords.items()}
        return template([unliteral(value) for value in args], plain)

    part.get_call_template = of_types
    return part


def _kept(point: Any) -> Any:
    cached: Any = _MachineCache
    point._cache = cached(point.py_func)  # noqa: SLF001  # as numba's own enable_caching does
    return point


@contextmanager
def announcing(announce: Callable[[], None]) -> Iterator[None]:
    """Context that calls `announce` when an entry starts to compile; cached code is not announced."""
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
        """Do nothing."""


class _Files(CompileResultCacheImpl):
    """Cache files named after all sources that the code can depend on.

    Code of another version is thus never loaded: it can refer to classes that no longer exist.
    """

    def __init__(self, py_func: Callable[..., Any]) -> None:
        self._folder = Path(
            inspect.getfile(py_func)
        ).parent  # the base class needs the name in its constructor
        plain: Any = super()
        plain.__init__(py_func)

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        plain: Any = super()
        return f"{plain.get_filename_base(fullname, abiflags)}-{_digest(self._folder)}"


class _MachineCache(FunctionCache):
    """Compiled code in files with our own names."""

    _impl_class = _Files


@cache
def _digest(folder: Path) -> str:
    """Return a digest of the sources of a package of compiled code, and of its common base.

    Other packages' modules that compile nothing are ignored, because changing them leaves the code as it is.
    """
    here = Path(__file__).parent
    texts = [path.read_bytes() for path in sorted(here.parent.glob("*.py"))]
    mine = [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    texts += [text for text in mine if folder == here or b"machine.compiling" in text]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:16]
