"""Connections on which no request comes: they are closed in time, and never take all that there are."""

import logging
import socket
import sys
import time

import pytest
from service_runs import Service, in_a_thread

from rest_server import connections
from rest_server.logs import Sparing

HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


def opened(here: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", here.port), timeout=10)


def closed(connection: socket.socket) -> bool:
    """Wait until the other side has closed a connection, or 10 s."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_connection_without_a_request_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    with in_a_thread() as here, opened(here) as silent, opened(here) as dripping:
        begin = time.monotonic()
        while time.monotonic() - begin < 0.2:
            dripping.sendall(HEAD[:1])
            time.sleep(0.05)
        assert closed(silent)
        assert closed(dripping)
        assert 0.25 < time.monotonic() - begin < 5


def test_requests_one_after_the_other_keep_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    with in_a_thread() as here, opened(here) as connection:
        for _ in range(2):
            connection.sendall(HEAD + b"\r\n")
            answer = b""
            while not answer.endswith(b'{"status":"ok"}'):
                answer += connection.recv(10_000)
            assert answer.startswith(b"HTTP/1.1 200 OK")
            time.sleep(0.5)
        connection.sendall(HEAD)
        assert closed(connection)


def test_over_the_most_connections_more_are_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "_most_connections", lambda: 3)
    monkeypatch.setattr(connections.Connection, "_sparing", Sparing())
    with in_a_thread() as here:
        held = [opened(here) for _ in range(3)]
        for _ in range(5):
            with opened(here) as refused:
                assert closed(refused)
        assert caplog.messages.count("connections are refused, as 3 are open") == 1
        for connection in held:
            connection.close()
        while True:
            try:
                assert here.ask("GET", "/healthz").status == 200
                break
            except ConnectionResetError:
                time.sleep(0.02)


@pytest.mark.skipif(sys.platform == "win32", reason="files are not limited there")
def test_the_most_connections_leave_files_for_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    for files, most in ((200, 150), (1, 1), (resource.RLIM_INFINITY, None)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert connections._most_connections.__wrapped__() == most


def test_what_asyncio_says_again_and_again_is_logged_once() -> None:
    def record(message: str, created_s: float) -> logging.LogRecord:
        return logging.makeLogRecord({"msg": message, "created": created_s})

    sparing = Sparing()
    said = [
        ("out of files\nsocket 3", 0.0),
        ("out of files\nsocket 4", 9.0),
        ("other", 9.0),
        ("out of files", 11.0),
    ]
    assert [sparing.filter(record(*each)) for each in said] == [True, False, True, True]
