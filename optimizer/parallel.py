"""Parallel execution in threads and processes; the only module that determines their number."""

import math
import multiprocessing
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TypeVar

from optimizer.errors import InferplanError

MAX_THREADS = 8

Progress = Callable[[int, int], None]
"""Function that is called with the number of finished parts and the number of all parts."""
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def ignore_progress(_done: int, _total: int) -> None:
    """Progress function that does nothing."""


def core_count() -> int:
    """Return the number of cores available to this process, by its CPU affinity and its cgroup's quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(allowed, cgroup_quota())))


@cache
def cgroup_quota(root: Path = Path("/")) -> float:
    """Return the smallest CPU quota of this process's cgroups (v1 or v2) [cores]; inf if there is none."""
    quotas = [math.inf]
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("" if not controllers else "cpu")
        groups = (PurePosixPath(path), *PurePosixPath(path).parents)
        quotas += [_quota(mount / str(group).lstrip("/")) for group in groups]
    return min(quotas)


def _quota(group: Path) -> float:
    """Return the CPU quota of one cgroup [cores]; inf if there is none."""
    quota = " ".join(_lines(group / "cpu.max")).split()
    quota = quota or [*_lines(group / "cpu.cfs_quota_us"), *_lines(group / "cpu.cfs_period_us")]
    # Without a quota the first value is "max" or -1.
    limited = len(quota) == 2 and all(part.isdecimal() and int(part) for part in quota)
    return int(quota[0]) / int(quota[1]) if limited else math.inf


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def thread_count() -> int:
    """Return the number of threads to run in parallel, at least 1."""
    return min(core_count(), MAX_THREADS)


def in_threads(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Apply `work` to each item in threads; results are in item order. For work that releases the GIL."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(thread_count()) as pool:
        return list(pool.map(work, items))


def as_done(
    work: Callable[[_Item], _Result], items: Sequence[_Item], progress: Progress = ignore_progress
) -> Iterator[_Result]:
    """Apply `work` to items in parallel; yield results in item order while later items still run.

    `progress` is called at the start, and before each result is yielded.

    If several items fail, the error of the first of them in item order is raised.

    Work runs in threads unless the context has selected another joblib backend, as `optimizer.cluster` does.
    """
    from joblib import Parallel, delayed

    pool = Parallel(n_jobs=min(thread_count(), max(len(items), 1)), prefer="threads", return_as="generator")
    results = pool(delayed(_result_or_error)(work, item) for item in items)
    progress(0, len(items))
    for done, result in enumerate(results, start=1):
        if isinstance(result, InferplanError):
            with warnings.catch_warnings(action="ignore"):  # cancelling the other tasks is intended
                results.close()
            raise result
        progress(done, len(items))
        yield result


def _result_or_error(work: Callable[[_Item], _Result], item: _Item) -> _Result | InferplanError:
    try:
        return work(item)
    except InferplanError as error:
        return error


def may_start_processes() -> bool:
    """Return whether this process can start others, and has more than one core."""
    return thread_count() > 1 and not multiprocessing.current_process().daemon


def in_processes(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Apply `work` to items in processes; yield results in item order. For work that holds the GIL.

    Items are taken from the iterable shortly before a process becomes free. Processes take seconds to start
    on first use, and are reused. Work, items and results, including arrays, are sent through pipes, because
    temporary files could remain after an interrupt.
    """
    from joblib import Parallel, delayed

    pool = Parallel(
        n_jobs=thread_count(), backend="loky", return_as="generator", batch_size=1, max_nbytes=None
    )
    yield from pool(delayed(work)(item) for item in items)


def start_processes(wake: Callable[[int], None]) -> None:
    """Start the worker processes in the background; each runs `wake`, which should load needed imports."""
    if may_start_processes():
        threading.Thread(target=wake_processes, args=(wake,), name="start-processes", daemon=True).start()


def wake_processes(wake: Callable[[int], None]) -> None:
    """Start the worker processes, and wait until each has run `wake`, which should load needed imports."""
    list(in_processes(wake, range(thread_count())))
