"""Numbers as sentences and tables write them: counts with their noun, quantities, shares.

The one place that decides how many digits a reader gets. Nothing here is written with a power of ten, but for
what is too small or too large for any load, latency or cost.
"""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from math import isfinite

LEAST, MOST = 1e-9, 1e15
"""Outside of these a quantity has a power of ten."""


def counted(number: float, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 card``, ``2,000 cards``.

    Args:
        number: how many.
        noun: of one.
        plural: of any other number, if it is not the noun with an s.
    """
    shown = f"{number:,}" if isinstance(number, int) else quantity(number)
    return f"{shown} {noun if number == 1 else plural or f'{noun}s'}"


def be(number: float) -> str:
    """Return the verb of a number of things."""
    return "is" if number == 1 else "are"


def quantity(value: float, digits: int = 4, *, sign: bool = False) -> str:
    """Return a number with so many significant digits, or all before the point; thousands are marked.

    Args:
        value: the number.
        digits: significant digits.
        sign: whether a number above zero gets a plus sign.
    """
    plus = "+" if sign and value > 0 else ""
    if (value and not LEAST <= abs(value) < MOST) or not isfinite(value):
        return f"{plus}{value:.{digits}g}"
    if abs(value) >= 10**digits:
        return f"{plus}{value:,.0f}"
    return f"{plus}{Decimal(f'{value:.{digits}g}') + 0:,f}"


def precise(value: float) -> str:
    """Return a number with six digits, as messages write what they compare."""
    return quantity(value, 6)


def significant(digits: int) -> Callable[[float], str]:
    """Return `quantity` with so many significant digits, as the form of a column."""
    return partial(quantity, digits=digits)


def share_text(fraction: float) -> str:
    """Return a share in whole percent; what is not nothing, or not all, does not read so."""
    if 0.99 < fraction < 1:
        return ">99%"
    return "<1%" if 0 < fraction < 0.01 else f"{fraction:.0%}"


def percent(share: float) -> str:
    """Return a share in hundredths of a percent, and one below a hundredth of a percent with two digits."""
    return f"{quantity(100 * share, 2)}%" if 0 < share < 1e-4 else f"{share:.2%}"
