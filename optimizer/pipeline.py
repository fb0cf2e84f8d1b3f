"""One function per user job: the command line and the service only call these."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from optimizer.candidates import find_candidates
from optimizer.errors import SolverError, SpecError
from optimizer.plan import Plan, make_plan, verify
from optimizer.solvers.problem import Problem, Solution, build_problem
from optimizer.spec.system import System


@dataclass(slots=True)
class Timings:
    """Wall time of each stage of one job, in the order in which they ran [s]."""

    stages_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        begin = time.perf_counter()
        yield
        self.stages_s[name] = self.stages_s.get(name, 0.0) + time.perf_counter() - begin


def solve(system: System, *, timings: Timings | None = None, **options: object) -> Plan:
    """Return the best plan of a system.

    Args:
        system: what to plan.
        timings: filled with the time of each stage, if given.
        options: optimizer options by their Python names (``unlimited=True``), in place of the document's.

    Raises:
        SpecError: an option does not exist or its value is out of range.
        SolverError: the solver failed, or the plan does not pass verification.
    """
    clock = timings or Timings()
    if options:
        system = system.with_options(**options)
    _check_supported(system)
    with clock.stage("candidates"):
        candidates = find_candidates(system)
    with clock.stage("solve"):
        problem = build_problem(candidates)
        solution = choose(problem)
    with clock.stage("plan"):
        plan = make_plan(candidates, problem, solution)
    with clock.stage("verify"):
        wrong = verify(plan, system)
    if wrong:
        raise SolverError(f"the plan does not hold: {wrong[0]}; please report this with the input")
    return plan


def choose(problem: Problem) -> Solution:
    """Choose among columns with the solver that the options ask for."""
    if problem.capacity is None:
        from optimizer.solvers.separable import solve_separable

        return solve_separable(problem)
    from optimizer.solvers.highs import HighsSession  # loaded only where a MILP is solved
    from optimizer.solvers.milp import solve_milp

    return solve_milp(problem, HighsSession)


def _check_supported(system: System) -> None:
    options = system.options
    for given, name in (
        (options.heterogeneous, "heterogeneous: mixed plans"),
        (options.use_cplex, "useCplex: CPLEX"),
        (options.batch_sizing != "profile", "batchSizing: optimal batch sizes"),
    ):
        if given:
            raise SpecError(f"optimizer.{name} cannot be asked for yet; remove the option")
