"""A copy of the tree in which a table is edited, and what a program answers that runs in it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"


COMPILED = {".pyc", ".nbi", ".nbc"}
"""Compiled code, which is copied as well: compiling the tree again takes seconds."""


def unfinished(folder: str, names: list[str]) -> set[str]:
    """Return the files beside compiled code that another process may be writing."""
    return {name for name in names if Path(name).suffix not in COMPILED} if "__pycache__" in folder else set()


def copy_tree(copy: Path, added: Mapping[str, str], edits: Mapping[str, Mapping[str, str]]) -> None:
    """Copy both packages, add files or folders of the tests to them, and edit tables.

    Args:
        copy: where to.
        added: places in the copy, by what of the tests goes there.
        edits: what replaces what in each file; everything stands there once.
    """
    for package in ("optimizer", "rest_server"):
        shutil.copytree(ROOT / package, copy / package, ignore=unfinished)
    for source, place in added.items():
        if (TESTS / source).is_dir():
            shutil.copytree(TESTS / source, copy / place, ignore=unfinished)
        else:
            shutil.copy(TESTS / source, copy / place)
    for table, changes in edits.items():
        text = (copy / table).read_text(encoding="utf-8")
        for before, after in changes.items():
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        (copy / table).write_text(text, encoding="utf-8")


def answers_in(copy: Path, program: str, arguments: Sequence[str] = (), given: str = "") -> dict[str, Any]:
    """Return what a program of the tests answers that has the packages from a copy, read from its JSON."""
    found = subprocess.run(
        [sys.executable, str(TESTS / program), *arguments],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": f"{copy}{os.pathsep}{TESTS}{os.pathsep}{TESTS / 'rest_server'}"},
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    answers: dict[str, Any] = json.loads(found.stdout)
    assert answers["home"] == str(copy / "optimizer")
    return answers
