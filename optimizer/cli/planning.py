"""Sub-commands `solve`, `check` and `candidates`, which read a system."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from optimizer.candidates import find_candidates
from optimizer.cli.command import (
    Command,
    add_output,
    add_path,
    one_line,
    print_json,
    print_stderr,
    show_answer,
    show_tables,
)
from optimizer.cli.flags import add_request, request_of
from optimizer.cli.solving import (
    add_cluster,
    add_load,
    announced_for,
    check_simulates,
    read_system,
    show_warnings,
    simulating,
)
from optimizer.errors import SpecError
from optimizer.jobs.effort import EffortOptions
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import SizingOptions
from optimizer.pipeline import Timings, solve
from optimizer.quantities import counted
from optimizer.render.plan_sections import PlanOutlook, candidate_sections, plan_sections
from optimizer.render.progress import working
from optimizer.section import Section, sentence
from optimizer.spec.writing import write_text
from optimizer.studies.estimates import price_of_estimates
from optimizer.studies.overload import find_overload
from optimizer.studies.shortage import find_shortage
from optimizer.text import capitalised, printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from optimizer.plan import Plan
    from optimizer.schema.faults import Fault
    from optimizer.spec.system import System
    from optimizer.studies.simulation.simulation_document import Simulation


class SolveFlags(EffortOptions):
    """Flags of `solve` beyond the options of a plan."""

    output: Annotated[Path | None, Flag("FILE", short="-o")] = None
    """Write the plan as JSON to FILE as well."""
    write_model: Annotated[Path | None, Flag("FILE")] = None
    """Write the optimisation model to FILE.lp or FILE.mps."""
    proof: Annotated[Path | None, Flag("FILE")] = None
    """Write the dual multipliers that prove the plan's bounds to FILE."""
    require_complete: bool = False
    """Exit with 3 unless every server is served in full."""
    require_reserves: bool = False
    """Exit with 3 unless every server has the reserve that it requires."""
    simulate: bool = False
    """Simulate the pools of the plan request by request, as `simulate` does."""
    repair: bool = False
    """With --simulate: replan until all pools meet their targets."""
    timings: bool = False
    """Write the wall time of each stage to stderr."""


def _add_solve(parser: argparse.ArgumentParser) -> None:
    add_path(parser)
    add_load(parser)
    add_request(parser, SolveFlags)
    add_cluster(parser)
    add_output(parser, "allocations", "cards", "unserved", "reserves", "overload", "estimates", "objectives")


def _solve(arguments: argparse.Namespace) -> None:
    check_simulates(arguments)
    options = request_of(SolveFlags, arguments)
    if options.repair and not options.simulate:
        raise SpecError("--repair: repairs what a simulation shows; add --simulate")
    if options.repair and options.proof is not None:
        raise SpecError("--proof: cannot be combined with --repair; remove one")
    if options.simulate and arguments.csv:
        raise SpecError("--csv: holds one table; take --json, or 'inferplan simulate --csv' for the pools")
    timings = Timings()
    if options.repair:
        _solve_and_repair(arguments, options, timings)
        return
    with working("solving"):
        with timings.stage("read"):
            system = read_system(arguments, options)
        with announced_for(system):
            plan = solve(
                system,
                backend=options.backend,
                write_model_to=options.write_model,
                write_proof_to=options.proof,
                timings=timings,
            )
    if options.output is not None:
        write_text(plan.to_json() + "\n", options.output)
    result = None
    if options.simulate:
        from optimizer.jobs.simulating import SimulateOptions, simulate_plan

        with simulating(arguments) as progress:
            effort = options.model_dump(include=set(EffortOptions.model_fields))
            result = simulate_plan(system, SimulateOptions(**effort), plan, progress)
    _print_plan(plan, result, arguments, _tables(plan, system, arguments, timings))
    _finish(plan, options, timings)


def _solve_and_repair(arguments: argparse.Namespace, options: SolveFlags, timings: Timings) -> None:
    from optimizer.jobs.simulating import repair_plan
    from optimizer.render.simulation_sections import simulated_repair_sections

    with timings.stage("read"):
        system = read_system(arguments, options)
    with simulating(arguments) as progress:
        result = repair_plan(system, options, progress, write_model_to=options.write_model, timings=timings)
    if options.output is not None:
        write_text(result.plan.to_json() + "\n", options.output)
    if arguments.json:
        print(result.to_json())
    else:
        tables = _tables(result.plan, system, arguments, timings)
        _print_plan(result.plan, result.simulation, arguments, tables, simulated_repair_sections(result))
    _finish(result.plan, options, timings)


def _finish(plan: Plan, options: SolveFlags, timings: Timings) -> None:
    if options.timings:
        for stage, seconds in timings.stages_s.items():
            print_stderr(f"{stage:<12}{seconds * 1000:10.1f} ms")
    sys.stdout.flush()
    plan.raise_for_status(service=options.require_complete, reserves=options.require_reserves)


def _print_plan(
    plan: Plan,
    simulation: Simulation | None,
    arguments: argparse.Namespace,
    tables: list[Section],
    repairs: Sequence[Section] = (),
) -> None:
    """Write a plan to stdout, and its warnings to stderr.

    A simulation is included in the JSON, or follows in further tables.
    """
    show_warnings(plan.warnings)
    if not arguments.json and not arguments.csv and arguments.table is None:
        tables = [*tables, next_command(plan, arguments)]
    if arguments.json and simulation is None:
        print(plan.to_json())
    elif arguments.json and simulation is not None:
        print_json({
            "plan": plan.model_dump(mode="json", by_alias=True),
            "simulation": simulation.model_dump(mode="json", by_alias=True),
        })  # fmt: skip
    else:
        show_tables(tables, arguments)
        if simulation is not None:
            from optimizer.render.simulation_sections import simulation_sections
            from optimizer.render.terminal import Output, show

            show([*simulation_sections(simulation), *repairs], sys.stdout, Output(arguments.wide))


def _tables(plan: Plan, system: System, arguments: argparse.Namespace, timings: Timings) -> list[Section]:
    """Return the tables of a plan, with those of the studies that solve again if they are requested."""
    outlook = PlanOutlook()
    if arguments.json:
        return []
    if not arguments.csv and arguments.table is None:
        with timings.stage("shortage"), working("searching for cards that serve everything"):
            outlook = outlook._replace(shortage=find_shortage(system, plan))
    if _shows("overload", arguments):
        with timings.stage("overload"), working("trying other options"):
            outlook = outlook._replace(overload=find_overload(system, plan))
    if _shows("estimates", arguments):
        with timings.stage("estimates"), working("trying the middle of the estimates"):
            outlook = outlook._replace(price=price_of_estimates(system, plan))
    return plan_sections(plan, system, outlook, arguments.scale)


def next_command(plan: Plan, arguments: argparse.Namespace) -> Section:
    """Return the last line of a plan: its service, and the command that explains it."""
    given = {name: getattr(arguments, name) for name in _EXPLAINED}
    flags = [f"--{name}={value}" for name, value in given.items() if value]
    path = "FILE" if arguments.path == "-" else arguments.path
    command = shlex.join(["inferplan", "explain", path, *flags])
    return sentence(f"{capitalised(plan.service_text)}. Next: {command}", "" if plan.complete else "red")


_EXPLAINED = ("load", "scale", "estimates", "saturation")
"""Flags with a value that the suggested command repeats."""


def _shows(table: str, arguments: argparse.Namespace) -> bool:
    """Return whether the arguments request a table, by name or with all others."""
    return arguments.table == table or (arguments.table is None and not arguments.csv)


def _add_check(parser: argparse.ArgumentParser) -> None:
    add_path(parser)
    parser.add_argument("--json", action="store_true", help="write the findings as JSON, for editors")


def _check(arguments: argparse.Namespace) -> int:
    from optimizer.checking.checks import check_documents  # reads the catalogue

    documents = check_documents(arguments.path)
    if arguments.json:
        print_json({
            "valid": not documents.faults,
            "errors": [fault.to_wire() for fault in documents.faults],
            "warnings": [fault.to_wire() for fault in documents.warnings],
        })  # fmt: skip
        return 2 if documents.faults else 0
    for fault in documents.faults:
        print_stderr(f"inferplan: error: {one_line(str(fault))}{_marked_line(fault)}")
    for warning in documents.warnings:
        print_stderr(f"inferplan: warning: {one_line(str(warning))}{_marked_line(warning)}")
    system = documents.system
    if system is None:
        if len(documents.faults) > 1:
            print_stderr(f"inferplan: {len(documents.faults)} errors")
        return 2
    versions = sum(len(server.split or ()) for server in system.spec.servers)
    counts: tuple[tuple[int, str] | tuple[int, str, str], ...] = (
        (len(system.spec.servers), "server"),
        *([(versions, "version")] if versions else []),
        (len(system.service_classes), "service class", "service classes"),
        (len({model for model, _ in system.profiles}), "model"),
        (len(system.profiles), "profile"),
        (len(system.accelerators), "accelerator"),
        (len(system.capacity), "capacity", "capacities"),
    )
    print(f"{arguments.path}: valid: " + ", ".join(counted(*count) for count in counts))
    if not documents.sized:
        print_stderr(
            "inferplan: note: too many servers and accelerators to size here; run 'inferplan candidates'"
        )
    return 0


def _marked_line(fault: Fault) -> str:
    """Return the line of a file with a fault and a caret below it; empty for a document in memory."""
    path = Path(fault.source)
    if fault.position is None or not path.is_file() or path.stat().st_size > MAX_MARKED_BYTES:
        return ""
    line, column = fault.position
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    text = printable(lines[line - 1]) if line <= len(lines) else ""
    start = max(column - MAX_BEFORE, 0)
    shown = f"{line:>6} | {text[start : start + SHOWN_CHARACTERS]}"
    return f"\n{shown}\n{' ' * 9}{' ' * (column - 1 - start)}^" if text.strip() else ""


MAX_MARKED_BYTES = 1_000_000
"""Maximum size of a file whose lines are shown."""
MAX_BEFORE, SHOWN_CHARACTERS = 50, 70
"""Maximum number of characters of a line before a fault, and altogether."""


def _add_candidates(parser: argparse.ArgumentParser) -> None:
    add_path(parser)
    add_load(parser)
    add_request(parser, SizingOptions)
    add_output(parser, "candidates", "rejected")


def _candidates(arguments: argparse.Namespace) -> None:
    with working("sizing"):
        system = read_system(arguments, request_of(SizingOptions, arguments))
        with announced_for(system):
            candidates = find_candidates(system.with_all_pools())
    from optimizer.checking.checks import candidates_wire, warnings_of  # reads the catalogue

    warnings = warnings_of(candidates)
    show_warnings(warnings)
    wire = partial(candidates_wire, candidates, warnings)
    show_answer(arguments, wire, lambda: candidate_sections(candidates))


COMMANDS = {
    "solve": Command(_add_solve, _solve),
    "check": Command(_add_check, _check),
    "candidates": Command(_add_candidates, _candidates),
}
