"""What multipliers prove of an answer, level by level, by plain arithmetic: no solver is asked.

Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.solvers.levels import CHANGES, VALUE, value_slack
from optimizer.solvers.patterns.bounds import bound_of
from optimizer.solvers.patterns.parts import Parts, parts_of
from optimizer.solvers.patterns.pool import Pool, least_of_servers, pool_of
from optimizer.solvers.patterns.program import Measure, Pin, Program
from optimizer.solvers.problem import Problem, ServiceLevel

WHOLE = 1e-6
"""Rounding of a bound of a level of whole numbers, before it is taken up to the next."""


@dataclass(frozen=True, slots=True)
class Multipliers:
    """Prices that prove a bound of one level."""

    level: str
    units: FloatArray
    """Of one unit of each accelerator type, not below zero; shape (T,)."""
    levels: Mapping[str, float]
    """Of one step of each level before, not below zero."""


@dataclass(frozen=True, slots=True)
class ProvableLevel:
    """A level of an answer as a choice of options under the levels before it, as the answer reached them."""

    name: str
    program: Program
    offset: float
    """What servers without a candidate add."""
    service: ServiceLevel | None
    """The level of service that it is; none: value or changes."""
    left_out: BoolArray
    """Servers that the answer does not serve, shape (S,)."""

    @property
    def whole(self) -> bool:
        """Whether it is a level of whole numbers."""
        return self.name != VALUE

    def reported(self, bound: float) -> float:
        """Return a bound of the program as a bound of the level."""
        least = float(np.ceil(bound - WHOLE * max(1.0, abs(bound)) ** 0.5)) if self.whole else bound
        least += self.offset
        return least if self.service is None else self.service.reported(least, self.left_out)

    def prices(self, multipliers: Multipliers) -> FloatArray:
        """Return multipliers by shared row of the program."""
        parts = self.program.parts
        pinned = [multipliers.levels.get(pin.measure.name, 0.0) for pin in self.program.pins]
        prices: FloatArray = np.concatenate([multipliers.units[parts.types] * parts.divisor, pinned])
        return prices

    def multipliers(self, prices: FloatArray, types: int) -> Multipliers:
        """Return prices of the program's rows by type and level."""
        parts = self.program.parts
        units = np.zeros(types)
        units[parts.types] = prices[: len(parts.types)] / parts.divisor
        names = [pin.measure.name for pin in self.program.pins]
        pinned = dict(zip(names, prices[len(parts.types) :].tolist(), strict=True))
        return Multipliers(self.name, units, {name: price for name, price in pinned.items() if price})


class Provable:
    """The levels of an answer, each with what multipliers can prove of it."""

    def __init__(self, problem: Problem, left_out: BoolArray, value: float) -> None:
        self.problem, self.left_out, self.value = problem, left_out, value
        self.parts: Parts = parts_of(problem)
        self.pool: Pool = pool_of(problem, self.parts)
        self.outside = ~np.isin(np.arange(len(problem.priority)), self.parts.server)

    def levels(self) -> Iterator[ProvableLevel]:
        """Yield the levels in their order."""
        pins: tuple[Pin, ...] = ()
        settled = np.zeros(len(self.problem.priority), np.bool_)
        for level in self.problem.service:
            measure = Measure(level.name, level.weight)
            yield self._level(measure, pins, (self._in_play(level), settled), level)
            reached = float(level.weight[self.left_out & ~self.outside].sum())
            if reached:
                pins = (*pins, Pin(measure, reached))
            else:
                settled = settled | (level.weight > 0)
        everyone = np.ones(len(settled), np.bool_)
        of_value = Measure(VALUE, np.zeros(len(everyone)), on_value=1.0)
        yield self._level(of_value, pins, (everyone, settled), None)
        lost = float(self.problem.none_value[self.outside].sum())
        pins = (*pins, Pin(of_value, self.value - lost + value_slack(self.value)))
        of_changes = Measure(CHANGES, np.zeros(len(everyone)), on_changes=1.0)
        yield self._level(of_changes, pins, (everyone, settled), None)

    def bound(self, level: ProvableLevel, multipliers: Multipliers) -> float:
        """Return what multipliers prove of a level."""
        prices = np.maximum(level.prices(multipliers), 0.0)
        least = least_of_servers(level.program, self.pool, prices)
        return level.reported(bound_of(level.program, prices, least[level.program.servers]))

    def _in_play(self, level: ServiceLevel) -> BoolArray:
        counted = self.problem.priority[level.weight > 0]
        in_play: BoolArray = self.problem.priority <= (counted[0] if len(counted) else -1)
        return in_play

    def _level(
        self,
        measure: Measure,
        pins: tuple[Pin, ...],
        choosing: tuple[BoolArray, BoolArray],
        level: ServiceLevel | None,
    ) -> ProvableLevel:
        """Return a level at which some servers choose, and some of them must be served."""
        in_play, settled = choosing
        offset = {
            VALUE: float(self.problem.none_value[self.outside].sum()),
            CHANGES: float(self.problem.none_changed[self.outside].sum()),
        }.get(measure.name, float(measure.on_nothing[self.outside].sum()))
        program = Program(self.parts, measure, pins, in_play, settled, np.zeros_like(settled))
        return ProvableLevel(measure.name, program, offset, level, self.left_out)
