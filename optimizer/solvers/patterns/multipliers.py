"""The multipliers of an answer's levels, from one relaxation for each."""

from collections.abc import Mapping

import numpy as np

from optimizer.solvers.deadline import Deadline
from optimizer.solvers.patterns.proofs import Multipliers, Provable, ProvableLevel
from optimizer.solvers.patterns.relaxation import relax


def multipliers_of(
    provable: Provable, reached: Mapping[str, float], types: int, deadline: Deadline
) -> list[tuple[ProvableLevel, Multipliers, float]]:
    """Return multipliers of each level, and what they prove.

    Args:
        provable: the levels.
        reached: their values in the answer.
        types: number of accelerator types.
        deadline: when to stop.

    A level whose relaxation does not end in time has what no multipliers at all prove.

    Raises:
        SolverError: the solver failed.
    """
    found = []
    for level in provable.levels():
        none = Multipliers(level.name, np.zeros(types), {})
        bound, best = provable.bound(level, none), none
        if bound < reached[level.name] and len(level.program.servers) and not deadline.passed:
            start = np.flatnonzero(~provable.pool.options.served)
            relaxed = relax(level.program, provable.pool, start, deadline.share(0.5))
            if relaxed is not None:
                priced = level.multipliers(relaxed.prices, types)
                by_price = provable.bound(level, priced)
                if by_price > bound:
                    bound, best = by_price, priced
        found.append((level, best, bound))
    return found
