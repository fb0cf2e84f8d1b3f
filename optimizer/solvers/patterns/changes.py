"""How many servers change at least, by what they can take and how many are served: no solver is asked."""

from collections.abc import Mapping

import numpy as np

from optimizer.arrays import BoolArray
from optimizer.solvers.patterns.answers import Incumbent
from optimizer.solvers.patterns.program import Program


def least_changes(program: Program, incumbent: Incumbent, bounds: Mapping[str, float]) -> float:
    """Return how many servers change at least, whatever they take.

    Args:
        program: the level of changes.
        incumbent: the best answer so far.
        bounds: of the levels of service, in steps.
    """
    pool, options = incumbent.pool, incumbent.pool.options
    least = np.full(len(program.in_play), np.inf)
    allowed = program.allowed(options) & ~pool.gone
    np.minimum.at(least, options.server[allowed], options.changed[allowed])
    served = _least_served(allowed & ~options.served, incumbent, bounds)
    return float(least[np.isfinite(least)].sum()) + served


def _least_served(nothing: BoolArray, incumbent: Incumbent, bounds: Mapping[str, float]) -> float:
    """Return how many servers change at least that can have nothing, as not all of them can.

    These run nothing now, so that having nothing is no change, and anything else is one.
    """
    options, service = incumbent.pool.options, incumbent.problem.service
    count = len(incumbent.problem.priority)
    mine = np.zeros(count, np.bool_)
    mine[options.server[nothing & (options.changed == 0)]] = True
    mine[options.server[options.served & (options.changed == 0)]] = False
    with_parts = np.isin(np.arange(count), incumbent.servers)
    served = 0.0
    for level in service[1::2]:
        weight = level.weight * mine
        most = float(level.weight[~incumbent.served & with_parts].sum())
        settled = bounds[level.name] >= level.steps(~incumbent.served)
        if settled and weight.any():
            served += max(float(weight.sum()) - most, 0.0)
    return served
