"""Worker of a job queue, which overlaps the downloads, inference and uploads of several jobs."""

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import Field

from optimizer.errors import SpecError
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import Request
from optimizer.schema.files import read_text
from rest_server.emulator.asgi import JSON, encoded
from rest_server.emulator.router import SERVER_HEADER
from rest_server.emulator.steps.jobs import JobQueue
from rest_server.http_client import http_module, transport_reason

POLL_S = 0.2
"""Time to wait if there is no job, or before another request to a full server [s]."""
RENEWALS = 3
"""Number of renewals during the time of a lease."""
FULL = 503
LOST = 409


class WorkerSettings(Request):
    """Settings of a worker, which are the flags of `work`."""

    jobs: Annotated[int, Flag("N")] = Field(4, ge=1, le=1000)
    """Maximum jobs in progress at once (4)."""
    transfers: Annotated[int, Flag("N")] = Field(4, ge=1, le=1000)
    """Maximum downloads at once, and maximum uploads at once (4)."""
    lease: Annotated[float, Flag("S")] = Field(30.0, gt=0, le=86_400)
    """Duration of a job's lease, which is renewed while the worker runs [s] (30)."""
    name: Annotated[str, Flag("NAME")] = ""
    """Name of the worker; default: host and process."""
    once: bool = False
    """Exit when no job is waiting."""
    timeout: Annotated[float, Flag("S")] = Field(300.0, gt=0, le=86_400)
    """Timeout for a part of a download, an inference or an upload, after which the job fails [s] (300)."""
    key_file: Annotated[Path | None, Flag("FILE")] = None
    """File with the API key for the router (no key)."""


class StatusError(OSError):
    """Raised when a response has the status of an error."""

    def __init__(self, status: int) -> None:
        """Create the error of a status."""
        self.status = status
        super().__init__(f"status {status}")


class LeaseLostError(Exception):
    """Raised when a worker no longer has the lease of a job, so another worker can have it."""


class Worker:
    """Takes jobs from a queue until it is stopped.

    The input of a job is an object with `server` and `path` of the inference, and its `body`. It can also
    have the addresses `download`, whose content then replaces the body, and `upload`, to which the output is
    put.
    """

    def __init__(self, url: str, settings: WorkerSettings, report: Callable[[dict[str, Any]], None]) -> None:
        """Create a worker.

        Args:
            url: address of the router, which has the job queue and the servers.
            report: called with the outcome of each job, and the times of its stages [s].

        Raises:
            MissingExtraError: httpx2 is not installed.
            SpecError: the file with the API key cannot be read.
        """
        self._http = http_module("emulator")
        self._client = self._http.AsyncClient(timeout=settings.timeout)
        self._url, self._settings = url, settings
        self._name = settings.name or f"{socket.gethostname()}-{os.getpid()}"
        key = "" if settings.key_file is None else read_text(settings.key_file).strip()
        self._key = {"Authorization": f"Bearer {key}"} if key else {}
        self._report = report
        self._queue = JobQueue.prefix
        self._inside: set[asyncio.Task[None]] = set()
        self._stages = {
            "download": asyncio.Semaphore(settings.transfers),
            "inference": asyncio.Semaphore(settings.jobs),
            "upload": asyncio.Semaphore(settings.transfers),
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Process jobs until stopped, then complete the jobs in progress.

        Raises:
            SpecError: no job queue responds at the start.
        """
        async with self._client:
            await self._run(stop)

    async def _run(self, stop: asyncio.Event) -> None:
        settings, is_first = self._settings, True
        while not stop.is_set():
            free, leased = settings.jobs - len(self._inside), []
            is_idle = not self._inside  # before the request: a job that fails in the meantime waits again
            if free:
                asked = {"worker": self._name, "count": free, "seconds": settings.lease}
                try:
                    leased = json.loads(await self._post(f"{self._queue}/lease", encoded(asked)))["jobs"]
                except OSError as error:
                    if is_first:
                        raise SpecError(f"URL: {self._url}: no job queue answers: {error}") from None
            is_first = False
            for job in leased:
                task = asyncio.create_task(self._do(job))
                self._inside.add(task)
                task.add_done_callback(self._inside.discard)
            if settings.once and not leased and is_idle:
                return
            if not leased:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), POLL_S)
        await asyncio.gather(*self._inside)

    async def _do(self, job: dict[str, Any]) -> None:
        """Process a job while its lease is renewed; drop the job if the lease is lost."""
        line: dict[str, Any] = {"job": job["id"], "attempt": job["attempt"], "state": "complete"}
        work = asyncio.create_task(self._stages_of(job, line))
        keeping = asyncio.create_task(self._keep(job))
        await asyncio.wait({work, keeping}, return_when=asyncio.FIRST_COMPLETED)
        work.cancel()
        keeping.cancel()
        try:
            with suppress(asyncio.CancelledError):
                await keeping
            await work
        except (LeaseLostError, asyncio.CancelledError):
            line["state"] = "lost"
        except (OSError, ValueError, KeyError, TypeError) as error:
            line |= {"state": "failed", "error": str(error)}
            with suppress(OSError, LeaseLostError):
                await self._say(job, "fail", {"error": str(error)})
        self._report(line)

    async def _stages_of(self, job: dict[str, Any], line: dict[str, Any]) -> None:
        wanted, content = job["input"], b""
        if wanted.get("download"):
            async with self._stage("download", line):
                content = await self._ask("GET", wanted["download"])
        async with self._stage("inference", line):
            answer = await self._infer(wanted, content or encoded(wanted.get("body") or {}))
        if wanted.get("upload"):
            async with self._stage("upload", line):
                await self._ask("PUT", wanted["upload"], answer)
        await self._say(job, "complete", {"result": json.loads(answer)})

    @asynccontextmanager
    async def _stage(self, name: str, line: dict[str, Any]) -> AsyncIterator[None]:
        async with self._stages[name]:
            begin_s = time.monotonic()
            yield
            line[f"{name}_s"] = round(time.monotonic() - begin_s, 3)

    async def _infer(self, wanted: dict[str, Any], content: bytes) -> bytes:
        """Return the response of a server to an inference request; wait while the server is full."""
        headers = {SERVER_HEADER.decode(): quote(wanted["server"])} if wanted.get("server") else {}
        while True:
            try:
                return await self._post(wanted.get("path", "/predict"), content, headers)
            except StatusError as error:
                if error.status != FULL:
                    raise
                await asyncio.sleep(POLL_S)

    async def _keep(self, job: dict[str, Any]) -> None:
        """Renew the lease of a job until it is lost."""
        with suppress(LeaseLostError):
            while True:
                await asyncio.sleep(self._settings.lease / RENEWALS)
                with suppress(OSError):
                    await self._say(job, "renew", {"seconds": self._settings.lease})

    async def _say(self, job: dict[str, Any], what: str, body: dict[str, Any]) -> None:
        """Report an event of a job to the queue.

        Raises:
            LeaseLostError: the lease is not the current one.
        """
        try:
            path = f"{self._queue}/{quote(job['id'])}/{what}"
            await self._post(path, encoded(body | {"lease": job["lease"]}))
        except StatusError as error:
            if error.status == LOST:
                raise LeaseLostError from None
            raise

    async def _post(self, path: str, content: bytes, headers: Mapping[str, str] | None = None) -> bytes:
        """Send a POST request to the router, the only recipient of the API key, and return the response."""
        return await self._ask(
            "POST", self._url.rstrip("/") + path, content, {**self._key, **(headers or {})}
        )

    async def _ask(
        self, method: str, url: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Send a request, and return the body of the response.

        Raises:
            OSError: there is no response in time, or it is an error.
        """
        headers = {"Content-Type": JSON.decode(), **(headers or {})}
        try:
            answer = await self._client.request(method, url, content=content, headers=headers)
        except (self._http.HTTPError, self._http.InvalidURL) as error:
            raise OSError(transport_reason(error)) from None
        if not answer.is_success:
            raise StatusError(answer.status_code)
        body: bytes = answer.content
        return body
