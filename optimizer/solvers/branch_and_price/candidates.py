"""The candidates that patterns are made of, and the units that they share.

Takes a `Problem`, gives `PatternCandidates`. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.formulation import COVER_TOLERANCE, mixed_columns, nondominated_candidates
from optimizer.solvers.problem import Problem

LOAD = 1 - COVER_TOLERANCE
"""Share of a server's load that its replicas have to carry."""


@dataclass(frozen=True, slots=True)
class PatternCandidates:
    """Candidates of which patterns take replicas; shapes (n,) unless said otherwise."""

    row: IntArray
    """Row of the candidate table; rows of one server stand together."""
    server: IntArray
    divisible: BoolArray
    """Whether any number of replicas can be taken; else all that the candidate was sized with, or none."""
    share: FloatArray
    """Share of its server's load that one replica carries, at most 1; 1 if there is no load."""
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
        """The servers that have a candidate, in their order."""
        return np.unique(self.server)


def candidates_of(problem: Problem) -> PatternCandidates:
    """Return the nondominated candidates of a problem, mixed or as sized (math.md section 12)."""
    table = problem.table
    if problem.options.heterogeneous:
        row, _, each = mixed_columns(problem)
        divisible = table.meets_targets_below_max_rate[row]
    else:
        row = nondominated_candidates(problem)
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
    return PatternCandidates(
        row=row,
        server=server,
        divisible=divisible,
        share=np.minimum(share, 1.0),
        units=units,
        kind=kind,
        cost=problem.replica_value[row],
        here=problem.on_current[row],
        limit=np.floor(capacity / divisor),
        types=types,
        divisor=divisor,
    )
