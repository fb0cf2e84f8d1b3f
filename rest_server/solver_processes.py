"""Processes that solve, so that the one that answers requests keeps its interpreter to itself.

Takes work that is a module's function over plain values, gives its result, or raises what it raised. A
process ends by itself when the one that started it is gone.
"""

import contextlib
import copyreg
import importlib
import multiprocessing
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from starlette.exceptions import HTTPException

from optimizer.errors import InferplanError, SolverError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_PLAIN = (bytes, str, int, float, bool, type(None), BaseModel)
_IMPORTED_BEFOREHAND = (
    "optimizer.pipeline",
    "optimizer.solvers.highs",
    "rest_server.v1.planning",
    "rest_server.compat.queue",
    "rest_server.compat.planning",
)
"""What a process imports before its first work."""


def may_leave(work: Callable[[], Any]) -> bool:
    """Say whether work can be sent to another process: a module's function over plain values."""
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


copyreg.pickle(MappingProxyType, _proxy_parts)  # results hold read-only mappings


class Job:
    """Work that can be given up while it is done in another process.

    What `before` returns, from a call in the process that has the job, is the work's last argument.
    """

    def __init__(self, work: Callable[..., Any], before: Callable[[], Any] | None = None) -> None:
        self._work, self._before = work, before
        self.lock = threading.Lock()
        self.child: _Child | None = None
        self.given_up = False

    def message(self) -> bytes:
        """Return the work as it is sent, after what comes before it."""
        return pickle.dumps(self._whole(), pickle.HIGHEST_PROTOCOL)

    def run_here(self) -> Any:
        """Do the work in this process."""
        return self._whole()()

    def _whole(self) -> Callable[[], Any]:
        return self._work if self._before is None else partial(self._work, self._before())

    def check(self) -> None:
        """Refuse to go on with what has been given up.

        Raises:
            SolverError: it has been.
        """
        if self.given_up:
            raise SolverError("nobody waits for this work any more")

    def hand_to(self, child: "_Child") -> None:
        """Note which process works on this.

        Raises:
            SolverError: it has been given up.
        """
        with self.lock:
            self.check()
            self.child = child

    def give_up(self) -> None:
        """End the process if it works on this already; another takes its place."""
        with self.lock:
            self.given_up = True
            if self.child is not None:
                self.child.kill()


class SolverProcesses:
    """A number of processes, each started with its first work or by `start`; one that dies is replaced."""

    def __init__(self, count: int) -> None:
        self.count = count
        """How many there are; none: `run` must not be called."""
        self._idle: queue.LifoQueue[_Child] = queue.LifoQueue()
        for _ in range(count):
            self._idle.put(_Child())

    def run(self, job: Job) -> Any:
        """Run work in a process and return its result.

        Raises:
            SolverError: the process died, for lack of memory perhaps, or was given up.
            Exception: whatever comes before the work raises.
        """
        child = self._idle.get()
        try:
            job.check()
            child.start()
            message = job.message()
            job.hand_to(child)
            done, result = child.answer(message)
        except (EOFError, OSError):
            child = self._replaced(child, job)
            job.check()
            raise SolverError("the solver's process has died, perhaps for lack of memory") from None
        finally:
            with job.lock:
                job.child = None
            self._idle.put(child)
        if not done:
            raise result
        return result

    @staticmethod
    def _replaced(child: "_Child", job: Job) -> "_Child":
        with job.lock:
            child.kill()
        child.wait()
        return _Child()

    def start(self) -> None:
        """Start all processes, and wait until they have imported what a solve needs."""
        children = [self._idle.get() for _ in range(self.count)]
        for child in children:
            child.start()
        for child in children:
            try:
                child.answer(pickle.dumps(partial(int)))
            except (EOFError, OSError):
                child.kill()
                child.wait()
            self._idle.put(child)

    def close(self) -> None:
        """End the processes; call it when they are idle."""
        for _ in range(self.count):
            self._idle.get().end()


class _Child:
    """One process and the pipe to it."""

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Connection[bytes, bytes] | None = None

    def start(self) -> None:
        """Start the process, if it does not run."""
        if not self.works():
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()

    def answer(self, work: bytes) -> tuple[bool, Any]:
        """Return whether the work was done, and its result or what it raised.

        Raises:
            EOFError: the process has died.
            OSError: the process has died.
        """
        assert self._pipe is not None
        self._pipe.send_bytes(work)
        answer: tuple[bool, Any] = pickle.loads(self._pipe.recv_bytes())  # noqa: S301  our own process wrote it
        return answer

    def works(self) -> bool:
        """Say whether the process is alive."""
        return bool(self._process is not None and self._process.is_alive())

    def kill(self) -> None:
        """End the process at once, if it has not ended yet; does not wait for its end."""
        if self._process is not None:
            self._process.kill()

    def wait(self) -> None:
        """Wait until the process has ended."""
        if self._process is not None:
            self._process.join()

    def end(self) -> None:
        """End the process; it is idle."""
        if self._pipe is not None:
            self._pipe.close()
            self._process.join()


class _Worker:
    """What runs in a process: answers work until the other side has closed the pipe, or is gone."""

    def __init__(self, pipe: "Connection[bytes, bytes]") -> None:
        self._pipe = pipe
        self._working = self._ending = False

    def serve(self) -> None:
        """Answer one after the other."""
        with contextlib.suppress(EOFError, OSError):
            while not self._ending:
                work = self._pipe.recv_bytes()
                self._working = True
                self._pipe.send_bytes(_answered(work))
                self._working = False

    def end(self, *_: object) -> None:
        """End now, or after what is being worked on."""
        self._ending = True
        if not self._working:
            sys.exit()


def _answered(work: bytes) -> bytes:
    answer: tuple[bool, Any]
    try:
        answer = True, pickle.loads(work)()  # noqa: S301  the service wrote it
    except (InferplanError, HTTPException) as error:
        answer = False, error
    except Exception:  # noqa: BLE001  a fault of ours ends the request, not the process, and the service logs it
        answer = False, RuntimeError(f"in the solver's process:\n{traceback.format_exc()}")
    return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)


def _serve(pipe: "Connection[bytes, bytes]") -> None:
    worker = _Worker(pipe)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the service, which finishes what runs
    signal.signal(signal.SIGTERM, worker.end)
    for module in _IMPORTED_BEFOREHAND:
        importlib.import_module(module)
    worker.serve()
