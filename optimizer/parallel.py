"""Work on several items at once, in the one place that knows how many threads there may be."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

MAX_THREADS = 8

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def thread_count() -> int:
    """Return how many threads work at once."""
    return min(os.cpu_count() or 1, MAX_THREADS)


def in_threads(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Return what comes of each item, in their order; for work that lets other threads run (NumPy, HiGHS)."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(thread_count()) as pool:
        return list(pool.map(work, items))


def as_done(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
    """Yield what comes of each item, in their order, while others are worked on; for long work of its own.

    The work is that of threads unless the caller has chosen another backend of joblib for its context, as
    `optimizer.cluster` does.
    """
    from joblib import Parallel, delayed

    pool = Parallel(n_jobs=min(thread_count(), max(len(items), 1)), prefer="threads", return_as="generator")
    yield from pool(delayed(work)(item) for item in items)


def may_start_processes() -> bool:
    """Return whether this process may have others work for it, and there is more than one core for them."""
    return thread_count() > 1 and not multiprocessing.current_process().daemon


def in_processes(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Yield what comes of each item, in their order; for work in which Python itself takes its time.

    Items are taken when a process is near to them. The processes take seconds to start when they are first
    wanted, and stay for the next time. Work, items and results are sent to and fro, arrays as well: files for
    these would be missed by whoever tidies up after an interrupt.
    """
    from joblib import Parallel, delayed

    pool = Parallel(
        n_jobs=thread_count(), backend="loky", return_as="generator", batch_size=1, max_nbytes=None
    )
    yield from pool(delayed(work)(item) for item in items)


def start_processes(wake: Callable[[int], None]) -> None:
    """Have the processes started while other work goes on; each does some work that loads what it needs."""
    if may_start_processes():
        threading.Thread(target=wake_processes, args=(wake,), name="start-processes", daemon=True).start()


def wake_processes(wake: Callable[[int], None]) -> None:
    """Wait until the processes have started, and have done some work that loads what they need."""
    list(in_processes(wake, range(thread_count())))
