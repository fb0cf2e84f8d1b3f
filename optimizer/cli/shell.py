"""The sub-commands that help to work with the program: samples, completion."""

import argparse
import sys
from pathlib import Path

from optimizer.cli.command import Command

SHELLS = ("bash", "zsh", "tcsh")
_FILES = frozenset({"PATH", "FILE", "CSV", "OTHER", "DIR"})
"""Metavars of arguments that are files."""


def _add_samples(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", type=Path, help="write them into this directory; none: list them"
    )


def _samples(arguments: argparse.Namespace) -> None:
    from optimizer.spec.samples import PREFIX, samples
    from optimizer.spec.writing import copy_tree

    for name, path in samples().items():
        if arguments.folder is None:
            print(f"{PREFIX}{name}")
        else:
            print(copy_tree(path, arguments.folder / path.name))


def _add_completion(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        'For bash: eval "$(inferplan completion bash)" in ~/.bashrc; zsh, tcsh: see docs/reference.md.'
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or tcsh")


def _completion(arguments: argparse.Namespace) -> None:
    import shtab

    _complete_files(arguments.parser, shtab.FILE)
    sys.stdout.write(shtab.complete(arguments.parser, arguments.shell))


def _complete_files(parser: argparse.ArgumentParser, files: object) -> None:
    """Mark the arguments of all sub-commands that are files, for the completion."""
    for action in parser._actions:  # noqa: SLF001  argparse has no other way to list them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                _complete_files(command, files)
        elif action.metavar in _FILES:
            action.complete = files  # type: ignore[attr-defined]  # where shtab looks


COMMANDS = {
    "samples": Command("list the sample systems, or write them into a directory", _add_samples, _samples),
    "completion": Command(
        "print the script with which a shell completes commands and flags", _add_completion, _completion
    ),
}
