"""Which of the two exact formulations answers: patterns, replicas, or one after the other.

One pattern per server is the tighter model and answers large fleets; numbers of replicas are fewer variables
where few servers take many replicas each, and what other solvers than HiGHS get (math.md section 18).
"""

from dataclasses import replace

import numpy as np

from optimizer.solvers.bounds import least_values
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.formulation import undominated
from optimizer.solvers.known import Known
from optimizer.solvers.levels import VALUE, is_better, levels_of
from optimizer.solvers.milp import SessionFactory, solve_milp
from optimizer.solvers.problem import Level, Problem, Solution, Status

PATTERNS_FROM_COLUMNS = 5_000
"""Plans of one accelerator per server are patterns from this many columns on; below, their model is small."""
REPLICAS_TO_SERVERS = 200
"""Mixed plans of up to this many servers go on with numbers of replicas where patterns prove too little."""
MIXED_SHARE = 0.9
"""Part of the time left for a mixed plan after which the single one is looked at, if that is not proved."""
PATTERNS_SHARE = 0.2
"""Part of the time left that patterns get before numbers of replicas: enough for what is easy for them."""
KNOWN_SHARE = 0.7
"""The same where the answer to a problem that differs in one thing is known, which patterns make use of."""
REPLICAS_SHARE = 0.5
"""Part of the time left that numbers of replicas get then, before patterns get the rest."""


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
    mixed = problem.options.heterogeneous
    if not with_patterns or (not mixed and len(undominated(problem)) < PATTERNS_FROM_COLUMNS):
        return solve_milp(problem, session, deadline)
    from optimizer.solvers.patterns.solve import solve_patterns

    followed = mixed and len(np.unique(problem.table.server)) <= REPLICAS_TO_SERVERS
    first = PATTERNS_SHARE if known is None else KNOWN_SHARE
    share = first if followed else MIXED_SHARE if mixed else 1.0
    found = solve_patterns(problem, deadline.share(share), known)
    if not mixed or found.status is Status.optimal or deadline.passed:
        return found
    if not followed:
        return _not_worse_than_single(problem, found, deadline)
    # Not begun from what patterns found in their time: equal answers would depend on the machine.
    best = _joined(problem, found, solve_milp(problem, session, deadline.share(REPLICAS_SHARE)))
    if best.status is Status.optimal or deadline.passed:
        return best
    return _joined(problem, solve_patterns(problem, deadline, known), best)


def _not_worse_than_single(problem: Problem, found: Solution, deadline: Deadline) -> Solution:
    """Return a mixed solution, or that of one accelerator per server in its place if it is better."""
    from optimizer.solvers.patterns.solve import solve_patterns

    options = problem.options.model_copy(update={"heterogeneous": False})
    single = solve_patterns(replace(problem, options=options), deadline).replicas
    if not is_better(problem, single, found.replicas):
        return found
    # What was proved of later levels counts for answers that are no better at the levels before.
    same, bounded = True, []
    for now, then in zip(levels_of(problem, single, proved=True), found.levels, strict=True):
        known = then.bound if same and then.bound is not None else _least(problem, now.name)
        bounded.append(Level(now.name, now.value, min(known, now.value)))
        same = same and now.value >= then.value
    return replace(found, replicas=single, levels=tuple(bounded))


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
    return replace(best, levels=tuple(levels))
