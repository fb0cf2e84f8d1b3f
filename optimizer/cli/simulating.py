"""The sub-command that holds a plan against a simulation: simulate."""

import argparse
import sys
from pathlib import Path

from optimizer.cli.command import Command, add_path, add_wide
from optimizer.cli.flags import request_of
from optimizer.cli.solving import (
    add_effort,
    add_load,
    add_solving_flags,
    read_system,
    simulated,
    solving_options,
)
from optimizer.jobs import SimulateRequest
from optimizer.jobs.simulating import EffortOptions
from optimizer.plan import load_plan
from optimizer.render.simulation_sections import simulation_csv, simulation_sections


def _add_simulate(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "One replica of each pool is run at its share of the load. The first run on a machine compiles the "
        "simulator, which is then kept."
    )
    add_path(parser)
    parser.add_argument(
        "--plan", metavar="FILE", help="the plan to simulate (what solve -o wrote); none: solve"
    )
    add_effort(parser)
    parser.add_argument(
        "--trace",
        metavar="FILE",
        type=Path,
        help="recorded requests in place of the load: CSV with TIMESTAMP,ContextTokens,GeneratedTokens",
    )
    parser.add_argument("--server", metavar="S", help="the server to which the trace belongs")
    add_load(parser)
    add_solving_flags(parser)
    answer = parser.add_mutually_exclusive_group()
    answer.add_argument("--json", action="store_true", help="write JSON instead of tables")
    answer.add_argument("--csv", action="store_true", help="write a row for each pool, with every digit")
    add_wide(answer)


def _simulate(arguments: argparse.Namespace) -> None:
    effort = request_of(EffortOptions, arguments)
    request = SimulateRequest(
        system=read_system(arguments, solving_options(arguments)),
        plan=None if arguments.plan is None else load_plan(arguments.plan),
        trace=arguments.trace,
        server=arguments.server,
        backend=arguments.backend,
        requests=effort.requests,
        seed=effort.seed,
    )
    found = simulated(request, arguments)
    if arguments.json:
        print(found.to_json())
        return
    from optimizer.render.terminal import Output, show

    if arguments.csv:
        sys.stdout.write(simulation_csv(found))
    else:
        show(simulation_sections(found), sys.stdout, Output(arguments.wide))


COMMANDS = {"simulate": Command(_add_simulate, _simulate)}
