"""The generated parts of docs/python.md: what its blocks print, and the table of public names.

Run ``python tests/tools/python_page.py`` to write the outputs; the blocks for the client are written by hand.
The table, at ``<!-- names -->``, is on the site only (``site_pages.py``).
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
_NAMES = "<!-- names -->\n"
_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n^```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
_CLIENT = "## A client of the service"
"""Heading of the section whose blocks need a service."""


def completed(page: str) -> str:
    """Return the page as the site shows it: with the table of public names."""
    rows = "".join(f"| `{name}` | {_meaning(name)} |\n" for name in dir(optimizer))
    return page.replace(_NAMES, f"| name | meaning |\n|---|---|\n{rows}")


def _meaning(name: str) -> str:
    found = getattr(optimizer, name)
    if name == "__version__":
        return "Version of the package."
    return " ".join((inspect.getdoc(found) or "").partition("\n\n")[0].split()).replace("``", "`")


def generated(page: str) -> str:
    """Return the page with its outputs before the client made from the program."""
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
    return text + heading + after


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
