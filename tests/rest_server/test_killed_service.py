"""A service with a state file that is killed at any moment: every acknowledged write is there afterwards."""

import contextlib
import http.client
import itertools
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from service_runs import Watched, watched
from wire_client import one_server, system

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks and kills processes")

WRITERS = 3
ITEMS = 12
"""Items that one write changes together."""


TRACED = ("strace", "-f", "--seccomp-bpf", "-y", "-s", "32", "-e", "trace=fsync,fdatasync,sendto,write", "-o")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The system calls of the services; None where they cannot be traced."""
    if shutil.which("strace") is None:
        return None
    tried = subprocess.run([*TRACED, "/dev/null", "true"], check=False, capture_output=True)
    return None if tried.returncode else tmp_path_factory.mktemp("calls") / "log"


Services = Callable[[], AbstractContextManager[Watched]]


@pytest.fixture
def serve(calls: Path | None, tmp_path: Path) -> Services:
    """Start a service with the state file of a test, which is killed at the end."""
    options = ("--stateful", "--state", str(tmp_path / "fleet.db"))
    prefix = () if calls is None else (*TRACED, str(calls))
    return lambda: watched(tmp_path / "log", *options, prefix=prefix, INFERPLAN_SOLVER_PROCESSES="0")


def one_write(here: Watched, writer: int, number: int) -> int:
    """Write a number into all items of a writer at once; return the status."""
    counts = [{"type": f"w{writer}-{i}", "count": number} for i in range(ITEMS)]
    return here.ask("POST", "/setCapacities", {"count": counts}).status


def write_on(here: Watched, writer: int, acknowledged: list[int]) -> None:
    """Write one number after the other until the service is gone."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        while True:
            assert one_write(here, writer, acknowledged[writer] + 1) == 200
            acknowledged[writer] += 1


def held(here: Watched) -> dict[str, int]:
    return {item["type"]: item["count"] for item in here.ask("GET", "/v1/capacity").json["count"]}


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_acknowledged_writes_survive_a_kill_completely(serve: Services, kills: int) -> None:
    chance, acknowledged = random.Random(18), [0] * WRITERS
    for _ in range(kills):
        with serve() as here, ThreadPoolExecutor(WRITERS) as threads:
            check_fleet(here, acknowledged)
            wanted = sum(acknowledged) + chance.randrange(1, 15)
            writing = [threads.submit(write_on, here, i, acknowledged) for i in range(WRITERS)]
            while sum(acknowledged) < wanted and not any(each.done() for each in writing):
                time.sleep(0.001)
            time.sleep(chance.uniform(0.0, 0.02))
            here.process.kill()
            assert [each.exception() for each in writing] == [None] * WRITERS
    with serve() as here:
        check_fleet(here, acknowledged)
    assert sum(acknowledged) >= kills


def check_fleet(here: Watched, acknowledged: list[int]) -> None:
    """Check what is there of every writer, and go on from it: what was under way may have been written."""
    found = held(here)
    for writer, number in enumerate(acknowledged):
        values = {found.get(f"w{writer}-{i}", 0) for i in range(ITEMS)}
        assert len(values) == 1, f"a write of writer {writer} is there by half: {values}"
        assert number <= min(values) <= number + 1
        acknowledged[writer] = min(values)


@pytest.mark.slow
def test_the_last_plan_and_its_age_go_on_after_a_kill(serve: Services) -> None:
    with serve() as here:
        assert here.ask("PUT", "/v1/fleet", system(one_server("s"))).status == 200
        before = time.time()
        made = here.ask("POST", "/v1/loads", {"s": {"arrivalRate": 77}})
        after = time.time()
        assert made.status == 200
    with serve() as here:
        asked = time.time()
        found = here.ask("GET", "/v1/plan")
        answered = time.time()
    assert found.headers["etag"] == made.headers["etag"]
    plan = found.json
    assert (
        asked - after - 0.001 <= plan.pop("ageSeconds") <= answered - before + 0.001
    )  # in whole milliseconds
    assert plan.pop("revision") == 3
    assert plan == made.json


@pytest.mark.slow
def test_a_write_is_on_the_disk_before_its_answer_is_sent(serve: Services, calls: Path | None) -> None:
    """A kill does not lose what the system has not yet written; a crash of the machine would."""
    if calls is None:
        pytest.skip("strace is not installed, or may not trace")
    writes = 8
    with serve() as here:
        for number in range(writes):
            assert one_write(here, 0, number) == 200
            assert here.ask("GET", "/v1/capacity").status == 200
    events = []
    for line in calls.read_text("utf-8", "replace").splitlines():
        if re.search(r"f(data)?sync\(\d+<[^>]*fleet\.db-wal>", line):
            events.append("sync")
        elif "sendto(" in line and "HTTP/1.1 200" in line:
            events.append("answer")
    answers = [i for i, event in enumerate(events) if event == "answer"][-2 * writes - 1 :]
    synced = ["sync" in events[before:after] for before, after in itertools.pairwise(answers)]
    assert synced == [True, False] * writes
