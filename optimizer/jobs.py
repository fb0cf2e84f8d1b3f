"""One function per user job: the command line and the service parse, call one of these, and render.

The rules of a job stand here once. What contradicts itself in a request is a `RequestError` in terms of the
fields of this module; the command line says it in terms of its flags, the service in terms of its documents.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optimizer.batch_rows import analyze_batch, size_batch
from optimizer.candidates import SizingMemo, find_candidates
from optimizer.errors import SpecError
from optimizer.pipeline import Timings, solve
from optimizer.plan import Plan, verify
from optimizer.replica import analyze_replicas, size_replicas
from optimizer.simulation.replicas import DEFAULT_REQUESTS, DEFAULT_SEED, Effort
from optimizer.simulation.trace import read_trace
from optimizer.spec.load_traces import read_load_trace
from optimizer.spec.loads import with_loads
from optimizer.spec.system import System
from optimizer.stabilisation.rules import RECOMMENDED, Rules, read_rules
from optimizer.studies.comparison.compare import compare
from optimizer.studies.comparison.document import Comparison
from optimizer.studies.explanation.explain import explain
from optimizer.studies.figures.document import Figure
from optimizer.studies.figures.kinds import PLAN_KINDS, make_figure
from optimizer.studies.load_changes import scale_loads, vary_loads
from optimizer.studies.replay.document import Replay
from optimizer.studies.replay.replay import FOLLOWED, each_alone, replay
from optimizer.studies.reports.report import make_report
from optimizer.studies.simulation import repair
from optimizer.studies.simulation.document import RepairedPlan, Simulation
from optimizer.studies.simulation.plans import Progress, simulation_of
from optimizer.studies.simulation.pools import pool_runs, traced
from optimizer.studies.simulation.replicas import simulate_replica

if TYPE_CHECKING:
    from optimizer.fitting.fit import FitOptions
    from optimizer.fitting.prediction import Predicted
    from optimizer.fitting.profile import FittedProfile
    from optimizer.plan.proof import Proof
    from optimizer.starters.document import Start
    from optimizer.studies.checking import Checked

__all__ = [
    "CompareRequest",
    "Effort",
    "FigureRequest",
    "LoadChange",
    "RepairRequest",
    "ReplayRequest",
    "RequestError",
    "SimulateRequest",
    "SolveOptions",
    "Timings",
    "add_profile",
    "analyze_batch",
    "analyze_replicas",
    "check_documents",
    "compare_plans",
    "explain",
    "find_candidates",
    "fit_reports",
    "make_report",
    "predict_points",
    "repair_plan",
    "replay_loads",
    "show_figure",
    "show_fit",
    "simulate_plan",
    "simulate_replica",
    "size_batch",
    "size_replicas",
    "solve",
    "start_document",
    "verify_plan",
]


def check_documents(path: str | os.PathLike[str]) -> "Checked":
    """Find everything that is wrong in the documents of a path, then what is odd.

    Raises:
        SpecError: the path does not exist, or is a directory without a document.
    """
    from optimizer.studies import checking  # reads the catalogue

    return checking.check_documents(path)


def start_document(start: "Start") -> str:
    """Return a complete, commented system document from a few facts.

    Raises:
        SpecError: a name does not exist, a fact is missing, or a model fits nothing that is offered.
    """
    from optimizer.starters.document import document_of  # reads the catalogue

    return document_of(start)


def verify_plan(plan: Plan, system: System, proof: "Proof | None" = None) -> "Verified":
    """Check a plan against its system by arithmetic, and the proof of its bounds, if it is given.

    Args:
        plan: what to check.
        system: what it was made for, with the options that it was made with.
        proof: the multipliers that were written with it.
    """
    from optimizer.plan.proof import check_proof

    wrong = verify(plan, system)
    if wrong or proof is None:
        return Verified(tuple(wrong))
    mistakes, open_points = check_proof(plan, system, proof)
    return Verified(tuple(f"proof: {item}" for item in mistakes), tuple(open_points))


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification found."""

    wrong: tuple[str, ...]
    """What does not hold, one line each."""
    open_points: tuple[str, ...] = ()
    """What is not proved by multipliers, one line each."""


class RequestError(SpecError):
    """Raised when the parts of a request contradict each other."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        """The field at fault, by its Python name."""
        self.problem = problem
        """What is wrong with it; other fields stand in braces."""

    def __str__(self) -> str:
        return self.said(lambda name: name)

    def said(self, name_of: Callable[[str], str]) -> str:
        """Return the message with other names for the fields."""
        problem = re.sub(r"{(\w+)}", lambda found: name_of(found[1]), self.problem)
        return f"{name_of(self.field)}: {problem}"


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """How to solve, in place of what the document says; none: as there."""

    unlimited: bool | None = None
    mixed: bool | None = None
    solver: str | None = None
    """``milp`` or ``greedy``."""
    batch_sizing: str | None = None
    gap: float | None = None
    time_limit_s: float | None = None
    estimates: str | None = None
    """``upper``, ``middle`` or ``lower``."""

    def given(self) -> dict[str, object]:
        """Return the optimizer options that are given, by their Python names.

        Raises:
            RequestError: they contradict each other.
        """
        if self.mixed and self.solver == "greedy":
            problem = "the greedy solver plans one accelerator per server; remove one of the two"
            raise RequestError("mixed", problem)
        exact = None if self.solver is None else self.solver == "milp"
        options = {
            "gap": self.gap,
            "time_limit_s": self.time_limit_s,
            "unlimited": self.unlimited,
            "heterogeneous": self.mixed,
            "milp_solver": True if self.mixed else exact,  # only the exact solver makes mixed plans
            "batch_sizing": self.batch_sizing,
            "estimates": self.estimates,
        }
        return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True, slots=True)
class LoadChange:
    """Another load of a system, in at most one way."""

    csv: str | Path | None = None
    """A file of loads by server."""
    scale: float | None = None
    """A factor on every arrival rate."""
    random_load: int | None = None
    """A seed: every rate times 0.5 … 1.5 and every length times 0.8 … 1.2, at random."""

    @property
    def field(self) -> str | None:
        """The way in which the load changes, if it does."""
        given = [name for name in ("csv", "scale", "random_load") if getattr(self, name) is not None]
        return given[0] if given else None

    def applied_to(self, system: System) -> System:
        """Return a system at the other load; the same system where none is given.

        Raises:
            RequestError: the load changes in two ways.
            SpecError: it cannot be read, or is out of range.
        """
        if self.scale is not None and self.random_load is not None:
            raise RequestError(
                "scale", "the load can be changed in only one way; remove it, or {random_load}"
            )
        if self.csv is not None:
            return with_loads(system, self.csv)
        if self.scale is not None:
            return scale_loads(system, self.scale)
        if self.random_load is not None:
            return vary_loads(system, np.random.default_rng(self.random_load))
        return system


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """What to compare: a system with itself, unlimited, under other options or another load; or two sides."""

    first: System | Plan
    second: System | Plan | None = None
    load: LoadChange = LoadChange()
    second_options: Mapping[str, object] | None = None
    """Optimizer options of the second side alone, by their Python names."""
    transition: bool = False
    """Whether the second system follows the first in time: what the first plan says is then what runs."""
    labels: tuple[str, str] | None = None
    """What to call the sides."""
    solve: SolveOptions = SolveOptions()
    backend: str = "highs"


def compare_plans(request: CompareRequest) -> Comparison:
    """Return two plans side by side.

    Raises:
        SpecError: there is nothing to compare or to solve, or an option is wrong.
        SolverError: the solver failed, or a plan does not pass verification.
    """
    _check_comparison(request)
    first, second, transition = request.first, request.second, request.transition
    if request.load.field is not None:
        assert isinstance(first, System)
        second, transition = request.load.applied_to(first), True
    return compare(
        first,
        second,
        second_options=request.second_options,
        transition=transition,
        labels=request.labels,
        backend=request.backend,
        **request.solve.given(),
    )


def _check_comparison(request: CompareRequest) -> None:
    """Refuse what contradicts itself, and options where nothing is solved with them."""
    first, second, load = request.first, request.second, request.load.field
    if second is not None:
        if load is not None:
            raise RequestError(load, "compares one system before and after; remove it, or {second}")
        if isinstance(second, Plan) and request.second_options is not None:
            raise RequestError("second_options", "{second} holds a plan, and nothing is solved; remove it")
        if isinstance(first, Plan) and isinstance(second, Plan) and request.solve.given():
            raise SpecError("both sides are plans, and nothing is solved; remove the options for solving")
    elif isinstance(first, Plan):
        if load is not None:
            raise RequestError(load, "{first} holds a plan, which has no loads; give its system")
        raise RequestError("first", "holds a plan; name what to compare it with ({second})")
    elif load is None and request.second_options is None and request.solve.unlimited is not None:
        raise RequestError(
            "unlimited",
            "both plans, limited and unlimited, are compared; remove it, or add {second}, {second_options} "
            "or a change of the load",
        )


@dataclass(frozen=True, slots=True)
class FigureRequest:
    """What to show: a kind of figure of a system, perhaps after a change of its load."""

    system: System
    kind: str
    server: str | None = None
    accelerator: str | None = None
    load: LoadChange = LoadChange()
    backend: str = "highs"


def show_figure(request: FigureRequest) -> Figure:
    """Return a figure as data; after a change of the load with what was planned before it.

    Raises:
        SpecError: a kind, a server or an accelerator does not exist, or does not go with the kind.
        SolverError: a plan was needed, and the solver failed.
    """
    for name in ("server", "accelerator"):
        if getattr(request, name) is not None and request.kind in PLAN_KINDS:
            raise RequestError(name, f"{request.kind!r} shows all servers; remove it")
    after = request.load.applied_to(request.system)
    return make_figure(
        after,
        request.kind,
        server=request.server,
        accelerator=request.accelerator,
        before=None if after is request.system else request.system,
        backend=request.backend,
    )


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


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Loads of the past to run through planning and stabilisation."""

    system: System
    loads: str | Path
    """A CSV file of loads over time."""
    rules: Path | None = None
    """A file of rules; none: every rule, with the recommended values."""
    each: bool = False
    """Whether each of the rules is shown alone, too."""
    startup_s: float = 180.0
    """Time that a replica takes to start [s]."""


def replay_loads(request: ReplayRequest) -> Replay:
    """Return what becomes of a fleet when every plan is followed, and with rules between.

    Raises:
        SpecError: a file cannot be read, or its loads are not of the system.
        SolverError: the solver failed.
    """
    rules = RECOMMENDED if request.rules is None else read_rules(request.rules)
    variants = {FOLLOWED: Rules()}
    if request.each:
        variants |= each_alone(rules)
    variants["recommended rules" if request.rules is None else "the rules"] = rules
    steps = read_load_trace(request.system, request.loads)
    return replay(request.system, steps, variants, request.startup_s)


# --- profiles from benchmarks ----------------------------------------------------------------------------


def fit_reports(
    paths: Sequence[str], options: "FitOptions", progress: Callable[[str], None] = lambda _: None
) -> "FittedProfile":
    """Return the profile that fits the runs of some benchmark reports best.

    Raises:
        FitError: a report is not known or incomplete, or too little was measured.
        SpecError: a file cannot be read.
    """
    from optimizer.fitting.fit import fit
    from optimizer.fitting.readers.table import read_benchmark

    return fit([read_benchmark(path) for path in paths], options, progress)


def predict_points(profile: str, points: str) -> "list[Predicted]":
    """Return what a fitted profile predicts for the rows of a file of points, or the runs of a report.

    Raises:
        FitError: the profile is none, or a row is wrong.
        SpecError: a file cannot be read.
    """
    from optimizer.fitting.prediction import predict
    from optimizer.fitting.profile import read_profile
    from optimizer.fitting.readers.table import read_benchmark

    return predict(read_profile(profile), read_benchmark(points).runs)


def add_profile(profile: str, system: str, model: str | None, accelerator: str | None) -> dict[str, Any]:
    """Return a system as one document, in plain values, with a fitted profile in it.

    Raises:
        FitError: the profile is none.
        SpecError: the system cannot be read, or has no such accelerator.
    """
    from optimizer.fitting.adding import with_profile
    from optimizer.fitting.profile import read_profile
    from optimizer.spec.files import read_parts
    from optimizer.spec.system import joined_document, load_system

    fitted = read_profile(profile)
    document = with_profile(joined_document(read_parts(system)), fitted, model, accelerator)
    load_system(document)  # what contradicts itself is not passed on
    return document


def show_fit(profile: str) -> Figure:
    """Return the figure of a fitted profile: measured beside predicted.

    Raises:
        FitError: the profile is none.
        SpecError: it cannot be read.
    """
    from optimizer.fitting.profile import read_profile
    from optimizer.studies.figures.fits import fit_figure

    return fit_figure(read_profile(profile))
