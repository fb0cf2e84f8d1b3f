"""Fill docs/extending.md with the code that the tests run: ``python tests/tools/extending_page.py``.

A comment before a fenced block names its content: ``<!-- FILE: NAME NAME -->`` shows these classes of a file,
``<!-- FILE: all -->`` the file, and ``<!-- FILE: NAME of TABLE -->`` the edits of a table, a constant of a
test, as a diff. Blocks of ``<!-- FILE: …, on the site -->`` are on the site only.
"""

import ast
import difflib
import importlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]
PAGE = ROOT / "docs" / "extending.md"
BLOCK = re.compile(r"(<!-- (\S+): ([\w ./]+) -->\n```\w+\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)
SITE = re.compile(r"<!-- (\S+): ([\w ./]+), on the site -->\n")


def classes(text: str, names: list[str]) -> str:
    """Return the source of some classes of a file."""
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name in names]
    assert [node.name for node in nodes] == names
    lines = text.splitlines()
    starts = [min([node.lineno, *(item.lineno for item in node.decorator_list)]) - 1 for node in nodes]
    found = ["\n".join(lines[start : node.end_lineno]) for start, node in zip(starts, nodes, strict=True)]
    return "\n\n\n".join(found) + "\n"


def edits(test: str, constant: str) -> dict[str, str]:
    found: dict[str, str] = getattr(importlib.import_module(Path(test).stem), constant)
    return found


def diff(table: str, changes: dict[str, str]) -> str:
    """Return the changed lines of a table, each with the lines before and after it."""
    before = (ROOT / table).read_text(encoding="utf-8")
    after = before
    for old, new in changes.items():
        assert after.count(old) == 1, old
        after = after.replace(old, new)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), table, table, n=1, lineterm="")
    return "\n".join("@@" if line.startswith("@@") else line for line in lines) + "\n"


def shown(source: str, part: str) -> str:
    """Return what a block shows of a file."""
    constant, _, table = part.partition(" of ")
    if table:
        return diff(table, edits(source, constant))
    text = (ROOT / source).read_text(encoding="utf-8")
    if part == "all":
        return text
    return classes(text, part.split())


def filled(page: str) -> str:
    """Return the page with every block as the tests have it today."""
    return BLOCK.sub(lambda block: block[1] + shown(block[2], block[3]) + block[5], page)


def completed(page: str) -> str:
    """Return the page as the site shows it: with the longer blocks, too."""
    return SITE.sub(lambda found: f"```python\n{shown(found[1], found[2])}```\n", page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
