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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from forked_services import Forked, Nursery, nursery
from patience import until
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


@pytest.fixture(scope="module")
def services(calls: Path | None) -> Iterator[Nursery]:
    with nursery(*(() if calls is None else (*TRACED, str(calls)))) as found:
        yield found


def one_write(here: Forked, writer: int, number: int) -> int:
    """Write a number into all items of a writer at once; return the status."""
    counts = [{"type": f"w{writer}-{i}", "count": number} for i in range(ITEMS)]
    return here.ask("POST", "/setCapacities", {"count": counts}).status


def write_on(here: Forked, writer: int, acknowledged: list[int]) -> None:
    """Write one number after the other until the service is gone."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        while True:
            assert one_write(here, writer, acknowledged[writer] + 1) == 200
            acknowledged[writer] += 1


def started(services: Nursery, path: Path) -> Forked:
    """Start a service with a state file, and wait until it answers."""
    here = services.serve(path)

    def answers() -> bool:
        with contextlib.suppress(OSError):
            return here.ask("GET", "/healthz").status == 200
        return False

    until(answers, 0.01)
    return here


def held(here: Forked) -> dict[str, int]:
    return {item["type"]: item["count"] for item in here.ask("GET", "/v1/capacity").json["count"]}


@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_acknowledged_writes_survive_a_kill_completely(tmp_path: Path, services: Nursery, kills: int) -> None:
    chance, acknowledged, path = random.Random(18), [0] * WRITERS, tmp_path / "fleet.db"
    for _ in range(kills):
        here = started(services, path)
        check_fleet(here, acknowledged)
        wanted = sum(acknowledged) + chance.randrange(1, 15)
        with ThreadPoolExecutor(WRITERS) as threads:
            writing = [threads.submit(write_on, here, i, acknowledged) for i in range(WRITERS)]
            while sum(acknowledged) < wanted and not any(each.done() for each in writing):
                time.sleep(0.001)
            time.sleep(chance.uniform(0.0, 0.02))
            here.kill()
            assert [each.exception() for each in writing] == [None] * WRITERS
        services.buried()
    here = started(services, path)
    check_fleet(here, acknowledged)
    here.kill()
    services.buried()
    assert sum(acknowledged) >= kills


def check_fleet(here: Forked, acknowledged: list[int]) -> None:
    """Check what is there of every writer, and go on from it: what was under way may have been written."""
    found = held(here)
    for writer, number in enumerate(acknowledged):
        values = {found.get(f"w{writer}-{i}", 0) for i in range(ITEMS)}
        assert len(values) == 1, f"a write of writer {writer} is there by half: {values}"
        assert number <= min(values) <= number + 1
        acknowledged[writer] = min(values)


def test_the_last_plan_and_its_age_go_on_after_a_kill(tmp_path: Path, services: Nursery) -> None:
    path = tmp_path / "fleet.db"
    here = started(services, path)
    assert here.ask("PUT", "/v1/fleet", system(one_server("s"))).status == 200
    before = time.time()
    made = here.ask("POST", "/v1/loads", {"s": {"arrivalRate": 77}})
    after = time.time()
    assert made.status == 200
    here.kill()
    services.buried()
    here = started(services, path)
    asked = time.time()
    found = here.ask("GET", "/v1/plan")
    answered = time.time()
    here.kill()
    services.buried()
    assert found.headers["etag"] == made.headers["etag"]
    plan = found.json
    assert asked - after - 0.001 <= plan.pop("age") <= answered - before + 0.001  # in whole milliseconds
    assert plan.pop("revision") == 3
    assert plan == made.json


def test_a_write_is_on_the_disk_before_its_answer_is_sent(
    tmp_path: Path, services: Nursery, calls: Path | None
) -> None:
    """A kill does not lose what the system has not yet written; a crash of the machine would."""
    if calls is None:
        pytest.skip("strace is not installed, or may not trace")
    writes = 8
    here = started(services, tmp_path / "fleet.db")
    for number in range(writes):
        assert one_write(here, 0, number) == 200
        assert here.ask("GET", "/v1/capacity").status == 200
    here.kill()
    services.buried()
    events = []
    for line in calls.read_text("utf-8", "replace").splitlines():
        if re.search(r"f(data)?sync\(\d+<[^>]*fleet\.db-wal>", line):
            events.append("sync")
        elif "sendto(" in line and "HTTP/1.1 200" in line:
            events.append("answer")
    answers = [i for i, event in enumerate(events) if event == "answer"][-2 * writes - 1 :]
    synced = ["sync" in events[before:after] for before, after in itertools.pairwise(answers)]
    assert synced == [True, False] * writes
