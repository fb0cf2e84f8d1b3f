"""The sub-command explain: why a plan is as it is."""

import argparse

from optimizer.cli.command import Command, add_output, add_path, show_tables
from optimizer.cli.solving import add_exact_flags, add_load, announced_for, read_system, solving_options


def _add_explain(parser: argparse.ArgumentParser) -> None:
    add_path(parser)
    parser.add_argument("--server", metavar="S", help="explain one server in depth")
    add_load(parser)
    add_exact_flags(parser, "time limit of the explanation [s]")
    add_output(parser, "overview", "overload", "cards", "targets", "candidates", "rejected")


def _explain(arguments: argparse.Namespace) -> None:
    from optimizer.jobs import explain
    from optimizer.render.progress import working

    with working("explaining"):
        system = read_system(arguments, solving_options(arguments))
        with announced_for(system):
            explanation = explain(system, arguments.server)
    if arguments.json:
        print(explanation.to_json())
    else:
        from optimizer.render.explanation_sections import explanation_sections

        show_tables(explanation_sections(explanation), arguments)


COMMANDS = {
    "explain": Command(
        "explain why a plan is as it is, what cards and targets are worth, and what would repair it",
        _add_explain,
        _explain,
    )
}
