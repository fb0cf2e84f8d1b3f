"""A level among the answers that take something new, where it is known what the others come to.

An answer that takes nothing new is one of a problem that has less to choose from. All others take one of the
new options of a server; where it may take nothing else, the relaxation is tighter by far.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.patterns.answers import Incumbent
from optimizer.solvers.patterns.narrowing import MANY, Narrowing
from optimizer.solvers.patterns.options import Options
from optimizer.solvers.patterns.relaxation import relax

SHARE = 0.7
"""Part of a level's time for these answers."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What is known of a level from a problem that has less to choose from."""

    floor: float
    """What its answers measure at least at this level; for answers that are as good at the levels before."""
    servers: BoolArray
    """Servers of which it does not have all options, shape (S,)."""
    is_new: Callable[[Options], BoolArray]
    """Which options it does not have."""


def look_beside(level: Narrowing, elsewhere: Elsewhere, start: IntArray, deadline: Deadline) -> None:
    """Look for a better answer among those that take something new, and bound the level by what was found.

    Args:
        level: the level.
        elsewhere: what is known of the other answers.
        start: options for a relaxation to begin with.
        deadline: when the level is due.

    Raises:
        SolverError: the solver failed.
    """
    if level.proved or deadline.passed or not level.feasible or elsewhere.floor < level.cutoff:
        return
    options = level.options_of_better(MANY, of=elsewhere.servers)
    if options is None:
        return
    options = options[elsewhere.servers[level.pool.options.server[options]]]
    options = level.essential(options)
    new = options[elsewhere.is_new(level.pool.options.take(options))]
    bound, servers = elsewhere.floor, level.pool.options.server[new]
    for server in np.unique(servers).tolist():
        bound = min(bound, _bound_with(level, new[servers == server], start, deadline.share(SHARE)))
    level.bound = max(level.bound, min(bound, level.value))


def _bound_with(level: Narrowing, new: IntArray, start: IntArray, deadline: Deadline) -> float:
    """Return what answers come to at least that have one of some options of a server; keep a better one."""
    pool, of = level.pool.with_only(new)
    best = Incumbent(pool.problem, pool, level.incumbent.replicas)
    others = pool.options.server == level.pool.options.server[new[0]]
    others[np.flatnonzero(np.isin(of, new))] = False
    pool.gone |= others
    start = np.flatnonzero(np.isin(of, start))
    relaxed = relax(level.program, pool, start, deadline)
    if relaxed is None:
        return -np.inf
    among = Narrowing(level.program, pool, relaxed, best, level.target, level.most)
    among.branch(start, deadline)
    among.rooms(deadline)
    level.take_over(best.replicas)
    # Too many for the answers that take one of these are too many for all.
    level.unknown, level.unknown_most = among.unknown, among.unknown_most
    return among.bound
