"""The program in this process: its command line in a folder, and its service.

These two doors stay when modules move, so that a recorder can record older and newer trees.
"""

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

ENVIRONMENT = {
    "COLUMNS": "100",
    "LINES": "40",
    "NO_COLOR": "1",
    "TZ": "UTC",
    "INFERPLAN_SOLVER_PROCESSES": "0",
}
"""What is printed must not depend on the terminal; the service works in this process."""
FORGOTTEN = ("INFERPLAN_", "INFERNO_", "FORCE_COLOR", "SOURCE_DATE_EPOCH")
"""How names in the environment begin that would change answers."""
CRASHED = -1
"""The status of a command that ended in a traceback."""


class Said(NamedTuple):
    """The answer of a command."""

    status: int
    out: str
    err: str


class Program:
    """Runs commands in a folder, and a service."""

    def __init__(self, folder: Path) -> None:
        """Work in an empty folder, where commands read and write files by their bare names."""
        self.folder = folder

    def run(self, *argv: str) -> Said:
        """Run one command."""
        from optimizer.cli.main import main

        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(self.folder),
            _environment(ENVIRONMENT),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                status = main(argv)
            except SystemExit as error:  # of the parser, after help or wrong arguments
                status = int(error.code or 0)
            except Exception as error:  # noqa: BLE001 - a crash is an answer, too, which a later tree may not give
                status = CRASHED
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return Said(status, out.getvalue(), err.getvalue())

    def json(self, *argv: str) -> Any:
        """Run a command that makes a document, and return the document."""
        said = self.run(*argv)
        if said.status:
            raise ValueError(f"inferplan {' '.join(argv)}: status {said.status}: {said.err}")
        return json.loads(said.out)

    def write(self, name: str, value: object) -> None:
        """Write a file: a text as it is, another value as JSON."""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        (self.folder / name).write_text(text, encoding="utf-8")

    def read(self, name: str) -> str:
        """Return the text of a file that a command wrote; empty if it wrote none."""
        path = self.folder / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    @contextlib.contextmanager
    def service(self, *, stateful: bool) -> "Iterator[TestClient]":
        """Serve in this process."""
        from fastapi.testclient import TestClient

        with _environment(ENVIRONMENT | {"INFERPLAN_STATEFUL": str(int(stateful))}):
            from rest_server.app import create_app

            with TestClient(create_app(), "http://localhost", raise_server_exceptions=False) as client:
                yield client


@contextlib.contextmanager
def _environment(names: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    for name in [name for name in before if name.startswith(FORGOTTEN)]:
        del os.environ[name]
    os.environ.update(names)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def check_tree(tree: Path) -> None:
    """Check that the program is that of a tree.

    Raises:
        ValueError: it is another one, say that of the environment.
    """
    import optimizer

    found = Path(str(optimizer.__file__)).resolve().parent.parent
    if found != tree.resolve():
        raise ValueError(f"the program is that of {found}, not of {tree}; sys.path is {sys.path}")
