"""Pages of the documentation: their blocks and tables, and what the program prints for their commands."""

import contextlib
import io
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from notes import besides_compiling

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


class Block(NamedTuple):
    """A fenced block, and the text block that follows it as its output."""

    section: str
    language: str
    text: str
    output: str = ""


def read_page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def one_line(page: str) -> str:
    return " ".join(page.split())


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page with their sections."""
    found, section = [], ""
    for match in re.finditer(r"^## ([^\n]+)$|^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        section = match[1] or section
        if match[1] is None:
            found.append(Block(section, match[2], match[3]))
    after = [*found[1:], Block("", "", "")]
    outputs = (block.text if block.language == "text" else "" for block in after)
    return [block._replace(output=output) for block, output in zip(found, outputs, strict=True)]


def table(page: str, first: str) -> list[list[str]]:
    """Return the rows of the table whose first heading is this, as text."""
    lines = page.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    assert rows
    return rows


def head_of(page: str, first: str) -> list[str]:
    """Return the two lines at the head of the table whose first heading is this."""
    lines = page.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    return lines[start : start + 2]


def with_tables(page: str, tables: Iterable[Sequence[str]]) -> str:
    """Return a page with other rows in the tables that have these first rows."""
    for rows in tables:
        (old,) = re.findall(rf"{re.escape(rows[0])}\n(?:\|.*\n)+", page)
        page = page.replace(old, "".join(f"{row}\n" for row in rows))
    return page


def printed(run: Callable[[], object], folder: Path = ROOT, given: str = "") -> tuple[str, str]:
    """Run something in a folder; return what it prints on standard output, and on standard error."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run()
    return out.getvalue(), besides_compiling(err.getvalue())
