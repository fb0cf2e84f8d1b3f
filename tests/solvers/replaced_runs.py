"""HiGHS with runs that a test replaces: stopped, wrong, or with an answer of the test."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

from optimizer.arrays import FloatArray
from optimizer.milp.highs import HighsSession
from optimizer.milp.model import MilpModel, RunResult


class Run(NamedTuple):
    """One run of a solve."""

    number: int
    """Runs of the same solve before it."""
    session: HighsSession
    objective: FloatArray
    minimise: Callable[[FloatArray], RunResult]
    """The run itself, of this or another objective."""


def replaced(answer: Callable[[Run], RunResult]) -> Callable[[MilpModel], HighsSession]:
    """Return sessions whose runs a function answers."""
    numbers = itertools.count()

    class Replaced(HighsSession):
        def minimise(
            self,
            objective: FloatArray,
            start: FloatArray | None,
            gap: float,
            time_limit_s: float,
            *,
            presolve: bool = True,
        ) -> RunResult:
            def run(of: FloatArray) -> RunResult:
                return super(Replaced, self).minimise(of, start, gap, time_limit_s, presolve=presolve)

            return answer(Run(next(numbers), self, objective, run))

    return Replaced
