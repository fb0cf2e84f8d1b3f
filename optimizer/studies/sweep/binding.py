"""Binding limits of a plan: those that prevent the service of a server, or the use of a cheaper candidate.

An item blocks a candidate if moving the server from its allocation to the candidate needs more of the item
than the plan leaves. In an optimal plan every better candidate is blocked.
"""

from collections import defaultdict

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.pipeline import Solved
from optimizer.solvers.levels import served_in_full, values_of
from optimizer.solvers.problem import Problem
from optimizer.studies.sweep.sweep_document import SweepBinding
from optimizer.tolerances import ROUNDING

NO_CANDIDATE = "candidates"

_Key = tuple[str, str]


def blocking_limits(solved: Solved) -> tuple[SweepBinding, ...]:
    """Return the limits that block better candidates, in the order of the limit rows."""
    problem, replicas = solved.problem, solved.solution.replicas
    full = served_in_full(problem, replicas)
    left, values = problem.left_by(replicas), values_of(problem, replicas)
    unserved, dearer = defaultdict[_Key, set[int]](set), defaultdict[_Key, set[int]](set)
    stranded = 0
    for s in np.flatnonzero(problem.to_serve).tolist():
        rows = np.flatnonzero((problem.table.server == s) & problem.full)
        if full[s]:
            rows = rows[problem.value[rows] < values[s] - ROUNDING * max(1.0, abs(values[s]))]
        elif not len(rows):
            stranded += 1
        blocked = dearer if full[s] else unserved
        for row in _blocking(problem, replicas, left, s, rows):
            blocked[problem.limits.items[row].key].add(s)
    binds = [
        SweepBinding(limit=key[0], item=key[1], unserved=len(unserved[key]), dearer=len(dearer[key]))
        for key in dict.fromkeys(problem.limits.keys)
        if unserved[key] or dearer[key]
    ]
    if stranded:
        binds.append(SweepBinding(limit=NO_CANDIDATE, item="", unserved=stranded, dearer=0))
    return tuple(binds)


def _blocking(
    problem: Problem, replicas: IntArray, left: FloatArray, server: int, rows: IntArray
) -> set[int]:
    """Return the limit rows that at least one of the given candidates of a server would exceed.

    Args:
        problem: the planning problem.
        replicas: replicas of each candidate in the plan, shape (C,).
        left: unused amount of each limited item, shape (R,).
        rows: the candidates.
    """
    limits = problem.limits
    if not len(limits) or not len(rows):
        return set()
    own = limits.used(np.where(problem.table.server == server, replicas, 0))
    need = limits.use[rows] * problem.table.num_replicas[rows][:, None]
    place = limits.row[rows]
    over = (need > (left + own)[place]) & (limits.use[rows] > 0)
    return set(np.unique(place[over]).tolist())
