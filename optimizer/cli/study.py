"""Builds and runs the command of a study from its entry in the table of studies."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from optimizer.cli.command import add_output, add_path, add_wide, picture_format, show_answer
from optimizer.cli.flags import add_request, in_flags, request_of
from optimizer.cli.solving import (
    add_cluster,
    add_load,
    announced_for,
    read_system,
    show_warnings,
    simulating,
    with_progress,
)
from optimizer.jobs.flag import details_of
from optimizer.jobs.requests import RequestError
from optimizer.jobs.study import StudyEntry
from optimizer.parallel import Progress, ignore_progress
from optimizer.render.progress import working
from optimizer.spec.system import System, load_system
from optimizer.spec.writing import write_bytes


def add_study(entry: StudyEntry[Any, Any], parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a study: the system, its loads, the study's options, and the output format."""
    study, fields = entry.study, entry.study.options.model_fields
    parser.epilog = study.epilog
    first = {name for name, field in fields.items() if (flag := details_of(field)) and flag.positional}
    add_request(parser, study.options, skipped=fields.keys() - first)
    add_path(parser)
    if study.has_load:
        add_load(parser)
    add_request(parser, study.options, skipped=first)
    if study.page is not None:
        parser.add_argument(
            "-o", "--output", metavar="FILE", type=Path, help="draw FILE.svg, FILE.png or FILE.pdf"
        )
    if study.working:
        add_cluster(parser, "simulate" if study.simulates else "plan")
    if study.csv is None:
        add_output(parser, *study.table_names)
        return
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="write JSON instead of tables")
    forms.add_argument("--csv", action="store_true", help="write a row for each pool, with all digits")
    add_wide(forms)
    parser.set_defaults(table=None)


def run_study(entry: StudyEntry[Any, Any], arguments: argparse.Namespace) -> None:
    """Run a study for the system that the arguments name, and write the result to stdout."""
    from optimizer.checking.checks import warned  # reads the catalogue

    study = entry.study
    assert study.sections is not None
    options = request_of(study.options, arguments)
    output: Path | None = getattr(arguments, "output", None)
    picture = None if output is None else picture_format(output)
    if study.has_load:
        system = read_system(arguments, options)
    else:
        system = options.applied(load_system(arguments.path))
    with _at_work(entry, system, arguments) as progress:
        try:
            answer = study.answered(system, options, progress)
        except RequestError as error:
            raise in_flags(error, arguments) from None
    answer = warned(answer, system)
    show_warnings(answer.warnings)
    if output is not None:
        assert study.page is not None
        write_bytes(study.page(answer, system, options.model_copy(update={"format": picture})), output)
    if study.csv is not None and arguments.csv:
        sys.stdout.write(study.csv(answer))
    else:
        show_answer(arguments, answer.to_json, partial(study.sections, answer))


@contextmanager
def _at_work(
    entry: StudyEntry[Any, Any], system: System, arguments: argparse.Namespace
) -> Iterator[Progress]:
    """Context manager in which a study runs locally or on a cluster, with progress and notes on stderr."""
    study = entry.study
    if not study.working:
        with working(f"{entry.command}: running"), announced_for(system):
            yield ignore_progress
    elif study.simulates:
        with simulating(arguments) as progress:
            yield progress
    else:
        with with_progress(study.working, arguments) as progress, announced_for(system):
            yield progress
