"""Limits on connections: idle time, number of connections, and malformed requests.

uvicorn limits the time between requests. This module also limits the time before a request and the time for
reading a response, so that inactive clients cannot use up all file descriptors. It rejects requests that no
legitimate client sends before they reach the application.
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
"""Time limit for receiving the head of a connection's first request, or of a request that has started [s]."""
SHARE_OF_FILES = 0.75
"""Maximum fraction of the process's file descriptors that connections can use."""
SEND_BUFFER_BYTES = 128 * 2**10
"""Size of the send buffer for slow readers [bytes]; the system's default is megabytes per connection."""
FREE_CHUNKS = 100
"""Number of chunks of a body whose size is not limited."""
MEAN_CHUNK_BYTES = 512
"""Minimum mean size of further chunks [bytes], because each chunk takes equally long to read."""


class _StrictH11Connection(h11.Connection):
    """A parser of HTTP requests that rejects ambiguous requests, and requests that take long to read."""

    _chunks = 0
    _chunk_bytes = 0

    def next_event(self) -> Any:
        """Return the next event of the connection.

        Raises:
            RemoteProtocolError: the event breaks the protocol, or is rejected here.
        """
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._chunk_bytes = 0
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
                raise h11.RemoteProtocolError("Content-Length and chunks: the end of the body is ambiguous")
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            self._chunk_bytes += len(event.data)
            if self._chunks > FREE_CHUNKS + self._chunk_bytes / MEAN_CHUNK_BYTES:
                raise h11.RemoteProtocolError("the chunks are too small")
        return event


class Connection(H11Protocol):
    """A connection that is closed if the head of a request is not received, or a response not read, in time.

    At the connection limit, a new connection replaces the one that has waited longest for its client.
    """

    _sparing = LogThrottle()
    """Limits how often log messages about rejected connections are repeated."""

    def __init__(self, *arguments: Any, settings: Settings | None = None, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.conn = _StrictH11Connection(h11.SERVER)
        self._write_s = (settings or load_settings()).write_timeout_s
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._clients_turn_at = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Accept a connection; at the limit, close the one that has waited longest for its client."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that everything unread is reported
        opened = transport.get_extra_info("socket")
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        most = _most_connections()
        if most is not None and len(self.connections) > most and not self._made_room():
            transport.abort()
            if self._sparing.allows("refused", self.loop.time()):
                logging.getLogger(SERVICE).warning("connections are rejected: %d are busy", most)
            return
        self._start("head", HEAD_S)

    def _made_room(self) -> bool:
        """Close the connection that has waited longest for its client, and return whether there was one."""
        others = (each for each in self.connections if isinstance(each, Connection) and each is not self)
        waiting = [each for each in others if each.waits and not each.transport.is_closing()]
        if not waiting:
            return False
        if self._sparing.allows("closed", self.loop.time()):
            logging.getLogger(SERVICE).warning("too many connections: those with idle clients are closed")
        oldest = min(waiting, key=lambda each: each._clients_turn_at)  # noqa: SLF001  its own class
        oldest.transport.abort()
        self.connections.discard(oldest)  # immediately, because many new ones can arrive before the callback
        return True

    @property
    def waits(self) -> bool:
        """Whether the connection is waiting for its client to send or to read."""
        return "read" in self._timers or self.conn.their_state in {h11.IDLE, h11.SEND_BODY}

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove a closed connection."""
        self._stop("head")
        super().connection_lost(exc)
        self._stop("read")

    def data_received(self, data: bytes) -> None:
        """Process received data."""
        self._clients_turn_at = self.loop.time()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop("head")
        else:
            self._start("head", HEAD_S)

    def on_response_complete(self) -> None:
        """Start waiting for the next request, with a time limit."""
        self._clients_turn_at = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Reject an unreadable request and close the connection, even if a response is in progress."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Start the time limit for the client to read a response."""
        super().pause_writing()
        if "read" not in self._timers:
            self._clients_turn_at = self.loop.time()
            self._start("read", self._write_s)

    def resume_writing(self) -> None:
        """End the time limit for the client to read a response."""
        super().resume_writing()
        self._stop("read")

    def _start(self, what: str, limit_s: float) -> None:
        """Close the connection after a time, unless the time limit is stopped before or already runs."""
        if what not in self._timers:
            self._timers[what] = self.loop.call_later(limit_s, self.transport.abort)

    def _stop(self, what: str) -> None:
        timer = self._timers.pop(what, None)
        if timer is not None:
            timer.cancel()


@cache
def _most_connections() -> int | None:
    """Return the maximum number of connections that leaves enough file descriptors; None if unlimited."""
    if sys.platform == "win32":
        return None
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if files == resource.RLIM_INFINITY else max(1, int(files * SHARE_OF_FILES))
