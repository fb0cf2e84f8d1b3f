"""Compilation with numba, and the cache of compiled code.

Only the entry points keep compiled code on disk: next to the package if it is writable, else in the user's
cache directory. The code of an entry point comes from several files, but numba checks only the file of the
entry point itself. So the file name includes a digest of all these files.
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
"""Compilation without reference counts, because nothing is allocated, and without checks for division by
zero.
"""
_allocating_jit: Any = partial(njit, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
"""Compilation of functions that allocate arrays."""


def compiled(function: _Function) -> _Function:
    """Compile an internal function that only compiled code calls.

    It is cached together with the entry points that call it.
    """
    part: _Function = _for_any_number(_jit(function, no_cpython_wrapper=True))
    return part


def inlined(function: _Function) -> _Function:
    """Compile an internal function, like `compiled`, and inline it into its callers."""
    part: _Function = _for_any_number(_jit(function, no_cpython_wrapper=True, forceinline=True))
    return part


def compiled_with_arrays(function: _Function) -> _Function:
    """Compile an internal function that allocates arrays, like `compiled`."""
    part: _Function = _for_any_number(_allocating_jit(function, no_cpython_wrapper=True))
    return part


def entry(function: _Function) -> _Function:
    """Compile an entry point, a function that Python calls, and cache it on disk."""
    return _kept(_jit(function))


def entry_with_arrays(function: _Function) -> _Function:
    """Compile an entry point that allocates arrays, and cache it on disk."""
    return _kept(_allocating_jit(function))


def _for_any_number(part: Any) -> Any:
    """Make numba compile a function once for all integers, not again for each literal argument."""
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
    """Context that calls `announce` when an entry point starts to compile.

    Loading cached code is not announced.
    """
    with install_listener("numba:compile", _Announcement(announce)):
        yield


class _Announcement(Listener):
    """Listener that announces the first entry point that compiles."""

    def __init__(self, announce: Callable[[], None]) -> None:
        self._announce: Callable[[], None] | None = announce

    def on_start(self, event: Event) -> None:
        kept = event.data["dispatcher"]._cache  # noqa: SLF001
        if self._announce is not None and isinstance(kept, _MachineCache):
            self._announce()
            self._announce = None

    def on_end(self, event: Event) -> None:
        """Do nothing; numba's listener interface requires this method."""


class _Files(CompileResultCacheImpl):
    """Cache files whose names depend on all sources of the compiled code.

    So code of another version is never loaded: it could refer to classes that no longer exist.
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
    """Cache of compiled code that uses the file names of `_Files`."""

    _impl_class = _Files


@cache
def _digest(folder: Path) -> str:
    """Return a digest of the sources of a package of compiled code, and of the common modules it uses.

    Modules of other packages that compile nothing are ignored, because they do not affect the compiled code.
    """
    here = Path(__file__).parent
    texts = [path.read_bytes() for path in sorted(here.parent.glob("*.py"))]
    mine = [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    texts += [text for text in mine if folder == here or b"machine.compiling" in text]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:16]
