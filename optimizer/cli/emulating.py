"""Sub-command `emulate`: the replicas of a plan as live HTTP servers."""

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
    """Plan to emulate, as `solve -o` writes it; default: solve."""
    speed: Annotated[float, Flag("X")] = Field(1.0, gt=0, le=100)
    """Speed of the replicas' clocks (1); latencies are measured well up to 3."""
    share: Annotated[float, Flag("F", SHARE)] = Field(1.0, gt=0, le=1)
    """Share of the replicas to run, at least one of each placement (1)."""
    seed: Annotated[int, Flag("S")] = Field(1, ge=0, lt=2**63)
    """Random seed of texts, natural ends of answers, and stages (1)."""
    startup: Annotated[str, Flag("S[,NAME=S]")] = "0"
    """Start-up time of a replica [s], and of those of a model or an accelerator: 30,llama_70b=120 (0)."""
    route: Annotated[Policy, Flag("POLICY")] = "least"
    """Choice of replicas by the router: least, round-robin, random or sticky (least)."""
    retries: Annotated[int | None, Flag("N")] = Field(None, ge=0, le=10_000)
    """Further replicas to which the router sends a request that one rejects or fails; default: all."""
    keys_file: Annotated[Path | None, Flag("FILE")] = None
    """API keys, of which requests to the router need one, as for `serve` (no keys)."""
    rate_limit: Annotated[float | None, Flag("X")] = Field(None, gt=0, le=1e6)
    """Requests per second that each key may send, or without keys each address; more answer 429 (any)."""
    scalable: bool = False
    """Answer the part of the Kubernetes API that scales workloads, at the port of the router: replicas then
    start and stop."""
    cluster: Annotated[Path | None, Flag("FILE")] = None
    """Table of the nodes of each accelerator: replicas on several nodes are LeaderWorkerSets."""
    write_tokenizer: Annotated[Path | None, Flag("DIR")] = None
    """Write a tokenizer of one token a word for benchmark clients to DIR."""


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
