"""Sub-commands `samples` and `completion`."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optimizer.cli.command import Command
from optimizer.schema.samples import DESCRIPTIONS, PREFIX, samples
from optimizer.spec.writing import copy_tree

SHELLS = ("bash", "zsh", "fish", "tcsh")
_SYSTEMS = frozenset({"PATH", "OTHER", "SYSTEM"})
"""Metavars of arguments that name a system: a file or a sample."""
_FILES = frozenset({"FILE", "CSV", "PLAN", "PROFILE", "LOADS.csv", "POINTS.csv", "RULES"})
"""Metavars of arguments that name other files."""
_DIRECTORIES = frozenset({"DIR"})
"""Metavars of arguments that name directories."""


def _add_samples(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="DIR",
        nargs="?",
        type=Path,
        help="write them to this directory; default: list them",
    )


def _samples(arguments: argparse.Namespace) -> None:
    samples_by_name = samples()
    width = max(map(len, samples_by_name)) + len(PREFIX)
    for name, path in sorted(
        samples_by_name.items(), key=lambda item: [*DESCRIPTIONS, *samples_by_name].index(item[0])
    ):
        if arguments.folder is None:
            print(f"{PREFIX + name:<{width}}  {DESCRIPTIONS.get(name, '')}".rstrip())
        else:
            print(copy_tree(path, arguments.folder / path.name))


def _add_completion(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        'For bash: eval "$(inferplan completion bash)" in ~/.bashrc; others: see docs/reference.md.'
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh, fish or tcsh")


def _completion(arguments: argparse.Namespace) -> None:
    import shtab

    systems = _systems([f"{PREFIX}{name}" for name in samples()])
    completions = dict.fromkeys(_SYSTEMS, systems) | dict.fromkeys(_FILES, shtab.FILE)
    _complete(arguments.parser, completions | dict.fromkeys(_DIRECTORIES, shtab.DIRECTORY))
    sys.stdout.write(shtab.complete(arguments.parser, arguments.shell))


def _systems(names: Sequence[str]) -> dict[str, Any]:
    """Return the completion of a system's name, by shell: files and samples; in tcsh only files."""
    words = " ".join(names)
    return {
        "bash": "_inferplan_system_files",
        "zsh": "_inferplan_systems",
        "fish": f"(__fish_complete_path (commandline -ct)) {words}",
        "tcsh": "f",
        "preamble": {
            "bash": (
                'COMP_WORDBREAKS="${COMP_WORDBREAKS//:}"  # names of samples are one word\n'
                f'_inferplan_system_files() {{ compgen -f -- "$1"; compgen -W "{words}" -- "$1"; }}'
            ),
            "zsh": f"_inferplan_systems() {{ compadd -- {words}; _files; }}",
        },
    }


def _complete(parser: argparse.ArgumentParser, completions: Mapping[str, object]) -> None:
    """Set the completion of all arguments whose metavar is in `completions`, in all sub-commands."""
    for action in parser._actions:  # noqa: SLF001  argparse has no other way to list them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                command.fill()
                _complete(command, completions)
        elif isinstance(action.metavar, str) and action.metavar in completions:
            action.complete = completions[action.metavar]  # type: ignore[attr-defined]  # where shtab looks


COMMANDS = {"samples": Command(_add_samples, _samples), "completion": Command(_add_completion, _completion)}
