"""Cuts: whole patterns take less of units, divided and rounded down, than parts of patterns do.

Units are whole numbers, and servers take whole patterns. What patterns take of some types, divided by a
number and rounded down, is in sum at most what exists of these types, divided and rounded down. A relaxation
that keeps to this mixes patterns less. No search for patterns looks at prices of cuts, so all that count have
to be known. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np

from optimizer.arrays import IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.patterns.branching import Branch, Closed, over_of
from optimizer.solvers.patterns.pool import Pool
from optimizer.solvers.patterns.program import Cut, Program, rounded_down
from optimizer.solvers.patterns.relaxation import Relaxation

ROWS_TOGETHER = 3
"""Capacity rows of a cut at most."""
EACH_ROUND = 15
"""Cuts that a round adds at most."""
ROUNDS = 20
"""Rounds at most."""
LEAST_GAIN = 0.01
"""Part of the distance from bound to cutoff that rounds have to gain."""
PATIENCE = 3
"""Rounds one after the other that may gain less."""
VIOLATION = 1e-3
"""By how much a relaxation has to be above a cut."""
LEAST_DROPPED = 0.2
"""Part of the options that can be dropped from which on they are."""


def tightened(
    program: Program,
    pool: Pool,
    options: IntArray,
    cutoff: float,
    deadline: Deadline,
    rounds: int = ROUNDS,
) -> Closed | None:
    """Return a level whose relaxation keeps to cuts, as far as these raise its bound towards a cutoff.

    Args:
        program: the level.
        pool: the options.
        options: those that answers below the cutoff have, and maybe others.
        cutoff: what an answer has to be below.
        deadline: when to stop.
        rounds: how often cuts are looked for at most.

    Returns:
        The level over those of these options that answers below the cutoff have, and maybe others; none if
        the time did not suffice for a relaxation.

    Raises:
        SolverError: the solver failed.
    """
    own = pool.only(options)
    root, weak = _relaxed(program, own, np.flatnonzero(~own.options.served), cutoff, deadline), 0
    if root is None:
        return None
    best = Closed(root, own, options)
    for _ in range(rounds):
        if best.root.bound >= cutoff or deadline.passed or weak == PATIENCE:
            break
        cuts = _violated(best)
        after = _relaxed(_with(best, cuts), best.pool, best.start, cutoff, deadline) if cuts else None
        if after is None:
            break
        gained = after.bound - best.root.bound
        weak = 0 if gained >= LEAST_GAIN * (cutoff - best.root.bound) else weak + 1
        best = _narrowed(replace(best, root=after), pool, cutoff)
    return best


def _relaxed(
    program: Program, own: Pool, start: IntArray, cutoff: float, deadline: Deadline
) -> Branch | None:
    """Solve a relaxation to its end; none if the time did not suffice."""
    relaxed = Relaxation(program, own, start).solve(program, deadline, cutoff)
    return Branch.whole(program, relaxed) if relaxed is not None and relaxed.finished else None


def _with(level: Closed, cuts: list[Cut]) -> Program:
    """Return a level with more cuts, without those that its relaxation leaves room in."""
    program, relaxed = level.root.program, level.root.relaxed
    units, limit = level.pool.options.units[relaxed.used], program.parts.limit
    tight = [cut for cut in program.cuts if relaxed.part @ cut.of(units) > cut.most(limit) - VIOLATION]
    return replace(program, cuts=(*tight, *cuts))


def _violated(level: Closed) -> list[Cut]:
    """Return the cuts that a relaxation is above the most, by the length of their coefficients."""
    used, part = level.root.relaxed.used, level.root.relaxed.part
    units, limit = level.pool.options.units[used], rounded_down(level.root.program.parts.limit)
    found: list[tuple[float, Cut]] = []
    rows = np.flatnonzero(units.any(axis=0)).tolist()
    for together in range(1, ROWS_TOGETHER + 1):
        for some in combinations(rows, together):
            most = limit[list(some)].sum()
            sums = units[:, list(some)].sum(axis=1)
            divisors = np.arange(2, int(min(most, sums.max())) + 1)
            taken = rounded_down(sums[:, None] / divisors)
            above = part @ taken - rounded_down(most / divisors)
            for place in np.flatnonzero(above > VIOLATION).tolist():
                length = float(np.linalg.norm(taken[:, place]))
                found.append((-float(above[place]) / length, Cut(some, int(divisors[place]))))
    found.sort(key=lambda each: (each[0], each[1].rows, each[1].divisor))
    return [cut for _, cut in found[:EACH_ROUND]]


def _narrowed(level: Closed, pool: Pool, cutoff: float) -> Closed:
    """Drop the options that no answer below the cutoff has, if they are many."""
    root = level.root
    over, _ = over_of(root, level.pool)
    kept = root.relaxed.bound + over <= cutoff
    kept[root.relaxed.used] = True
    if kept.sum() > (1 - LEAST_DROPPED) * len(kept):
        return level
    options = level.options[kept]
    return Closed(root.placed(np.cumsum(kept) - 1), pool.only(options), options)
