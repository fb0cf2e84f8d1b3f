"""Rows of a model while they are collected, and those of the limits, which all models share.

Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, field

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates.table import ON_SHARED_CARDS
from optimizer.milp.model import COVER_SCALE, COVER_TOLERANCE, MilpModel
from optimizer.solvers.formulation import SharedRows
from optimizer.solvers.problem import Problem


@dataclass(slots=True)
class ModelRows:
    """Rows of a model while they are collected."""

    count: int = 0
    row: list[IntArray] = field(default_factory=list)
    index: list[IntArray] = field(default_factory=list)
    coefficient: list[FloatArray] = field(default_factory=list)
    lower: list[FloatArray] = field(default_factory=list)
    upper: list[FloatArray] = field(default_factory=list)

    def add(
        self,
        lower: FloatArray,
        upper: FloatArray,
        *entries: tuple[IntArray, IntArray, FloatArray],
    ) -> None:
        """Add a block of rows; each entry is row within the block, variable and coefficient."""
        for row, index, coefficient in entries:
            self.row.append(row + self.count)
            self.index.append(index)
            self.coefficient.append(coefficient)
        self.lower.append(lower)
        self.upper.append(upper)
        self.count += len(lower)

    def model(self, variable_upper: FloatArray, continuous: IntArray | None = None) -> MilpModel:
        """Return the model with these rows, over integer variables from zero; some are continuous."""
        row, index = np.concatenate(self.row), np.concatenate(self.index)
        order = np.lexsort((index, row))
        integer = np.ones(len(variable_upper), np.bool_)
        integer[[] if continuous is None else continuous] = False
        return MilpModel(
            lower=np.zeros(len(variable_upper)),
            upper=variable_upper,
            integer=integer,
            row_start=np.concatenate([[0], np.cumsum(np.bincount(row, minlength=self.count))]),
            row_index=index[order],
            row_value=np.concatenate(self.coefficient)[order],
            row_lower=np.concatenate(self.lower),
            row_upper=np.concatenate(self.upper),
        )


def add_limits(
    rows: ModelRows, problem: Problem, columns: IntArray, each: IntArray, first_step: int
) -> SharedRows:
    """Keep to the limits, in multiples of the common divisors of what columns use (eq. 37, 42).

    Args:
        rows: the model's rows so far.
        problem: what is chosen from.
        columns: the columns of the model.
        each: replicas that one of each column stands for.
        first_step: first of the variables of price steps.
    """
    limits, tiers = problem.limits.take(columns), problem.tiers
    limit, divisor, amount = limits.scaled(each, tiers.budget_row)
    place = np.full(len(limits), -1)
    place[limit] = np.arange(len(limit))
    amount[place[tiers.row][place[tiers.row] >= 0]] = tiers.size[tiers.first][place[tiers.row] >= 0]
    column, entry = np.nonzero(limits.use)
    row = place[limits.row[column, entry]]
    value = limits.use[column, entry] * each[column] / divisor[row]
    added = SharedRows(rows.count + np.arange(len(limit)), limit, divisor)
    entries = [(row, column, value)]
    for step_row, coefficient in tiers.step_entries():
        used = np.flatnonzero(place[step_row] >= 0)
        entries.append((place[step_row[used]], first_step + used, coefficient[used]))
    rows.add(np.full(len(limit), -np.inf), amount, *entries)
    return added


def add_cards(rows: ModelRows, problem: Problem, columns: IntArray) -> None:
    """Units of patterns carry the loads of the servers on shared cards (eq. 233).

    Args:
        rows: the model's rows so far.
        problem: what is chosen from.
        columns: the columns of the model.
    """
    cards, table = problem.cards, problem.table
    if cards is None:
        return
    pattern, count = table.pattern[columns], len(cards.servers)
    shares = cards.shares(pattern)
    place = np.full(len(problem.priority), -1)
    place[cards.servers] = np.arange(count)
    server, column = np.nonzero(shares)
    on_cards = np.flatnonzero(pattern == ON_SHARED_CARDS)
    rows.add(
        np.full(count, -COVER_SCALE * COVER_TOLERANCE),
        np.full(count, np.inf),
        (server, column, COVER_SCALE * shares[server, column]),
        (place[table.server[columns[on_cards]]], on_cards, np.full(len(on_cards), -COVER_SCALE)),
    )
