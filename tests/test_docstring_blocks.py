"""Literal blocks of docstrings keep their lines, and the drawn exception trees are the trees of the code."""

import ast
import importlib
import re
from functools import cache

import pytest
from doc_pages import ROOT
from parsed_sources import parsed

from optimizer.errors import InferplanError

BRANCH = re.compile(r"(?P<before>(?:│   |    )*)[├└]── (?P<name>\w+) +(?P<text>\S.*)")
TREES = {"optimizer/errors.py": "optimizer.errors", "rest_server/client/__init__.py": "rest_server.client"}


@cache
def literal_blocks() -> list[tuple[str, list[str]]]:
    """Return the file and the lines of each block that follows ``::`` in a docstring."""
    found = []
    for package in ("optimizer", "rest_server"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(parsed(path)):
                if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                text = ast.get_docstring(node) or ""
                blocks = re.findall(r"::\n\n((?: +\S.*\n?|\n(?= ))+)", text)
                found += [(path.relative_to(ROOT).as_posix(), block.rstrip().split("\n")) for block in blocks]
    return found


@pytest.mark.slow
def test_every_branch_has_a_line_of_its_own() -> None:
    drawn = [(path, lines) for path, lines in literal_blocks() if any("──" in line for line in lines)]
    assert {path for path, _ in drawn} == set(TREES)
    for _, (root, *branches) in drawn:
        assert root.split()[0] == "InferplanError"
        assert all(line.count("──") == 1 and BRANCH.fullmatch(line.strip("\n")[4:]) for line in branches)


@pytest.mark.slow
@pytest.mark.parametrize("path", TREES)
def test_the_drawn_exceptions_are_those_of_the_code(path: str) -> None:
    module = importlib.import_module(TREES[path])
    (lines,) = (lines for where, lines in literal_blocks() if where == path)
    parents = {0: InferplanError}
    names = set()
    for line in lines[1:]:
        found = BRANCH.fullmatch(line[4:])
        assert found is not None
        depth = len(found["before"]) // 4
        error = getattr(module, found["name"])
        assert error.__bases__[0] is parents[depth]
        if path == "optimizer/errors.py":
            numbers = re.findall(r"\d+", found["text"])
            assert numbers[0] == str(error.exit_code)
            assert numbers[1:] == [str(error.http_status)]
        parents[depth + 1] = error
        names.add(found["name"])
    known = {name for name in dir(module) if name.endswith("Error")} - {"InferplanError"}
    assert {getattr(module, name) for name in known} == {getattr(module, name) for name in names}
