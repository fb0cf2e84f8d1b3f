"""Solver workers: a bounded number of solves at a time, off the event loop, behind a bounded queue.

They run the work of a request and return its result, or raise an error if the queue is full, the time limit
is exceeded, or the client has disconnected.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request

from optimizer.errors import InferplanError
from rest_server.settings import Settings
from rest_server.solver_processes import Job, SolverProcesses, is_remotable

T = TypeVar("T")
GRACE_S = 2.0
"""Maximum time that work in a process can continue after its request has ended [s]."""


class QueueFullError(InferplanError):
    """Raised when every solver worker is busy and the queue for them is full."""

    http_status = 503

    def __init__(self, waiting: int, retry_after_s: int) -> None:
        super().__init__(
            f"every solver worker is busy, requests waiting: {waiting:,}; try again in {retry_after_s} s"
        )
        self.retry_after_s = retry_after_s
        """Time after which clients should try again [s]."""


class ServiceStoppingError(InferplanError):
    """Raised for work that an open web page requests while the service stops; requests have ended by then."""

    http_status = 503


class RequestTimeoutError(InferplanError):
    """Raised when a request exceeds its time limit, while waiting or during its work."""

    http_status = 504


class ClientDisconnectedError(InferplanError):
    """Raised when the client has closed its connection, so the answer will not be read."""

    http_status = 499


class SolverWorkers:
    """A fixed number of solver workers, and a bounded first-come-first-served queue of requests for them."""

    def __init__(self, settings: Settings, *, studies: bool = False) -> None:
        """Set up the workers for one type of work: small requests, or studies, which can take long.

        Each type has separate workers, so that neither waits for the other.
        """
        self.size = settings.max_studies if studies else settings.max_solves
        """Number of workers."""
        self._max_waiting = settings.max_waiting
        self._timeout_s = settings.request_timeout_s
        self._free = asyncio.Semaphore(self.size)
        self._threads = ThreadPoolExecutor(self.size, thread_name_prefix="solve")
        processes = self.size if studies else min(settings.solver_processes, self.size)
        self._processes = SolverProcesses(processes if settings.solver_processes else 0)
        self._mean_s = 0.0
        self._closed = False

    running: int = 0
    """Number of busy workers."""
    waiting: int = 0
    """Number of requests waiting for a worker."""

    async def run(
        self, request: Request, work: Callable[..., T], before: Callable[[], Any] | None = None
    ) -> T:
        """Run work on a worker and return its result or raise its exception.

        Read the body before calling this, because the connection is then watched. A `functools.partial` of a
        module-level function with plain values (bytes, text, numbers, pydantic models) runs in another
        process, if there are any; other work runs in a thread. If the time limit is exceeded or the client
        disconnects during the work, the request ends immediately. The worker becomes free when the work ends,
        which in a process is at most `GRACE_S` later.

        If work needs data of this process, `before` is called on the worker just before the work starts, and
        its result is passed as the last argument.

        Raises:
            QueueFullError: the queue is full.
            ServiceStoppingError: the workers are closed.
            RequestTimeoutError: the time limit is exceeded.
            ClientDisconnectedError: the client has disconnected.
            HTTPException: a body that the route does not read is too large, or does not arrive in time.
        """
        if self.running + self.waiting >= self.size + self._max_waiting:
            raise QueueFullError(self.waiting, self._retry_after_s())
        self.waiting += 1  # counted here, because many requests can arrive before the task starts
        job = asyncio.create_task(self._on_a_worker(request, work, before))
        leaving = asyncio.create_task(_left(request))
        leaving.add_done_callback(_retrieve)
        try:
            await asyncio.wait({job, leaving}, timeout=self._timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if job.done():
                return job.result()
            if leaving.done():
                leaving.result()  # raises if the unread rest of a body is rejected
                raise ClientDisconnectedError("the client has closed its connection")
            raise RequestTimeoutError(
                f"the time limit of {self._timeout_s:g} s was exceeded; send a smaller request, or try again"
            )
        finally:
            job.cancel()
            leaving.cancel()

    async def _on_a_worker(
        self, request: Request, work: Callable[..., T], before: Callable[[], Any] | None
    ) -> T:
        began = time.perf_counter()
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        entered = time.perf_counter()
        if self._closed:
            self._free.release()
            raise ServiceStoppingError("the service is stopping; start it again")
        try:
            job, leaves = Job(work, before), bool(self._processes.count) and is_remotable(work)
            in_thread = partial(self._processes.run, job) if leaves else job.run_here
            future = asyncio.get_running_loop().run_in_executor(self._threads, in_thread)
        except BaseException:
            self._free.release()
            raise
        self.running += 1
        future.add_done_callback(partial(self._worker_freed, entered))
        try:
            result: T = await asyncio.shield(future)
        except asyncio.CancelledError:
            if leaves:
                asyncio.get_running_loop().call_later(GRACE_S, job.cancel)
            raise
        stages = {"wait": entered - began, "work": time.perf_counter() - entered}
        request.scope.setdefault("state", {})["stages_s"] = stages
        return result

    def _worker_freed(self, entered: float, future: "asyncio.Future[Any]") -> None:
        _retrieve(future)
        self.running -= 1
        self._mean_s += 0.2 * (time.perf_counter() - entered - self._mean_s)
        self._free.release()

    def _retry_after_s(self) -> int:
        """Return the estimated time until the queue is empty [s], between 1 and 60."""
        return min(60, 1 + int(self.waiting * self._mean_s / self.size))

    @property
    def available(self) -> bool:
        """Whether work is accepted; False before the first process is ready, or if none can be started."""
        return self._processes.available

    def start(self) -> None:
        """Start the solver processes in the background, if there are any."""
        self._processes.start()

    async def close(self) -> None:
        """Accept no more work, wait for the running one, then end threads and processes."""
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        await asyncio.get_running_loop().run_in_executor(None, self._processes.close)


def _retrieve(future: "asyncio.Future[Any]") -> None:
    """Retrieve the exception of a future whose request has ended, so that it is not logged as unhandled."""
    if not future.cancelled():
        future.exception()


async def _left(request: Request) -> None:
    """Wait until the client has closed its connection.

    Raises:
        HTTPException: the rest of the body is rejected.
    """
    while (await request.receive())["type"] != "http.disconnect":
        pass
