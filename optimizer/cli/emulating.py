"""Sub-command `emulate`: runs the replicas of a plan as emulated HTTP servers."""

import argparse

from optimizer.cli.command import Command, add_path
from optimizer.cli.flags import add_request, request_of
from optimizer.cli.solving import add_load, announced, announced_for, read_system
from optimizer.errors import SpecError
from optimizer.pipeline import solve
from optimizer.plan import load_plan
from optimizer.render.progress import working
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
    if options.plan is not None:
        plan = load_plan(options.plan)
    else:
        with working("solving"), announced_for(system):
            plan = solve(system, backend=options.backend)
    run = emulate_scalable if options.scalable else emulate
    with announced():
        return run(system, plan, options, _announce)


def _announce(line: str) -> None:
    print(line, flush=True)


COMMANDS = {"emulate": Command(_add_emulate, _emulate)}
