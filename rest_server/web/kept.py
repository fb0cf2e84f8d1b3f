"""Results of the web page, kept so that a reload or undo computes nothing again."""

import hashlib
from collections import OrderedDict
from typing import Any

from rest_server.web.changes import Changes

MAX_KEPT = 64
"""Maximum number of results that are kept; beyond it, the least recently used one is dropped."""
_Key = tuple[str, bytes, tuple[tuple[str, str], ...]]


class KeptResults:
    """Results by the work that computed them, by document and by changes."""

    def __init__(self, size: int = MAX_KEPT) -> None:
        """Create the object without results.

        Args:
            size: maximum number of results.
        """
        self._size = size
        self._results: OrderedDict[_Key, Any] = OrderedDict()

    def find(self, work: str, base: bytes, changes: Changes) -> Any:
        """Return the result of work on a document with changes; None if it is not kept.

        Args:
            work: name of the work.
            base: the document as JSON.
            changes: changes of the document.
        """
        key = _key(work, base, changes)
        if key in self._results:
            self._results.move_to_end(key)
        return self._results.get(key)

    def keep(self, work: str, base: bytes, changes: Changes, result: object) -> None:
        """Keep the result of work on a document with changes; the arguments are those of `find`."""
        self._results[_key(work, base, changes)] = result
        while len(self._results) > self._size:
            self._results.popitem(last=False)


def _key(work: str, base: bytes, changes: Changes) -> _Key:
    return work, hashlib.sha256(base).digest(), tuple(changes.given.items())
