"""The sub-command bench: how long each stage takes, on systems made for it."""

import argparse

from optimizer.cli.command import Command, add_output, number, show_answer
from optimizer.render.replica_sections import bench_sections
from optimizer.studies.bench import FleetSize, measure


def _size(text: str) -> tuple[int, int]:
    servers, _, accelerators = text.lower().partition("x")
    if not (servers.isdigit() and accelerators.isdigit() and int(servers) and int(accelerators)):
        raise argparse.ArgumentTypeError(f"{text!r}: give servers x accelerators, such as 100x20")
    return int(servers), int(accelerators)


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--size",
        metavar="SxA",
        type=_size,
        action="append",
        help="servers x accelerators; may be given several times (15x6, 30x20, 100x20)",
    )
    parser.add_argument("--repeats", metavar="N", type=int, default=3, help="systems of each size (3)")
    scarce = number(0, 1e6, "the tightness", open_end=True)
    parser.add_argument(
        "--tightness", metavar="X", type=scarce, default=1.0, help="how scarce the units are (1); 2 is half"
    )
    parser.add_argument("--mixed", action="store_true", help="let a server run on several accelerators")
    add_output(parser, "stages")


def _bench(arguments: argparse.Namespace) -> None:
    sizes = arguments.size or [(15, 6), (30, 20), (100, 20)]
    kind = arguments.tightness, arguments.mixed
    fleets = [FleetSize(servers, accelerators, *kind) for servers, accelerators in sizes]
    results = [measure(fleet, arguments.repeats).to_wire() for fleet in fleets]
    show_answer(arguments, lambda: results, lambda: bench_sections(results))


COMMANDS = {"bench": Command(_add_bench, _bench)}
