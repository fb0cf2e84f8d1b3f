"""Sub-commands `init` and `prices`, for a first document."""

import argparse
import os
import sys
from pathlib import Path
from typing import Annotated

from optimizer.cli.command import Command, add_output, print_stderr, show_answer
from optimizer.cli.flags import add_request
from optimizer.cli.start_flags import (
    PriceFlags,
    StartFlags,
    demands_of,
    model_given,
    offers_of,
    price_settings,
    target_facts,
)
from optimizer.errors import SpecError
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import Request
from optimizer.render.starter_sections import price_sections, use_case_sections
from optimizer.spec.writing import write_text
from optimizer.starters.facts import StarterFacts
from optimizer.starters.prices import read_prices
from optimizer.starters.starter_document import document_of, notes_of, with_attainable_targets
from optimizer.starters.use_cases import use_cases

_EXAMPLE = "inferplan init --model llama-3.1-8b --accelerator H100:8:3.50USD/h --rate chat=10/s"
_EPILOG = f"""\
The document has comments on what to change. If no accelerator has a number of cards, the plan is without
limits. Use cases: 'inferplan init --use-cases' lists them. Examples:

  {_EXAMPLE}
  inferplan init --model llama-3.1-70b --weights fp8 --accelerator H100:8:3.50USD/h --rate chat=2/s \\
      --target-ttft 500ms --percentile 95 --saturation PriorityExhaustive
"""


class InitFlags(Request):
    """Flags of `init` for files and other actions."""

    prices: Annotated[tuple[str, ...], Flag("[PLACE=]FILE")] = ()
    """CSV file of prices, with the place of its accelerators if given; see 'inferplan prices'."""
    use_cases: bool = False
    """List the use cases and exit."""
    force: bool = False
    """Overwrite an existing file."""


def _add_init(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument(
        "path", metavar="FILE", nargs="?", type=Path, default=Path("system.yaml"),
        help="the document to write (system.yaml); - for stdout",
    )  # fmt: skip
    add_request(parser, StartFlags)
    add_request(parser, PriceFlags)
    add_request(parser, InitFlags)


def _init(arguments: argparse.Namespace) -> None:
    if arguments.use_cases:
        _list_use_cases()
        return
    to_stdout = str(arguments.path) == "-"
    if not to_stdout:
        _check_path(arguments)
    start, of_prices = _start(arguments)
    start = with_attainable_targets(start)
    text, notes = document_of(start), notes_of(start)
    if to_stdout:
        sys.stdout.write(text)
    else:
        write_text(text, arguments.path)
    for note in (*notes, *of_prices):
        print_stderr(f"inferplan: note: {note}")
    if not to_stdout:
        print_stderr(f"{arguments.path} is written; next: inferplan check {arguments.path}")


def _check_path(arguments: argparse.Namespace) -> None:
    """Reject an output file that cannot be written.

    Raises:
        SpecError: the file exists, is not a YAML file, or its folder does not exist.
    """
    if arguments.path.exists() and not arguments.force:
        raise SpecError(
            f"{arguments.path}: already exists; choose another name, or overwrite it with --force"
        )
    if arguments.path.suffix.lower() not in {".yaml", ".yml"}:
        raise SpecError(f"{arguments.path}: the document is YAML; the name must end in .yaml or .yml")
    folder = arguments.path.parent
    if not folder.is_dir():
        raise SpecError(f"{arguments.path}: cannot be written: there is no directory {folder}")


def _start(arguments: argparse.Namespace) -> tuple[StarterFacts, tuple[str, ...]]:
    """Return the facts that the flags describe, and notes on price files.

    Raises:
        SpecError: a flag is missing or wrong, or given twice.
    """
    offers, of_prices = offers_of(arguments)
    demands = demands_of(arguments)
    models = list(dict.fromkeys(map(model_given, arguments.model or ())))
    lacking = [
        flag
        for flag, given in (("--model", models), ("--accelerator", offers), ("--rate", demands))
        if not given
    ]
    if lacking:
        raise SpecError(f"{', '.join(lacking)}: missing; for example {_EXAMPLE}")
    to_stdout = str(arguments.path) == "-"
    folder = Path() if to_stdout else arguments.path.parent
    names = (os.path.relpath(name, folder) if name.endswith(".json") else name for name in models)
    file = "system.yaml" if to_stdout else arguments.path.name
    return StarterFacts(
        tuple(names), tuple(offers), tuple(demands), file, folder, **target_facts(arguments)
    ), of_prices


def _list_use_cases() -> None:
    from optimizer.render.terminal import show

    show(use_case_sections(use_cases()), sys.stdout)


def _add_prices(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Formats: SkyPilot's catalogue (InstanceType, AcceleratorName, AcceleratorCount, Price, SpotPrice, "
        "Region, …; USD), or the columns accelerator and price, with cards, count and place if wanted; "
        "there a price names its currency: 2.50 EUR/h."
    )
    parser.add_argument("file", metavar="FILE", help="prices as CSV; - for stdin")
    add_request(parser, PriceFlags)
    add_output(parser, "offers")


def _prices(arguments: argparse.Namespace) -> None:
    prices = read_prices(arguments.file, **price_settings(arguments))
    show_answer(arguments, prices.document, lambda: price_sections(prices))
    for note in prices.notes:
        print_stderr(f"inferplan: note: {note}")


COMMANDS = {"init": Command(_add_init, _init), "prices": Command(_add_prices, _prices)}
