"""Prices with currencies, and the unit of displayed costs.

Documents state costs in cents/h, where a cent is a hundredth of the currency, whichever it is. A price
written with a currency (``$2.50/h``, ``2.50 EUR/h``) is converted to that number and keeps the currency.
Costs are displayed in the currency of the system's prices, if they have one.
"""

import re
from decimal import Decimal
from typing import Any, Self, TypeVar

from optimizer.arrays import FloatArray
from optimizer.quantities import precise
from optimizer.units import MAX_CHARACTERS, UnitError, times

_Cost = TypeVar("_Cost", float, FloatArray)
CENTS = "cents/h"
"""Unit of costs without a currency."""
_SYMBOLS = {"$": "USD", "us$": "USD", "€": "EUR", "£": "GBP", "₹": "INR", "₩": "KRW", "₺": "TRY", "zł": "PLN"}
_AMBIGUOUS = {"¥": "JPY or CNY", "kr": "SEK, NOK or DKK"}
_CODES = frozenset(
    re.findall(
        r"\w+",
        "AED ARS AUD BDT BGN BHD BRL CAD CHF CLP CNY COP CRC CZK DKK DZD EGP ETB EUR GBP GEL GHS GTQ HKD HUF "
        "IDR ILS INR ISK JOD JPY KES KRW KWD KZT LBP LKR MAD MXN MYR NGN NOK NZD OMR PEN PHP PKR PLN PYG QAR "
        "RON RSD RUB SAR SEK SGD THB TND TRY TWD TZS UAH UGX USD UYU UZS VND ZAR ZMW",
    )
)
"""Supported ISO 4217 currency codes."""
_HOURS = {"s": Decimal(3600), "sec": Decimal(3600), "min": Decimal(60)}
_HOURS |= dict.fromkeys(("h", "hr", "hour"), Decimal(1))
_HOURS |= {"d": 1 / Decimal(24), "day": 1 / Decimal(24)}
_HOURS |= {"month": 1 / Decimal(730), "year": 1 / Decimal(8760)}
"""Factors from a price per time span to a price per hour; a month is a twelfth of a year, as in cloud
prices."""
_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_NAMED = r"[^\d\s.,/+-]*"
_PRICE = re.compile(rf"({_NAMED})\s*([-+]?{_NUMBER})\s*({_NAMED})\s*(?:/\s*([a-z]+))?", re.IGNORECASE)
PRICE_PATTERN = r"^([0-9]{1,10}(\.[0-9]{1,6})? ?(USD|EUR|GBP|CHF|cents)/h|[$€£][0-9]{1,10}(\.[0-9]{1,6})?/h)$"
"""Regular expression of common price formats, for the JSON schema."""
_CENT = -2
"""Decimal exponent of the last digit that every written price has: two decimals."""
EXAMPLES = "$2.50/h, 2.50 EUR/h or 250 cents/h"
NAMED_EXAMPLES = "$2.50/h or 2.50 EUR/h"
"""Prices with a currency, for messages."""


class Price(float):
    """A price [cents/h] that was written with its currency."""

    __slots__ = ("currency",)
    currency: str
    """ISO 4217 currency code."""

    def __new__(cls, cents_per_h: float, currency: str) -> Self:
        """Create a price from a number [cents/h] and a currency code."""
        made = super().__new__(cls, cents_per_h)
        made.currency = currency
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the currency in copies and pickles."""
        return Price, (float(self), self.currency)

    def __str__(self) -> str:
        """Format the price as documents write it: ``2.50 EUR/h``."""
        amount = Decimal(repr(float(self))) / 100
        exponent = amount.as_tuple().exponent
        if isinstance(exponent, int) and exponent > _CENT:
            amount = amount.quantize(Decimal(1).scaleb(_CENT))
        return f"{amount:f} {self.currency}/h"


def read_price(text: str) -> float:
    """Parse a price [cents/h]: a `Price` if it has a currency, otherwise a plain number.

    Raises:
        UnitError: the text is not a price, or its currency or time span is missing or unknown.
    """
    match = _PRICE.fullmatch(text.strip()) if len(text) <= MAX_CHARACTERS else None
    if match is None:
        raise UnitError(f"{text[:MAX_CHARACTERS]!r}: give a number in cents/h, or a price such as {EXAMPLES}")
    before, number, after, span = match.groups()
    if before and after:
        raise UnitError(f"{text!r}: names two currencies; write {EXAMPLES}")
    if span is None:
        raise UnitError(f"{text!r}: the time is missing; write {EXAMPLES}")
    if span.lower() not in _HOURS:
        raise UnitError(f"{text!r}: the time {span!r} is not known; write {EXAMPLES}")
    factor, named = _HOURS[span.lower()], before or after
    if named.lower() in {"cents", "cent", "ct"}:
        return times(number, factor)
    return Price(times(number, 100 * factor), currency_named(named, text))


def currency_named(name: str, text: str = "") -> str:
    """Return the ISO 4217 code of a currency, given by code or symbol.

    Args:
        name: code or symbol.
        text: the price that contained the name, for messages.

    Raises:
        UnitError: the currency is unknown or ambiguous.
    """
    code = _SYMBOLS.get(name.lower()) or name.upper()
    if code in _CODES:
        return code
    where = text or name
    if name.lower() in _AMBIGUOUS:
        raise UnitError(f"{where!r}: {name} can be {_AMBIGUOUS[name.lower()]}; write the code")
    what = f"currency {name!r} is not known" if name else "the currency is missing"
    raise UnitError(f"{where!r}: {what}; write a code such as USD or EUR, or $, €, £, or cents")


def currency_of(cost: float) -> str | None:
    """Return the code of the currency in which a cost was written; None for a plain number."""
    return cost.currency if isinstance(cost, Price) else None


def cost_amount(cents_per_h: float, currency: str | None) -> str:
    """Format a cost in units of the displayed currency (cents/h without one), omitting the unit."""
    return f"{in_cost_unit(cents_per_h, currency):,.2f}"


def cost_text(cents_per_h: float, currency: str | None) -> str:
    """Format a cost with its unit: ``90 cents/h``, ``0.90 USD/h``."""
    amount = precise(cents_per_h) if currency is None else cost_amount(cents_per_h, currency)
    return f"{amount} {cost_unit(currency)}"


def cost_unit(currency: str | None) -> str:
    """Return the unit in which costs are displayed: ``USD/h`` for USD, ``cents/h`` for None."""
    return CENTS if currency is None else f"{currency}/h"


def in_cost_unit(cents_per_h: _Cost, currency: str | None) -> _Cost:
    """Convert a cost, or an array of costs, from cents/h to the displayed unit (see `cost_unit`)."""
    return cents_per_h if currency is None else cents_per_h / 100
