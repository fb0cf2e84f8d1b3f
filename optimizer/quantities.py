"""Formats of numbers in sentences and tables: counts with nouns, quantities and shares.

Only this module determines the number of displayed digits. Exponents are used only for values that are too
small or too large for any load, latency or cost.
"""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from math import floor, isfinite, log10

MIN_PLAIN, MAX_PLAIN = 1e-9, 1e15
"""Quantities outside these bounds are written with an exponent."""


def counted(number: float, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 card``, ``2,000 cards``.

    Args:
        noun: singular.
        plural: plural, if it is not the noun plus "s".
    """
    shown = f"{number:,}" if isinstance(number, int) else quantity(number)
    return f"{shown} {noun if number == 1 else plural or f'{noun}s'}"


def counted_of(number: int, total: int, noun: str) -> str:
    """Return a part of a whole with its noun: ``5 of 10 servers``; ``all 10 servers``, ``1 server``."""
    if number != total:
        return f"{number:,} of {counted(total, noun)}"
    return f"{'all ' if total > 1 else ''}{counted(total, noun)}"


def be(number: float) -> str:
    """Return "is" for 1 and "are" for any other number."""
    return "is" if number == 1 else "are"


def quantity(value: float, digits: int = 4, *, sign: bool = False) -> str:
    """Format a number with `digits` significant digits, but all integer digits, and thousands separators.

    Args:
        value: the number.
        digits: significant digits.
        sign: whether positive numbers get a plus sign.
    """
    plus = "+" if sign and value > 0 else ""
    if (value and not MIN_PLAIN <= abs(value) < MAX_PLAIN) or not isfinite(value):
        return f"{plus}{value:.{digits}g}"
    if abs(value) >= 10**digits:
        return f"{plus}{value:,.0f}"
    return f"{plus}{Decimal(f'{value:.{digits}g}') + 0:,f}"


def parts_text(part: float, total: float, digits: int = 4) -> tuple[str, str, str]:
    """Return a part, the rest, and their sum as text, so that the texts add up: 206.8, 42.0 and 248.8.

    All have the same decimals, but a part or a rest that is not 0 and would read as 0 has two digits.

    Args:
        part: the part, at most `total`.
        total: the sum.
        digits: significant digits of the sum.
    """
    decimals = max(digits - 1 - floor(log10(total)), 0) if total > 0 else 0
    part_shown, total_shown = round(part, decimals), round(total, decimals)
    while decimals and all(value == round(value, decimals - 1) for value in (part_shown, total_shown)):
        decimals -= 1
    rest, rest_shown = total - part, round(total_shown - part_shown, decimals)
    first, second = (
        f"{shown:,.{decimals}f}" if shown else quantity(value, 2) if value > MIN_PLAIN * total else "0"
        for value, shown in ((part, part_shown), (rest, rest_shown))
    )
    return first, second, f"{total_shown:,.{decimals}f}"


def requests_text(part: str, load: str) -> str:
    """Return a part of a load with its unit: ``206.8 of 248.8 requests/s``."""
    return f"{part} of {load} {'request' if load == '1' else 'requests'}/s"


def precise(value: float) -> str:
    """Format a number with six significant digits, for comparisons in messages."""
    return quantity(value, 6)


def significant(digits: int) -> Callable[[float], str]:
    """Return a function that formats numbers with the given significant digits, for table columns."""
    return partial(quantity, digits=digits)


def share_text(fraction: float) -> str:
    """Format a share from 0 to 1 in integer percent; only 0 becomes 0% and only 1 becomes 100%."""
    if 0.99 < fraction < 1:
        return ">99%"
    return "<1%" if 0 < fraction < 0.01 else f"{fraction:.0%}"


def percent(share: float) -> str:
    """Format a share from 0 to 1 in percent with two decimals; below 0.01 % with two significant digits."""
    return f"{quantity(100 * share, 2)}%" if 0 < share < 1e-4 else f"{share:.2%}"
