"""Tolerances of everything above the queue models, each for one question.

Targets have their own in `queueing.targets`. Constants of algorithms that guard a division or stop an
iteration are named where they are used.
"""

ROUNDING = 1e-9
"""Relative difference of counts, rates, amounts and shares that counts as rounding."""
SAME = 1e-6
"""Relative and absolute difference up to which a stated value is the recomputed one."""
