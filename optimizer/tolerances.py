"""Tolerances of everything above the queue models, each for one question.

Targets have their own in `queueing.targets`. Constants of algorithms that guard a division or stop an
iteration are named where they are used.
"""

ROUNDING = 1e-9
"""Relative difference of counts, rates, amounts and shares that counts as rounding."""
SAME = 1e-6
"""Relative and absolute difference up to which a stated value is the recomputed one."""
COVER = 1e-9
"""Missing capacity for a load that counts as rounding in a model with scaled rows; twice that after it."""
ROW = 1e-6
"""Violation of a model's row that counts as rounding."""


def value_slack(value: float) -> float:
    """Return the difference up to which two values count as equal [cents/h]."""
    return max(5e-9 * abs(value), 5e-6)
