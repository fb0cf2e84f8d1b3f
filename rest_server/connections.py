"""Connections that send no request: how long they may stay, and how many there may be.

uvicorn times what comes after a request; this adds what comes before one, so that connections on which
nothing happens cannot take every file descriptor.
"""

import asyncio
import logging
import sys
from functools import cache
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from rest_server.logs import SERVICE, Sparing

HEAD_S = 15.0
"""How long a connection may take to send the head of its first request, or of one that it has begun [s]."""
SHARE_OF_FILES = 0.75
"""Share of the files that the process may open that may be connections."""


class Connection(H11Protocol):
    """A connection that is closed if the head of a request does not come in time."""

    _sparing = Sparing()
    """Keeps the log from saying of every one that it is refused."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Take a connection, or refuse it where there are too many."""
        super().connection_made(transport)
        most = _most_connections()
        if most is not None and len(self.connections) > most:
            transport.abort()
            if self._sparing.allows("refused", self.loop.time()):
                logging.getLogger(SERVICE).warning("connections are refused, as %d are open", most)
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._due is None:
            self._watch()

    def _watch(self) -> None:
        self._due = self.loop.call_later(HEAD_S, self.transport.abort)

    def _unwatch(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


@cache
def _most_connections() -> int | None:
    """Return how many connections leave files for everything else; none: any number."""
    if sys.platform == "win32":
        return None
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if files == resource.RLIM_INFINITY else max(1, int(files * SHARE_OF_FILES))
