"""Clean ends of the service and its processes, which write only log lines on stderr."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import NoReturn

STOPPING = signal.SIGINT, signal.SIGTERM
_TRACKER = "ignore:resource_tracker:UserWarning"


def end_on_signals() -> None:
    """End with status 0 on the first stop signal; uvicorn raises the signal again after its shutdown."""
    for number in STOPPING:
        signal.signal(number, _end)


def _end(*_: object) -> NoReturn:
    for number in STOPPING:  # a second one would interrupt the end with a traceback
        signal.signal(number, signal.SIG_IGN)
    raise SystemExit(0)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Context in which a stop signal ends the process immediately, for steps that need no clean-up.

    An exception could be raised inside a callback, and Python would write a traceback.
    """
    before = {number: signal.signal(number, _end_now) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_now(*_: object) -> NoReturn:
    os._exit(0)


def silence_resource_tracker() -> None:
    """Make Python's resource tracker remove the semaphores of a killed service without a warning."""
    filters = os.environ.get("PYTHONWARNINGS", "").split(",")
    if _TRACKER not in filters:
        os.environ["PYTHONWARNINGS"] = ",".join([*filter(None, filters), _TRACKER])


@contextmanager
def ctrl_c_blocked() -> Iterator[None]:
    """Context that blocks SIGINT in this thread, and so in the processes that it starts.

    Ctrl-C reaches all processes of a terminal. Processes that the service starts must not react to it,
    because the service ends them, and because Python writes a traceback if it arrives during an import.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # first, because it unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
