"""Progress on stderr for long work; nothing if stderr is not a terminal."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 2.0
"""Work shorter than this shows no progress [s]."""


@contextmanager
def working(what: str) -> Iterator[None]:
    """Context that shows a spinner with the elapsed time after `PATIENCE_S`."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(what, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Context that shows the number of finished parts; it yields the function to report them."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    count = TextColumn("{task.fields[count]}")
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as shown:
        task = shown.add_task(what, total=None, count="")  # the number of parts is not known yet

        def told(done: int, total: int) -> None:
            shown.update(task, completed=done, total=total, count=f"{done:,}/{total:,}")

        yield told


@contextmanager
def telling(what: str) -> Iterator[Callable[[str], None]]:
    """Context that shows progress as text with the elapsed time; it yields the function to report it."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as shown:
        task = shown.add_task(what)
        yield lambda text: shown.update(task, description=f"{what}: {text}")


def _show(what: str, done: threading.Event) -> None:
    if done.wait(PATIENCE_S):
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        progress.add_task(what)
        done.wait()
