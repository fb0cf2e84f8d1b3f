"""Sub-command `replay`: shows the effect of stabilisation before it is turned on."""

import argparse
from pathlib import Path

from optimizer.cli.command import Command, add_output, add_path, number, picture_format, show_answer
from optimizer.cli.flags import add_request
from optimizer.cli.solving import solving_options
from optimizer.jobs import ReplayRequest, replay_loads
from optimizer.jobs.requests import ExactOptions
from optimizer.render.progress import working
from optimizer.render.replay_sections import replay_sections
from optimizer.spec.system import load_system
from optimizer.spec.writing import write_bytes
from optimizer.studies.replay.figure import replay_figure
from optimizer.units import SECONDS

MOST_S = 1e6


def _add_replay(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "LOADS.csv has the columns time, server and arrivalRate, and optionally avgInTokens and "
        "avgOutTokens; or time and a column of rates for each server. A route is named like a server, in "
        "place of its two servers, and has a rate only. A row holds the load measured in the "
        "interval that ends at its time, in seconds or as a date. Each plan knows the loads up to its time, "
        "and is judged by those of the next interval."
    )
    parser.add_argument("loads", metavar="LOADS.csv", type=Path, help="loads over time; see below")
    add_path(parser)
    parser.add_argument(
        "--rules", metavar="FILE", type=Path, help="rules of stabilisation, as for serve --stabilise (all)"
    )
    parser.add_argument("--each", action="store_true", help="also show each rule alone")
    parser.add_argument(
        "--startup",
        metavar="S",
        type=number(0, MOST_S, "the time", scale=SECONDS),
        default=180.0,
        help="time that a replica takes to start (180 s)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="draw FILE.svg, FILE.png or FILE.pdf"
    )
    add_request(parser, ExactOptions)
    add_output(parser, "ways", "servers")


def _replay(arguments: argparse.Namespace) -> None:
    file_format = None if arguments.output is None else picture_format(arguments.output)
    request = ReplayRequest(
        system=load_system(arguments.path).with_options(**solving_options(arguments, ExactOptions)),
        loads=arguments.loads,
        rules=arguments.rules,
        each=arguments.each,
        startup_s=arguments.startup,
    )
    with working("replaying"):
        found = replay_loads(request)
    if file_format is not None:
        from optimizer.render.plots import draw

        write_bytes(draw(replay_figure(found), file_format), arguments.output)
    show_answer(arguments, found.to_json, lambda: replay_sections(found))


COMMANDS = {"replay": Command(_add_replay, _replay)}
