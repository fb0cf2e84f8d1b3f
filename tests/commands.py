"""Commands of ``inferplan`` as tests run them: in this process (fixture `run`), or in one of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from coverage import Coverage

ROOT = Path(__file__).resolve().parent.parent
COUNTED = {"COVERAGE_PROCESS_START": str(ROOT / "pyproject.toml")} if Coverage.current() else {}
"""Environment in which coverage counts the lines that a service runs, if it counts those of the tests."""


class Answer(NamedTuple):
    """Exit status, standard output and standard error of a command."""

    status: int
    out: str
    err: str

    @property
    def errors(self) -> str:
        """Standard error without the warnings about the system."""
        lines = self.err.splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("inferplan: warning: "))

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def words(self) -> str:
        """The output as one line, without the layout of tables."""
        return " ".join(self.out.split())


Run = Callable[..., Answer]


def is_one_line(answer: Answer, message: str) -> None:
    """Check that a command refuses its input in one line on stderr, with status 2 and no output."""
    assert (answer.status, answer.out, answer.err.count("\n")) == (2, "", 1), answer
    assert message in answer.err


def shell(*arguments: object, environment: dict[str, str] | None = None, **more: Any) -> Answer:
    """Run a command in a process of its own."""
    found = subprocess.run(
        [sys.executable, "-m", "optimizer", *map(str, arguments)],
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | (environment or {}),
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more,
    )
    return Answer(found.returncode, found.stdout or "", found.stderr)
