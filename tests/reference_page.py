"""The generated parts of docs/reference.md: the help of every command, and sections of studies without one.

Run ``python tests/reference_page.py`` to write them.
"""

import contextlib
import io
import os
import re
from pathlib import Path

from optimizer.cli.main import COMMANDS, main
from optimizer.jobs.table import STUDIES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference.md"
COLUMNS = "100"
_HELP = re.compile(r"(?<=```text\n)usage: inferplan(?: (?P<name>[\w-]+))? \[-h\].*?(?=```)", re.DOTALL)
_NEXT = "### analyze\n"
"""Heading of the section after those of the studies."""


def generated(page: str) -> str:
    """Return the page with its generated parts made from the program."""
    missing = [name for name, entry in STUDIES.items() if f"\n### {entry.command}\n" not in page]
    sections = "".join(map(_section, missing))
    return _HELP.sub(lambda found: help_of(found["name"]), page.replace(_NEXT, sections + _NEXT))


def help_of(name: str | None) -> str:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = COLUMNS
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
            main([name, "--help"] if name in COMMANDS else ["--help"])
    finally:
        os.environ.pop("COLUMNS")
        os.environ.update({} if before is None else {"COLUMNS": before})
    return out.getvalue()


def _section(name: str) -> str:
    entry = STUDIES[name]
    study = entry.study
    options = ", ".join(f"`{field}`" for field in study.options.model_fields)
    fields = "\n".join(
        f"| `{field.alias or key}` | {field.description} |"
        for key, field in study.answer.model_fields.items()
    )
    return (
        f"### {entry.command}\n\n{study.description}\n\n`POST /v1/{name}`, `POST /v1/fleet/{name}`, and "
        f"`{name}` of the clients. Query parameters: {options}.\n\n"
        f"| field | meaning |\n|---|---|\n{fields}\n\n"
        f"```text\nusage: inferplan {entry.command} [-h]```\n\n"
    )


if __name__ == "__main__":
    PAGE.write_text(generated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
