"""Connections: how long a client may keep one waiting, how many there may be, and what may come over them.

uvicorn times what comes after a request; this adds what comes before one and what is not read after one, so
that clients that do nothing cannot take every file descriptor, and refuses what no honest client sends
before anything of it reaches the application.
"""

import asyncio
import logging
import socket
import sys
from functools import cache
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from rest_server.logs import SERVICE, LogThrottle
from rest_server.settings import Settings, load_settings

HEAD_S = 15.0
"""Time limit for the head of a connection's first request, or of one that has started [s]."""
SHARE_OF_FILES = 0.75
"""Share of the files that the process may open that may be connections."""
SEND_BUFFER_BYTES = 128 * 2**10
"""Send buffer for a client that does not read; the system's default is megabytes for each."""
FREE_CHUNKS = 100
"""Chunks of a body that may be of any size."""
MEAN_CHUNK_BYTES = 512
"""Mean size of the chunks that come after those; each takes as long to read, whatever its size [bytes]."""


class _StrictH11Connection(h11.Connection):
    """A parser that refuses what is read in two ways, and what takes long to read."""

    _chunks = 0
    _chunk_bytes = 0

    def next_event(self) -> Any:
        """Return the next event.

        Raises:
            RemoteProtocolError: it breaks the protocol, or is refused here.
        """
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._chunk_bytes = 0
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
                raise h11.RemoteProtocolError("both a length and chunks: the end of the body is ambiguous")
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            self._chunk_bytes += len(event.data)
            if self._chunks > FREE_CHUNKS + self._chunk_bytes / MEAN_CHUNK_BYTES:
                raise h11.RemoteProtocolError("the chunks are too small")
        return event


class Connection(H11Protocol):
    """A connection that is closed if the head of a request does not come, or the answer is not read, in time.

    At the connection limit, the one that has waited longest for its client is closed for a new one.
    """

    _sparing = LogThrottle()
    """Keeps the log from saying of every one that it is refused."""

    def __init__(self, *arguments: Any, settings: Settings | None = None, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn = _StrictH11Connection(h11.SERVER)
        self._write_s = (settings or load_settings()).write_timeout_s
        self._due: asyncio.TimerHandle | None = None
        self._read_due: asyncio.TimerHandle | None = None
        self._clients_turn_at = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Accept a connection; at the limit, close the one that waits longest for its client."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # to be told of everything that is not read
        opened = transport.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        most = _most_connections()
        if most is not None and len(self.connections) > most and not self._made_room():
            transport.abort()
            if self._sparing.allows("refused", self.loop.time()):
                logging.getLogger(SERVICE).warning("connections are refused, as %d are busy", most)
            return
        self._watch()

    def _made_room(self) -> bool:
        """Close the connection that has waited longest for its client; return whether there was one."""
        others = (each for each in self.connections if isinstance(each, Connection) and each is not self)
        waiting = [each for each in others if each.waits and not each.transport.is_closing()]
        if not waiting:
            return False
        if self._sparing.allows("closed", self.loop.time()):
            logging.getLogger(SERVICE).warning("too many connections: those with idle clients are closed")
        oldest = min(waiting, key=lambda each: each._clients_turn_at)  # noqa: SLF001  its own class
        oldest.transport.abort()
        self.connections.discard(oldest)  # now: many new ones may come before it is told
        return True

    @property
    def waits(self) -> bool:
        """Whether the connection waits for its client to send or to read."""
        return self._read_due is not None or self.conn.their_state in {h11.IDLE, h11.SEND_BODY}

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._unwatch()
        super().connection_lost(exc)
        self._forget_unread()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        self._clients_turn_at = self.loop.time()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._due is None:
            self._watch()

    def on_response_complete(self) -> None:
        """Note that the next request may come."""
        self._clients_turn_at = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read and close, also where an answer is on its way already."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Note that an answer waits to be read, and how long it may."""
        super().pause_writing()
        if self._read_due is None:
            self._clients_turn_at = self.loop.time()
            self._read_due = self.loop.call_later(self._write_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Note that everything has been read."""
        super().resume_writing()
        self._forget_unread()

    def _forget_unread(self) -> None:
        if self._read_due is not None:
            self._read_due.cancel()
            self._read_due = None

    def _watch(self) -> None:
        self._due = self.loop.call_later(HEAD_S, self.transport.abort)

    def _unwatch(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


@cache
def _most_connections() -> int | None:
    """Return the largest number of connections that leaves enough file descriptors; None if unlimited."""
    if sys.platform == "win32":
        return None
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if files == resource.RLIM_INFINITY else max(1, int(files * SHARE_OF_FILES))
