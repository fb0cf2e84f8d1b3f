"""Common parts of the commands: their type, shared arguments, and JSON on stdout."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from optimizer.errors import SpecError
from optimizer.section import Section

if TYPE_CHECKING:
    from optimizer.render.plots import Format

PICTURES: "tuple[Format, ...]" = ("svg", "png", "pdf")
"""Formats of pictures."""


class Command(NamedTuple):
    """A sub-command and the functions that add its arguments and run it."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int | None]


def add_path(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the system."""
    parser.add_argument(
        "path", metavar="PATH", help="system: a YAML or JSON file, a directory, - for stdin, or sample:NAME"
    )


def add_output(parser: argparse.ArgumentParser, *tables: str) -> None:
    """Add the flags for the output format; the default is all tables, fitted to the terminal."""
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="write JSON instead of tables")
    forms.add_argument(
        "--csv", action="store_true", help="write a table as CSV: the first, or that of --table"
    )
    add_wide(forms)
    parser.add_argument("--table", metavar="NAME", help=f"write only one table: {', '.join(tables)}")


def add_wide(group: argparse._ActionsContainer) -> None:
    """Add the flag for tables at full width."""
    group.add_argument("--wide", action="store_true", help="show all columns and untruncated names")


def show_tables(sections: list[Section], arguments: argparse.Namespace) -> None:
    """Write sections to stdout in the requested format."""
    from optimizer.render.terminal import Output, show

    show(sections, sys.stdout, Output(arguments.wide, arguments.csv, arguments.table))


def show_answer(
    arguments: argparse.Namespace, values: Callable[[], object], sections: Callable[[], list[Section]]
) -> None:
    """Write an answer to stdout: as JSON, from its values or text, or as tables."""
    if not arguments.json:
        show_tables(sections(), arguments)
    elif isinstance(found := values(), str):
        print(found)
    else:
        print_json(found)


def picture_format(path: Path) -> "Format":
    """Return the picture format given by the suffix of a path.

    Raises:
        SpecError: the suffix is not a known format.
    """
    suffix = path.suffix.lower().removeprefix(".")
    for known in PICTURES:
        if suffix == known:
            return known
    names = ", ".join(f".{name}" for name in PICTURES)
    raise SpecError(f"-o: {path}: the name must end in one of {names}")


def print_stderr(text: str) -> None:
    """Write a line to stderr, after flushing stdout, so that the order is kept if both are one stream."""
    if sys.stdout is not None:
        sys.stdout.flush()
    print(text, file=sys.stderr)


def one_line(text: str) -> str:
    """Return a message as one line, even if it contains names with line breaks."""
    return " ".join(text.split())


def print_json(value: object) -> None:
    """Write a value as JSON to stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))
