"""The command of a study, derived from its entry in the table."""

import argparse
from typing import Any

from optimizer.cli.command import add_output, add_path, show_tables
from optimizer.cli.flags import add_request, in_flags, request_of
from optimizer.cli.solving import add_load, announced_for, read_system
from optimizer.jobs.requests import RequestError
from optimizer.jobs.study import StudyEntry
from optimizer.render.progress import working


def add_study(entry: StudyEntry[Any, Any], parser: argparse.ArgumentParser) -> None:
    """Add the flags of a study: the system, its load, the options, and the form of the output."""
    add_path(parser)
    add_load(parser)
    add_request(parser, entry.study.options)
    add_output(parser, *entry.study.table_names)


def run_study(entry: StudyEntry[Any, Any], arguments: argparse.Namespace) -> None:
    """Answer the question for the system on the command line, and print the answer."""
    study = entry.study
    options = request_of(study.options, arguments)
    with working(f"{entry.command}: running"):
        system = read_system(arguments, options.given())
        with announced_for(system):
            try:
                answer = study.run(system, options)
            except RequestError as error:
                raise in_flags(error, arguments) from None
    if arguments.json:
        print(answer.to_json())
    elif study.sections is not None:
        show_tables(study.sections(answer), arguments)
