"""Which of the two exact formulations answers: patterns, replicas, or one after the other.

One pattern per server is the tighter model and answers large fleets; numbers of replicas are fewer variables
where few servers take many replicas each, and what other solvers than HiGHS get (math.md section 18).
"""

from dataclasses import replace

import numpy as np

from optimizer.solvers.deadline import Deadline
from optimizer.solvers.formulation import undominated
from optimizer.solvers.levels import is_better
from optimizer.solvers.milp import SessionFactory, solve_milp
from optimizer.solvers.problem import Level, Problem, Solution, Status

PATTERNS_FROM_COLUMNS = 5_000
"""Plans of one accelerator per server are patterns from this many columns on; below, their model is small."""
REPLICAS_TO_SERVERS = 200
"""Mixed plans of up to this many servers go on with numbers of replicas where patterns prove too little."""
PATTERNS_SHARE = 0.5
"""Part of the time left that patterns get where another model may follow."""


def solve_exactly(
    problem: Problem, session: SessionFactory, deadline: Deadline, *, with_patterns: bool
) -> Solution:
    """Choose candidates within the capacities, level by level; never worse than what runs, or than greedy.

    Args:
        problem: what to choose from, with capacities.
        session: loads a model into a solver.
        deadline: when all levels are due.
        with_patterns: whether the solver takes patterns, as HiGHS does.

    Raises:
        SolverError: the solver failed, or what it returned breaks a limit.
    """
    mixed = problem.options.heterogeneous
    if not with_patterns or (not mixed and len(undominated(problem)) < PATTERNS_FROM_COLUMNS):
        return solve_milp(problem, session, deadline)
    from optimizer.solvers.patterns.solve import solve_patterns

    followed = mixed and len(np.unique(problem.table.server)) <= REPLICAS_TO_SERVERS
    found = solve_patterns(problem, deadline.share(PATTERNS_SHARE) if followed else deadline)
    if not followed or found.status is Status.optimal or deadline.passed:
        return found
    return _joined(problem, found, solve_milp(problem, session, deadline, found.replicas))


def _joined(problem: Problem, first: Solution, second: Solution) -> Solution:
    """Return the better answer of two runs with the better bound of each level.

    A bound of a level counts as long as its run reached the answer's values at all levels before.
    """
    best = second if is_better(problem, second.replicas, first.replicas) else first
    status = Status.optimal if Status.optimal in {first.status, second.status} else Status.feasible
    levels, runs = [], [first, second]
    for i, level in enumerate(best.levels):
        bounds = [run.levels[i].bound for run in runs]
        known = [bound for bound in bounds if bound is not None]
        bound = min(max(known), level.value) if known else None
        levels.append(Level(level.name, level.value, bound))
        runs = [run for run in runs if run.levels[i].value <= level.value * (1 + 1e-9) + 1e-9]
    return replace(best, status=status, levels=tuple(levels))
