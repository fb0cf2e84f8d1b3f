"""The sub-command compare: two plans beside each other."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from optimizer.cli.command import Command, add_json
from optimizer.cli.solving import (
    add_load_change,
    add_solving_flags,
    changed_load,
    load_change_flag,
    solving_options,
)

if TYPE_CHECKING:
    from optimizer.plan import Plan
    from optimizer.spec.system import System
    from optimizer.studies.comparison.document import Comparison

_EPILOG = """\
Without --with, --with-options and a change of the load: the unlimited plan beside the limited one.
Differences are the second side less the first."""


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        "path",
        metavar="PATH",
        help="system (a YAML or JSON file, a directory, or - for stdin), or a saved plan",
    )
    parser.add_argument(
        "--with", dest="other", metavar="OTHER", help="the second side: another system, or a saved plan"
    )
    parser.add_argument(
        "--with-options",
        metavar="NAME=VALUE,…",
        help="options of the second side alone, by the names of the documents: heterogeneous=true",
    )
    add_load_change(parser)
    add_solving_flags(parser)
    add_json(parser)


def _compare(arguments: argparse.Namespace) -> None:
    from optimizer.render.progress import working

    with working("comparing"):
        found = _comparison(arguments)
    if arguments.json:
        print(found.to_json())
    else:
        from optimizer.render.comparison_tables import comparison_tables
        from optimizer.render.tables import show

        show(comparison_tables(found), sys.stdout)


def _comparison(arguments: argparse.Namespace) -> "Comparison":
    from optimizer.errors import SpecError
    from optimizer.plan import Plan, load_system_or_plan
    from optimizer.studies.comparison.compare import compare

    options = solving_options(arguments)
    asked: dict[str, Any] = {"backend": arguments.backend} | options
    if arguments.with_options is not None:
        asked["second_options"] = _options(arguments.with_options)
    if arguments.path == arguments.other == "-":
        raise SpecError("--with: standard input can be read once only; give one side as a file")
    first = load_system_or_plan(arguments.path)
    flag = load_change_flag(arguments)
    if arguments.other is not None:
        if flag is not None:
            raise SpecError(f"{flag}: compares one system before and after; remove it or --with")
        second = load_system_or_plan(arguments.other)
        _refuse_options_of_plans(arguments, first, second, options)
        labels = (_label(arguments.path), _label(arguments.other))
        return compare(first, second, labels=None if labels[0] == labels[1] else labels, **asked)
    if isinstance(first, Plan):
        what = f"{flag}: {arguments.path} holds a plan, which has no loads; give its system" if flag else ""
        raise SpecError(
            what or f"{arguments.path}: holds a plan; name what to compare it with (--with OTHER)"
        )
    if flag is not None:
        return compare(first, changed_load(arguments, first), transition=True, **asked)
    if arguments.with_options is not None:
        return compare(first, labels=("as given", arguments.with_options), **asked)
    if arguments.limited or arguments.unlimited:
        raise SpecError(
            f"--{'limited' if arguments.limited else 'unlimited'}: both plans, limited and unlimited, are "
            "compared; remove it, or add --with, --with-options or a change of the load"
        )
    return compare(first, **asked)


def _label(path: str) -> str:
    return "standard input" if path == "-" else path


def _options(text: str) -> dict[str, object]:
    """Return options given as NAME=VALUE,… by their Python names."""
    import json

    from optimizer.errors import SpecError
    from optimizer.spec.messages import validated
    from optimizer.spec.schema import OptimizerOptions

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
    options = validated(OptimizerOptions, values, "--with-options: ")
    return {name: getattr(options, name) for name in sorted(options.model_fields_set)}


def _refuse_options_of_plans(
    arguments: argparse.Namespace,
    first: "System | Plan",
    second: "System | Plan",
    options: dict[str, object],
) -> None:
    """Refuse options where there is nothing to solve with them."""
    from optimizer.errors import SpecError
    from optimizer.plan import Plan

    if isinstance(second, Plan) and arguments.with_options is not None:
        raise SpecError(f"--with-options: {arguments.other} holds a plan, and nothing is solved; remove it")
    if isinstance(first, Plan) and isinstance(second, Plan) and options:
        raise SpecError("both sides are plans, and nothing is solved; remove the options for solving")


COMMANDS = {
    "compare": Command(
        "set two plans side by side: limited and unlimited, before and after", _add_compare, _compare
    )
}
