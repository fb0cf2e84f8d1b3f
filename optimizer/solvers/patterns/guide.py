"""Which units are scarce where a relaxation serves all at no price: the most of them that is too little."""

from dataclasses import replace

import numpy as np

from optimizer.arrays import BoolArray, IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.patterns.branching import Branch
from optimizer.solvers.patterns.pool import Pool
from optimizer.solvers.patterns.program import Program
from optimizer.solvers.patterns.relaxation import relax

BISECTIONS = 5
"""Relaxations by which the units are found that suffice only just."""
ROUNDING = 1e-9


def guide_of(
    program: Program, pool: Pool, start: IntArray, mine: BoolArray, deadline: Deadline
) -> Branch | None:
    """Return the relaxation with as much less of every type as leaves some servers out, if only just.

    Args:
        program: the level, of which a relaxation serves all.
        pool: the options.
        start: options to begin with.
        mine: the servers that count at the level, shape (S,).
        deadline: when to stop.
    """
    guide, low, high = None, 0.0, 1.0
    total = float(program.measure.on_nothing[mine].sum())
    for _ in range(BISECTIONS):
        part = (low + high) / 2 if low else high - (1.05 - high)
        parts = replace(program.parts, limit=np.floor(program.parts.limit * part))
        found = relax(replace(program, parts=parts), pool, start, deadline)
        if found is None:
            break
        if found.bound > ROUNDING * total:
            guide, low = found, part
        else:
            high = part
    return None if guide is None else Branch.whole(program, guide)
