"""Attacks on a service in a process of its own, bounded in number and time: everybody else is served.

Each holds the health of the service, asked for again and again on the side, to 100 ms in the median of its
slowest tenth but never to a single moment: the machine that runs the tests has other work, too.
"""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from fastapi.testclient import TestClient
from patience import until
from service_runs import Service, Watched, connected, in_a_thread, watched
from wire_client import one_server, system, wire_client

from rest_server.limits import SMALL_BYTES, BodyLimit

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

SMALL = system(one_server("s"))
HEALTH_MS = 100.0
KEPT_MB = 50.0
Attack = tuple[Callable[[Watched, int, ExitStack], None], int]
"""A way to attack, and by how many clients."""


@contextmanager
def healthy(here: Watched, *, timed: bool) -> Iterator[None]:
    """Ask for the health, and for small plans, all the time; all must be answered.

    Among more new connections than are kept, the service may close that of somebody who is just as new. HTTP
    clients then ask again, once.
    """
    done, times_ms = threading.Event(), []

    def answered(method: str, path: str, body: Any = None) -> None:
        try:
            reply = here.ask(method, path, body)
        except ConnectionResetError:
            reply = here.ask(method, path, body)
        assert reply.status == 200

    def ask() -> None:
        while not done.is_set():
            began = time.perf_counter()
            answered("GET", "/healthz")
            times_ms.append(1e3 * (time.perf_counter() - began))
            time.sleep(0.01 if timed else 0.1)

    def plan() -> None:
        while not done.is_set():
            answered("POST", "/v1/plan", SMALL)
            time.sleep(0.05 if timed else 0.25)

    with ThreadPoolExecutor(2) as threads:
        clients = [threads.submit(ask), threads.submit(plan)]
        try:
            yield
        finally:
            done.set()
            assert [client.exception() for client in clients] == [None, None]
    slowest = sorted(times_ms)[-max(1, len(times_ms) // 10) :]
    assert not timed or median(slowest) <= HEALTH_MS, (len(times_ms), slowest)


def silent(here: Watched) -> socket.socket:
    """Ask for much, again and again on one connection, and read nothing."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.settimeout(5)
    connection.connect(("127.0.0.1", here.port))
    connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40)
    return connection


def unread(here: Watched, clients: int, stack: ExitStack) -> None:
    for _ in range(clients):
        stack.enter_context(silent(here))


def flood(here: Watched, sent: bytes, stack: ExitStack) -> None:
    """Send as much as the service takes on a connection that stays open."""
    connection = stack.enter_context(connected(here.port, patience_s=5))
    with suppress(ConnectionError, TimeoutError):
        connection.sendall(sent)


def full_bodies(here: Watched, clients: int, stack: ExitStack) -> None:
    """Send bodies of nearly 4 MiB, all but their last byte; stop where the service refuses more."""
    head = b"POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4194304\r\n\r\n"
    for _ in range(clients):
        flood(here, head + b" " * 4_194_303, stack)


def small_chunks(here: Watched, clients: int, stack: ExitStack) -> None:
    """Send a body of a million chunks of one byte, as far as it is taken."""
    head = b"POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    for _ in range(clients):
        flood(here, head + b"1\r\n \r\n" * 1_000_000, stack)


def attacked(log: Path, files: int, attacks: list[Attack], *, timed: bool) -> None:
    """Attack a service in one way after the other; its memory comes back."""
    limit_s = 2.0 if timed else 1.0
    limits = {
        "INFERPLAN_SOLVER_PROCESSES": "2",
        "INFERPLAN_WRITE_TIMEOUT_S": str(limit_s),
        "INFERPLAN_BODY_TIMEOUT_S": str(limit_s),
    }
    with watched(log, files=files, **limits) as here:
        here.until_ready()
        assert here.ask("GET", "/openapi.json").status == 200
        for _ in range(20):
            assert here.ask("POST", "/v1/plan", SMALL).status == 200
        before_mb = here.memory_mb()
        for attack, clients in attacks:
            with healthy(here, timed=timed), ExitStack() as stack:
                attack(here, clients, stack)
                time.sleep(limit_s + 0.5)
            until(lambda: here.memory_mb() - before_mb < KEPT_MB)
            assert here.ask("POST", "/v1/plan", SMALL).status == 200


@pytest.mark.slow
def test_everybody_else_is_served_and_the_memory_comes_back(tmp_path: Path) -> None:
    attacks: list[Attack] = [(unread, 100), (full_bodies, 60), (small_chunks, 5)]
    attacked(tmp_path / "log", 128, attacks, timed=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attack", "files"), [((unread, 200), 256), ((full_bodies, 300), 1024), ((small_chunks, 30), 1024)]
)
def test_nobody_else_waits_in_a_long_attack(tmp_path: Path, attack: Attack, files: int) -> None:
    attacked(tmp_path / "log", files, [attack], timed=True)


def talk(port: int, text: bytes) -> bytes:
    """Send some bytes and return everything that comes back until the other side closes."""
    with connected(port, text) as connection:
        answer = b""
        while found := connection.recv(10_000):
            answer += found
        return answer


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, -1])
def test_a_length_with_chunks_is_400_and_smuggling_fails(order: int) -> None:
    lengths = [b"Content-Length: 4", b"Transfer-Encoding: chunked"][::order]
    hidden = b"GET /addModel/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    lines = [b"POST /addServer HTTP/1.1", b"Host: localhost", *lengths, b"", b"0\r\n\r\n" + hidden]
    with in_a_thread(stateful=True) as here:
        answer = talk(here.port, b"\r\n".join(lines))
        assert answer.startswith(b"HTTP/1.1 400")
        assert answer.count(b"HTTP/1.1") == 1
        assert here.ask("GET", "/getModels").json == []


@pytest.mark.parametrize("size", [1, 16, 256])
def test_a_body_in_tiny_chunks_is_400_before_it_is_read(size: int) -> None:
    chunk = b"%x\r\n" % size + b" " * size + b"\r\n"
    head = b"POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with in_a_thread() as here:
        few = 100 if size < 256 else 150
        read = talk(here.port, head + chunk * few + b"0\r\n\r\n" + b"GET / HTTP/1.1\r\n\r\n")
        assert read.startswith(b"HTTP/1.1 422")  # an empty body, read as such
        assert talk(here.port, head + chunk * 400).startswith(b"HTTP/1.1 400")


def taken_bytes(here: Service) -> int:
    """Return how much of the memory for bodies is taken."""
    layer: Any = here.app.middleware_stack
    while not isinstance(layer, BodyLimit):
        layer = getattr(layer, "_app", None) or layer.app
    return layer._budget.taken_bytes


def test_total_body_size_is_bounded_but_small_bodies_pass() -> None:
    head = b"POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nContent-Length: 400000\r\n\r\n"
    with in_a_thread(max_bodies_bytes=500_000) as here, ExitStack() as stack:
        assert here.ask("GET", "/healthz").status == 200
        first = stack.enter_context(connected(here.port, head + b" " * 399_999))
        large = b" " * 400_000
        until(lambda: taken_bytes(here) == 399_999 - SMALL_BYTES)
        refused = here.ask("POST", "/v1/plan", large)
        assert refused.headers["retry-after"] == "5"
        assert "limit of 500,000 bytes" in refused.json["detail"]
        assert here.ask("POST", "/v1/plan", SMALL).status == 200
        first.sendall(b" ")
        assert first.recv(100).startswith(b"HTTP/1.1 422")
        assert here.ask("POST", "/v1/plan", large).status == 422


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8080", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8080", 200),
        ("127.3.4.5", 200),
        ("rebound.example", 421),
        ("localhost.example:8080", 421),
        ("127.0.0.1.example", 421),
        ("10.0.0.1", 421),
        ("", 200),
    ],
)
def test_dns_rebinding_reaches_nothing(service: TestClient, host: str, status: int) -> None:
    assert service.get("/addModel/m", headers={"Host": host}).status_code == status
    assert service.get("/getModels").json() == (["m"] if status == 200 else [])
    assert service.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("settings", "host", "status"),
    [
        ({"host": "0.0.0.0"}, "any.example", 200),  # noqa: S104  what such an address lets in
        ({"host": "0.0.0.0", "allowed_hosts": "plan.example, [::1]"}, "any.example", 421),  # noqa: S104
        ({"allowed_hosts": "plan.example, [::1]"}, "Plan.Example:8080", 200),
        ({"allowed_hosts": "plan.example, [::1]"}, "[::1]:8080", 200),
        ({"allowed_hosts": "*"}, "any.example", 200),
    ],
)
def test_hosts_are_those_of_the_settings(settings: dict[str, Any], host: str, status: int) -> None:
    client = wire_client(**settings)
    assert client.get("/getServers", headers={"Host": host}).status_code == status
