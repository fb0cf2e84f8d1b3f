"""The sub-commands for documents: convert, generate, schema."""

import argparse
from pathlib import Path

from optimizer.cli.command import Command, add_path, number, print_json
from optimizer.generate import generate_document
from optimizer.spec.files import read_parts
from optimizer.spec.schema import SystemSpec
from optimizer.spec.system import join_parts, joined_document
from optimizer.spec.writing import write_document


def _add_convert(parser: argparse.ArgumentParser) -> None:
    add_path(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, required=True, help="FILE.yaml, FILE.yml or FILE.json"
    )


def _convert(arguments: argparse.Namespace) -> None:
    parts = read_parts(arguments.path)
    join_parts(parts)  # what contradicts itself is not passed on
    write_document(joined_document(parts), arguments.output)


def _add_nothing(_parser: argparse.ArgumentParser) -> None:
    return


def _schema(_arguments: argparse.Namespace) -> None:
    print_json(SystemSpec.model_json_schema(by_alias=True))


def _add_generate(parser: argparse.ArgumentParser) -> None:
    for flag, text in (
        ("--servers", "servers, each one model in one service class"),
        ("--accelerators", "accelerators in the catalogue"),
        ("--types", "accelerator types that they are made of"),
    ):
        parser.add_argument(flag, metavar="N", type=int, required=True, help=text)
    parser.add_argument(
        "--seed", metavar="K", type=int, default=0, help="the same seed gives the same system (0)"
    )
    parser.add_argument(
        "--tightness",
        metavar="X",
        type=number(0, 1e6, "the tightness", open_end=True),
        default=1.0,
        help="how scarce the cards are: 1 about enough, 2 half of that (1)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="FILE.yaml or FILE.json; else JSON to stdout"
    )


def _generate(arguments: argparse.Namespace) -> None:
    document = generate_document(
        arguments.servers, arguments.accelerators, arguments.types, arguments.seed, arguments.tightness
    )
    if arguments.output is None:
        print_json(document)
    else:
        write_document(document, arguments.output)


COMMANDS = {
    "convert": Command(_add_convert, _convert),
    "generate": Command(_add_generate, _generate),
    "schema": Command(_add_nothing, _schema),
}
