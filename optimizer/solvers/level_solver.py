"""Interface of the formulations: each minimises one level, with constraints on the earlier levels.

A `LevelSolver` stores the incumbent and the constraints. The two formulations are `compact.py` and the column
generation of `branch_and_price`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.levels import Reached, with_outside
from optimizer.solvers.objectives import LevelConstraint, LevelObjective
from optimizer.solvers.problem import Problem


@dataclass(frozen=True, slots=True)
class LevelResult:
    """Result of minimising one level: the proved bound. The solution itself is the incumbent."""

    bound: float
    """Lower bound of the objective, given the earlier levels."""
    proved: bool
    """Whether the value of the incumbent is within the tolerance of the bound."""
    feasible: bool = True
    """Whether the incumbent satisfies the constraints on all earlier levels."""


@dataclass(frozen=True, slots=True)
class KnownBounds:
    """Lower bounds of a level that are known without a solver."""

    all_answers: float
    unchanged_answers: float = -np.inf
    """Lower bound over the solutions that use only candidates of the related problem."""


class Incumbent:
    """The best solution found so far, in the order of all levels (eq. 35)."""

    def __init__(self, problem: Problem, starts: Iterable[IntArray]) -> None:
        self.problem = problem
        self.reached = Reached(problem, np.zeros(len(problem.table), np.int64))
        """The solution, with its value at each level."""
        for start in starts:
            self.offer(start)

    @property
    def replicas(self) -> IntArray:
        """Replicas of each candidate, shape (C,)."""
        return self.reached.replicas

    def offer(self, replicas: IntArray) -> bool:
        """Replace the incumbent by a solution if that is better, and return whether it is."""
        reached = Reached(self.problem, replicas)
        better = reached.is_better(self.reached)
        if better:
            self.reached = reached
        return better


class LevelSolver(ABC):
    """A formulation of a problem, with the constraints on earlier levels."""

    def __init__(self, problem: Problem, servers: IntArray, incumbent: Incumbent, gap: float) -> None:
        self.problem, self.incumbent, self.gap = problem, incumbent, gap
        self.without_candidates = ~np.isin(np.arange(len(problem.priority)), servers)
        self.objectives = with_outside(problem, self.without_candidates)

    def restart(self) -> None:
        """Remove all constraints and start again with the first level, keeping the incumbent."""
        self.held: tuple[LevelConstraint, ...] = ()
        self.forced_served, self.forced_unserved = np.zeros((2, len(self.problem.priority)), np.bool_)

    def fix(self, served: BoolArray, unserved: BoolArray) -> None:
        """Require some servers to be served, and others to be unserved, from now on; masks of shape (S,)."""
        self.forced_served = self.forced_served | (served & ~self.without_candidates)
        self.forced_unserved = self.forced_unserved | unserved

    def hold(self, objective: LevelObjective, most: float) -> None:
        """Constrain an objective to a maximum from now on."""
        self.held = (*self.held, LevelConstraint(objective, most))

    @property
    def is_feasible(self) -> bool:
        """Whether the incumbent satisfies the constraints on all earlier levels."""
        is_served = ~self.incumbent.reached.left
        if (self.forced_served & ~is_served).any() or (self.forced_unserved & is_served).any():
            return False
        return all(self.value_of(each.objective) <= each.most for each in self.held)

    def value_of(self, objective: LevelObjective) -> float:
        """Return the incumbent's value of an objective."""
        return self.incumbent.reached.of(objective)

    @abstractmethod
    def can_serve_all(self, objective: LevelObjective, deadline: Deadline) -> bool:
        """Return whether a service level can reach 0 as far as is known; no solution is required."""

    @abstractmethod
    def minimise(self, objective: LevelObjective, known: KnownBounds, deadline: Deadline) -> LevelResult:
        """Minimise one level as far as time permits.

        Args:
            known: bounds known in advance.
            deadline: time at which to stop.

        Raises:
            SolverError: the solver failed.
        """
