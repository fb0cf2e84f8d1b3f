"""Interval of an effect whose plans are not proved optimal: the range of the first unproved level.

Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Set as AbstractSet
from typing import Literal

from optimizer.solvers.objectives import CHANGES, unit_of_level
from optimizer.solvers.solution import SolvedLevel
from optimizer.studies.explanation.explanation_document import EffectRange
from optimizer.studies.explanation.outcome import PlanOutcome
from optimizer.tolerances import ROUNDING

Direction = Literal["worse", "better"]
"""Direction in which a change can move the optimum, compared in the order of all levels."""


def interval_of(
    before: PlanOutcome,
    after: PlanOutcome,
    may_be: Direction | None = None,
    ordered: AbstractSet[str] = frozenset(),
) -> EffectRange | None:
    """Return the interval of the change of the first unproved level (eq. 125).

    Args:
        after: the plan after a change.
        may_be: direction in which the change can move the optimum; None if either.
        ordered: the levels to which the direction applies.

    Returns:
        The interval; None if every level that the change can affect is proved in both plans.
    """
    same = True
    for was, now in zip(before.levels, after.levels, strict=True):
        if was.name == CHANGES:
            break
        low, high = _bound(now) - was.value, now.value - _bound(was)
        same &= was.name in ordered
        if same and may_be == "worse":
            low, high = max(low, 0.0), max(high, 0.0)
        if same and may_be == "better":
            low, high = min(low, 0.0), min(high, 0.0)
        rounding = ROUNDING * max(1.0, abs(was.value), abs(now.value))
        change = now.value - was.value
        if high - low > rounding or not low - rounding <= change <= high + rounding:
            return EffectRange(
                level=was.name,
                unit=unit_of_level(was.name),
                low=round(low, 9) + 0.0,
                high=round(high, 9) + 0.0,
            )
        same &= abs(high) <= rounding
    return None


def _bound(level: SolvedLevel) -> float:
    """Return the lower bound of a level: the proved bound, or else 0, but at most its value."""
    return min(level.bound if level.bound is not None else 0.0, level.value)
