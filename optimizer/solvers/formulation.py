"""Mixed-integer models of the planning problem, with the meaning of their variables."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.milp.model import MilpModel, ModelRows
from optimizer.solvers.objectives import LevelObjective
from optimizer.solvers.problem import Problem
from optimizer.topologies.topology import Label, ModelColumns, Variables


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Rows of the limits in a model; arrays have shape (K,)."""

    row: IntArray
    """Index of each row in the model."""
    limit: IntArray
    """Index of each row's limit in the problem."""
    divisor: FloatArray
    """Amount of the limit that one unit of the row represents."""


@dataclass
class Formulation:
    """A mixed-integer model and the meaning of its variables.

    The first variables are the columns, then u for each server, then other blocks.
    """

    problem: Problem
    columns: IntArray
    """Candidate of each of the first n variables, as a row of the candidate table, shape (n,)."""
    most: IntArray
    """Upper bound of each column, shape (n,)."""
    replicas_each: IntArray
    """Number of replicas that one unit of each column represents, shape (n,)."""
    servers: IntArray
    """Server of each of the next m variables u, which are 1 if the server is unserved, shape (m,)."""
    value_offset: float = 0.0
    """Constant term of the objective of the value level [cents/h]."""
    changed_offset: float = 0.0
    blocks: list[Variables] = field(default_factory=list)
    """Blocks of variables, in their order in the model."""
    size: int = 0
    """Number of variables that have been added."""
    rows: ModelRows = field(default_factory=ModelRows)
    limits: ModelLimits = field(init=False)
    """Rows of the limits in the model."""
    unreserved: IntArray = field(init=False)
    """Indices of the variables that are 1 if a server is served without its reserve."""
    unreserved_servers: IntArray = field(init=False)
    """Server of each variable in `unreserved`."""

    @cached_property
    def column_servers(self) -> IntArray:
        """Server of each column, shape (n,)."""
        return self.problem.table.server[self.columns]

    @cached_property
    def row(self) -> IntArray:
        """Index of each column's server in `servers`, shape (n,)."""
        return np.searchsorted(self.servers, self.column_servers)

    @property
    def unserved(self) -> IntArray:
        """Indices of the variables u, which are 1 if a server is unserved."""
        return np.arange(len(self.columns), len(self.columns) + len(self.servers))

    def add(self, block: Variables) -> IntArray:
        """Add a block of variables, and return their indices."""
        self.blocks.append(block)
        self.size += len(block.upper)
        return np.arange(self.size - len(block.upper), self.size)

    def add_limits(self) -> None:
        """Add the rows of the limits, scaled by the common divisors of the columns' uses (eq. 37, 42).

        Prices add variables (eq. 147).
        """
        all_limits, prices = self.problem.limits, self.problem.prices
        paid = self.add(
            Variables(
                prices.upper,
                lambda replicas: prices.values(all_limits.used(replicas)),
                lambda: [(f"t_{t}", meaning, -1, -1) for t, meaning in enumerate(prices.meanings)],
                value=prices.cost,
            )
        )
        limits = all_limits.take(self.columns)
        limit, divisor, amount = limits.scaled(self.replicas_each, prices.budget_row)
        place = np.full(len(limits), -1)
        place[limit] = np.arange(len(limit))
        counts = place[prices.row] >= 0
        counted = place[prices.row[counts]]
        amount[counted] = prices.first[counts] / divisor[counted]
        column, entry = np.nonzero(limits.use)
        row = place[limits.row[column, entry]]
        value = limits.use[column, entry] * self.replicas_each[column] / divisor[row]
        entries = [(row, column, value)]
        variable, of, coefficient = (each[place[prices.entries[1]] >= 0] for each in prices.entries)
        entries.append((place[of], paid[variable], coefficient / divisor[place[of]]))
        self.limits = ModelLimits(
            self.rows.add(np.full(len(limit), -np.inf), amount, *entries), limit, divisor
        )

    def topology_blocks(self) -> list[ModelRows]:
        """Add the variables of topologies, and return the rows of their constraints."""
        rows, problem = [], self.problem
        for topology in problem.topologies:
            columns = ModelColumns(
                candidates=self.columns,
                most=self.most,
                replicas_each=self.replicas_each,
                servers=self.servers,
                is_single=not problem.options.heterogeneous,
                on_leaving=problem.is_running - problem.counted * problem.is_mixed,
                leaving_value=np.where(problem.is_mixed, 0.0, problem.none_value),
                first=self.size,
            )
            block, own = topology.block(problem.table, columns)
            self.add(block)
            rows.append(own)
        return rows

    @cached_property
    def model(self) -> MilpModel:
        """The model with all added variables and rows."""
        return self.rows.model(self._of_blocks("upper"), self._of_blocks("integer") > 0)

    @cached_property
    def value(self) -> FloatArray:
        """Coefficient of each variable in the value level, the transition cost [cents/h]."""
        return self._of_blocks("value")

    @cached_property
    def changed(self) -> FloatArray:
        """Coefficient of each variable in the changes level."""
        return self._of_blocks("changes")

    def _of_blocks(self, name: str) -> FloatArray:
        parts = [np.broadcast_to(getattr(each, name), len(each.upper)) for each in self.blocks]
        return np.concatenate(parts).astype(np.float64)

    @property
    def labels(self) -> list[Label]:
        """Meaning of each variable; variables with the same name are numbered from the second on."""
        labels, seen = list[Label](), Counter[str]()
        for name, meaning, server, accelerator in (label for each in self.blocks for label in each.labels()):
            seen[name] += 1
            unique = f"{name}_{seen[name]}" if seen[name] > 1 else name
            labels.append((unique, meaning, server, accelerator))
        return labels

    def coefficients(self, objective: LevelObjective) -> FloatArray:
        """Return the coefficient of each variable in the objective of a level."""
        coefficients, n = (
            objective.on_value * self.value + objective.on_changes * self.changed,
            len(self.columns),
        )
        coefficients[self.unserved] += objective.on_unserved[self.servers]
        off_preferred = self.problem.off_preferred_rpm[self.columns] * self.replicas_each
        coefficients[:n] += objective.on_off_preferred * off_preferred
        if objective.on_columns is not None:
            coefficients[:n] += objective.on_columns[self.columns]
        if objective.on_unreserved is not None:
            coefficients[self.unreserved] += objective.on_unreserved[self.unreserved_servers]
        return coefficients

    def constant(self, objective: LevelObjective) -> float:
        """Return the constant term of the objective of a level."""
        changes = objective.on_changes * self.changed_offset
        return objective.outside + objective.on_value * self.value_offset + changes

    def point(self, replicas: IntArray) -> FloatArray:
        """Return the values of the model's variables for a solution with all its replicas in columns."""
        return np.concatenate([each.point(replicas) for each in self.blocks]).astype(np.float64)

    def replicas(self, x: FloatArray, rows: int) -> IntArray:
        """Return the replicas of each row of the candidate table for values of the model's variables."""
        replicas = np.zeros(rows, np.int64)
        replicas[self.columns] = np.round(x[: len(self.columns)]).astype(np.int64) * self.replicas_each
        return replicas
