"""The generated parts of docs/python.md: what its blocks print, and the table of public names.

Run ``python tests/tools/python_page.py`` to write them; the blocks for the client are written by hand.
"""

import contextlib
import inspect
import io
import os
import re
from pathlib import Path

import optimizer

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "python.md"
_NAMES = re.compile(r"(?<=\| name \| meaning \|\n\|---\|---\|\n).*", re.DOTALL)
_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n^```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
_CLIENT = "## A client of the service"
"""Heading of the section whose blocks need a service."""


def names() -> str:
    """Return the rows of the table of public names."""
    return "".join(f"| `{name}` | {_meaning(name)} |\n" for name in dir(optimizer))


def _meaning(name: str) -> str:
    found = getattr(optimizer, name)
    if name == "__version__":
        return "Version of the package."
    return " ".join((inspect.getdoc(found) or "").partition("\n\n")[0].split()).replace("``", "`")


def generated(page: str) -> str:
    """Return the page with its outputs before the client, and its table of names, made from the program."""
    before, heading, after = page.partition(_CLIENT)
    variables: dict[str, object] = {"__name__": "page"}

    def filled(block: re.Match[str]) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.chdir(ROOT):
            exec(block[1], variables)  # noqa: S102  the text is our own
        text = "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
        return f"```python\n{block[1]}```\n\n```text\n{text}```"

    columns = os.environ.pop("COLUMNS", None)
    try:
        text = _BLOCK.sub(filled, before)
    finally:
        os.environ |= {} if columns is None else {"COLUMNS": columns}
    return text + heading + _NAMES.sub(lambda _: names(), after)


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
