"""Goals between service and value: reserves that are given up, and load off preferred accelerators.

They are levels of a problem like the others, each a sum over servers and replicas. Equation numbers refer to
``docs/math.md``.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.spec.offline import priority_name
from optimizer.units import SECONDS_PER_MINUTE

OFF_PREFERRED = "load off preferred accelerators"


def reserve_level(priority: int) -> str:
    """Return the name of the level of a priority's reserves."""
    return f"reserve of {priority_name(priority)}: load without it"


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """A quantity to minimise after the service levels [requests/min]."""

    name: str
    on_unreserved: FloatArray
    """Contribution of each server served without its reserve, shape (S,)."""
    on_off_preferred: float = 0.0
    """1 for the load off preferred accelerators."""


def goals_of(
    priority: IntArray, load_rps: FloatArray, wants_reserve: BoolArray, *, preference: bool
) -> tuple[Goal, ...]:
    """Return the goals of a problem, in their order (eq. 143, 144).

    Args:
        priority: of each server, shape (S,), as are the next two.
        load_rps: its load.
        wants_reserve: whether it is to have a reserve.
        preference: whether a server prefers accelerators.
    """
    load = np.where(wants_reserve, load_rps * SECONDS_PER_MINUTE, 0.0)
    goals = [
        Goal(reserve_level(p), np.where(priority == p, load, 0.0))
        for p in np.unique(priority[wants_reserve]).tolist()
    ]
    if preference:
        goals.append(Goal(OFF_PREFERRED, np.zeros(len(load)), 1.0))
    return tuple(goals)
