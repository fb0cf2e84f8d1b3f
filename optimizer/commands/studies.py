"""The sub-commands for questions about plans: explain."""

import argparse
import sys

from optimizer.commands.command import Command, add_json, add_path
from optimizer.commands.planning import add_limits, add_mixed, add_stopping, add_system_flags, read_system


def _add_explain(parser: argparse.ArgumentParser) -> None:
    add_path(parser)
    parser.add_argument("--server", metavar="S", help="explain one server in depth")
    add_limits(parser)
    add_mixed(parser)
    add_system_flags(parser)
    add_stopping(parser, "time for each of the solves [s]")
    add_json(parser)


def _explain(arguments: argparse.Namespace) -> None:
    from optimizer.report.progress import working
    from optimizer.study.explain import explain

    options = {
        "gap": arguments.gap,
        "time_limit_s": arguments.time_limit,
        "unlimited": arguments.unlimited if arguments.limited or arguments.unlimited else None,
        "heterogeneous": arguments.mixed or None,
    }
    with working("explaining"):
        explanation = explain(read_system(arguments, options), arguments.server)
    if arguments.json:
        print(explanation.to_json())
    else:
        from optimizer.report.explanation_tables import explanation_tables
        from optimizer.report.tables import show

        show(explanation_tables(explanation), sys.stdout)


COMMANDS = {
    "explain": Command(
        "say why a plan is as it is, what units and targets are worth, and what would repair it",
        _add_explain,
        _explain,
    )
}
