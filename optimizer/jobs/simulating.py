"""Simulate a plan, or plan so that its pools keep their targets in simulation."""

from dataclasses import dataclass, field
from pathlib import Path

from optimizer.candidates import SizingMemo
from optimizer.jobs.requests import RequestError
from optimizer.pipeline import Timings, solve
from optimizer.plan import Plan
from optimizer.simulation.replicas import DEFAULT_REQUESTS, DEFAULT_SEED, Effort
from optimizer.simulation.trace import read_trace
from optimizer.spec.system import System
from optimizer.studies.simulation import repair
from optimizer.studies.simulation.document import RepairedPlan, Simulation
from optimizer.studies.simulation.plans import Progress, simulation_of
from optimizer.studies.simulation.pools import pool_runs, traced


@dataclass(frozen=True, slots=True)
class SimulateRequest:
    """A plan to simulate, and how."""

    system: System
    plan: Plan | None = None
    """A plan of the system; none: the one that is found for it."""
    requests: int = DEFAULT_REQUESTS
    """Requests sent to the replica of each pool."""
    seed: int = DEFAULT_SEED
    trace: str | Path | None = None
    """A file of recorded requests, in place of the loads of the system; those of one server."""
    server: str | None = None
    """The server that the trace is of."""
    backend: str = "highs"


def simulate_plan(request: SimulateRequest, progress: Progress | None = None) -> Simulation:
    """Return what every pool of a plan does at its load, predicted beside simulated.

    Raises:
        SpecError: the plan is not for the system, or the trace cannot be read or is of no server of it.
        AnalysisError: too little is simulated, or a law has iterations that take no time.
        SolverError: a plan was needed, and the solver failed.
    """
    effort = Effort(requests=request.requests, seed=request.seed)
    if request.server is not None and request.trace is None:
        raise RequestError("server", "says whose requests {trace} contains; give {trace}, or remove it")
    trace = None if request.trace is None else read_trace(request.trace)
    plan = request.plan or solve(request.system, backend=request.backend)
    runs = pool_runs(request.system, plan)
    if trace is not None:
        loaded = sorted({run.server for run in runs})
        server = request.server or (loaded[0] if len(loaded) == 1 else None)
        if server is None:
            raise RequestError(
                "server", f"missing; the plan has {len(loaded)} servers, and {{trace}} is of one"
            )
        if server not in loaded:
            raise RequestError("server", f"{server!r} has no pool with a load in the plan")
        runs = traced([run for run in runs if run.server == server], trace)
    return simulation_of(runs, effort, progress)


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """A system to plan so that its pools keep their targets in simulation, and how."""

    system: System
    requests: int = DEFAULT_REQUESTS
    """Requests sent to the replica of each pool; more where a figure is too close to its limit to tell."""
    seed: int = DEFAULT_SEED
    backend: str = "highs"
    write_model_to: Path | None = None
    """FILE.lp or FILE.mps for the model of the last plan, if wanted."""
    timings: Timings = field(default_factory=Timings)
    """Filled with the time of each stage, all plans together."""


def repair_plan(request: RepairRequest, progress: Progress | None = None) -> RepairedPlan:
    """Return a plan whose pools keep their targets in simulation, and what had to change for that.

    Raises:
        SpecError: an option or the backend does not exist.
        AnalysisError: too little is simulated, or a law has iterations that take no time.
        SolverError: the solver failed.
    """
    memo = SizingMemo()  # what is tightened is sized as before

    def plan_of(system: System) -> Plan:
        return solve(
            system,
            backend=request.backend,
            write_model_to=request.write_model_to,
            timings=request.timings,
            memo=memo,
        )

    effort = Effort(requests=request.requests, seed=request.seed)
    return repair.repair_plan(request.system, plan_of, effort, progress)
