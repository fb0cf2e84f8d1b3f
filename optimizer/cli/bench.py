"""Sub-command `bench`: measures the time of each planning stage on generated systems."""

import argparse
from dataclasses import asdict
from typing import Annotated

from pydantic import Field

from optimizer.cli.command import Command, add_output, show_answer
from optimizer.cli.flags import add_request, request_of
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import Request
from optimizer.render.replica_sections import bench_sections
from optimizer.studies.bench import FleetSize, measure


def _size(text: str) -> tuple[int, int]:
    servers, _, accelerators = text.lower().partition("x")
    if not (servers.isdigit() and accelerators.isdigit() and int(servers) and int(accelerators)):
        raise argparse.ArgumentTypeError(f"{text!r}: give servers x accelerators, such as 100x20")
    return int(servers), int(accelerators)


class BenchOptions(Request):
    """Options of `bench`: the generated systems to time."""

    repeats: Annotated[int, Flag("N")] = 3
    """Number of systems of each size (3)."""
    tightness: Annotated[float, Flag("X")] = Field(1.0, gt=0, le=1e6)
    """Scarcity of the cards: 1 provides about the demand, 2 half of it (1)."""
    mixed: bool = False
    """Let a server run on several accelerators."""


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--size",
        metavar="SxA",
        type=_size,
        action="append",
        help="servers x accelerators; may be given several times (15x6, 30x20, 100x20)",
    )
    add_request(parser, BenchOptions)
    add_output(parser, "stages")


def _bench(arguments: argparse.Namespace) -> None:
    sizes = arguments.size or [(15, 6), (30, 20), (100, 20)]
    options = request_of(BenchOptions, arguments)
    common = options.tightness, options.mixed
    fleets = [FleetSize(servers, accelerators, *common) for servers, accelerators in sizes]
    results = [asdict(measure(fleet, options.repeats)) for fleet in fleets]
    show_answer(arguments, lambda: results, lambda: bench_sections(results))


COMMANDS = {"bench": Command(_add_bench, _bench)}
