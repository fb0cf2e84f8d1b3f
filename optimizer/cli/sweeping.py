"""The sub-commands that plan over many points: sweep and horizon."""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from optimizer.cli.command import Command, add_output, add_path, picture_format, show_answer
from optimizer.cli.flags import add_request, in_flags, request_of
from optimizer.cli.solving import add_cluster, add_load, announced_for, counted, read_system
from optimizer.jobs import horizons, sweeping
from optimizer.jobs.requests import RequestError
from optimizer.jobs.study import Study
from optimizer.spec.system import System
from optimizer.spec.writing import write_bytes


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "NAME is load, load:SERVER (factors), count:TYPE (cards), cost:ACCELERATOR (cents/h) or a number of "
        "the optimizer section. VALUES is a list, 1,2,4, or a range, 0.5..3 or 0.5..3/64 with 64 points; a "
        "range of cards alone covers all integers, with the exact values at which the plan changes."
    )
    add_path(parser)
    parser.add_argument(
        "--vary", metavar="NAME=VALUES", action="append", default=[], help="vary a parameter; repeatable"
    )
    add_request(parser, sweeping.SweepOptions, skipped=("vary", "format"))
    parser.add_argument(
        "--trace", metavar="FILE", type=Path, help="sample the days of this CSV file of loads, as for replay"
    )
    parser.add_argument(
        "--resume", metavar="FILE", type=Path, help="keep finished plans in FILE, and go on from there"
    )
    _add_shared(parser, sweeping.STUDY)


def _add_horizon(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "The trace has the columns of replay: time, server and arrivalRate, or time and a column of rates "
        "for each server; loads hold from their time until the next. Committed tiers of accelerators are "
        "offers of 0 to their units for the whole time."
    )
    add_path(parser)
    parser.add_argument("--trace", metavar="FILE", type=Path, help="CSV file of loads by the hour")
    parser.add_argument(
        "--factors",
        metavar="F,F,…",
        type=_numbers,
        default=(),
        help="in place of a trace: factors by the hour",
    )
    add_request(parser, horizons.HorizonOptions, skipped=("factors", "loads", "format"))
    _add_shared(parser, horizons.STUDY)


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: must be numbers with commas between them") from None


def _add_shared(parser: argparse.ArgumentParser, study: Study[Any, Any]) -> None:
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="draw FILE.svg, FILE.png or FILE.pdf"
    )
    add_cluster(parser, "plan")
    add_load(parser)
    add_output(parser, *study.table_names)


def _sweep(arguments: argparse.Namespace) -> None:
    options = request_of(sweeping.SweepOptions, arguments)
    system = read_system(arguments, options.given())
    request = sweeping.SweepRequest(
        system=system,
        vary=options.vary,
        samples=options.samples,
        load_cv=options.load_cv,
        trace=arguments.trace,
        seed=options.seed,
        resume=arguments.resume,
    )
    _check_picture(arguments)
    with counted("sweeping", arguments) as progress, announced_for(system):
        found = _asked(lambda: sweeping.sweep_system(request, progress), arguments)
    _show(found, system, sweeping.STUDY, arguments)


def _horizon(arguments: argparse.Namespace) -> None:
    options = request_of(horizons.HorizonOptions, arguments)
    system = read_system(arguments, options.given())
    _check_picture(arguments)
    with counted("planning hours", arguments), announced_for(system):
        found = _asked(lambda: horizons.horizon_of(system, arguments.trace, options.factors), arguments)
    _show(found, system, horizons.STUDY, arguments)


def _check_picture(arguments: argparse.Namespace) -> None:
    """Reject an unknown picture format before the work."""
    if arguments.output is not None:
        picture_format(arguments.output)


def _asked(work: Callable[[], Any], arguments: argparse.Namespace) -> Any:
    try:
        return work()
    except RequestError as error:
        raise in_flags(error, arguments) from None


def _show(found: Any, system: System, study: Study[Any, Any], arguments: argparse.Namespace) -> None:
    """Write the picture if one is wanted, and print the answer."""
    assert study.sections is not None
    if arguments.output is not None:
        assert study.page is not None
        options = study.options(format=picture_format(arguments.output))
        write_bytes(study.page(found, system, options), arguments.output)
    show_answer(arguments, found.to_json, partial(study.sections, found))


COMMANDS = {"sweep": Command(_add_sweep, _sweep), "horizon": Command(_add_horizon, _horizon)}
