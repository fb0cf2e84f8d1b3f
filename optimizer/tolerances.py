"""Numerical tolerances for planning, solving and verification, each for one kind of comparison.

Comparisons of latencies with targets have separate tolerances in `queueing.targets`. Constants that guard a
division or stop an iteration are defined next to their algorithm.
"""

ROUNDING = 1e-9
"""Relative difference of counts, rates, amounts and shares that counts as rounding."""
SAME = 1e-6
"""Relative and absolute difference up to which a value in a plan equals its recomputed value."""
COVER = 1e-9
"""Share of a load by which the capacity can fall short as rounding in a scaled model; twice as much in its
solution.
"""
ROW = 1e-6
"""Violation of a row (constraint) of a model that counts as rounding."""


def value_slack(value: float) -> float:
    """Return the difference [cents/h] up to which a cost counts as equal to `value` [cents/h]."""
    return max(5e-9 * abs(value), 5e-6)
