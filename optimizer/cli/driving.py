"""Sub-command `drive`: sends the loads of a document to a running fleet."""

import argparse
import json
import resource
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from optimizer.cli.command import Command, add_output, add_path, picture_format, show_answer
from optimizer.cli.flags import add_request, in_flags, request_of
from optimizer.cli.solving import add_load, read_or_solve, read_system
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import PlanOptions, RequestError
from optimizer.render.progress import working
from optimizer.simulation.trace import read_trace
from optimizer.spec.system import System
from optimizer.spec.writing import write_bytes, write_text
from optimizer.studies.simulation.pools import PoolRun, pool_runs
from rest_server.emulator.asked import loads_of
from rest_server.emulator.driven import cost_of_client, figure_of, sections_of
from rest_server.emulator.driver import MeasuredLoad, drive, fleet_at, report_of
from rest_server.emulator.measured import Course, answers_of, measured_runs, measurement


class DriveFlags(PlanOptions):
    """Flags of `drive` beyond the options of a plan."""

    requests: Annotated[int, Flag("N")] = Field(1000, ge=20, le=1_000_000)
    """Number of requests to the server with the highest rate; the others get theirs in the same time (1,000).
    """
    seed: Annotated[int, Flag("S")] = Field(1, ge=0, lt=2**63)
    """Random seed of arrivals and lengths (1)."""
    scale: Annotated[float | None, Flag("X")] = Field(None, gt=0, le=1e6, allow_inf_nan=False)
    """Multiply the arrival rates, but not those of the plan, by this factor."""
    ramp: Annotated[float | None, Flag("X")] = Field(None, gt=0, le=1e6, allow_inf_nan=False)
    """Change the factor on the rates linearly from that of --scale to this one."""
    concurrency: Annotated[int | None, Flag("N")] = Field(None, ge=1, le=10_000)
    """Let N users send one request after the other, instead of arrivals at a rate."""
    trace: Annotated[Path | None, Flag("FILE")] = None
    """Send recorded requests instead: CSV with TIMESTAMP,ContextTokens,GeneratedTokens."""
    server: Annotated[str | None, Flag("S")] = None
    """Send requests only to this server."""
    plan: Annotated[Path | None, Flag("FILE")] = None
    """Plan of the running fleet, as `solve -o` writes it; default: solve the system."""
    report: Annotated[Path | None, Flag("DIR")] = None
    """Write a benchmark report for each server with tokens to DIR, which `fit` reads."""
    output: Annotated[Path | None, Flag("FILE", short="-o")] = None
    """Draw the latencies over time: FILE.svg, .png or .pdf."""

    def applied(self, system: System) -> System:
        """Return the system with the options that the flags set; its loads are unchanged."""
        return self.with_given(system)

    @property
    def course(self) -> Course:
        """Course of the sent load over time, relative to the loads of the plan."""
        trace = None if self.trace is None else read_trace(self.trace)
        return Course(1.0 if self.scale is None else self.scale, self.ramp, trace, self.concurrency)


def _add_drive(parser: argparse.ArgumentParser) -> None:
    add_path(parser)
    parser.add_argument("url", metavar="URL", help="address of the fleet: http://HOST:PORT")
    add_load(parser)
    add_request(parser, DriveFlags)
    add_output(parser, "pools", "answers")


def _drive(arguments: argparse.Namespace) -> None:
    options = request_of(DriveFlags, arguments)
    picture = None if options.output is None else picture_format(options.output)
    course = options.course
    system = read_system(arguments, options)
    plan = read_or_solve(system, options, options.plan)
    try:
        runs = pool_runs(system, plan)
        _check(runs, options)
    except RequestError as error:
        raise in_flags(error, arguments) from None
    fleet, count = fleet_at(arguments.url), options.requests
    loads = loads_of(system, plan, runs, fleet.replicas, count, options.seed, course, options.server)
    with working("driving"):
        before_s = _cpu_s()
        driven = drive(arguments.url, loads, fleet.speed)
        cost = cost_of_client(driven, _cpu_s() - before_s)
    measured, answers = [*measured_runs(driven, runs, fleet)], [*answers_of(driven, plan)]
    measured_load = measurement(measured, sum(len(load.requests) for load in loads), course, options.seed)
    if options.report is not None:
        _write_reports(driven, options.report)
    if options.output is not None and picture is not None:
        from optimizer.render.plots import draw

        write_bytes(draw(figure_of(measured, cost), picture), options.output)
    show_answer(
        arguments,
        lambda: {
            **measured_load.model_dump(mode="json", by_alias=True),
            "answers": [asdict(one) for one in answers],
        },
        lambda: sections_of(measured_load, answers, cost),
    )


def _check(runs: list[PoolRun], options: DriveFlags) -> None:
    """Check that the options agree with each other and with the pools.

    Raises:
        RequestError: a trace is given for several servers, or users are combined with a factor on the rates.
    """
    servers = sorted({run.server for run in runs})
    for name in ("scale", "ramp") if options.concurrency is not None else ():
        if getattr(options, name) is not None:
            raise RequestError("concurrency", f"users have no rate; remove {{{name}}}")
    if options.trace is not None and options.server is None and len(servers) > 1:
        raise RequestError(
            "server", f"missing; the plan has {len(servers)} servers, but {{trace}} belongs to one"
        )


def _write_reports(measured_loads: list[MeasuredLoad], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for one in (each.at(server) for each in measured_loads for server in each.load.parts):
        if one.load.streams and not np.isnan(one.last_ms).all():
            text = json.dumps(report_of(one), indent=1) + "\n"
            write_text(text, folder / f"{one.load.server}.json")


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


COMMANDS = {"drive": Command(_add_drive, _drive)}
