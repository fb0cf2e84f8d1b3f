"""Services in processes of their own that are there at once: forked from one that has imported everything.

Run as a program, it reads the path of a state file as a line of JSON, forks, and writes the process and the
port of the service as a line; so for every line.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from patience import PATIENCE_S, PATIENT
from service_runs import ROOT, Reply, ask


class Forked(NamedTuple):
    """A service that can be killed."""

    process: int
    port: int

    def ask(self, method: str, path: str, body: Any = None) -> Reply:
        return ask(self.port, method, path, body)

    def kill(self) -> None:
        os.kill(self.process, signal.SIGKILL)


class Nursery(NamedTuple):
    """Where services come from."""

    process: "subprocess.Popen[str]"

    def serve(self, state: Path) -> Forked:
        """Start a service with a state file."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(str(state)) + "\n")
        self.process.stdin.flush()
        return Forked(*json.loads(self.process.stdout.readline()))

    def buried(self) -> None:
        """Wait until a service that was killed has ended, and everything of it."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ended\n"


@contextmanager
def nursery(*prefix: str) -> Iterator[Nursery]:
    """Start a process that forks services, behind a command if one is given."""
    here = Path(__file__).parent
    paths = os.pathsep.join((str(ROOT), str(here), str(here.parent)))
    with subprocess.Popen(
        [*prefix, sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    ) as process:
        yield Nursery(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(PATIENCE_S)


def _main() -> None:
    import uvicorn

    from rest_server.app import create_app
    from rest_server.settings import Settings
    from rest_server.state_file import open_state

    app = create_app(Settings(stateful=True, solver_processes=0, **PATIENT))
    for line in sys.stdin:
        with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
            port, child = listening.getsockname()[1], os.fork()
            if not child:
                app.state.held = open_state(Path(json.loads(line)))
                uvicorn.Server(uvicorn.Config(app, log_config=None, loop="asyncio")).run(sockets=[listening])
                os._exit(0)
        print(json.dumps([child, port]), flush=True)
        os.waitpid(child, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    _main()
