"""Sub-command `emulate`: runs the replicas of a plan as emulated HTTP servers."""

import argparse
from pathlib import Path
from typing import Annotated

from pydantic import Field

from optimizer.cli.command import Command, add_path
from optimizer.cli.flags import add_request, request_of
from optimizer.cli.solving import add_load, announced, announced_for, read_system
from optimizer.errors import SpecError
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import PlanOptions
from optimizer.pipeline import solve
from optimizer.plan import load_plan
from optimizer.render.progress import working
from optimizer.units import SHARE
from rest_server.emulator.settings import Policy


class EmulateFlags(PlanOptions):
    """Flags of `emulate` beyond the options of a plan."""

    port: Annotated[int, Flag("P")] = Field(8100, ge=0, le=65_535)
    """Port of the router; replicas have the next ones (8100); 0: any free ports."""
    host: Annotated[str, Flag("HOST")] = "127.0.0.1"
    """Address to listen on (127.0.0.1)."""
    plan: Annotated[Path | None, Flag("FILE")] = None
    """Plan to emulate, as `solve -o` writes it; default: solve the system."""
    speed: Annotated[float, Flag("X")] = Field(1.0, gt=0, le=100)
    """Speed of the replicas' clocks relative to real time (1); latencies are accurate up to 3."""
    share: Annotated[float, Flag("F", SHARE)] = Field(1.0, gt=0, le=1)
    """Share of the replicas to run, at least one of each pool (1)."""
    seed: Annotated[int, Flag("S")] = Field(1, ge=0, lt=2**63)
    """Random seed of texts, of output lengths that a request leaves open, and of stages (1)."""
    startup: Annotated[str, Flag("S[,NAME=S]")] = "0"
    """Start-up time of replicas [s], which can differ by model or accelerator: 30,llama_70b=120 (0)."""
    route: Annotated[Policy, Flag("POLICY")] = "least"
    """Policy by which the router chooses a replica: least, round-robin, random or sticky (least)."""
    retries: Annotated[int | None, Flag("N")] = Field(None, ge=0, le=10_000)
    """Maximum further replicas that the router tries if one rejects or fails a request; default: all."""
    keys_file: Annotated[Path | None, Flag("FILE")] = None
    """File of API keys, as for `serve`; requests to the router need one of them (no keys)."""
    rate_limit: Annotated[float | None, Flag("X")] = Field(None, gt=0, le=1e6)
    """Maximum requests per second of each key, or of each address without keys; others get status 429 (any).
    """
    scalable: bool = False
    """Serve the part of the Kubernetes API that scales workloads at the router's port; scaling then starts
    and stops replicas.
    """
    cluster: Annotated[Path | None, Flag("FILE")] = None
    """Table of the nodes of each accelerator; replicas on several nodes become LeaderWorkerSets."""
    write_tokenizer: Annotated[Path | None, Flag("DIR")] = None
    """Write a tokenizer with one token per word to DIR, for benchmark clients."""


def _add_emulate(parser: argparse.ArgumentParser) -> None:
    add_path(parser)
    add_load(parser)
    add_request(parser, EmulateFlags)


def _emulate(arguments: argparse.Namespace) -> int:
    from optimizer.render.cluster_table import read_cluster_table
    from rest_server.emulator.life import startup_times
    from rest_server.emulator.scalable import emulate_scalable
    from rest_server.emulator.serve import emulate
    from rest_server.emulator.settings import FleetSettings
    from rest_server.emulator.words import write_tokenizer

    options = request_of(EmulateFlags, arguments)
    if options.cluster is not None and not options.scalable:
        raise SpecError("--cluster: names LeaderWorkerSets of a fleet that scales; add --scalable")
    startup_s = startup_times(options.startup)
    system = read_system(arguments, options)
    if options.write_tokenizer is not None:
        write_tokenizer(options.write_tokenizer)
    if options.plan is not None:
        plan = load_plan(options.plan)
    else:
        with working("solving"), announced_for(system):
            plan = solve(system, backend=options.backend)
    settings = FleetSettings(
        options.port, options.host, options.speed, options.share, options.seed, startup_s, options.route,
        options.retries, read_cluster_table(options.cluster),
        () if options.keys_file is None else (options.keys_file,), options.rate_limit,
    )  # fmt: skip
    run = emulate_scalable if options.scalable else emulate
    with announced():
        return run(system, plan, settings, _announce)


def _announce(line: str) -> None:
    print(line, flush=True)


COMMANDS = {"emulate": Command(_add_emulate, _emulate)}
