"""Common parts of the commands: their type, shared arguments, and JSON on stdout."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from optimizer.errors import SpecError
from optimizer.section import Section
from optimizer.units import Scale, UnitError

if TYPE_CHECKING:
    from optimizer.render.plots import Format

PICTURES: "tuple[Format, ...]" = ("svg", "png", "pdf")
"""Formats of pictures."""


class Command(NamedTuple):
    """A sub-command."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int | None]


def add_path(parser: argparse.ArgumentParser) -> None:
    """Add the system to work on."""
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
    parser.add_argument("--table", metavar="NAME", help=f"write one of the tables only: {', '.join(tables)}")


def add_wide(group: argparse._ActionsContainer) -> None:
    """Add the choice of tables that are as wide as they are."""
    group.add_argument("--wide", action="store_true", help="show all columns and untruncated names")


def show_tables(sections: list[Section], arguments: argparse.Namespace) -> None:
    """Write sections to stdout in the form that the arguments request."""
    from optimizer.render.terminal import Output, show

    show(sections, sys.stdout, Output(arguments.wide, arguments.csv, arguments.table))


def show_answer(
    arguments: argparse.Namespace, values: Callable[[], object], sections: Callable[[], list[Section]]
) -> None:
    """Write an answer to stdout: as JSON, from its values or its text, or as tables."""
    if not arguments.json:
        show_tables(sections(), arguments)
    elif isinstance(found := values(), str):
        print(found)
    else:
        print_json(found)


def picture_format(path: Path) -> "Format":
    """Return the format that the name of a picture asks for.

    Raises:
        SpecError: it is none of those that there are.
    """
    suffix = path.suffix.lower().removeprefix(".")
    for known in PICTURES:
        if suffix == known:
            return known
    names = ", ".join(f".{name}" for name in PICTURES)
    raise SpecError(f"-o: {path}: the name must end in one of {names}")


def quantity(scale: Scale) -> Callable[[str], float]:
    """Return a parser of numbers, plain or with a unit of a scale."""

    def parse(text: str) -> float:
        try:
            return scale.read(text)
        except UnitError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def number(
    least: float, most: float, what: str, *, open_end: bool = False, scale: Scale | None = None
) -> Callable[[str], float]:
    """Return a parser of numbers from `least` (itself excluded with `open_end`) to `most`.

    With a scale they may have a unit.
    """

    def parse(text: str) -> float:
        try:
            value = float(text) if scale is None else scale.read(text)
        except ValueError:
            value = float("nan")
        if not (least < value if open_end else least <= value) or value > most:
            sign = "more than" if open_end else "at least"
            raise argparse.ArgumentTypeError(
                f"{text!r}: {what} must be {sign} {least:g} and at most {most:g}"
            )
        return value

    return parse


def print_stderr(text: str) -> None:
    """Write a line to stderr, after what was written to stdout before it, where both are one stream."""
    if sys.stdout is not None:
        sys.stdout.flush()
    print(text, file=sys.stderr)


def one_line(text: str) -> str:
    """Return a message as one line, even if it contains names with line breaks."""
    return " ".join(text.split())


def print_json(value: object) -> None:
    """Write a value as JSON to stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))
