"""Which of the two exact formulations answers: patterns, replicas, or one after the other.

One pattern per server is the tighter model and answers large fleets; numbers of replicas are fewer variables
where few servers take many replicas each, and what other solvers than HiGHS get (math.md section 18).
"""

from dataclasses import replace
from functools import partial

import numpy as np

from optimizer.solvers.deadline import Deadline
from optimizer.solvers.formulation import undominated
from optimizer.solvers.joining import joined, not_worse_than
from optimizer.solvers.known import Known
from optimizer.solvers.milp import SessionFactory, solve_milp
from optimizer.solvers.problem import Problem, Solution, Status

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
    return joined(problem, found, solve_patterns(problem, deadline, start=found.replicas))


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
    return not_worse_than(problem, single.replicas, found)


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
    best = joined(problem, found, by_replicas(deadline.share(second)))
    best = replace(best, by_replicas=best.status is Status.optimal)
    if best.status is Status.optimal or deadline.passed:
        return best
    return replace(joined(problem, solve_patterns(problem, deadline, known), best), by_replicas=False)
