"""Sub-command `emulate`: runs the replicas of a plan as emulated HTTP servers."""

import argparse
from functools import partial

from optimizer.cli.command import Command, add_path
from optimizer.cli.flags import add_request, request_of
from optimizer.cli.solving import add_load, announced, read_or_solve, read_system
from optimizer.errors import SpecError
from rest_server.emulator.settings import FleetSettings


def _add_emulate(parser: argparse.ArgumentParser) -> None:
    add_path(parser)
    add_load(parser)
    add_request(parser, FleetSettings)


def _emulate(arguments: argparse.Namespace) -> int:
    from rest_server.emulator.scalable import emulate_scalable
    from rest_server.emulator.serve import emulate
    from rest_server.emulator.words import write_tokenizer

    options = request_of(FleetSettings, arguments)
    if options.cluster is not None and not options.scalable:
        raise SpecError("--cluster: names LeaderWorkerSets of a fleet that scales; add --scalable")
    _ = options.startup_s  # checked before solving
    system = read_system(arguments, options)
    if options.write_tokenizer is not None:
        write_tokenizer(options.write_tokenizer)
    plan = read_or_solve(system, options, options.plan)
    run = emulate_scalable if options.scalable else emulate
    with announced():
        return run(system, plan, options, partial(print, flush=True))


COMMANDS = {"emulate": Command(_add_emulate, _emulate)}
