"""Sub-command `catalogue`: lists the models and accelerators that can be planned without measurements."""

import argparse

from optimizer.cli.command import Command, add_output, print_json, show_tables
from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.documents import entry_document
from optimizer.render.estimate_sections import catalogue_sections, entry_sections


def _add_catalogue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="an accelerator or a model; default: list all"
    )
    add_output(parser, "accelerators", "models", "entry")


def _catalogue(arguments: argparse.Namespace) -> None:
    catalogue = load_catalogue()
    entry = None if arguments.name is None else catalogue.entry(arguments.name)
    if arguments.json and entry is not None:
        print_json(entry_document(entry))
    elif arguments.json:
        print_json({
            "accelerators": [entry_document(models) for models in catalogue.accelerators.values()],
            "models": [entry_document(models) for models in catalogue.models.values()],
        })  # fmt: skip
    else:
        show_tables(catalogue_sections(catalogue) if entry is None else entry_sections(entry), arguments)


COMMANDS = {"catalogue": Command(_add_catalogue, _catalogue)}
