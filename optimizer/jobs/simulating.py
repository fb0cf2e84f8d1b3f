"""Study that simulates a plan, or replans until all pools meet their targets in the simulation."""

from pathlib import Path
from typing import Annotated

from optimizer.candidates import SizingMemo
from optimizer.jobs.effort import EffortOptions
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import RequestError
from optimizer.jobs.study import Study
from optimizer.parallel import Progress, ignore_progress
from optimizer.pipeline import Timings, solve
from optimizer.plan import Plan, load_plan
from optimizer.render.simulation_sections import (
    simulated_repair_sections,
    simulation_csv,
    simulation_sections,
)
from optimizer.section import Section
from optimizer.simulation.trace import read_trace
from optimizer.spec.arguments import checks_documents
from optimizer.spec.system import System
from optimizer.studies.simulation import repair
from optimizer.studies.simulation.plans import simulation_of
from optimizer.studies.simulation.pools import pool_runs, traced
from optimizer.studies.simulation.simulation_document import RepairedPlan, Simulation


class SimulateOptions(EffortOptions):
    """Options of a simulation."""

    repair: bool = False
    """Replan until all pools meet their targets; the response is then the plan with its simulation."""
    plan: Annotated[Path | None, Flag("FILE", only="command")] = None
    """Plan to simulate, as `solve -o` writes it; default: solve the system."""
    trace: Annotated[str | Path | None, Flag("FILE", only="command")] = None
    """Recorded requests instead of the load: CSV with TIMESTAMP,ContextTokens,GeneratedTokens."""
    server: Annotated[str | None, Flag("S", only="command")] = None
    """Name of the server to which the trace belongs."""


@checks_documents
def simulate_plan(
    system: System, options: SimulateOptions, plan: Plan | None = None, progress: Progress = ignore_progress
) -> Simulation:
    """Simulate every pool of a plan at its load, and compare predicted with simulated metrics.

    Args:
        system: the planned system.
        options: length and seed of the simulation, and a trace.
        plan: a plan of the system; None selects that of the options, or solves the system.
        progress: called with the number of finished pools and the number of all pools.

    Raises:
        SpecError: the plan is not for the system, or the trace cannot be read or belongs to no server of it.
        AnalysisError: a latency model has iterations that take no time.
        SolverError: a plan was needed, and the solver failed.
    """
    if options.server is not None and options.trace is None:
        raise RequestError("server", "requires {trace}; give {trace}, or remove it")
    for name in ("plan", "trace") if options.scale is not None else ():
        if getattr(options, name) is not None:
            raise RequestError("scale", f"{{{name}}} states the load; remove one of the two")
    trace = None if options.trace is None else read_trace(options.trace)
    if plan is None and options.plan is not None:
        plan = load_plan(options.plan)
    runs = pool_runs(system, plan or solve(system, backend=options.backend))
    if trace is not None:
        loaded = sorted({run.owner for run in runs})
        server = options.server or (loaded[0] if len(loaded) == 1 else None)
        if server is None:
            raise RequestError(
                "server", f"missing; the plan has {len(loaded)} servers, but {{trace}} belongs to one"
            )
        if server not in loaded:
            raise RequestError("server", f"{server!r} has no pool with a load in the plan")
        runs = traced([run for run in runs if run.owner == server], trace)
    return simulation_of(runs, options.effort, progress)


@checks_documents
def repair_plan(
    system: System,
    options: EffortOptions,
    progress: Progress = ignore_progress,
    *,
    write_model_to: Path | None = None,
    timings: Timings | None = None,
) -> RepairedPlan:
    """Return a plan whose pools meet their targets in simulation, and the changes that were needed.

    Args:
        system: the system to plan.
        options: number of requests to each replica, increased if a metric is too close to its limit, and the
            seed.
        progress: called with the number of finished pools and the number of all pools.
        write_model_to: FILE.lp or FILE.mps for the model of the last plan; None writes no model.
        timings: receives the time of each stage, summed over all plans.

    Raises:
        SpecError: the backend does not exist.
        AnalysisError: a latency model has iterations that take no time.
        SolverError: the solver failed.
    """
    memo = SizingMemo()  # pools with reduced rates reuse their sizings

    def plan_of(changed: System) -> Plan:
        return solve(
            changed, backend=options.backend, write_model_to=write_model_to, timings=timings, memo=memo
        )

    return repair.solve_and_repair(system, plan_of, options.effort, progress)


def _simulate_or_repair(
    system: System, options: SimulateOptions, progress: Progress
) -> Simulation | RepairedPlan:
    """Simulate the pools of the best plan request by request, and compare predicted with simulated metrics.

    With `repair`, the system is planned again until all pools meet their targets, or cards run out. The
    response is then the plan, its simulation, the changes and the extra cost.
    """
    if not options.repair:
        return simulate_plan(system, options, progress=progress)
    for name in ("plan", "trace", "server"):
        if getattr(options, name) is not None:
            raise RequestError(name, "cannot be combined with {repair}, which plans again; remove one")
    return repair_plan(system, options, progress)


def _sections(result: Simulation | RepairedPlan) -> list[Section]:
    if isinstance(result, Simulation):
        return simulation_sections(result)
    return [*simulation_sections(result.simulation), *simulated_repair_sections(result)]


def _csv(result: Simulation | RepairedPlan) -> str:
    return simulation_csv(result if isinstance(result, Simulation) else result.simulation)


STUDY = Study(
    title="Simulate a plan, and repair it",
    options=SimulateOptions,
    answer=Simulation | RepairedPlan,
    run=_simulate_or_repair,
    sections=_sections,
    csv=_csv,
    working="simulating",
    simulates=True,
    epilog=(
        "One replica of each pool is run at its share of the load. The first run on a machine compiles the "
        "simulator, which is then kept."
    ),
)
