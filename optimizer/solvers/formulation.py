"""A mixed-integer model of the choice, and the meaning of its variables."""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.milp.model import MilpModel
from optimizer.solvers.levels import served, unchanged, without_reserve
from optimizer.solvers.objectives import LevelObjective
from optimizer.solvers.problem import Problem
from optimizer.solvers.routing import RouteVariables


@dataclass(frozen=True, slots=True)
class SharedRows:
    """Rows of the limits in a model; all shapes (K,)."""

    row: IntArray
    """Index of the row."""
    limit: IntArray
    """Index into the limits of the problem."""
    divisor: FloatArray
    """Amount of the limit that one unit of the row represents."""


@dataclass(frozen=True, slots=True)
class Formulation:
    """A model and the meaning of its variables: first the columns, then one u per server, then the rest."""

    model: MilpModel
    columns: IntArray
    """Row of the candidate table of each of the first n variables, shape (n,)."""
    replicas_each: IntArray
    """Replicas that one unit of such a variable stands for, shape (n,)."""
    column_servers: IntArray
    """Server of each column, shape (n,)."""
    servers: IntArray
    """Server of each of the next m variables, which are one where it is unserved; shape (m,)."""
    value: FloatArray
    """Objective of the value level [cents/h], by variable."""
    value_offset: float
    """Constant term of the value level."""
    changed: FloatArray
    """Objective of the changes level, by variable."""
    changed_offset: float
    staying: IntArray
    """Column of each of the next variables, which are one where a pool stays on the current accelerator."""
    keeping: IntArray
    """Column of each of the last variables, which are one where exactly the current replicas stay."""
    shared: SharedRows
    """The rows that keep to the limits."""
    unreserved_columns: BoolArray
    """Columns that serve their server without its reserve, shape (n,); none where a variable says so."""
    unreserved_servers: IntArray
    """Server of each of the next variables, which are one where it is served without its reserve."""
    steps: int
    """Number of the very last variables: how much of each later price step is used."""
    off_preferred: FloatArray
    """Load that each column carries off preferred accelerators [requests/min], shape (n,)."""
    routes: RouteVariables | None = None
    """Variables of routes, after those of `keeping`; None if there are none."""

    @property
    def unserved(self) -> IntArray:
        """Indices of the variables u."""
        return np.arange(len(self.columns), len(self.columns) + len(self.servers))

    def coefficients(self, objective: LevelObjective) -> FloatArray:
        """Return the coefficients of a level, by variable."""
        found, n = objective.on_value * self.value + objective.on_changes * self.changed, len(self.columns)
        found[self.unserved] += objective.on_unserved[self.servers]
        found[:n] += objective.on_off_preferred * self.off_preferred
        if objective.on_columns is not None:
            found[:n] += objective.on_columns[self.columns]
        if objective.on_unreserved is not None:
            found[:n] += np.where(self.unreserved_columns, objective.on_unreserved[self.column_servers], 0.0)
            place = len(found) - self.steps - len(self.unreserved_servers)
            found[place : len(found) - self.steps] = objective.on_unreserved[self.unreserved_servers]
        return found

    def constant(self, objective: LevelObjective) -> float:
        """Return the part of a level that no variable changes."""
        changes = objective.on_changes * self.changed_offset
        return objective.outside + objective.on_value * self.value_offset + changes

    def point(self, problem: Problem, replicas: IntArray) -> FloatArray:
        """Return the point of the model that stands for an answer in the columns of the model."""
        taken = replicas[self.columns] // self.replicas_each
        left = ~served(problem, replicas)[self.servers]
        stays = taken[self.staying] > 0
        kept = unchanged(problem, replicas)[self.column_servers[self.keeping]]
        without = without_reserve(problem, replicas)[self.unreserved_servers]
        tiers = problem.tiers
        steps = tiers.steps(problem.limits.used(replicas))[tiers.later]
        routes = np.zeros(0)
        if self.routes is not None:
            routes = self.routes.point(problem.table, replicas, self.columns)
        return np.concatenate([taken, left, stays, kept, routes, without, steps]).astype(np.float64)

    def replicas(self, x: FloatArray, rows: int) -> IntArray:
        """Return the replicas of each row of the candidate table at a point of the model."""
        replicas = np.zeros(rows, np.int64)
        n = len(self.columns)
        replicas[self.columns] = np.round(x[:n]).astype(np.int64) * self.replicas_each
        return replicas
