"""Connections on which no request comes: they are closed in time, and never take all that there are."""

import logging
import socket
import sys
import threading
import time
from contextlib import ExitStack, suppress

import pytest
from patience import PATIENCE_S, until
from service_runs import Service, connected, in_a_thread

from rest_server import connections, logs
from rest_server.logs import LogThrottle

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


def closed(connection: socket.socket) -> bool:
    """Wait until the other side has closed a connection."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def is_healthy(connection: socket.socket) -> None:
    """Ask for the health of the service on a connection that stays."""
    connection.sendall(HEAD + b"\r\n")
    answer = b""
    while not answer.endswith(b'{"status":"ok"}'):
        answer += connection.recv(10_000)
    assert answer.startswith(b"HTTP/1.1 200 OK")


@pytest.fixture
def at_most_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow three connections, and log once that there are too many."""
    monkeypatch.setattr(connections, "_most_connections", lambda: 3)
    monkeypatch.setattr(connections.Connection, "_sparing", LogThrottle())
    monkeypatch.setattr(logs, "SPARED_S", PATIENCE_S)


def test_a_connection_without_a_request_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    begin = time.monotonic()
    with in_a_thread() as here, connected(here.port) as silent, connected(here.port) as dripping:

        def is_closed() -> bool:
            try:
                dripping.sendall(HEAD[:1])
            except (BrokenPipeError, ConnectionResetError):
                return True
            return False

        until(is_closed, 0.05)  # never, if each part of a head began its time anew
        assert closed(silent)
        assert time.monotonic() - begin >= 0.3


@pytest.mark.slow
def test_requests_one_after_the_other_keep_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", PATIENCE_S)
    with in_a_thread() as here, connected(here.port) as connection:
        for _ in range(2):
            is_healthy(connection)
            monkeypatch.setattr(connections, "HEAD_S", 0.3)  # of what comes from now on
            time.sleep(0.5)
        connection.sendall(HEAD)
        assert closed(connection)


@pytest.mark.usefixtures("at_most_three")
def test_at_the_connection_limit_the_longest_idle_one_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with in_a_thread() as here, ExitStack() as stack:
        held = [stack.enter_context(connected(here.port)) for _ in range(3)]
        for connection in (held[1], held[0]):  # the second speaks first, the third never
            is_healthy(connection)
        for gone in (held[2], held[1], held[0]):
            assert here.ask("GET", "/healthz").status == 200
            held.append(stack.enter_context(connected(here.port)))
            assert closed(gone)
        said = "too many connections: those with idle clients are closed"
        assert caplog.messages.count(said) == 1


@pytest.mark.usefixtures("at_most_three")
def test_where_all_connections_are_busy_more_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with in_a_thread({"a": threading.Event()}) as here, ExitStack() as stack:
        busy = [stack.enter_context(here.connect("/wait/a")) for _ in range(3)]
        here.until(running=1, waiting=2)
        for _ in range(5):
            with connected(here.port) as refused:
                assert closed(refused)
        assert caplog.messages.count("connections are rejected: 3 are busy") == 1
        here.events["a"].set()
        assert all(each.recv(10_000).startswith(b"HTTP/1.1 200") for each in busy)
        assert here.ask("GET", "/healthz").status == 200


def test_a_client_that_stops_reading_is_cut_off_a_slow_one_not() -> None:
    with in_a_thread(write_timeout_s=1.0) as here, socket.socket() as silent:
        here.app.add_api_route("/much", lambda: "x" * 2_000_000)
        ask_for_much(silent, here)
        until(lambda: read_in_time(here))
        time.sleep(1.5)
        assert len(everything(silent)) < 2_000_000


def ask_for_much(connection: socket.socket, here: Service) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(PATIENCE_S)
    connection.connect(("127.0.0.1", here.port))
    connection.sendall(HEAD.replace(b"/healthz", b"/much") + b"Connection: close\r\n\r\n")


def everything(connection: socket.socket) -> bytes:
    """Return what comes until the other side closes."""
    found = bytearray()
    with suppress(ConnectionResetError):
        while part := connection.recv(1_000_000):
            found += part
    return bytes(found)


def read_in_time(here: Service) -> bool:
    """Say whether a client had read much when the time for it was over; it then has all of it."""
    began = time.monotonic()
    with socket.socket() as slow:
        ask_for_much(slow, here)
        found = everything(slow)
    if time.monotonic() - began > 1:
        return False
    assert len(found) > 2_000_000
    return True


@pytest.mark.skipif(sys.platform == "win32", reason="files are not limited there")
def test_the_most_connections_leave_files_for_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    for files, most in ((200, 150), (1, 1), (resource.RLIM_INFINITY, None)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert connections._most_connections.__wrapped__() == most


def test_what_asyncio_says_again_and_again_is_logged_once() -> None:
    def record(message: str, created_s: float) -> logging.LogRecord:
        return logging.makeLogRecord({"msg": message, "created": created_s})

    sparing = LogThrottle()
    said = [
        ("out of files\nsocket 3", 0.0),
        ("out of files\nsocket 4", 9.0),
        ("other", 9.0),
        ("out of files", 11.0),
    ]
    assert [sparing.filter(record(*each)) for each in said] == [True, False, True, True]
