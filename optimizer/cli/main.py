"""Entry point: finds the sub-command, runs it, and turns errors into one line and an exit status."""

import argparse
import contextlib
import io
import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, NoReturn

from optimizer.cli.command import Command, one_line
from optimizer.cli.help import HelpFormatter, commands_text, group_flags, with_examples
from optimizer.errors import IncompletePlanError, InferplanError
from optimizer.jobs.table import LOCAL_STUDIES, STUDIES
from optimizer.text import some_names

_PLANS = {
    "init": ("starting", "write a first system document from a few facts"),
    "prices": ("starting", "show what accelerators cost according to a price file"),
    "solve": ("planning", "find the least-cost plan of a system"),
    "check": ("planning", "report all errors and warnings in a system"),
    "candidates": ("planning", "size every server on every accelerator, or state why it cannot run there"),
    "verify": ("verifying", "check a plan and the proof of its bounds by arithmetic"),
    "compare": ("comparing", "compare two plans: limited and unlimited, before and after"),
}
"""Commands about plans that are not derived from a study: module and summary by name."""
_OTHERS = {
    "analyze": ("replicas", "predict latencies and throughput of one replica at a rate"),
    "size": ("replicas", "find the largest rate of one replica that meets its targets"),
    "estimate": (
        "estimating",
        "estimate token times and memory from the specifications of a model and an accelerator",
    ),
    "fit": ("fitting", "fit token times to benchmark reports"),
    "predict": ("fitting", "predict benchmark runs or steady states from a fitted profile"),
    "profiles": ("fitting", "put fitted profiles into systems"),
    "catalogue": ("catalogue", "list the known accelerators and models, or show one"),
    "convert": ("documents", "write a system as one JSON or YAML file"),
    "generate": ("documents", "make a realistic system of any size"),
    "schema": ("documents", "print the JSON schema of the documents"),
    "serve": ("serve", "answer planning requests over HTTP"),
    "emulate": ("emulating", "run the replicas of a plan as live HTTP servers, without GPUs"),
    "drive": ("driving", "send the loads of a document to a running fleet, and compare with the plan"),
    "work": ("working", "do the jobs of a queue on a running fleet: download, inference and upload"),
    "loop": ("looping", "measure a fleet, plan it for its loads, and scale its workloads, in a loop"),
    "demo": ("demonstrating", "run the control loop on an emulated fleet, in two minutes on this machine"),
    "web": ("web", "open a page in the browser: load a system, change it, see its plan"),
    "manifests": (
        "manifesting",
        "write a plan as Kubernetes manifests: patches of Deployments, or ScaledObjects",
    ),
    "samples": ("shell", "list the sample systems, or write them into a directory"),
    "completion": ("shell", "print the script with which a shell completes commands and flags"),
}
"""Other commands: module and summary by name."""
_WITH_OWN_FLAGS = {"report": "reporting", "plot": "reporting"}
"""Commands of studies whose flags are defined by hand, because they write several files or formats: module by
name.
"""
_STUDIES = {entry.command: entry for entry in (*LOCAL_STUDIES.values(), *STUDIES.values())}
COMMANDS = {name: summary for name, (_, summary) in _PLANS.items()}
COMMANDS |= {name: entry.summary for name, entry in _STUDIES.items()}
COMMANDS |= {name: summary for name, (_, summary) in _OTHERS.items()}
"""Summaries of the commands by name, in the order in which help lists them."""

_DESCRIPTION = """\
Plan an LLM inference fleet: which accelerator, how many replicas and what batch size for \
every (service class, model), so that latency and throughput targets hold at the least cost."""
_EPILOG = """\
{commands}

'inferplan COMMAND --help' shows the flags of a command, with examples.
PATH is a YAML or JSON file, a directory of such files, - for standard input, or sample:NAME.

exit status:
{codes}"""
NEAR_FLAG = 0.75
"""Minimum similarity (0 to 1) to an unknown flag at which a known one is suggested."""
EXIT_CODES = {
    0: "success; also if servers are unserved or lack their reserves, unless --require-complete or "
    "--require-reserves is given",
    1: "the output cannot be written to stdout",
    2: "bad input or arguments; see stderr",
    3: "with --require-complete, a server is not served in full, or with --require-reserves, a server lacks "
    "its reserve; the plan is still written",
    4: "the solver failed, or its plan did not pass verification",
    130: "interrupted",
}
"""Meaning of each exit status, as shown in help and docs/reference.md."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    _write_any_text()
    status = 0
    try:
        try:
            status = _run(argv)
        finally:  # also after help, which exits by SystemExit
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()  # the reader closed the pipe, so no message can reach it
    except OSError as error:
        _forget_stdout()
        print(f"inferplan: error: the answer cannot be written: {error.strerror or error}", file=sys.stderr)
        return 1
    return status


def _run(argv: Sequence[str] | None) -> int:
    """Run one command; print an error as one line on stderr and return its exit status."""
    try:
        arguments = _parser().parse_args(argv)
        return int(arguments.run(arguments) or 0)
    except IncompletePlanError as error:
        return _fail(error, "incomplete")
    except InferplanError as error:
        return _fail(error, "error")


def _write_any_text() -> None:
    """Write UTF-8 to files and pipes; replace characters that a terminal cannot show by a question mark."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")


def _forget_stdout() -> None:
    """Let the interpreter exit without flushing stdout."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(error: InferplanError, what: str) -> int:
    print(f"inferplan: {what}: {one_line(str(error))}", file=sys.stderr)
    return error.exit_code


class _Version(argparse.Action):
    """Prints the version, which is looked up only when needed."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from optimizer import __version__

        print(f"inferplan {__version__}")
        parser.exit()


_NEGATIVE = re.compile(r"-(\d|\.\d)\S*")
"""Pattern of values that begin with a minus sign, such as -5%, and are therefore no flags."""
_ELSEWHERE = {"--list": "'inferplan catalogue' lists accelerators and models"}
"""Hints for flags that no command has, by flag."""
MAX_NAMED = 4
"""Maximum number of commands that a hint names."""


class _ArgumentParser(argparse.ArgumentParser):
    """Reports errors in one line with the nearest spelling; adds a command's arguments when it is used."""

    command: str | None = None
    """Command whose arguments are still to be added."""
    beside: "Mapping[str, _ArgumentParser]" = MappingProxyType({})
    """Parsers of all commands by name."""

    def fill(self) -> None:
        """Add the arguments of the command, unless they have already been added."""
        name, self.command = self.command, None
        self._negative_number_matcher = _NEGATIVE
        if name is not None:
            add_arguments, run = _command(name)
            add_arguments(self)
            group_flags(self)
            self.set_defaults(run=run)

    def error(self, message: str) -> NoReturn:
        see = " See" if message.endswith("?") else "; see"
        print(f"{self.prog}: error: {message}{see} '{self.prog} --help'", file=sys.stderr)
        sys.exit(2)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments; reject unknown ones here, where the command's flags are known for a suggestion."""
        self.fill()
        known_args, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flag = next((word.partition("=")[0] for word in unknown if word.startswith("-")), None)
            what = f"unexpected argument {unknown[0]!r}" if flag is None else f"unknown flag {flag}"
            near = self._nearest_flag(flag or unknown[0])
            self.error(what + (near or self._flag_elsewhere(flag)))
        return known_args, unknown

    def _nearest_flag(self, word: str) -> str:
        """Return a hint that names the flag most similar to a word, or an empty string."""
        from optimizer.schema.messages import did_you_mean

        name = word.lstrip("-")
        flags = [text.lstrip("-") for action in self._actions for text in action.option_strings]
        is_long_flag = word.startswith("-") and len(name) > 1
        known = is_long_flag or name in flags
        return did_you_mean(name, flags, NEAR_FLAG, "--") if known else ""

    def _flag_elsewhere(self, flag: str | None) -> str:
        """Return a hint that names the commands that have a flag, or an empty string."""
        if flag in _ELSEWHERE:
            return f"; {_ELSEWHERE[flag]}"
        having = []
        for name, parser in self.beside.items() if flag else ():
            parser.fill()
            if any(flag in action.option_strings for action in parser._actions):  # noqa: SLF001  no other name
                having.append(name)
        if not having:
            return ""
        return f"; {some_names(having, MAX_NAMED)} {'has' if len(having) == 1 else 'have'} it"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Reject a value that is not one of the choices.

        Raises:
            ArgumentError: the value is not one of the choices.
        """
        if action.choices is None or value in action.choices:
            return
        from optimizer.schema.messages import did_you_mean

        known = [str(choice) for choice in action.choices]
        hint = did_you_mean(str(value), known)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  argparse has no other name for it
            self.error(f"unknown {str(action.metavar).lower()} {value!r}{hint}")
        raise argparse.ArgumentError(action, f"must be one of {', '.join(known)}, not {value!r}{hint}")


def _command(name: str) -> Command:
    """Import the module of a command and return the command; so each command imports only its own code."""
    if name in _STUDIES and name not in _WITH_OWN_FLAGS:
        from optimizer.cli.study import add_study, run_study

        return Command(partial(add_study, _STUDIES[name]), partial(run_study, _STUDIES[name]))
    module = _WITH_OWN_FLAGS.get(name) or (_PLANS | _OTHERS)[name][0]
    commands: dict[str, Command] = import_module(f"optimizer.cli.{module}").COMMANDS
    return commands[name]


def _parser() -> argparse.ArgumentParser:
    parser = _ArgumentParser(
        prog="inferplan",
        description=_DESCRIPTION,
        usage="inferplan [-h] [--version] COMMAND ...",
        epilog=_EPILOG.format(
            commands=commands_text(COMMANDS),
            codes="\n".join(f"  {code:<5}{text}" for code, text in EXIT_CODES.items()),
        ),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parser.set_defaults(run=lambda _: parser.print_help())  # without a command
    commands = parser.add_subparsers(metavar="COMMAND", prog="inferplan")
    for name, summary in COMMANDS.items():
        description = with_examples(name, f"{summary[0].upper()}{summary[1:]}.")
        commands.add_parser(
            name, help=summary, description=description, allow_abbrev=False, formatter_class=HelpFormatter
        )
        commands.choices[name].command = name
        commands.choices[name].beside = commands.choices
    parser.set_defaults(parser=parser)
    return parser
