"""Sub-commands for documents: `convert`, `generate`, `schema`."""

import argparse
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from optimizer.cli.command import Command, add_path, print_json
from optimizer.cli.flags import add_request, request_of
from optimizer.generate import generate_document
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import Request
from optimizer.schema import SystemSpec
from optimizer.schema.files import read_parts
from optimizer.spec.system import join_parts, joined_document
from optimizer.spec.writing import write_document


def _add_convert(parser: argparse.ArgumentParser) -> None:
    add_path(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, required=True, help="FILE.yaml, FILE.yml or FILE.json"
    )


def _convert(arguments: argparse.Namespace) -> None:
    parts = read_parts(arguments.path)
    join_parts(parts)  # loading rejects inconsistent documents
    write_document(joined_document(parts), arguments.output)


def _schema(_arguments: argparse.Namespace) -> None:
    print_json(SystemSpec.model_json_schema(by_alias=True))


class GenerateOptions(Request):
    """Flags of `generate`: the size of the generated system."""

    servers: Annotated[int, Flag("N")]
    """Number of servers, each one model in one service class."""
    accelerators: Annotated[int, Flag("N")]
    """Number of accelerators in the catalogue."""
    types: Annotated[int, Flag("N")]
    """Number of accelerator types."""
    seed: Annotated[int, Flag("K")] = 0
    """Random seed; the same seed gives the same system (0)."""
    tightness: Annotated[float, Flag("X")] = Field(1.0, gt=0, le=1e6)
    """Scarcity of the cards: 1 provides about the demand, 2 half of it (1)."""
    output: Annotated[Path | None, Flag("FILE", short="-o")] = None
    """Write the system to FILE.yaml or FILE.json; otherwise JSON to stdout."""


def _generate(arguments: argparse.Namespace) -> None:
    options = request_of(GenerateOptions, arguments)
    document = generate_document(
        options.servers, options.accelerators, options.types, options.seed, options.tightness
    )
    if options.output is None:
        print_json(document)
    else:
        write_document(document, options.output)


COMMANDS = {
    "convert": Command(_add_convert, _convert),
    "generate": Command(partial(add_request, model=GenerateOptions), _generate),
    "schema": Command(lambda _parser: None, _schema),
}
