"""Queue of jobs that workers lease; a job whose lease expires is leased again, and finally set aside.

A job is complete when a result is accepted, and only the worker with the job's current lease can deliver a
result. So a late worker learns that the job was leased again, and a job completes at most once.
"""

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

JobState = Literal["waiting", "leased", "complete", "dead"]
STATES: tuple[JobState, ...] = get_args(JobState)
LEASE_S = 30.0
"""Duration of a lease, unless its worker requests another one [s of model time]."""
MAX_LEASE_S = 86_400.0
MAX_ATTEMPTS = 5
"""Maximum number of leases of a job before it is set aside, unless the job states another number."""
MAX_LEASED = 1000
"""Maximum number of jobs that one request can lease."""


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

    def __init__(self, settings: FleetSettings) -> None:
        self._speed = settings.speed
        self._jobs: dict[str, QueuedJob] = {}
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
        return self._job(path).document()

    def _act(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Renew, complete or fail a job for the worker that has its current lease."""
        name, _, what = path.rpartition("/")
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
        """Add a job, unless its id is already known; return the HTTP status and the job."""
        name = str(body.get("id") or uuid.uuid4().hex)
        if name in self._jobs:
            return 200, self._jobs[name].document()
        if "/" in name or name in {"lease", "dead"}:
            raise BadRequest(f"id: {name!r} must not have a slash or be 'lease' or 'dead'")
        job = QueuedJob(name, body.get("input"), int(number_of(body, "max_attempts", MAX_ATTEMPTS, 1, 1000)))
        self._jobs[name] = job
        self._waiting.append(job)
        return 201, job.document()

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
        if job.attempts >= job.most:
            job.state = "dead"
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
