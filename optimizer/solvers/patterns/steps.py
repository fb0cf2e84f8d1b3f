"""The levels of service as objectives: the two of a priority at once where their weights allow it.

Takes a `Problem`, gives a `Step` for each objective, and tells what its bound says of the levels.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray
from optimizer.solvers.patterns.program import Measure
from optimizer.solvers.problem import Problem, ServiceLevel

MAX_COMBINED = 1e7
"""Largest weight of a server at a level of rate and number of servers together."""


@dataclass(frozen=True, slots=True)
class Step:
    """One objective: a level, or the two of a priority together."""

    measure: Measure
    step: float
    """By how much two answers differ at least."""
    rate: ServiceLevel | None = None
    count: ServiceLevel | None = None
    in_play: BoolArray | None = None
    most: float = 0.0
    """Servers of the priority that have a candidate."""

    @property
    def is_service(self) -> bool:
        """Whether it is of a level of service."""
        return self.rate is not None or self.count is not None

    @property
    def multiple(self) -> float:
        """What a step of the rate weighs where the number of servers counts beside it, else 0."""
        return self.most + 1 if self.rate is not None and self.count is not None else 0.0

    @property
    def rate_alone(self) -> Measure:
        """The rate of an objective of both levels."""
        assert self.rate is not None
        return Measure(self.rate.name, self.rate.weight)

    def servers_alone(self) -> "Step":
        """Return the number of servers of an objective of both levels as an objective of its own."""
        assert self.count is not None
        measure = Measure(self.count.name, self.count.weight)
        return Step(measure, 1.0, None, self.count, self.in_play, self.most)

    def bounds(self, value: float, bound: float, columnless: BoolArray) -> dict[str, float]:
        """Return the bounds of its levels in steps, those of both where they are minimised together.

        Args:
            value: what the objective is.
            bound: what it is at least.
            columnless: servers without a candidate, shape (S,).
        """
        least: list[tuple[ServiceLevel, float]] = []
        if self.rate is not None and self.count is not None:
            rate = value // (self.most + 1)
            least_rate = np.ceil(max(bound - self.most, 0.0) / (self.most + 1))
            least = [(self.rate, float(least_rate)), (self.count, max(bound - rate * (self.most + 1), 0.0))]
        elif self.rate is not None:
            least = [(self.rate, bound)]
        elif self.count is not None:
            least = [(self.count, bound)]
        return {level.name: part + level.steps(columnless) for level, part in least}


def service_steps(problem: Problem, columnless: BoolArray) -> list[Step]:
    """Return the objectives of all priorities that have servers, from the highest down.

    Args:
        problem: what to choose from.
        columnless: servers without a candidate, shape (S,).
    """
    steps = []
    for rate, count in zip(problem.service[::2], problem.service[1::2], strict=True):
        mine = (rate.weight > 0) | (count.weight > 0)
        priority = problem.priority[mine].max(initial=-1)
        in_play = problem.priority <= priority
        n = float(count.weight[~columnless].sum())
        together = rate.weight * (n + 1) + count.weight
        if not mine.any():
            continue
        if together.max() <= MAX_COMBINED:
            steps.append(Step(Measure(rate.name, together), 1.0, rate, count, in_play, n))
        else:
            steps.append(Step(Measure(rate.name, rate.weight), 1.0, rate, None, in_play, n))
            steps.append(Step(Measure(count.name, count.weight), 1.0, None, count, in_play, n))
    return steps
