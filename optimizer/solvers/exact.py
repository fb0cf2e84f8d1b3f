"""Which of the two exact formulations answers: patterns, replicas, or one after the other.

One pattern per server is the tighter model and answers large fleets; numbers of replicas are fewer variables
where few servers take many replicas each, and what other solvers than HiGHS get (math.md section 18).
"""

from dataclasses import replace
from functools import partial

import numpy as np

from optimizer.arrays import IntArray
from optimizer.solvers.bounds import least_values
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.formulation import undominated
from optimizer.solvers.known import Known
from optimizer.solvers.levels import VALUE, is_better, levels_of
from optimizer.solvers.milp import SessionFactory, solve_milp
from optimizer.solvers.problem import Level, Problem, Solution, Status

PATTERNS_FROM_COLUMNS = 5_000
"""Plans of one accelerator per server may be patterns from this many columns on; below, columns do."""
PATTERNS_ALONE_FROM_COLUMNS = 50_000
"""From so many on they are; between the two, the columns themselves come first..."""
COLUMNS_SHARE = 0.4
"""... with this part of the time left: they prove sooner what is not very scarce."""
REPLICAS_TO_SERVERS = 200
"""Mixed plans of up to this many servers go on with numbers of replicas where patterns prove too little."""
SINGLE_SHARE = 0.2
"""Part of the time left for the plan of one accelerator per server, where the mixed one is not proved."""
LEAST_SINGLE_S = 0.5
"""Time that it gets at least, or as much as there was in all if that is less [s]."""
PATTERNS_SHARE = 0.6
"""Part of the time left in which patterns have to prove the service, or numbers of replicas come next."""
KNOWN_SHARE = 0.8
"""The same where the answer to a problem that differs in one thing is known, which patterns make use of."""
REPLICAS_SHARE = 0.5
"""Part of the time left that numbers of replicas get then, before patterns get the rest..."""
MANY_SHARE = 0.8
"""... and where patterns were too many to know; a question leaves patterns nothing then."""


def solve_exactly(
    problem: Problem,
    session: SessionFactory,
    deadline: Deadline,
    *,
    with_patterns: bool,
    known: Known | None = None,
) -> Solution:
    """Choose candidates within the capacities, level by level; never worse than what runs, or than greedy.

    Args:
        problem: what to choose from, with capacities.
        session: loads a model into a solver.
        deadline: when all levels are due.
        with_patterns: whether the solver takes patterns, as HiGHS does.
        known: the answer to a problem that differs in one thing, if there is one.

    Raises:
        SolverError: the solver failed, or what it returned breaks a limit.
    """
    if problem.options.heterogeneous and with_patterns:
        return _solve_mixed(problem, session, deadline, known)
    columns = len(undominated(problem))
    if not with_patterns or columns < PATTERNS_FROM_COLUMNS:
        return solve_milp(problem, session, deadline)
    from optimizer.solvers.patterns.solve import solve_patterns

    if columns > PATTERNS_ALONE_FROM_COLUMNS or known is not None:
        return solve_patterns(problem, deadline, known)
    found = solve_milp(problem, session, deadline.share(COLUMNS_SHARE), to_prove=True)
    if found.status is Status.optimal:
        return found
    return _joined(problem, found, solve_patterns(problem, deadline, start=found.replicas))


def _solve_mixed(
    problem: Problem, session: SessionFactory, deadline: Deadline, known: Known | None
) -> Solution:
    """Choose mixtures; what is not proved gives way to one accelerator per server if that is better.

    That plan always gets some time, after the deadline where there is none before. An answer that begins from
    a plan of the same kind needs no other.
    """
    limit_s = deadline.left_s
    if known is not None:
        return _by_either(problem, deadline, known)
    found = _by_either(problem, deadline.share(1 - SINGLE_SHARE), None)
    if found.status is Status.optimal:
        return found
    options = problem.options.model_copy(update={"heterogeneous": False})
    due = Deadline.after(max(deadline.left_s, min(limit_s, LEAST_SINGLE_S)))
    single = solve_exactly(replace(problem, options=options), session, due, with_patterns=True)
    return _not_worse_than(problem, single.replicas, found)


def _by_either(problem: Problem, deadline: Deadline, known: Known | None) -> Solution:
    """Choose mixtures by patterns and, for few servers, by numbers of replicas where these prove nothing."""
    from optimizer.solvers.highs import HighsSession
    from optimizer.solvers.patterns.solve import solve_patterns

    def by_replicas(due: Deadline) -> Solution:
        # What runs, greedy and what is known are good answers: the proof is what is missing. Of a question,
        # levels after one without a proof say nothing.
        to_prove = known is not None
        return solve_milp(problem, partial(HighsSession, lean=True), due, known=known, to_prove=to_prove)

    followed = len(np.unique(problem.table.server)) <= REPLICAS_TO_SERVERS
    if not followed:
        return solve_patterns(problem, deadline, known)
    serve_by = deadline.share(PATTERNS_SHARE if known is None else KNOWN_SHARE)
    found = solve_patterns(problem, deadline, known, serve_by=serve_by)
    if found.status is Status.optimal or deadline.passed:
        return found
    second = REPLICAS_SHARE
    if not serve_by.passed:
        # Patterns that end before their time are too many to know, which they are a second time as well.
        second = MANY_SHARE if known is None else 1.0
    # Not begun from what patterns found in their time: equal answers would depend on the machine.
    best = _joined(problem, found, by_replicas(deadline.share(second)))
    best = replace(best, by_replicas=best.status is Status.optimal)
    if best.status is Status.optimal or deadline.passed:
        return best
    return replace(_joined(problem, solve_patterns(problem, deadline, known), best), by_replicas=False)


def _not_worse_than(problem: Problem, other: IntArray, found: Solution) -> Solution:
    """Return a solution, or another answer in its place if it is better."""
    if not is_better(problem, other, found.replicas):
        return found
    # What was proved of later levels counts for answers that are no better at the levels before.
    same, bounded = True, []
    for now, then in zip(levels_of(problem, other, proved=True), found.levels, strict=True):
        known = then.bound if same and then.bound is not None else _least(problem, now.name)
        bounded.append(Level(now.name, now.value, min(known, now.value)))
        same = same and now.value >= then.value
    return replace(found, replicas=other, levels=tuple(bounded))


def _least(problem: Problem, level: str) -> float:
    """Return a bound of a level that needs no solver."""
    if level != VALUE:
        return 0.0
    has_candidate = np.isin(np.arange(len(problem.priority)), problem.table.server)
    least = least_values(problem, np.arange(len(problem.table)), all_served=False)
    return float(least.sum() + problem.none_value[~has_candidate].sum())


def _joined(problem: Problem, first: Solution, second: Solution) -> Solution:
    """Return the answer of two runs that is proved, else the better one, the second of equal ones.

    Where neither is proved, each level has the better bound of the two. It counts as long as its run reached
    the answer's values at all levels before.
    """
    for run in (second, first):
        if run.status is Status.optimal:
            return run
    best = first if is_better(problem, first.replicas, second.replicas) else second
    levels, runs = [], [first, second]
    for i, level in enumerate(best.levels):
        bounds = [run.levels[i].bound for run in runs]
        known = [bound for bound in bounds if bound is not None]
        bound = min(max(known), level.value) if known else None
        levels.append(Level(level.name, level.value, bound))
        runs = [run for run in runs if run.levels[i].value <= level.value * (1 + 1e-9) + 1e-9]
    proved = all(level.is_proved(0.0) for level in levels)
    return replace(best, levels=tuple(levels), status=Status.optimal if proved else best.status)
