"""Sub-command `compare`: compares two plans side by side."""

import argparse
import json
from typing import Annotated

from optimizer.cli.command import Command, add_output, show_answer
from optimizer.cli.flags import add_request, in_flags, request_of
from optimizer.cli.solving import show_warnings
from optimizer.errors import SpecError
from optimizer.jobs.comparing import CompareOptions, compare_plans
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import RequestError
from optimizer.plan import load_system_or_plan
from optimizer.render.comparison_sections import comparison_sections
from optimizer.render.progress import working
from optimizer.schema import OptimizerOptions
from optimizer.schema.messages import validated
from optimizer.spec.changes import is_option
from optimizer.studies.comparison.comparison_document import Comparison

_EPILOG = """\
Without --with, --with-options and a change of the load: the unlimited and the limited plan.
Differences are the second side minus the first."""


class CompareFlags(CompareOptions):
    """Flags of `compare`: the second side, a load change, and options that override the document's."""

    other: Annotated[str | None, Flag("OTHER", name="with")] = None
    """The second side: another system, or a saved plan."""
    with_options: Annotated[str | None, Flag("NAME=VALUE,…")] = None
    """Options for the second side only, named as in documents, or other values, named as for sweep:
    heterogeneous=true,count:H100=12."""


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        "path",
        metavar="PATH",
        help="system (a YAML or JSON file, a directory, or - for stdin), or a saved plan",
    )
    add_request(parser, CompareFlags)
    add_output(
        parser, "load", "classes", "replicas", "targets", "cards", "costs", "lost-reserves", "unserved"
    )


def _compare(arguments: argparse.Namespace) -> None:
    with working("comparing"):
        comparison = _comparison(arguments)
    show_warnings(dict.fromkeys(comparison.first.plan.warnings + comparison.second.plan.warnings))
    show_answer(arguments, comparison.to_json, lambda: comparison_sections(comparison))


def _comparison(arguments: argparse.Namespace) -> Comparison:
    if arguments.path == arguments.other == "-":
        raise SpecError("--with: standard input can be read once only; give one side as a file")
    options = request_of(CompareFlags, arguments)
    second_options = None if arguments.with_options is None else _options(arguments.with_options)
    try:
        return compare_plans(
            load_system_or_plan(arguments.path),
            None if arguments.other is None else load_system_or_plan(arguments.other),
            options,
            second_options=second_options,
            labels=_labels(arguments, changed=bool(options.load_changes)),
        )
    except RequestError as error:
        names = {
            "first": _label(arguments.path),
            "second": "--with" if arguments.other is None else _label(arguments.other),
            "second_options": "--with-options",
        }
        raise in_flags(error, arguments, **names) from None


def _labels(arguments: argparse.Namespace, *, changed: bool) -> tuple[str, str] | None:
    """Return labels of both sides if their paths or options distinguish them; None for the default labels."""
    if arguments.other is not None:
        labels = (_label(arguments.path), _label(arguments.other))
        return None if labels[0] == labels[1] else labels
    return None if changed or arguments.with_options is None else ("as given", arguments.with_options)


def _label(path: str) -> str:
    return "standard input" if path == "-" else path


def _options(text: str) -> dict[str, object]:
    """Parse NAME=VALUE,…; the keys are the Python names of options, and other names unchanged."""
    values: dict[str, object] = {}
    for item in text.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not (name and equals and value):
            raise SpecError(f"--with-options: {item!r} is not NAME=VALUE")
        if name in values:
            raise SpecError(f"--with-options: {name} occurs twice")
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    others = {name: value for name, value in sorted(values.items()) if not is_option(name)}
    stated = {name: value for name, value in values.items() if name not in others}
    options = validated(OptimizerOptions, stated, "--with-options: ")
    return {name: getattr(options, name) for name in sorted(options.model_fields_set)} | others


COMMANDS = {"compare": Command(_add_compare, _compare)}
