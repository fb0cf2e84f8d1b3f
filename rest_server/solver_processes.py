"""Solver processes, so that solving does not block the process that responds to requests.

Work is a module-level function with plain values as arguments. Its result is returned, or its exception is
raised. Each process is the only worker of its own pebble pool, so a crash or a broken pipe does not affect
other processes. All processes are forked from one server process that has already imported the modules for
solving, and end with the service.
"""

import copyreg
import importlib
import logging
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MappingProxyType
from typing import Any

from pebble import ProcessFuture, ProcessPool
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from optimizer.errors import InferplanError, SolverError
from rest_server.logs import SERVICE
from rest_server.stopping import ctrl_c_blocked, silence_resource_tracker

PRELOADED = (
    "rest_server.fork_server",
    "pebble.pool.process",
    "scipy.special",
    "optimizer.pipeline",
    "optimizer.milp.highs",
    "rest_server.v1.planning",
    "rest_server.v1.study_work",
    "rest_server.compat.queue",
    "rest_server.compat.planning",
)
"""Modules that the fork server imports before it forks."""
TRIES = 2
"""Maximum number of attempts for work whose process dies."""
CHECK_S = 1.0
"""Interval at which idle processes are checked, and delay after a failed start [s]."""
START_S = 30.0
"""Maximum time for the first response of a new process [s]."""
_PLAIN = (bytes, str, int, float, bool, type(None), BaseModel)
_LOST = (CancelledError, OSError, EOFError, BrokenProcessPool)
"""Exceptions that pebble raises if a process has died or cannot be started."""


class SolverUnavailableError(InferplanError):
    """Raised when no process can be started, or each one dies, possibly out of memory or file descriptors."""

    http_status = 503
    retry_after_s = 5
    """Time after which clients should try again [s]."""


def is_remotable(work: Callable[[], Any]) -> bool:
    """Return whether work can be sent to another process: it is a module-level function with plain values."""
    if not isinstance(work, partial):
        return False
    values = (*work.args, *work.keywords.values())
    return (
        isinstance(work.func, FunctionType)
        and "<" not in work.func.__qualname__
        and all(isinstance(value, _PLAIN) for value in values)
    )


def _proxy_parts(proxy: MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return MappingProxyType, (dict(proxy),)


copyreg.pickle(MappingProxyType, _proxy_parts)  # results contain read-only mappings


class Job:
    """Work for another process, which can be cancelled.

    `before` is called in the process that owns the job, and its result is the last argument of the work.
    """

    def __init__(self, work: Callable[..., Any], before: Callable[[], Any] | None = None) -> None:
        self._work, self._before = work, before
        self._future: ProcessFuture[bytes] | None = None
        self._given_up = False

    def message(self) -> bytes:
        """Return the work as a pickled message, after calling `before`."""
        return pickle.dumps(self._whole(), pickle.HIGHEST_PROTOCOL)

    def run_here(self) -> Any:
        """Do the work in the current process."""
        return self._whole()()

    def _whole(self) -> Callable[[], Any]:
        return self._work if self._before is None else partial(self._work, self._before())

    def check(self) -> None:
        """Check that the work was not cancelled.

        Raises:
            SolverError: the work was cancelled.
        """
        if self._given_up:
            raise SolverError("the request was cancelled")

    def sent_as(self, future: ProcessFuture[bytes]) -> None:
        """Store the future of the work while another process does it."""
        self._future = future
        if self._given_up:  # it might have been cancelled before it had a future
            future.cancel()

    def cancel(self) -> None:
        """End the process if it works on this job; this never blocks, because the event loop calls it."""
        self._given_up = True
        if self._future is not None:
            self._future.cancel()


class SolverProcesses:
    """Pool of solver processes; a process that ends is restarted until that succeeds."""

    def __init__(self, count: int) -> None:
        self.count = count
        """Number of processes; if it is 0, `run` must not be called."""
        self._processes = tuple(_Process() for _ in range(count))
        self._idle = list(self._processes)
        self._changed = threading.Condition()
        self._keeper: threading.Thread | None = None
        self._started = self._failing = self._closing = False

    @property
    def available(self) -> bool:
        """Whether work is accepted, possibly after replacing a process."""
        return not self.count or (self._started and not (self._failing and self._none_works()))

    def _none_works(self) -> bool:
        return not any(process.works for process in self._processes)

    def start(self) -> None:
        """Start the processes in the background, and from then on replace those that end."""
        with self._changed:
            if self._keeper is None and self.count:
                silence_resource_tracker()
                self._keeper = threading.Thread(target=self._keep, name="keep-solvers", daemon=True)
                self._keeper.start()

    def _keep(self) -> None:
        """Repeatedly restart idle processes that do not respond, until the service ends."""
        while not self._closing:
            with self._changed:
                process = next((each for each in self._idle if not each.works), None)
                if process is None:
                    self._changed.wait(CHECK_S)
                    continue
                self._idle.remove(process)
            problem = process.start()
            with self._changed:
                self._started, self._failing = self._started or not problem, bool(problem)
                self._idle.append(process)
                self._changed.notify_all()
                if problem and not self._closing:
                    logging.getLogger(SERVICE).warning("a solver process could not be started: %s", problem)
                    self._changed.wait(CHECK_S)

    def run(self, job: Job) -> Any:
        """Run work in a process, and return its result; if the process dies, try once more in another.

        Raises:
            SolverUnavailableError: no process can be started, or two died in a row, possibly out of memory.
            SolverError: the work was cancelled.
            Exception: any exception that `before` or the work raises.
        """
        self.start()
        message = None
        for _ in range(TRIES):
            with self._taken(job) as process:
                message = message or job.message()
                answer = process.answer(message, job)
            job.check()
            if answer is not None:
                done, result = pickle.loads(answer)  # noqa: S301  our own process wrote it
                if done:
                    return result
                raise result
        raise SolverUnavailableError(
            "two solver processes died in a row, possibly out of memory; "
            f"try again in {SolverUnavailableError.retry_after_s} s, or send a smaller request"
        )

    @contextmanager
    def _taken(self, job: Job) -> Iterator["_Process"]:
        """Context that waits for a working process and reserves it for a job."""
        with self._changed:
            while (process := next((each for each in self._idle[::-1] if each.works), None)) is None:
                job.check()
                if self._failing and self._none_works():
                    raise SolverUnavailableError(
                        "no solver process can be started, possibly for lack of memory or file descriptors; "
                        f"try again in {SolverUnavailableError.retry_after_s} s"
                    )
                self._changed.notify_all()  # an idle process might have died
                self._changed.wait(CHECK_S)
            self._idle.remove(process)
        try:
            yield process
        finally:
            with self._changed:
                self._idle.append(process)
                self._changed.notify_all()

    def close(self) -> None:
        """End the processes immediately."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._keeper is not None:
            self._keeper.join(CHECK_S)  # do not wait longer for a process that cannot be started
        for process in self._processes:
            process.end()


class _Process:
    """Pool with a single process, which is discarded on any failure."""

    def __init__(self) -> None:
        self._pool: ProcessPool | None = None

    @property
    def works(self) -> bool:
        """Whether the process has responded at least once and is still running."""
        pool = self._pool
        return pool is not None and pool.active

    def start(self) -> str:
        """Replace an ended process by a new one.

        Return the reason if that does not respond, else an empty text.
        """
        self.end()
        pool = ProcessPool(1, initializer=_prepare, context=_context())
        try:
            _awaited(_scheduled(pool, os.getpid), pool, START_S)
        except _LOST as error:
            _end(pool)
            return " ".join(str(error.__cause__ or error).split()) or type(error).__name__
        self._pool = pool
        return ""

    def answer(self, message: bytes, job: Job) -> bytes | None:
        """Return the response to a message with work; None if the process ends before responding."""
        pool = self._pool
        assert pool is not None
        try:
            future = _scheduled(pool, _answered, message)
            job.sent_as(future)
            answer: bytes = _awaited(future, pool)
        except _LOST:
            pool.stop()
            return None
        return answer

    def end(self) -> None:
        """End the process immediately, if there is one."""
        pool, self._pool = self._pool, None
        if pool is not None:
            _end(pool)


def _end(pool: ProcessPool) -> None:
    pool.stop()
    pool.join()


def _scheduled(pool: ProcessPool, work: Callable[..., Any], *arguments: object) -> ProcessFuture[Any]:
    """Schedule work in a pool, and return its future.

    Raises:
        BrokenProcessPool: the pool has ended, or its threads cannot be started.
    """
    try:
        with ctrl_c_blocked():
            return pool.schedule(work, arguments)
    except RuntimeError as error:
        raise BrokenProcessPool(str(error)) from error


def _awaited(future: ProcessFuture[Any], pool: ProcessPool, timeout_s: float | None = None) -> Any:
    """Wait for a future, and return its result.

    Raises:
        BrokenProcessPool: the pool failed, or the time limit was exceeded.
    """
    waited_s = 0.0
    while timeout_s is None or waited_s < timeout_s:
        try:
            return future.result(CHECK_S)
        except TimeoutError:
            waited_s += CHECK_S
            if not pool.active:
                raise BrokenProcessPool("the process has ended") from None
    raise BrokenProcessPool(f"no answer within {timeout_s:g} s")


# --- in the processes ----------------------------------------------------------------------------------


def _context() -> Any:
    """Return the multiprocessing context; if supported, it forks from a process that has all imports."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


def _prepare() -> None:
    """Prepare a process so that it ends on a signal, even during a solve, and when the service ends.

    Modules that the fork server could not import are imported here, where failures are reported.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_the_service, daemon=True).start()
    for module in PRELOADED:
        importlib.import_module(module)


def _end_with_the_service() -> None:
    service = multiprocessing.parent_process()
    if service is not None:
        service.join()
        os._exit(1)


def _answered(work: bytes) -> bytes:
    problem: Exception
    try:
        result = pickle.loads(work)()  # noqa: S301  the service wrote it
        return pickle.dumps((True, result), pickle.HIGHEST_PROTOCOL)
    except (InferplanError, HTTPException) as error:
        problem = error
    except Exception:  # noqa: BLE001  a bug ends the request, not the process, and is logged
        problem = RuntimeError(f"in the solver's process:\n{traceback.format_exc()}")
    return pickle.dumps((False, problem), pickle.HIGHEST_PROTOCOL)
