"""The pipeline from a system to its verified plan: candidates, solution, plan, verification."""

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from optimizer.candidates import Candidates, SizingMemo, find_candidates
from optimizer.errors import SolverError
from optimizer.features.length_pools.decision import decided, with_possible
from optimizer.plan import Plan, make_plan, verify
from optimizer.solvers.compact import SessionFactory, highs_session
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.exact import check_columns, solve_exactly
from optimizer.solvers.greedy import solve_greedy, solve_separable
from optimizer.solvers.problem import Problem, build_problem
from optimizer.solvers.problem_prices import priced_limits
from optimizer.solvers.related import RelatedSolution
from optimizer.solvers.solution import Solution
from optimizer.solvers.staged import solve_in_stages
from optimizer.spec.arguments import checks_documents
from optimizer.spec.system import System
from optimizer.spec.writing import write_text


@dataclass(slots=True)
class Timings:
    """Wall time of each stage of one planning job [s], in the order of execution."""

    stages_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Context manager that adds the wall time of its body to a stage."""
        begin = time.perf_counter()
        yield
        self.stages_s[name] = self.stages_s.get(name, 0.0) + time.perf_counter() - begin


@checks_documents
def solve(
    system: System,
    *,
    backend: str = "highs",
    write_model_to: Path | None = None,
    write_proof_to: Path | None = None,
    timings: Timings | None = None,
    deadline: Deadline | None = None,
    memo: SizingMemo | None = None,
    **options: object,
) -> Plan:
    """Return the best plan of a system found within the time limit.

    Args:
        system: the system to plan.
        backend: MILP solver: ``highs``, or the name of a solver that PuLP supports (``CBC``).
        write_model_to: FILE.lp or FILE.mps for the model that minimises the transition cost; None writes
            none.
        write_proof_to: file for the dual multipliers that prove the plan's bounds; None writes none.
            Computing them can take as long again as the time limit.
        timings: receives the time of each stage.
        deadline: time at which the plan is due; default: now plus the time limit of the options. Sizing the
            candidates counts towards it, but is interrupted only where it simulates batch servers.
        memo: cache of sizings across solves, for control loops in which loads change and profiles do not; it
            does not change the plan.
        options: optimizer options by their Python names (``unlimited=True``), which override the document's.

    Raises:
        SpecError: an option, the backend or the format of the model file does not exist, or a value is out
            of range; or the time limit ends before all batch servers are simulated.
        SolverError: the solver failed, or the plan does not pass verification.
    """
    from optimizer.checking.checks import with_warnings  # reads the catalogue

    clock = timings or Timings()
    _check_extras(backend, write_model_to)
    if options:
        system = system.with_options(**options)
    solved = solve_in_full(system, backend=backend, timings=clock, deadline=deadline, memo=memo)
    with clock.stage("warnings"):
        plan = with_warnings(solved.plan, solved.candidates, memo)
    if write_model_to is not None:
        _write_model(solved, write_model_to)
    if write_proof_to is not None:
        with clock.stage("proof"):
            _write_proof(solved, system.options.time_limit_s, write_proof_to)
    return plan


def _write_model(solved: "Solved", path: Path) -> None:
    from optimizer.solvers.model_file import write_model

    candidates, problem, solution = solved.modelled
    names = candidates.arrays.server_names, candidates.arrays.accelerator_names
    write_model(problem, solution, names, path)


def _write_proof(solved: "Solved", limit_s: float, path: Path) -> None:
    from optimizer.plan.proof import prove

    proof = prove(solved.plan, solved.candidates, Deadline.after(limit_s))
    write_text(proof.to_json() + "\n", path)


@dataclass(frozen=True, slots=True)
class Solved:
    """A verified plan, with the optimisation problem and the solution that it was built from."""

    plan: Plan
    candidates: Candidates
    problem: Problem
    solution: Solution
    modelled: tuple[Candidates, Problem, Solution]
    """Candidates, problem and solution of the solver, with all possible pools by length or role."""

    def with_kept(self, replicas: Mapping[tuple[str, str], int]) -> "Solved":
        """Return the same solution with different retained replicas: numbers by (server, accelerator).

        Raises:
            SolverError: the plan and these replicas together exceed the available cards.
        """
        candidates = replace(self.candidates, system=self.candidates.system.with_kept(replicas))
        limits, prices = priced_limits(candidates, self.problem.table)
        problem = replace(self.problem, limits=limits, prices=prices)
        plan = _verified_plan(candidates, problem, self.solution, Timings())
        return replace(self, plan=plan, candidates=candidates, problem=problem)


def solve_in_full(
    system: System,
    *,
    backend: str = "highs",
    timings: Timings | None = None,
    deadline: Deadline | None = None,
    memo: SizingMemo | None = None,
    excluded: Collection[str] = (),
) -> Solved:
    """Plan a system; return the verified plan with its optimisation problem and solution.

    Args:
        backend: as for `solve`.
        timings: receives the time of each stage.
        deadline: time at which the result is due.
        memo: cache of sizing results.
        excluded: names of servers to leave unserved; the plan lists them as unserved.

    Raises:
        SpecError: the backend does not exist.
        SolverError: the solver failed, or the plan does not pass verification.
    """
    clock = timings or Timings()
    deadline = deadline or Deadline.after(system.options.time_limit_s)
    # Servers that can have pools by length or role are planned with all possible pools at first.
    with_all_pools = system.with_all_pools()
    if with_all_pools is not system:
        memo, excluded = memo or SizingMemo(), with_possible(excluded, with_all_pools)
    with clock.stage("candidates"):
        candidates = find_candidates(with_all_pools, memo, lambda: deadline.passed)
    with clock.stage("solve"):
        problem = build_problem(candidates, excluded)
        solution = solve_problem(problem, backend, deadline)
        size = partial(find_candidates, memo=memo)
        modelled = candidates, problem, solution
        candidates, problem, solution = decided(system, *modelled, size, excluded)
    plan = _verified_plan(candidates, problem, solution, clock)
    return Solved(plan, candidates, problem, solution, modelled)


def _verified_plan(candidates: Candidates, problem: Problem, solution: Solution, clock: Timings) -> Plan:
    """Return the plan of a solution, verified.

    Raises:
        SolverError: the plan does not pass verification.
    """
    with clock.stage("plan"):
        plan = make_plan(candidates, problem, solution)
    with clock.stage("verify"):
        wrong = verify(plan, candidates.system, candidates)
    if wrong:
        raise SolverError(f"the plan failed verification: {wrong[0]}; please report this with the input")
    return plan


def _check_extras(backend: str, write_model_to: Path | None) -> None:
    """Raise an error for an unusable solver or model file before any work is done."""
    if backend.lower() != "highs":
        from optimizer.milp.pulp_solvers import solver_name

        solver_name(backend)
    if write_model_to is not None:
        from optimizer.solvers.model_file import check_model_file

        check_model_file(write_model_to)


def solve_problem(
    problem: Problem,
    backend: str = "highs",
    deadline: Deadline | None = None,
    related: RelatedSolution | None = None,
) -> Solution:
    """Solve a planning problem with the solver that its options select.

    Args:
        backend: MILP solver: ``highs``, or the name of a solver that PuLP supports (``CBC``).
        deadline: time at which the result is due; default: now plus the time limit of the options.
        related: solution of a problem that differs by one change, as a warm start; None if there is none.

    Raises:
        SpecError: the backend is unknown or not installed.
        SolverError: the solver failed.
    """
    deadline = deadline or Deadline.after(problem.options.time_limit_s)
    if not problem.is_limited and not problem.is_mixed and not problem.topologies:
        return solve_separable(problem)
    if not problem.options.milp_solver:  # greedy: one accelerator per server, as in llm-inferno
        single = replace(problem, options=problem.options.model_copy(update={"heterogeneous": False}))
        return solve_in_stages(single, lambda stage, _due: solve_greedy(stage), deadline)
    backend = "CPLEX" if problem.options.use_cplex and backend == "highs" else backend
    session, with_patterns = _session(backend), backend.lower() == "highs"
    check_columns(problem)

    def solve_stage(stage: Problem, due: Deadline) -> Solution:
        # A saturation policy splits the problem into stages; without one, the only stage is the problem
        # itself.
        of_stage = related if stage is problem else None
        return solve_exactly(stage, session, due, with_patterns=with_patterns, related=of_stage)

    return solve_in_stages(problem, solve_stage, deadline, repeats_first=related is not None)


def _session(backend: str) -> SessionFactory:
    """Return the session factory of a MILP solver; this call imports the solver."""
    if backend.lower() == "highs":
        return highs_session
    from optimizer.milp.pulp_solvers import PulpSession, solver_name

    solver_name(backend)
    return lambda model: PulpSession(model, backend)
