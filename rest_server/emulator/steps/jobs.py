"""Queue of jobs that workers lease; a job whose lease expires is leased again, and finally set aside.

A batch is a number of jobs with one status, a deadline and a callback.

A job is complete when a result is accepted, and only the worker with the job's current lease can deliver a
result. So a late worker learns that the job was leased again, and a job completes at most once.
"""

import asyncio
import heapq
import itertools
import time
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from rest_server.emulator.asgi import BadRequest, number_of
from rest_server.emulator.metrics import family
from rest_server.emulator.settings import FleetSettings
from rest_server.emulator.steps.forwarded import RouterStep
from rest_server.http_client import http_module

JobState = Literal["waiting", "leased", "complete", "dead"]
BatchStatus = Literal["in_progress", "completed", "expired", "cancelled"]
STATES: tuple[JobState, ...] = get_args(JobState)
LEASE_S = 30.0
"""Duration of a lease, unless its worker requests another one [s of model time]."""
MAX_LEASE_S = 86_400.0
MAX_ATTEMPTS = 5
"""Maximum number of leases of a job before it is set aside, unless the job states another number."""
MAX_LEASED = 1000
"""Maximum number of jobs that one request can lease."""
MAX_JOBS = 100_000
"""Maximum number of jobs of a batch."""
CALLBACK_TRIES = 3
CALLBACK_S = 2.0
"""Time limit of a callback, and time between two attempts [s]."""


@dataclass(slots=True)
class Batch:
    """Jobs that were submitted together, and their progress."""

    id: str
    total: int
    deadline_s: float | None
    """Time limit for the entire batch [s of model time]; None if there is none."""
    callback: str | None
    """Address that is notified when the batch ends; None for none."""
    began_s: float = field(default_factory=time.monotonic)
    status: BatchStatus = "in_progress"
    completed: int = 0
    failed: int = 0
    spent_s: float | None = None
    """Time from the start to the end of the batch [s of model time]; None until it ends."""
    called_back: bool | None = None

    def document(self) -> dict[str, Any]:
        """Return the batch as JSON."""
        return {
            "id": self.id, "status": self.status, "deadline": self.deadline_s, "seconds": self.spent_s,
            "callback": self.callback, "called_back": self.called_back,
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
        }  # fmt: skip


@dataclass(slots=True)
class QueuedJob:
    """A job of the queue, and its history."""

    id: str
    input: Any
    most: int
    """Maximum number of leases before the job is set aside."""
    state: JobState = "waiting"
    attempts: int = 0
    lease: str = ""
    """Identifier of the current lease; empty if there is none."""
    until_s: float = 0.0
    """End of the current lease [s, monotonic clock]."""
    worker: str = ""
    result: Any = None
    of_batch: Batch | None = None
    """Batch to which the job belongs; None if it was submitted alone."""
    history: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the job as JSON."""
        return {
            "id": self.id, "state": self.state, "attempts": self.attempts, "worker": self.worker,
            "result": self.result, "history": self.history,
        }  # fmt: skip


class JobQueue(RouterStep):
    """Step with a job queue under `/v1/jobs`: submit, lease, renew, complete, fail, and list failed jobs."""

    prefix: ClassVar[str] = "/v1/jobs"

    def __init__(self, settings: FleetSettings, deadlines_s: Mapping[str, float] | None = None) -> None:
        """Create an empty queue.

        Args:
            settings: settings of the fleet.
            deadlines_s: default time limit of a batch for a server [s of model time], by server.
        """
        self._speed, self._deadlines_s = settings.speed, deadlines_s or {}
        self._jobs: dict[str, QueuedJob] = {}
        self._batches: dict[str, Batch] = {}
        self.callbacks: set[asyncio.Task[None]] = set()
        """Callbacks in progress."""
        self._waiting: deque[QueuedJob] = deque()
        self._ends: list[tuple[float, int, QueuedJob, str]] = []
        """Heap of the ends of leases: time [s], order, job and lease."""
        self._count = itertools.count()
        self._events = dict.fromkeys(("expired", "failed", "late"), 0)

    async def control(self, path: str, body: Mapping[str, Any] | None) -> tuple[int, Mapping[str, Any]]:
        """Respond to a request of a client or a worker; return the HTTP status and the body.

        Raises:
            BadRequest: the job does not exist, or the lease is not the current one (409).
        """
        self._expire()
        if body is None:
            return 200, self._shown(path)
        if not path:
            return self._submit(body)
        if path == "lease":
            return 200, {"jobs": self._lease(body)}
        return 200, self._act(path, body)

    def _shown(self, path: str) -> dict[str, Any]:
        """Return the number of jobs by state, the jobs that were set aside, or one job."""
        if not path:
            return {"jobs": self._counts()}
        if path == "dead":
            return {"jobs": [job.document() for job in self._jobs.values() if job.state == "dead"]}
        if path == "batches":
            return {"batches": [batch.document() for batch in self._batches.values()]}
        return (self._batches.get(path) or self._job(path)).document()

    def _act(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Renew, complete or fail a job for the worker that has its current lease."""
        name, _, what = path.rpartition("/")
        if what == "cancel" and name in self._batches:
            self._end(self._batches[name], "cancelled")
            return self._batches[name].document()
        acts = {"renew": self._renew, "complete": self._complete, "fail": self._fail}
        if what not in acts:
            raise BadRequest(f"no such page: {path}; jobs have {', '.join(acts)}", 404)
        job = self._job(name)
        if job.state == "complete" and what == "complete" and job.lease == body.get("lease"):
            return job.document()  # the worker did not get the first answer
        if job.state != "leased" or job.lease != body.get("lease"):
            self._events["late"] += 1
            job.history.append(f"refused to {what} for an old lease")
            raise BadRequest(
                f"job {job.id} is {job.state}, and this is not its current lease; discard the work", 409
            )
        acts[what](job, body)
        return job.document()

    def _submit(self, body: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Add a job or a batch, unless its id is already known; return the HTTP status and the item."""
        name = str(body.get("id") or uuid.uuid4().hex)
        known = self._batches.get(name) or self._jobs.get(name)
        if known is not None:
            return 200, known.document()
        if "/" in name or name in {"lease", "dead", "batches"}:
            raise BadRequest(f"id: {name!r} must not have a slash or be 'lease', 'dead' or 'batches'")
        if body.get("inputs") is None and body.get("count") is None:
            return 201, self._add(name, body.get("input"), body).document()
        inputs = body.get("inputs", [body.get("input")])
        if not isinstance(inputs, list) or not inputs:
            raise BadRequest("inputs: must be a list of the inputs of jobs")
        batch = self._batch(name, inputs, body)
        for k in range(batch.total):
            self._add(f"{name}-{k}", inputs[k % len(inputs)], body, batch)
        return 201, batch.document()

    def _add(self, name: str, given: Any, body: Mapping[str, Any], batch: Batch | None = None) -> QueuedJob:
        most = int(number_of(body, "max_attempts", MAX_ATTEMPTS, 1, 1000))
        self._jobs[name] = job = QueuedJob(name, given, most, of_batch=batch)
        self._waiting.append(job)
        return job

    def _batch(self, name: str, inputs: list[Any], body: Mapping[str, Any]) -> Batch:
        """Return a new batch, whose deadline runs from now on."""
        total = int(number_of(body, "count", len(inputs), 1, MAX_JOBS))
        callback, first = body.get("callback"), inputs[0]
        if callback is not None and not str(callback).startswith(("http://", "https://")):
            raise BadRequest(f"callback: must look like 'http://127.0.0.1:9000/done', not {callback!r}")
        deadline_s = self._deadlines_s.get(first.get("server", "") if isinstance(first, dict) else "")
        if body.get("deadline") is not None:
            deadline_s = number_of(body, "deadline", 0.0, 1e-3, 1e9)
        self._batches[name] = batch = Batch(name, total, deadline_s, callback)
        if deadline_s is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(deadline_s / self._speed, self._end, batch, "expired")
        return batch

    def _end(self, batch: Batch, status: BatchStatus) -> None:
        """End a batch, unless it has ended; its waiting jobs are removed, and its callback is notified."""
        if batch.status != "in_progress":
            return
        batch.status, batch.spent_s = status, round((time.monotonic() - batch.began_s) * self._speed, 3)
        self._waiting = deque(job for job in self._waiting if job.of_batch is not batch)
        if batch.callback is not None:
            task = asyncio.create_task(self._call_back(batch, batch.callback))
            self.callbacks.add(task)
            task.add_done_callback(self.callbacks.discard)

    async def _call_back(self, batch: Batch, url: str) -> None:
        """Notify an address of the end of a batch."""
        http = http_module("emulator")
        async with http.AsyncClient(timeout=CALLBACK_S) as client:
            for _ in range(CALLBACK_TRIES):
                try:
                    batch.called_back = (await client.post(url, json=batch.document())).is_success
                except (http.HTTPError, http.InvalidURL):
                    batch.called_back = False
                if batch.called_back:
                    return
                await asyncio.sleep(CALLBACK_S)

    def _count_ended(self, job: QueuedJob) -> None:
        """Count a job that is complete or dead in its batch, which ends with its last job."""
        if job.of_batch is not None:
            job.of_batch.completed += job.state == "complete"
            job.of_batch.failed += job.state == "dead"
            if job.of_batch.completed + job.of_batch.failed == job.of_batch.total:
                self._end(job.of_batch, "completed")

    def _lease(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Lease the oldest waiting jobs to a worker, and return them."""
        seconds = number_of(body, "seconds", LEASE_S, 0.001, MAX_LEASE_S)
        count = int(number_of(body, "count", 1, 1, MAX_LEASED))
        lease: list[dict[str, Any]] = []
        while self._waiting and len(lease) < count:
            job = self._waiting.popleft()
            job.state, job.worker, job.lease = "leased", str(body.get("worker") or ""), uuid.uuid4().hex
            job.attempts += 1
            self._prolong(job, seconds)
            lease.append({"id": job.id, "lease": job.lease, "input": job.input, "attempt": job.attempts})
        return lease

    def _renew(self, job: QueuedJob, body: Mapping[str, Any]) -> None:
        self._prolong(job, number_of(body, "seconds", LEASE_S, 0.001, MAX_LEASE_S))

    def _complete(self, job: QueuedJob, body: Mapping[str, Any]) -> None:
        job.state, job.result = "complete", body.get("result")
        self._count_ended(job)

    def _fail(self, job: QueuedJob, body: Mapping[str, Any]) -> None:
        self._events["failed"] += 1
        self._take_back(job, f"failed by {job.worker}: {body.get('error', '')}")

    def _prolong(self, job: QueuedJob, seconds: float) -> None:
        job.until_s = time.monotonic() + seconds / self._speed
        heapq.heappush(self._ends, (job.until_s, next(self._count), job, job.lease))

    def _expire(self) -> None:
        """Take back the jobs whose leases have expired."""
        now_s = time.monotonic()
        while self._ends and self._ends[0][0] <= now_s:
            _, _, job, lease = heapq.heappop(self._ends)
            if job.state == "leased" and job.lease == lease and job.until_s <= now_s:
                self._events["expired"] += 1
                self._take_back(job, f"lease of {job.worker} expired")

    def _take_back(self, job: QueuedJob, reason: str) -> None:
        """Let a job wait again, in front of the other jobs, or set it aside after its last attempt."""
        job.history.append(f"attempt {job.attempts}: {reason}")
        job.lease = ""
        is_over = job.of_batch is not None and job.of_batch.status != "in_progress"
        if is_over or job.attempts >= job.most:
            job.state = "dead"
            self._count_ended(job)
        else:
            job.state = "waiting"
            self._waiting.appendleft(job)

    def _job(self, name: str) -> QueuedJob:
        if name not in self._jobs:
            raise BadRequest(f"no job {name!r}", 404)
        return self._jobs[name]

    def _counts(self) -> dict[str, int]:
        counts: dict[str, int] = dict.fromkeys(STATES, 0)
        for job in self._jobs.values():
            counts[job.state] += 1
        return counts

    def metrics(self) -> list[str]:
        """Return metrics of jobs by state, and of leases that ended without a result."""
        if not self._jobs:
            return []
        self._expire()
        states = {f'state="{state}"': count for state, count in self._counts().items()}
        events = {f'reason="{reason}"': count for reason, count in self._events.items()}
        lines = family("inferplan_jobs", "gauge", "Jobs by state.", states)
        text = "Leases without a result: expired, failed by the worker, or refused because they came late."
        return lines + family("inferplan_job_leases_lost_total", "counter", text, events)
