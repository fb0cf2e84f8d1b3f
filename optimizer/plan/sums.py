"""Sums and differences of costs and rates as decimal numbers.

A price such as 120.84 has no exact binary form, so two sums of equal costs can differ in their last digit.
Therefore each number is converted to a decimal of 15 digits, and the result is rounded once.
"""

from collections.abc import Iterable
from fractions import Fraction


def total(values: Iterable[float]) -> float:
    """Return the sum of values in decimal arithmetic, rounded once."""
    return float(sum(map(_decimal, values), Fraction(0)))


def less(second: float, first: float) -> float:
    """Return `second` minus `first` in decimal arithmetic, exactly 0 if they are equal."""
    return float(_decimal(second) - _decimal(first))


def _decimal(value: float) -> Fraction:
    """Return a value rounded to 15 significant decimal digits, as an exact fraction."""
    return Fraction(f"{value:.15g}")
