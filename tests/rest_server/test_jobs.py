"""Jobs of an emulated fleet: leases, attempts, and workers that die or come late."""

import asyncio
import json
import random
import signal
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from emulated import FLEET, Emulator, emulated
from forked import Forked, forked
from patience import PATIENCE_S, until

from rest_server.emulator.asgi import BadRequest
from rest_server.emulator.settings import FleetSettings
from rest_server.emulator.steps import jobs as lease_queue
from rest_server.emulator.steps.jobs import JobQueue
from rest_server.emulator.worker import Worker, WorkerSettings

JOBS = "/v1/jobs"


class Store(ThreadingHTTPServer):
    """A store of files, whose transfers take a while."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _StoreHandler)
        self.got: list[str] = []
        self.keys: list[str | None] = []
        self.put: dict[str, list[bytes]] = {}
        self.delay_s = 0.1
        self.at_once = self.most_at_once = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _StoreHandler(BaseHTTPRequestHandler):
    server: Store

    def do_GET(self) -> None:
        self.server.got.append(self.path)
        self.server.keys.append(self.headers["Authorization"])
        self._take(b'{"image": 1}')

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.put.setdefault(self.path, []).append(content)
        self._take(b"")

    def _take(self, content: bytes) -> None:
        self.server.at_once += 1
        self.server.most_at_once = max(self.server.at_once, self.server.most_at_once)
        time.sleep(self.server.delay_s)
        self.server.at_once -= 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def submit(fleet: Emulator, store: Store, names: list[str]) -> None:
    for name in names:
        transfers = {"download": f"{store.url}/in/{name}", "upload": f"{store.url}/out/{name}"}
        job = {"id": name, "input": {"server": "eyes", "path": "/predict", **transfers}}
        assert fleet.ask(JOBS, job).status == 201
        assert fleet.ask(JOBS, job).status == 200  # again: the same job


def worker(fleet: Emulator, name: str, *flags: str) -> Forked:
    return forked("work", fleet.url, "--name", name, *flags)


def lines(process: Forked) -> list[dict[str, object]]:
    with process:
        output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    return [json.loads(line) for line in output.splitlines()]


def test_worker_overlaps_transfers_and_inference(fleet: Emulator, store: Store) -> None:
    names = [f"overlap-{k}" for k in range(8)]
    submit(fleet, store, names)
    done = lines(worker(fleet, "w", "--once", "--jobs", "4"))
    assert sorted(str(line["job"]) for line in done) == names
    assert {line["state"] for line in done} == {"complete"}
    assert store.most_at_once > 1
    assert sorted(store.put) == [f"/out/{name}" for name in names]
    assert all("latency_ms" in json.loads(content) for (content,) in store.put.values())
    for name in names:
        job = fleet.ask(f"{JOBS}/{name}").json
        assert (job["state"], job["attempts"], job["worker"], job["history"]) == ("complete", 1, "w", [])


@pytest.mark.slow
def test_jobs_of_a_killed_worker_are_done_once(fleet: Emulator, store: Store) -> None:
    names = [f"killed-{k}" for k in range(6)]
    store.delay_s = 1.0
    submit(fleet, store, names)
    first = worker(fleet, "first", "--jobs", "4", "--lease", "1")
    until(lambda: len(store.got) >= 4)  # in the middle of its downloads
    with first:  # and kill it
        pass
    store.delay_s = 0.0
    second = worker(fleet, "second", "--jobs", "4", "--lease", "30")
    until(lambda: fleet.ask(f"{JOBS}").json["jobs"]["leased"] == 0 and len(store.put) == len(names))
    second.send_signal(signal.SIGTERM)
    assert sorted(str(line["job"]) for line in lines(second)) == names
    assert {path: len(contents) for path, contents in store.put.items()} == {f"/out/{n}": 1 for n in names}
    jobs = [fleet.ask(f"{JOBS}/{name}").json for name in names]
    assert {job["state"] for job in jobs} == {"complete"}
    taken_again = [job for job in jobs if job["attempts"] == 2]
    assert len(taken_again) == 4
    for job in taken_again:
        assert job["history"] == ["attempt 1: lease of first expired"]
    assert 'inferplan_job_leases_lost_total{reason="expired"}' in fleet.ask("/metrics").text


@pytest.mark.slow
def test_worker_drops_a_job_that_another_one_has(fleet: Emulator, store: Store) -> None:
    store.delay_s = 1.0
    submit(fleet, store, ["late"])
    slow = worker(fleet, "slow", "--lease", "0.6")
    until(lambda: len(store.got) == 1)
    slow.send_signal(signal.SIGSTOP)  # a machine that sleeps for longer than its lease
    until(lambda: fleet.ask(f"{JOBS}/late").json["state"] == "waiting")
    (taken,) = fleet.ask(f"{JOBS}/lease", {"worker": "other"}).json["jobs"]
    slow.send_signal(signal.SIGCONT)
    line = json.loads(slow.stdout.readline())
    assert (line["job"], line["state"]) == ("late", "lost")
    assert store.put == {}
    assert fleet.ask(f"{JOBS}/late/complete", {"lease": taken["lease"], "result": 1}).status == 200
    slow.send_signal(signal.SIGTERM)
    assert lines(slow) == []


def test_failed_jobs_are_put_aside(fleet: Emulator) -> None:
    job = {"id": "wrong", "max_attempts": 2, "input": {"server": "nobody"}}
    fleet.ask(JOBS, job)
    done = lines(worker(fleet, "w", "--once"))
    assert [(line["attempt"], line["state"]) for line in done] == [(1, "failed"), (2, "failed")]
    dead = {job["id"]: job for job in fleet.ask(f"{JOBS}/dead").json["jobs"]}
    assert dead["wrong"]["state"] == "dead"
    assert [text.partition(":")[0] for text in dead["wrong"]["history"]] == ["attempt 1", "attempt 2"]


@pytest.mark.slow
def test_job_whose_download_hangs_fails_in_time(fleet: Emulator, store: Store) -> None:
    store.delay_s = 3.0
    submit(fleet, store, ["hangs"])
    done = lines(worker(fleet, "w", "--once", "--timeout", "0.2"))
    assert {(line["job"], line["state"]) for line in done} == {("hangs", "failed")}
    assert "timed out" in str(done[0]["error"])


@pytest.mark.slow
def test_worker_sends_its_key_to_the_router_only(tmp_path: Path, store: Store) -> None:
    document, keys, key = tmp_path / "fleet.yaml", tmp_path / "keys", tmp_path / "key"
    document.write_text(FLEET)
    keys.write_text("solve,read,write secret\n")
    key.write_text("secret\n")
    with emulated(document, "--keys-file", str(keys)) as fleet:
        job = {"input": {"server": "eyes", "download": f"{store.url}/in/a"}}
        assert fleet.ask(JOBS, job, key="secret").status == 201
        with worker(fleet, "w", "--once") as without:
            assert "no job queue answers: status 401" in without.communicate()[1]
        (done,) = lines(worker(fleet, "w", "--once", "--key-file", str(key)))
        assert done["state"] == "complete"
    assert store.keys == [None]


class _Failing(BaseHTTPRequestHandler):
    """A queue of one job; the worker is told that no job waits after the job inside it has failed."""

    asked = 0
    asked_again, failed = Event(), Event()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status, found = 200, {}
        if self.path.endswith("/lease"):
            type(self).asked += 1
            if self.asked == 2:
                self.asked_again.set()
                assert self.failed.wait(PATIENCE_S)
                time.sleep(0.2)  # the worker is told that the job failed
            job = {"id": "one", "lease": "x", "input": {}, "attempt": (self.asked + 1) // 2}
            found = {"jobs": [job] if self.asked in {1, 3} else []}
        elif self.path == "/predict":
            assert self.asked_again.wait(PATIENCE_S)
            status = 500
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())
        if self.path.endswith("/fail"):
            self.failed.set()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def test_worker_does_not_end_while_a_job_waits_again() -> None:
    """A job that fails while the worker asks for more waits for its next attempt."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Failing) as queue:
        thread = Thread(target=queue.serve_forever)
        thread.start()
        done: list[dict[str, Any]] = []
        url, settings = f"http://127.0.0.1:{queue.server_port}", WorkerSettings(name="w", once=True)
        asyncio.run(Worker(url, settings, done.append).run(asyncio.Event()))
        queue.shutdown()
        thread.join()
    assert [(line["attempt"], line["state"]) for line in done] == [(1, "failed"), (2, "failed")]


def test_only_the_current_lease_counts(fleet: Emulator) -> None:
    fleet.ask(JOBS, {"id": "one", "input": {}})
    (first,) = fleet.ask(f"{JOBS}/lease", {"worker": "a", "seconds": 0.01}).json["jobs"]
    until(lambda: fleet.ask(f"{JOBS}/one").json["state"] == "waiting")
    (second,) = fleet.ask(f"{JOBS}/lease", {"worker": "b"}).json["jobs"]
    assert (first["attempt"], second["attempt"]) == (1, 2)
    for what in ("renew", "complete", "fail"):
        refused = fleet.ask(f"{JOBS}/one/{what}", {"lease": first["lease"]})
        assert refused.status == 409
        assert "not its current lease" in refused.text
    assert fleet.ask(f"{JOBS}/one/renew", {"lease": second["lease"], "seconds": 60}).status == 200
    for _ in range(2):  # the answer to the first can get lost
        done = fleet.ask(f"{JOBS}/one/complete", {"lease": second["lease"], "result": 7})
        assert (done.status, done.json["result"]) == (200, 7)
    assert fleet.ask(f"{JOBS}/one/fail", {"lease": second["lease"]}).status == 409


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        (JOBS, {"inputs": []}, 400, "inputs: must be a list"),
        (JOBS, {"count": 0}, 400, "count: must be a number from 1 to 100000"),
        (JOBS, {"count": 1, "deadline": -1}, 400, "deadline: must be a number"),
        (JOBS, {"count": 1, "callback": "ftp://x"}, 400, "callback: must look like"),
        (JOBS, {"id": "a/b"}, 400, "slash"),
        (JOBS, {"id": "x", "max_attempts": 0}, 400, "max_attempts: must be a number from 1 to 1000"),
        (f"{JOBS}/lease", {"seconds": -1}, 400, "seconds: must be a number"),
        (f"{JOBS}/nobody", None, 404, "no job 'nobody'"),
        (f"{JOBS}/nobody/renew", {}, 404, "no job 'nobody'"),
        (f"{JOBS}/nobody/dance", {}, 404, "renew, complete, fail"),
    ],
)
def test_wrong_requests_are_refused(
    fleet: Emulator, path: str, body: dict[str, object] | None, status: int, text: str
) -> None:
    answer = fleet.ask(path, body)
    assert answer.status == status
    assert text in answer.json["error"]["message"]


def test_worker_names_what_is_wrong(fleet: Emulator) -> None:
    for url, text in (("ftp://x", "must look like"), (f"{fleet.replicas[0]['url']}", "no job queue answers")):
        with forked("work", url) as found:
            errors = found.communicate()[1]
        assert (found.returncode, text in errors) == (2, True), errors


def test_random_workers_lose_and_repeat_nothing() -> None:
    rng, queue, late = random.Random(1), JobQueue(FleetSettings()), 0
    names = [str(k) for k in range(60)]
    accepted: dict[str, list[str]] = {name: [] for name in names}
    held: list[dict[str, Any]] = []

    async def play() -> None:
        nonlocal late
        for name in names:
            await queue.control("", {"id": name, "max_attempts": 1000})
        while not all(accepted.values()):
            _, found = await queue.control("lease", {"count": 5, "seconds": 0.002})
            held.extend(found["jobs"])
            await asyncio.sleep(rng.choice([0.0, 0.003]))
            for job in [held.pop(rng.choice([0, -1])) for _ in range(min(3, len(held)))]:
                try:
                    await queue.control(
                        f"{job['id']}/complete", {"lease": job["lease"], "result": job["lease"]}
                    )
                except BadRequest:
                    late += 1
                else:
                    accepted[job["id"]].append(job["lease"])
        for name in names:
            _, done = await queue.control(name, None)
            assert [done["result"]] == accepted[name]

    asyncio.run(play())
    assert late > 10


def test_queue_without_jobs_has_no_metrics() -> None:
    assert JobQueue(FleetSettings()).metrics() == []


async def finish(queue: JobQueue, count: int, act: str = "complete") -> int:
    """Lease jobs and complete or fail them; return how many were leased."""
    _, found = await queue.control("lease", {"count": count})
    for job in found["jobs"]:
        await queue.control(f"{job['id']}/{act}", {"lease": job["lease"]})
    return len(found["jobs"])


def test_batch_completes_and_calls_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_queue, "CALLBACK_TRIES", 1)

    async def play() -> Any:
        queue = JobQueue(FleetSettings(), {"nightly": 7200.0})
        body = {"id": "b", "count": 3, "input": {"server": "nightly"}, "callback": f"{store.url}/done"}
        status, batch = await queue.control("", body)
        assert (status, batch["status"], batch["deadline"]) == (201, "in_progress", 7200)
        assert (await queue.control("", body))[0] == 200  # again: the same batch
        assert await finish(queue, 10) == 3
        await asyncio.gather(*queue.callbacks)
        assert 'inferplan_jobs{state="complete"} 3' in queue.metrics()
        return (await queue.control("batches", None))[1]["batches"]

    store.delay_s = 0.0
    (batch,) = asyncio.run(play())
    assert (batch["status"], batch["request_counts"]) == (
        "completed",
        {"total": 3, "completed": 3, "failed": 0},
    )
    assert batch["called_back"] is False  # the store refuses a POST


def test_batch_ends_by_deadline_and_cancel() -> None:
    async def play() -> tuple[Any, Any]:
        queue = JobQueue(FleetSettings())
        await queue.control("", {"id": "late", "count": 5, "deadline": 0.01})
        await queue.control("", {"id": "wrong", "inputs": [1, 2], "max_attempts": 1})
        await asyncio.sleep(0.05)
        late = (await queue.control("late", None))[1]
        assert await finish(queue, 1, "fail") == 1  # the late jobs are gone
        await queue.control("wrong/cancel", {})
        assert await finish(queue, 9) == 0
        return late, (await queue.control("wrong", None))[1]

    late, wrong = asyncio.run(play())
    assert (late["status"], late["request_counts"]["completed"]) == ("expired", 0)
    assert (wrong["status"], wrong["request_counts"]["failed"]) == ("cancelled", 1)
