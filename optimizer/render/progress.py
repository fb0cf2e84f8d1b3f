"""Progress of long computations on stderr; nothing is shown if stderr is not a terminal."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 2.0
"""Computations shorter than this show no progress [s]."""


@contextmanager
def working(what: str) -> Iterator[None]:
    """Context that shows a spinner and the elapsed time after `PATIENCE_S`; `what` names the computation."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def show() -> None:
        if not done.wait(PATIENCE_S):
            with telling(what):
                done.wait()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Context that shows how many parts are finished.

    It yields the function that reports parts done and total.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TimeElapsedColumn

    columns = ("{task.description}", BarColumn(), "{task.fields[count]}", TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as shown:
        task = shown.add_task(what, total=None, count="")  # the number of parts is not known yet

        def report(done: int, total: int) -> None:
            shown.update(task, completed=done, total=total, count=f"{done:,}/{total:,}")

        yield report


@contextmanager
def telling(what: str) -> Iterator[Callable[[str], None]]:
    """Context that shows a status text and the elapsed time; it yields the function that sets the text."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), "{task.description}", TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as shown:
        task = shown.add_task(what)
        yield lambda text: shown.update(task, description=f"{what}: {text}")
