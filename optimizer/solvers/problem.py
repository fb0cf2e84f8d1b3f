"""The choice as arrays, and what a solver answers.

Takes `Candidates`, gives a `Problem`: columns with their value and whether they change anything, and for
each server what leaving it without an allocation means. Solvers take a `Problem` and return a `Solution`;
they know no names. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.candidates import Candidates, CandidateTable
from optimizer.spec.schema import OptimizerOptions

GAP_FREE_COLUMNS = 2000
"""Up to this many columns the default is to prove the optimum; above it a gap of `DEFAULT_GAP`."""
DEFAULT_GAP = 1e-4


SolverName = Literal["separable", "milp", "greedy"]


class Status(StrEnum):
    """How good an answer is known to be."""

    optimal = "optimal"
    """Proved within the gap, at every level."""
    feasible = "feasible"
    """The solver stopped early."""
    heuristic = "heuristic"
    """Found without a proof."""


@dataclass(frozen=True, slots=True)
class Level:
    """One objective of the lexicographic order, as reached."""

    name: str
    value: float
    bound: float | None
    """No answer can have a smaller value, given the levels before; none where nothing is proved."""

    @property
    def gap(self) -> float | None:
        """Relative distance between value and bound."""
        if self.bound is None:
            return None
        return (
            max(self.value - self.bound, 0.0) / max(abs(self.value), 1e-9) if self.value > self.bound else 0.0
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """What to choose from; see the fields for shapes."""

    table: CandidateTable
    """The columns, C rows."""
    value: FloatArray
    """Transition value of each column [cents/h], shape (C,)."""
    changed: BoolArray
    """Whether a column differs from the server's current allocation, shape (C,)."""
    none_value: FloatArray
    """Transition value of leaving each server without an allocation [cents/h], shape (S,)."""
    none_changed: BoolArray
    """Whether that is a change, shape (S,)."""
    to_serve: BoolArray
    """Whether a server is unserved without an allocation: it has load, or a least number of replicas."""
    load_rpm: FloatArray
    """Load of each server [requests/min], shape (S,)."""
    priority: IntArray
    """Shape (S,)."""
    capacity: FloatArray | None
    """Units of each accelerator type, shape (T,); none: unlimited."""
    options: OptimizerOptions

    @property
    def servable(self) -> BoolArray:
        """Whether a server has any column, shape (S,)."""
        servable = np.zeros(len(self.priority), np.bool_)
        servable[self.table.server] = True
        return servable


@dataclass(frozen=True, slots=True)
class Solution:
    """What a solver chose."""

    replicas: IntArray
    """Replicas of each column, 0 where it is not chosen; shape (C,)."""
    status: Status
    solver: SolverName
    levels: tuple[Level, ...]

    def level(self, name: str) -> Level:
        """Return the level of that name."""
        return next(level for level in self.levels if level.name == name)


def build_problem(candidates: Candidates) -> Problem:
    """Turn candidates into a problem (eq. 20-23)."""
    servers, table = candidates.fleet.servers, candidates.table
    options = candidates.system.options
    old = servers.current_cost
    there = servers.current_accelerator[table.server] == table.accelerator
    same = there & (servers.current_replicas[table.server] == table.num_replicas)
    cost = table.cost_cents_per_h
    difference = cost - old[table.server]
    moved = difference + options.transition_penalty * (old[table.server] + cost)
    running = (servers.current_replicas > 0) | (old > 0)
    return Problem(
        table=table,
        value=frozen(np.where(same, 0.0, np.where(there, difference, moved))),
        changed=frozen(~same),
        none_value=frozen(options.transition_penalty * old - old),
        none_changed=frozen(running),
        to_serve=frozen((servers.load_rps > 0) | (servers.min_replicas > 0)),
        load_rpm=frozen(servers.load_rps * 60.0),
        priority=servers.priority,
        capacity=None if options.unlimited else candidates.fleet.capacity,
        options=options,
    )


def undominated(problem: Problem) -> IntArray:
    """Return the columns that no other of the same server and type makes superfluous, in their order.

    A column is superfluous if another is no worse in value, units and changes; on equal terms the smaller
    batch stays, then the first in order.
    """
    table = problem.table
    group = table.server * (int(table.kind.max(initial=0)) + 1) + table.kind
    order = np.lexsort((table.max_batch, problem.changed, table.units, problem.value, group))
    # In this order a column is superfluous if an earlier one of its group has no more units. Subtracting a
    # step per group makes the running minimum start afresh at each; a column that keeps the current
    # allocation is always kept, as only it has no changes.
    _, rank = np.unique(group[order], return_inverse=True)
    units = table.units[order].astype(np.float64) - rank * (float(table.units.max(initial=0)) + 1.0)
    least_before = np.concatenate([[np.inf], np.minimum.accumulate(units)[:-1]])
    kept = (units < least_before) | ~problem.changed[order]
    return np.sort(order[kept])


def gap_target(options: OptimizerOptions, columns: int) -> float:
    """Return the relative gap at which the solver may stop, for a number of undominated columns."""
    if options.gap is not None:
        return options.gap
    return 0.0 if columns <= GAP_FREE_COLUMNS else DEFAULT_GAP
