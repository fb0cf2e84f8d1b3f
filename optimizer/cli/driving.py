"""Sub-command `drive`: the loads of a document, sent to a running fleet."""

import argparse
import json
import resource
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from optimizer.cli.command import Command, add_output, add_path, show_answer
from optimizer.cli.flags import add_request, request_of
from optimizer.cli.solving import add_load, announced, announced_for, read_system
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import PlanOptions
from optimizer.pipeline import solve
from optimizer.plan import load_plan
from optimizer.render.progress import working
from optimizer.spec.writing import write_text
from optimizer.studies.simulation.pools import pool_runs
from rest_server.emulator.driver import MeasuredLoad, drive, replicas_at, report_of
from rest_server.emulator.measured import compared, loads_of, sections_of


class DriveFlags(PlanOptions):
    """Flags of `drive` beyond the options of a plan."""

    requests: Annotated[int, Flag("N")] = Field(1000, ge=20, le=1_000_000)
    """Requests to the server with the highest rate; the others get theirs in the same time (1,000)."""
    seed: Annotated[int, Flag("S")] = Field(1, ge=0, lt=2**63)
    """Random seed of arrivals and lengths (1)."""
    plan: Annotated[Path | None, Flag("FILE")] = None
    """Plan that runs there, as `solve -o` writes it; default: solve."""
    report: Annotated[Path | None, Flag("DIR")] = None
    """Write a benchmark report for each server with tokens to DIR, which `fit` reads."""


def _add_drive(parser: argparse.ArgumentParser) -> None:
    add_path(parser)
    parser.add_argument("url", metavar="URL", help="address of the fleet: http://HOST:PORT")
    add_load(parser)
    add_request(parser, DriveFlags)
    add_output(parser, "latencies")


def _drive(arguments: argparse.Namespace) -> None:
    options = request_of(DriveFlags, arguments)
    system = read_system(arguments, options)
    if options.plan is not None:
        plan = load_plan(options.plan)
    else:
        with working("solving"), announced_for(system):
            plan = solve(system, backend=options.backend)
    runs = pool_runs(system, plan)
    loads = loads_of(system, runs, replicas_at(arguments.url), options.requests, options.seed)
    with working("driving"):
        before_s = _cpu_s()
        found = drive(arguments.url, loads)
        spent_s = _cpu_s() - before_s
    with working("simulating"), announced():
        rows = [row for one in found for row in compared(one, runs, options.seed)]
    if options.report is not None:
        _write_reports(found, options.report)
    show_answer(arguments, lambda: [asdict(row) for row in rows], lambda: sections_of(rows, found, spent_s))


def _write_reports(found: list[MeasuredLoad], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for one in found:
        if one.load.streams and not np.isnan(one.last_ms).all():
            text = json.dumps(report_of(one), indent=1) + "\n"
            write_text(text, folder / f"{one.load.server}.json")


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


COMMANDS = {"drive": Command(_add_drive, _drive)}
