"""A service whose processes die, cannot be started, or are busy: what its clients see, and how it ends."""

import http.client
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from patience import PATIENCE_S, until
from service_runs import ROOT, Watched, alive, connected, in_a_thread, watched
from wire_client import one_server, slow_system, system

from rest_server.settings import Settings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

SMALL = json.dumps(system(one_server("s"))).encode()


EXPLAINED = json.dumps(slow_system(1000)).encode()
"""A system that takes minutes to explain."""


@pytest.mark.slow
@pytest.mark.parametrize("kills", [4, pytest.param(36, marks=pytest.mark.slow)])
def test_nobody_notices_that_processes_are_killed(tmp_path: Path, kills: int) -> None:
    statuses: list[list[int]] = [[] for _ in range(4)]
    done = threading.Event()

    def client(here: Watched, mine: list[int]) -> None:
        while not done.is_set():
            mine.append(here.ask("POST", "/v1/plan", SMALL).status)

    def all_go_on(seen: list[int]) -> bool:
        return all(len(mine) >= before + 2 for mine, before in zip(statuses, seen, strict=True))

    chance = random.Random(13)
    with watched(tmp_path / "log", INFERPLAN_SOLVER_PROCESSES="3") as here, ThreadPoolExecutor(4) as clients:
        here.until_ready()
        lost = [clients.submit(client, here, mine) for mine in statuses]
        killed = set()
        try:
            until(lambda: len(here.solvers()) == 3 + Settings().max_studies)
            for _ in range(kills):  # one at a time: work is begun once more, not twice
                until(lambda: len(here.solvers()) == 3 + Settings().max_studies)
                pid = chance.choice(here.solvers())
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
                seen = [len(mine) for mine in statuses]
                until(lambda seen=seen: all_go_on(seen))  # type: ignore[misc]
        finally:
            done.set()
        assert [each.exception() for each in lost] == [None] * 4
        assert {status for mine in statuses for status in mine} == {200}
        assert len(killed) == kills
        until(lambda: len(here.solvers()) >= 3)
        ends_with_all_its_processes(here, signal.SIGKILL)


def nothing_can_be_started(here: Watched) -> None:
    resource.prlimit(here.process.pid, resource.RLIMIT_NOFILE, (8, 1024))
    for pid in here.solvers():
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_without_file_descriptors_no_solve_is_refused_at_once(tmp_path: Path) -> None:
    with watched(tmp_path / "log", INFERPLAN_SOLVER_PROCESSES="2") as here:
        here.until_ready()
        connection = http.client.HTTPConnection("127.0.0.1", here.port, timeout=PATIENCE_S)

        def asked(method: str, path: str, body: bytes | None = None) -> tuple[int, str | None]:
            connection.request(method, path, body)
            answer = connection.getresponse()
            answer.read()
            return answer.status, answer.headers["Retry-After"]

        assert asked("POST", "/v1/plan", SMALL) == (200, None)
        nothing_can_be_started(here)
        until(lambda: asked("GET", "/readyz")[0] == 503)
        assert asked("POST", "/v1/plan", SMALL) == (503, "5")
        assert asked("POST", "/optimizeOne", SMALL) == (503, "5")
        assert asked("GET", "/healthz")[0] == 200
        resource.prlimit(here.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
        until(lambda: asked("GET", "/readyz")[0] == 200)
        assert asked("POST", "/v1/plan", SMALL) == (200, None)
        connection.close()
        nothing_can_be_started(here)
        ends_with_all_its_processes(here, signal.SIGTERM)


def ends_with_all_its_processes(here: Watched, number: signal.Signals) -> None:
    pids = here.descendants()
    here.process.send_signal(number)
    assert here.process.wait(PATIENCE_S) == (0 if number == signal.SIGTERM else -number)
    until(lambda: not any(alive(pid) for pid in pids))


def _no_server_process(here: Watched) -> None:
    here.until_ready()
    os.kill(here.descendants()[0], signal.SIGKILL)


def _still_starting(_: Watched) -> None:
    """Nothing has been waited for."""


@pytest.mark.slow
@pytest.mark.parametrize("state", [_no_server_process, _still_starting])
def test_it_ends_with_all_its_processes_in_every_state(
    tmp_path: Path, state: Callable[[Watched], None]
) -> None:
    with watched(tmp_path / "log", INFERPLAN_SOLVER_PROCESSES="2") as here:
        state(here)
        ends_with_all_its_processes(here, signal.SIGTERM)


@pytest.mark.slow
def test_small_requests_do_not_wait_for_studies() -> None:
    with in_a_thread(solver_processes=1, max_solves=1, max_studies=1) as here, ExitStack() as stack:
        until(lambda: here.ask("GET", "/readyz").status == 200)
        for _ in range(2):
            head = f"POST /v1/explain HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(EXPLAINED)}\r\n\r\n"
            stack.enter_context(connected(here.port, head.encode() + EXPLAINED))
        until(lambda: here.ask("GET", "/readyz").json == {"status": "ready", "running": 1, "waiting": 1})
        for path in ("/v1/plan", "/v1/plan", "/optimizeOne"):
            assert here.ask("POST", path, SMALL).status == 200
        assert here.ask("GET", "/readyz").json == {"status": "ready", "running": 1, "waiting": 1}


@pytest.mark.slow
def test_started_by_uvicorn_it_has_processes_that_solve(tmp_path: Path) -> None:
    with in_a_thread() as free:
        port = free.port
    command = [sys.executable, "-m", "uvicorn", "--factory", "rest_server.app:create_app", "--port"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "INFERPLAN_SOLVER_PROCESSES": "1"}
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen([*command, str(port)], stderr=log, env=environment) as process,
    ):
        here = Watched(port, process, tmp_path / "log")

        def answers() -> bool:
            try:
                return here.ask("GET", "/readyz").status == 200
            except OSError:
                return False

        try:
            until(answers)
            assert here.ask("POST", "/v1/plan", SMALL).status == 200
            pids = here.descendants()
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
            until(lambda: not any(alive(pid) for pid in pids))
        finally:
            process.kill()
