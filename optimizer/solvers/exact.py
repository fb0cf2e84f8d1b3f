"""The exact choice: which formulation answers, branch and price, the compact model or one after the other.

One pattern per server is the tighter model; numbers of replicas are fewer variables where few servers take
many replicas each, and the only model that other solvers than HiGHS get (docs/solver.md).
"""

from functools import partial

import numpy as np

from optimizer.errors import SpecError
from optimizer.solvers.compact import SessionFactory, solve_milp
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.merging import merge
from optimizer.solvers.model_columns import mixed_columns, nondominated_candidates
from optimizer.solvers.problem import GAP_FREE_COLUMNS, Problem
from optimizer.solvers.related import RelatedSolution
from optimizer.solvers.solution import Solution, Status

PATTERNS_FROM_COLUMNS = 5_000
"""Columns of a plan of one accelerator per server from which on it is solved by branch and price."""
COMPACT_TO_SERVERS = 200
"""Servers up to which a mixed plan goes on with the compact model if branch and price proves too little."""
PATTERNS_SHARE = 0.8
"""Part of the time left in which branch and price has to prove the service of such a plan."""


def solve_exactly(
    problem: Problem,
    session: SessionFactory,
    deadline: Deadline,
    *,
    with_patterns: bool,
    related: RelatedSolution | None = None,
) -> Solution:
    """Choose candidates within the capacities, level by level; never worse than what runs, or than greedy.

    Args:
        problem: what to choose from, with capacities.
        session: loads a model into a solver.
        deadline: when all levels are due.
        with_patterns: whether the solver takes columns, as HiGHS does.
        related: the solution of a problem that differs in one thing, if there is one.

    Raises:
        SolverError: the solver failed, or what it returned breaks a limit.
    """
    if problem.topologies:
        return solve_milp(problem, session, deadline)
    if problem.options.heterogeneous and with_patterns:
        return _by_either(problem, deadline, related)
    few = len(nondominated_candidates(problem)) < PATTERNS_FROM_COLUMNS
    if not with_patterns or few or problem.leaves_members:
        return solve_milp(problem, session, deadline)
    from optimizer.solvers.branch_and_price.solve import solve_patterns

    return solve_patterns(problem, deadline, related)


def check_columns(problem: Problem) -> None:
    """Check that a problem that only the compact model takes is not too large for it.

    Raises:
        SpecError: it is.
    """
    for each in problem.topologies:
        count = len(mixed_columns(problem)[0])
        if count > GAP_FREE_COLUMNS:
            raise SpecError(
                f"{each.place}: {count:,} columns; a plan with {each.name} can have at most "
                f"{GAP_FREE_COLUMNS:,}, as branch and price does not support it; {each.advice}"
            )


def _by_either(problem: Problem, deadline: Deadline, related: RelatedSolution | None) -> Solution:
    """Choose mixtures by branch and price and, for few servers, by the compact model after it."""
    from optimizer.milp.highs import HighsSession
    from optimizer.solvers.branch_and_price.solve import solve_patterns

    if problem.leaves_members:  # patterns have no members
        return solve_milp(problem, partial(HighsSession, lean=True), deadline, related=related)
    if len(np.unique(problem.table.server)) > COMPACT_TO_SERVERS:
        return solve_patterns(problem, deadline, related)
    found = solve_patterns(problem, deadline, related, service_by=deadline.share(PATTERNS_SHARE))
    if found.status is Status.optimal or deadline.passed:
        return found
    # Not begun from what was found in that time: equal answers would depend on the machine.
    lean = partial(HighsSession, lean=True)
    return merge(problem, solve_milp(problem, lean, deadline, related=related), found)
