"""What the sub-commands share: their shape, common arguments, and JSON on stdout."""

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from optimizer.render.tables import Tables


class Command(NamedTuple):
    """A sub-command."""

    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int | None]


def add_path(parser: argparse.ArgumentParser) -> None:
    """Add the system to work on."""
    parser.add_argument(
        "path", metavar="PATH", help="system: a YAML or JSON file, a directory, or - for stdin"
    )


def add_output(parser: argparse.ArgumentParser, *tables: str) -> None:
    """Add the choice of what is written in place of all tables as they fit the terminal."""
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="write JSON in place of tables")
    forms.add_argument(
        "--csv", action="store_true", help="write a table as CSV: the first, or that of --table"
    )
    forms.add_argument(
        "--wide", action="store_true", help="all columns and whole names, however long the lines"
    )
    parser.add_argument("--table", metavar="NAME", help=f"write one of the tables only: {', '.join(tables)}")


def show_tables(tables: "Tables", arguments: argparse.Namespace) -> None:
    """Write tables to stdout as the arguments ask for."""
    from optimizer.render.tables import Output, show

    show(tables, sys.stdout, Output(arguments.wide, arguments.csv, arguments.table))


def number(least: float, most: float, what: str, *, open_end: bool = False) -> Callable[[str], float]:
    """Return a parser of numbers from `least` (itself excluded with `open_end`) to `most`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not (least < value if open_end else least <= value) or value > most:
            sign = "more than" if open_end else "at least"
            raise argparse.ArgumentTypeError(
                f"{text!r}: {what} must be {sign} {least:g} and at most {most:g}"
            )
        return value

    return parse


def tell(text: str) -> None:
    """Write a line to stderr, after what was written to stdout before it, where both are one stream."""
    if sys.stdout is not None:
        sys.stdout.flush()
    print(text, file=sys.stderr)


def print_json(value: object) -> None:
    """Write a value as JSON to stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))
