"""Exact solution of planning problems: by branch and price, by the compact model, or by both in turn.

Branch and price has the tighter relaxation. The compact model has fewer variables if few servers have many
replicas each, and it is the only model for solvers other than HiGHS (docs/solver.md).
"""

from dataclasses import replace
from functools import partial

import numpy as np

from optimizer.errors import SpecError
from optimizer.solvers.compact import SessionFactory, highs_session, solve_milp
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.merging import merge, not_worse_than
from optimizer.solvers.model_columns import mixed_columns, nondominated_candidates
from optimizer.solvers.problem import GAP_FREE_COLUMNS, Problem
from optimizer.solvers.related import RelatedSolution
from optimizer.solvers.solution import Solution, Status

PATTERNS_FROM_COLUMNS = 5_000
"""Number of columns from which single-accelerator plans are solved by branch and price."""
COMPACT_TO_SERVERS = 200
"""Maximum number of servers for which a mixed plan falls back to the compact model if branch and price proves
too little.
"""
PATTERNS_SHARE = 0.8
"""Fraction of the remaining time in which branch and price must prove the service levels of a mixed plan."""
SINGLE_SHARE = 0.2
"""Fraction of the time for the single-accelerator plan if the mixed plan is not proved."""
MIN_SINGLE_S = 0.5
"""Minimum time for the single-accelerator plan [s], or the entire time limit if that is shorter."""


def solve_exactly(
    problem: Problem,
    session: SessionFactory,
    deadline: Deadline,
    *,
    with_patterns: bool,
    related: RelatedSolution | None = None,
) -> Solution:
    """Solve a problem level by level; the result is no worse than the current or the greedy allocation.

    Args:
        problem: the planning problem, with capacities.
        session: factory that loads a model into a solver.
        deadline: deadline for all levels.
        with_patterns: whether the solver supports column generation, as HiGHS does.
        related: solution of a problem that differs in one change; None if unknown.

    Raises:
        SolverError: the solver failed, or its solution exceeds a limit.
    """
    if problem.topologies:
        return solve_milp(problem, session, deadline)
    if problem.options.heterogeneous and with_patterns:
        return _solve_mixed(problem, deadline, related)
    few = len(nondominated_candidates(problem)) < PATTERNS_FROM_COLUMNS
    if not with_patterns or few or problem.leaves_members:
        return solve_milp(problem, session, deadline)
    from optimizer.solvers.branch_and_price.solve import solve_patterns

    return solve_patterns(problem, deadline, related)


def check_columns(problem: Problem) -> None:
    """Check that a problem that needs the compact model with numbers of replicas is not too large for it.

    Raises:
        SpecError: the problem is too large.
    """
    for each in problem.topologies:
        if not problem.is_mixed and not each.extra_servers:
            continue
        count = len(mixed_columns(problem)[0])
        if count > GAP_FREE_COLUMNS:
            raise SpecError(
                f"{each.place}: too large: {count:,} choices of accelerator and replicas (columns); a plan "
                f"with {each.name} can have at most {GAP_FREE_COLUMNS:,}; {each.advice}"
            )


def _solve_mixed(problem: Problem, deadline: Deadline, related: RelatedSolution | None) -> Solution:
    """Solve for a mixed plan; if it is unproved and the single-accelerator plan is better, return the latter.

    The single-accelerator plan always gets some time, if necessary after the deadline. It is not needed if
    the solve starts from a related solution.
    """
    if related is not None:
        return _by_either(problem, deadline, related)
    limit_s = deadline.left_s
    mixed = _by_either(problem, deadline.share(1 - SINGLE_SHARE), None)
    if mixed.status is Status.optimal:
        return mixed
    options = problem.options.model_copy(update={"heterogeneous": False})
    due = Deadline.after(max(deadline.left_s, min(limit_s, MIN_SINGLE_S)))
    single = solve_exactly(replace(problem, options=options), highs_session, due, with_patterns=True)
    return not_worse_than(problem, single.replicas, mixed)


def _by_either(problem: Problem, deadline: Deadline, related: RelatedSolution | None) -> Solution:
    """Solve for a mixed plan by branch and price and, for few servers, then by the compact model."""
    from optimizer.solvers.branch_and_price.solve import solve_patterns

    lean = partial(highs_session, lean=True)
    if problem.leaves_members:  # patterns do not support queue members
        return solve_milp(problem, lean, deadline, related=related)
    if len(np.unique(problem.table.server)) > COMPACT_TO_SERVERS:
        return solve_patterns(problem, deadline, related)
    patterns = solve_patterns(problem, deadline, related, service_by=deadline.share(PATTERNS_SHARE))
    if patterns.status is Status.optimal or deadline.passed:
        return patterns
    # The compact model does not start from this solution, because ties would then depend on the machine's
    # speed.
    return merge(problem, solve_milp(problem, lean, deadline, related=related), patterns)
