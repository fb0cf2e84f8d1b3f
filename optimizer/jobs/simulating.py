"""The study that simulates a plan, or replans until its pools meet their targets in simulation."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from optimizer.candidates import SizingMemo
from optimizer.jobs.flag import Flag
from optimizer.jobs.requests import PlanOptions, RequestError
from optimizer.jobs.study import Study
from optimizer.pipeline import Timings, solve
from optimizer.plan import Plan
from optimizer.simulation.replicas import DEFAULT_REQUESTS, DEFAULT_SEED, MAX_REQUESTS, Effort
from optimizer.simulation.summary import MIN_REQUESTS
from optimizer.simulation.trace import read_trace
from optimizer.spec.system import System
from optimizer.studies.simulation import repair
from optimizer.studies.simulation.document import RepairedPlan, Simulation
from optimizer.studies.simulation.plans import Progress, simulation_of
from optimizer.studies.simulation.pools import pool_runs, traced


class EffortOptions(PlanOptions):
    """Length and seed of a simulation, and options that override the document's."""

    requests: Annotated[
        int, Flag("N", help=f"requests to the replica of each pool ({DEFAULT_REQUESTS:,})")
    ] = Field(DEFAULT_REQUESTS, ge=MIN_REQUESTS, le=MAX_REQUESTS)
    """Requests to the replica of each pool."""
    seed: Annotated[int, Flag("S", help=f"random seed ({DEFAULT_SEED})")] = Field(
        DEFAULT_SEED, ge=0, lt=2**64
    )
    """Random seed."""

    @property
    def effort(self) -> Effort:
        """Length and seed of the simulation."""
        return Effort(requests=self.requests, seed=self.seed)


class SimulateOptions(EffortOptions):
    """Options of a simulation."""

    repair: bool = False
    """Replan until all pools meet their targets; the answer is then the plan with its simulation."""


@dataclass(frozen=True, slots=True)
class SimulateRequest:
    """A plan to simulate."""

    system: System
    plan: Plan | None = None
    """A plan of the system; None: solve for one."""
    requests: int = DEFAULT_REQUESTS
    """Requests sent to the replica of each pool."""
    seed: int = DEFAULT_SEED
    trace: str | Path | None = None
    """File of recorded requests of one server, which replaces the loads of the system."""
    server: str | None = None
    """Server to which the trace belongs."""
    backend: str = "highs"


def simulate_plan(request: SimulateRequest, progress: Progress | None = None) -> Simulation:
    """Simulate every pool of a plan at its load, and compare predicted with simulated metrics.

    Raises:
        SpecError: the plan is not for the system, or the trace cannot be read or is of no server of it.
        AnalysisError: too little is simulated, or a law has iterations that take no time.
        SolverError: a plan was needed, and the solver failed.
    """
    effort = Effort(requests=request.requests, seed=request.seed)
    if request.server is not None and request.trace is None:
        raise RequestError("server", "requires {trace}; give {trace}, or remove it")
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
    """A system to plan such that its pools meet their targets in simulation."""

    system: System
    requests: int = DEFAULT_REQUESTS
    """Requests sent to the replica of each pool; more if a metric is too close to its limit to decide."""
    seed: int = DEFAULT_SEED
    backend: str = "highs"
    write_model_to: Path | None = None
    """FILE.lp or FILE.mps for the model of the last plan; None: it is not written."""
    timings: Timings = field(default_factory=Timings)
    """Receives the time of each stage, summed over all plans."""


def repair_plan(request: RepairRequest, progress: Progress | None = None) -> RepairedPlan:
    """Return a plan whose pools meet their targets in simulation, and the changes that were needed.

    Raises:
        SpecError: an option or the backend does not exist.
        AnalysisError: too little is simulated, or a law has iterations that take no time.
        SolverError: the solver failed.
    """
    memo = SizingMemo()  # tightened pools reuse their sizing

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


def _simulate_or_repair(system: System, options: SimulateOptions) -> Simulation | RepairedPlan:
    """Simulate the pools of the best plan request by request, and compare predicted with simulated metrics.

    With `repair` the plan is made again until its pools meet their targets, or units run out. The answer is
    then the plan, its simulation, the changes and the loss.
    """
    if options.repair:
        return repair_plan(RepairRequest(system, options.requests, options.seed))
    return simulate_plan(SimulateRequest(system, requests=options.requests, seed=options.seed))


STUDY = Study(
    title="Simulate a plan, and repair it",
    options=SimulateOptions,
    answer=Simulation | RepairedPlan,
    run=_simulate_or_repair,
    operations=("simulate_pools", "simulate_held"),
)
