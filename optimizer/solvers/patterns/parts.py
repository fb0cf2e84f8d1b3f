"""What patterns are made of: the candidates of each server that can be of use, and the units that they share.

Takes a `Problem`, gives `Parts`. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, pairs_of_equal
from optimizer.solvers.formulation import COVER_TOLERANCE, mixed_columns, undominated
from optimizer.solvers.problem import Problem


@dataclass(frozen=True, slots=True)
class Parts:
    """Candidates of which patterns take replicas; shapes (n,) unless said otherwise."""

    row: IntArray
    """Row of the candidate table; rows of one server stand together."""
    server: IntArray
    divisible: BoolArray
    """Whether any number of replicas can be taken; else all that the candidate was sized with, or none."""
    share: FloatArray
    """Of its server's load that one replica carries, at most 1; 1 where there is no load."""
    units: IntArray
    """Units of one replica."""
    kind: IntArray
    """Capacity row."""
    cost: FloatArray
    """What a replica adds to the value, apart from what staying saves [cents/h]."""
    here: BoolArray
    """Whether it is on the accelerator that its server runs on now."""
    limit: FloatArray
    """Units that exist, in multiples of each row's divisor; shape (K,)."""
    types: IntArray
    """Accelerator type of each capacity row, shape (K,)."""
    divisor: IntArray
    """Units that one of each row stands for, shape (K,)."""

    @property
    def servers(self) -> IntArray:
        """The servers that have a part, in their order."""
        return np.unique(self.server)

    def take(self, kept: BoolArray) -> "Parts":
        """Return some of the parts."""
        names = ("row", "server", "divisible", "share", "units", "kind", "cost", "here")
        return replace(self, **{name: getattr(self, name)[kept] for name in names})


def parts_of(problem: Problem) -> Parts:
    """Return the parts of a problem: undominated candidates, mixed or as sized (math.md section 12)."""
    table, mixed = problem.table, problem.options.heterogeneous
    if mixed:
        row, _, each = mixed_columns(problem)
        divisible = table.meets_targets_below_max_rate[row]
    else:
        row = undominated(problem)
        if problem.capacity is not None:
            row = row[table.units[row] <= problem.capacity[table.kind[row]]]
        each, divisible = table.num_replicas[row], np.zeros(len(row), np.bool_)
    server = table.server[row]
    load = problem.load_rps[server]
    share = np.divide(table.max_rate_rps[row], load, out=np.ones(len(row)), where=load > 0)
    units = table.units_per_replica[row]
    types, kind = np.unique(table.kind[row], return_inverse=True)
    divisor = np.array([np.gcd.reduce((units * each)[kind == k]) for k in range(len(types))], np.int64)
    capacity = np.full(len(types), np.inf) if problem.capacity is None else problem.capacity[types]
    here = problem.on_current[row]
    factor = 1 + problem.options.transition_penalty * ~here
    parts = Parts(
        row=row,
        server=server,
        divisible=divisible,
        share=np.minimum(share, 1.0),
        units=units,
        kind=kind,
        cost=table.cost_per_replica[row] * factor,
        here=here,
        limit=np.floor(capacity / divisor),
        types=types,
        divisor=divisor,
    )
    return parts.take(~superfluous(problem, parts, parts.cost)) if mixed else parts


def superfluous(problem: Problem, parts: Parts, cost: FloatArray) -> BoolArray:
    """Return the parts in whose place a number of replicas of another could stand, shape (n,).

    The other is of the same server and type, and that many of it cost and take no more and carry no less. A
    part where the server runs now is never superfluous, nor one whose server could have too many replicas.

    Args:
        problem: what is chosen from.
        parts: the parts.
        cost: what a replica of each costs, shape (n,).
    """
    own = np.flatnonzero(parts.divisible)
    group = parts.server[own] * (len(parts.limit) + 1) + parts.kind[own]
    own = own[np.argsort(group, kind="stable")]
    before, after = pairs_of_equal(np.sort(group))
    better, worse = np.concatenate([own[before], own[after]]), np.concatenate([own[after], own[before]])
    times = parts.units[worse] // parts.units[better]
    carries = times * parts.share[better] >= parts.share[worse]
    stands = (times >= 1) & carries & (times * cost[better] <= cost[worse] * (1 + 1e-12))
    stands &= ~parts.here[worse] & ((times == 1) | _unlimited(problem, parts)[worse])
    # Of two that could stand for each other the first stays.
    both = stands & np.concatenate([stands[len(before) :], stands[: len(before)]])
    stands &= ~both | (better < worse)
    out = np.zeros(len(parts.row), np.bool_)
    out[worse[stands]] = True
    return out


def _unlimited(problem: Problem, parts: Parts) -> BoolArray:
    """Return the parts whose servers can have more replicas than any least pattern takes, shape (n,)."""
    smallest = np.ones(len(problem.priority))
    np.minimum.at(smallest, parts.server, parts.share)
    largest = np.zeros(len(problem.priority))
    np.maximum.at(largest, parts.server, parts.units)
    count = (1 / smallest + problem.min_replicas + 1) * np.maximum(largest, 1)
    return (count <= problem.max_replicas)[parts.server]


LOAD = 1 - COVER_TOLERANCE
"""Share of a server's load that its replicas have to carry."""
