"""Sections as a terminal shows them, and the rows of CSV."""

import csv
import io
from typing import Any

from optimizer import System, make_report, render_report
from optimizer.render.pages import PageFormat
from optimizer.render.terminal import Output, show


class Terminal(io.StringIO):
    """A file that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def text_of(sections: Any, file: io.StringIO | None = None, *, wide: bool = True, **output: Any) -> str:
    """Return what is written to a file, or to a terminal, with all columns unless told otherwise."""
    file = file or io.StringIO()
    show(sections, file, Output(wide=wide, **output))
    return file.getvalue()


def row(text: str, first: str) -> list[str]:
    """Return the words of the first line that begins with a word."""
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [first])


def csv_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def page_of(system: System, page_format: PageFormat = "markdown") -> str:
    """Return the report of a system as a page."""
    return render_report(make_report(system), system, page_format)
