"""The levels of a problem as objectives, in their order: what is unserved, the value, the changes.

Takes a `Problem`, gives one `LevelObjective` for each level. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.goals import Goal
from optimizer.solvers.levels import CHANGES, VALUE, changes_of, goal_of, served, value_of
from optimizer.solvers.problem import Problem
from optimizer.solvers.service_levels import ServiceLevel

INTEGER_SLACK = 0.5
"""Slack of the constraint that holds an integer level: half a step, far above a solver's tolerance."""
STEP_SLACK = 1e-4
"""Part of a step by which the bound of an integer level must exceed the next smaller value."""
ROUNDING = 1e-9
"""Relative difference of two values that is rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class LevelObjective:
    """One level to be minimised, over the servers that have a candidate."""

    name: str
    on_unserved: FloatArray
    """Cost of leaving each server unserved; integers, 0 for servers without a candidate; shape (S,)."""
    active: BoolArray
    """Servers that may have an allocation; the others come later; shape (S,)."""
    on_value: float = 0.0
    on_changes: float = 0.0
    goal: Goal | None = None
    """The goal; None for all other levels."""
    service: ServiceLevel | None = None
    """The level of service; None for value and changes."""

    @property
    def on_columns(self) -> FloatArray | None:
        """Cost of each candidate for the members that it leaves unserved; None if there are none."""
        return None if self.service is None else self.service.on_columns

    @property
    def step(self) -> float:
        """The least difference of two values; 0 if any difference is possible."""
        return 0.0 if self.on_value or self.goal else 1.0

    def of(self, problem: Problem, replicas: IntArray) -> float:
        """Return the objective's value for an answer, with what servers without a candidate add."""
        total = float(self.on_unserved[~served(problem, replicas)].sum())
        total += 0.0 if self.on_columns is None else float(self.on_columns[replicas > 0].sum())
        total += self.on_value * value_of(problem, replicas) if self.on_value else 0.0
        total += goal_of(problem, self.goal, replicas) if self.goal else 0.0
        return total + (self.on_changes * changes_of(problem, replicas) if self.on_changes else 0.0)

    def constant(self, problem: Problem, without: BoolArray) -> float:
        """Return the value or changes of servers without a candidate, shape (S,), and of commitments."""
        value = problem.none_value[without].sum() + problem.tiers.committed
        changes = problem.none_changed[without].sum()
        return float(self.on_value * value + self.on_changes * changes)

    def tolerance(self, value: float, gap: float) -> float:
        """Return the distance of value and bound at which the level is proved, for a relative gap."""
        return max(gap * abs(value), self.step * (1 - STEP_SLACK), ROUNDING * max(1.0, abs(value)))


@dataclass(frozen=True, slots=True)
class LevelConstraint:
    """A settled level: no answer may exceed what was reached."""

    objective: LevelObjective
    most: float


def service_objectives(problem: Problem, without: BoolArray) -> list[LevelObjective]:
    """Return the objectives of the levels of service, from the highest priority down (eq. 34).

    Args:
        problem: what to choose from.
        without: servers without a candidate, shape (S,).
    """
    objectives = []
    for level in problem.service:
        priority = problem.priority[level.measure > 0].max(initial=-1)
        active = problem.priority <= priority
        objectives.append(LevelObjective(level.name, level.weight * ~without, active, service=level))
    return objectives


def goal_objectives(problem: Problem) -> list[LevelObjective]:
    """Return the goals between service and value as objectives."""
    nothing, everyone = np.zeros(len(problem.priority)), np.ones(len(problem.priority), np.bool_)
    return [LevelObjective(goal.name, nothing, everyone, goal=goal) for goal in problem.goals]


def value_objective(problem: Problem) -> LevelObjective:
    """Return the transition value as an objective (eq. 31-33)."""
    servers = len(problem.priority)
    return LevelObjective(VALUE, np.zeros(servers), np.ones(servers, np.bool_), on_value=1.0)


def changes_objective(problem: Problem) -> LevelObjective:
    """Return the number of changed servers as an objective."""
    servers = len(problem.priority)
    return LevelObjective(CHANGES, np.zeros(servers), np.ones(servers, np.bool_), on_changes=1.0)
