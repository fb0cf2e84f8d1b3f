"""Commands of `inferplan` in processes that are there at once, forked from one that has imported everything.

Run as a program, it takes commands from a socket until the other end is closed: for each one its words, its
environment and files for what it writes, and a socket on which it says the process and later its status.
"""

import atexit
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Self

from commands import COUNTED, ROOT
from patience import PATIENCE_S

IMPORTED = (
    "coverage", "optimizer.__main__", "optimizer.cli.looping", "optimizer.cli.serve", "optimizer.cli.working",
    "optimizer.pipeline", "optimizer.simulation.live.tokens", "rest_server.app", "rest_server.loop.sources",
    "rest_server.emulator.scalable", "rest_server.emulator.worker",
)  # fmt: skip


class Forked:
    """A command that runs; what tests use of `subprocess.Popen`."""

    def __init__(
        self,
        words: list[str],
        environment: Mapping[str, str],
        errors: IO[bytes],
        files: int,
        prefix: Sequence[str],
    ) -> None:
        """Start a command."""
        self.returncode: int | None = None
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        read, write = os.pipe()
        given = json.dumps({"words": words, "environment": {**os.environ, **environment}, "files": files})
        socket.send_fds(_nursery(*prefix), [given.encode()], [write, errors.fileno(), theirs.fileno()])
        os.close(write)
        theirs.close()
        self.stdout, self.errors, self._said = os.fdopen(read), errors, mine
        self.pid = int(mine.recv(100))

    def poll(self, timeout_s: float = 0.0) -> int | None:
        """Return the exit status, or the negative signal that ended it; None if it runs."""
        if self.returncode is None and select.select([self._said], [], [], timeout_s)[0]:
            self.returncode = int(self._said.recv(100))
            self._said.close()
        return self.returncode

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """Wait for its end; return the status."""
        found = self.poll(timeout)
        assert found is not None, "it does not end"
        return found

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and its status is on the way
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self) -> tuple[str, str]:
        """Wait for its end; return what it wrote on standard output since, and on standard error."""
        written = self.stdout.read()
        self.wait()
        self.errors.seek(0)
        return written, self.errors.read().decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it if it runs, and close its files."""
        self.kill()
        self.wait()
        self.stdout.close()
        self.errors.close()


def forked(
    *words: object,
    environment: Mapping[str, str] = COUNTED,
    errors: IO[bytes] | None = None,
    files: int = 1024,
    prefix: Sequence[str] = (),
) -> Forked:
    """Start a command.

    Args:
        words: its words.
        environment: what is added to the environment.
        errors: where its standard error goes; a new file if none is given.
        files: how many files it may open.
        prefix: a command behind which the process runs that forks.
    """
    return Forked([*map(str, words)], environment, errors or TemporaryFile(), files, prefix)


@cache
def _nursery(*prefix: str) -> socket.socket:
    """Start a process that forks, which ends with this one."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(Path(__file__).parent)))}
    process = subprocess.Popen(
        [*prefix, sys.executable, __file__, str(theirs.fileno())],
        stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=environment, cwd=ROOT,
    )  # fmt: skip
    theirs.close()
    atexit.register(process.wait)
    atexit.register(mine.close)
    return mine


def _serve(commands: socket.socket) -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    sys.modules["__main__"] = sys.modules["optimizer.__main__"]  # as its processes that solve expect
    gc.freeze()
    signal.signal(signal.SIGCHLD, lambda *_: os.waitpid(-1, os.WNOHANG))
    while True:
        given, files, _, _ = socket.recv_fds(commands, 2**20, 3)
        if not given:
            return
        if not os.fork():
            commands.close()
            break
        for each in files:
            os.close(each)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    out, errors, said = files
    child = os.fork()
    if child:
        os.close(out)
        os.close(errors)
        with suppress(BrokenPipeError):
            os.write(said, str(child).encode())
            os.write(said, str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
        os._exit(0)
    os.close(said)
    os.dup2(out, 1)
    os.dup2(errors, 2)
    os.close(out)
    os.close(errors)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)  # of other kinds than before
    _run(**json.loads(given))


def _run(words: list[str], environment: dict[str, str], files: int) -> None:
    from optimizer.__main__ import main

    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    os.environ.clear()
    os.environ.update(environment)
    if "COVERAGE_PROCESS_START" in environment:
        sys.modules["coverage"].process_startup()
    sys.argv = ["inferplan", *words]
    sys.exit(main())


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
