"""Parts that all commands use: their type, shared arguments, and output to stdout."""

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
"""File formats in which pictures can be drawn."""


class Command(NamedTuple):
    """A sub-command and the functions that add its arguments and run it."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int | None]


def add_path(parser: argparse.ArgumentParser) -> None:
    """Add the positional argument PATH, which names the system."""
    parser.add_argument(
        "path", metavar="PATH", help="system: a YAML or JSON file, a directory, - for stdin, or sample:NAME"
    )


def add_output(parser: argparse.ArgumentParser, *tables: str) -> None:
    """Add the flags for the output format; by default all `tables` are fitted to the terminal."""
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="write JSON instead of tables")
    forms.add_argument(
        "--csv", action="store_true", help="write a table as CSV: the first, or that of --table"
    )
    add_wide(forms)
    parser.add_argument("--table", metavar="NAME", help=f"write only one table: {', '.join(tables)}")


def add_wide(group: argparse._ActionsContainer) -> None:
    """Add the flag ``--wide``, which shows all columns and untruncated names."""
    group.add_argument("--wide", action="store_true", help="show all columns and untruncated names")


def show_tables(sections: list[Section], arguments: argparse.Namespace) -> None:
    """Write sections to stdout as tables or CSV, as the arguments request."""
    from optimizer.render.terminal import Output, show

    show(sections, sys.stdout, Output(arguments.wide, arguments.csv, arguments.table))


def show_answer(
    arguments: argparse.Namespace, values: Callable[[], object], sections: Callable[[], list[Section]]
) -> None:
    """Write a result to stdout: `values` (plain values or JSON text) for ``--json``, otherwise `sections`."""
    if not arguments.json:
        show_tables(sections(), arguments)
    elif isinstance(answer := values(), str):
        print(answer)
    else:
        print_json(answer)


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
    """Flush stdout, then write a line to stderr; so the order is kept if both go to the same place."""
    if sys.stdout is not None:
        sys.stdout.flush()
    print(text, file=sys.stderr)


def one_line(text: str) -> str:
    """Return a message as one line; line breaks in names are replaced."""
    return " ".join(text.split())


def print_json(value: object) -> None:
    """Write a value as JSON to stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))
