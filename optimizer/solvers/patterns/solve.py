"""The exact choice as one pattern per server: levels minimised one after the other (math.md section 18)."""

import numpy as np

from optimizer.arrays import IntArray
from optimizer.solvers.bounds import least_values
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.known import Known
from optimizer.solvers.levels import CHANGES, VALUE, levels_of, value_of, value_slack
from optimizer.solvers.patterns.changes import least_changes
from optimizer.solvers.patterns.parts import parts_of
from optimizer.solvers.patterns.program import Measure, Pin
from optimizer.solvers.patterns.run import ROUNDING, Run
from optimizer.solvers.patterns.service import serve, settle
from optimizer.solvers.patterns.steps import Step, service_steps
from optimizer.solvers.problem import Problem, Solution, Status

LEVEL_SHARE = 0.4
"""Part of the time left that a level of service may use that others follow."""
LAST_SHARE = 0.5
"""The same for the last of them."""
VALUE_SHARE = 0.9
"""The same for the value: without its proof the number of changes after it says little."""


def solve_patterns(
    problem: Problem,
    deadline: Deadline | None = None,
    known: Known | None = None,
    *,
    serve_by: Deadline | None = None,
    start: IntArray | None = None,
) -> Solution:
    """Choose one pattern per server within the capacities, level by level.

    It begins from the better of what runs now and the greedy plan; from what is known, if that is better.

    Args:
        problem: what to choose from, with capacities.
        deadline: when all levels are due; none: after the time limit of the options.
        known: the answer to a problem that differs in one thing.
        serve_by: when all levels of service have to be proved: it ends at the first that is not, and where
            there are too many options to know them all; none: it does what it can.
        start: another answer to begin from, shape (C,).

    Raises:
        SolverError: the solver failed, or what it returned breaks a limit.
    """
    deadline = deadline or Deadline.after(problem.options.time_limit_s)
    if not len(parts_of(problem).row):
        replicas = np.zeros(len(problem.table), np.int64)
        return Solution(replicas, Status.optimal, "milp", levels_of(problem, replicas, proved=True))
    run = Run(problem, deadline, known, serve_by)
    if start is not None:
        run.incumbent.offer(start)
    if not _as_known(run):
        for believing in (True, False):
            run.reset()
            if _levels(run, believing=believing):
                break
    return run.solution()


def _levels(run: Run, *, believing: bool) -> bool:
    """Minimise all levels; return whether what was believed held."""
    steps = service_steps(run.problem, run.columnless)
    for i, step in enumerate(steps):
        share = LEVEL_SHARE if i < len(steps) - 1 else LAST_SHARE
        # Where a level without a proof ends the run, time that is kept for those after it is of no use.
        due = run.serve_by or run.deadline.share(share)
        if not serve(run, step, due, believing=believing):
            return False
        if run.serve_by is not None and not run.proved:
            run.bounds[VALUE] = _least_value(run)
            return True
    if not _value(run, believing=believing) or not _changes(run):
        return False
    # Bounds of later levels count for answers that keep what was believed of the levels before.
    return run.holds


def _as_known(run: Run) -> bool:
    """Minimise value and changes at the service that the known answer has; return whether it is the best.

    No answer serves more where the problem is the other's with something taken away.
    """
    known = run.known
    if known is None or not known.restricts:
        return False
    for step in service_steps(run.problem, run.columnless):
        left = run.borrowed.left(step, known)
        if left < 0:
            return False
        settle(run, step, left, run.deadline)
    for level, floor in zip(run.problem.service, known.levels, strict=False):
        run.bounds[level.name] = known.bound_of(level)
        run.proved &= floor.is_proved(run.gap)
    run.least_value = known.least_value
    return _value(run, believing=True) and _changes(run) and _is_as_known(run)


def _is_as_known(run: Run) -> bool:
    """Return whether the best answer has the service of the known one, at every level."""
    known = run.known
    assert known is not None
    return all(run.unserved(x.weight) == known.left_of(x.weight) for x in run.problem.service)


def _value(run: Run, *, believing: bool) -> bool:
    """Minimise the value."""
    program = run.program(Step(Measure(VALUE, np.zeros(run.servers), on_value=1.0), 0.0))
    deadline = run.deadline.share(VALUE_SHARE if _changes_vary(run) else 1.0)
    relaxed = run.relaxed(program, deadline)
    if relaxed is None:
        value, bound = run.incumbent.of_level(program.measure.of(run.pool.options)), -np.inf
        run.proved = False
    else:
        narrowing = run.narrowed(program, relaxed, Step(program.measure, 0.0), deadline)
        if not narrowing.feasible:
            return not believing
        value, bound = narrowing.value, narrowing.bound
        run.proved &= narrowing.proved
        run.pin(Pin(program.measure, value + value_slack(value)), narrowing.root)
    reached = value_of(run.problem, run.incumbent.replicas)
    bound = max(bound, max(_least_value(run), run.least_value) - (reached - value))
    if value - bound <= ROUNDING * max(1.0, abs(value)):
        bound = value
    run.bounds[VALUE] = bound + (reached - value)
    return True


def _changes_vary(run: Run) -> bool:
    """Whether there is something to do at the last level."""
    return bool(np.ptp(run.pool.options.changed) > 0)


def _least_value(run: Run) -> float:
    all_served = bool(run.to_be_served[run.parts.servers].all())
    least = least_values(run.problem, run.parts.row, all_served=all_served)
    return float(least.sum()) + float(run.problem.none_value[run.columnless].sum())


def _changes(run: Run) -> bool:
    """Minimise the number of changed servers."""
    program = run.program(Step(Measure(CHANGES, np.zeros(run.servers), on_changes=1.0), 1.0))
    weight = program.measure.of(run.pool.options)
    value, bound = run.incumbent.of_level(weight), least_changes(program, run.incumbent, run.bounds)
    if bound < value:
        relaxed = run.relaxed(program, run.deadline)
        if relaxed is None:
            run.proved = False
        else:
            narrowing = run.narrowed(program, relaxed, Step(program.measure, 1.0), run.deadline)
            bound = max(bound, float(np.ceil(narrowing.bound - 1e-6)))
            value = narrowing.value
            run.proved &= narrowing.proved
    outside = float(run.problem.none_changed[run.columnless].sum())
    run.bounds[CHANGES] = min(bound, value) + outside
    return True
