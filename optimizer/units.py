"""Parses numbers with units, such as ``500ms``, ``10/s``, ``20 tokens/s`` or ``80 GiB``.

Each quantity has a standard unit, in which documents state plain numbers, and a table of other units for
numbers written as text. For prices see `optimizer.money`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from math import isfinite

SECONDS_PER_MINUTE = 60.0
MINUTES_PER_HOUR = 60.0
SECONDS_PER_HOUR = 3600.0
MAX_CHARACTERS = 60
"""Maximum length of the text of a number; longer text is rejected."""
NUMBER = r"[0-9]{1,15}(\.[0-9]{1,15})?"
"""Regular expression of the number before a unit, for the JSON schema; the parser also accepts signs and
exponents.
"""
NOT_FINITE = {f"{sign}{word}" for sign in ("", "-", "+") for word in ("nan", "inf", "infinity")}
_NUMBER_AND_UNIT = re.compile(r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*(\S.*?)\s*")
_NUMBER_ALONE = re.compile(r"\s*[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*")


class UnitError(ValueError):
    """Raised if text is not a number with a known unit; the message lists valid units."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The units of one physical quantity, such as time or memory."""

    unit: str
    """Standard unit: that of numbers without a unit."""
    factors: Mapping[str, Decimal]
    """Conversion factor to the standard unit, by the name of a unit in lower case without spaces."""
    shown: tuple[str, ...]
    """Names of common units, for messages."""

    def number(self, text: str) -> float:
        """Parse a number with a unit, and convert it to the standard unit.

        Raises:
            UnitError: the text is not a number with a known unit.
        """
        match = _NUMBER_AND_UNIT.fullmatch(text) if len(text) <= MAX_CHARACTERS else None
        factor = None if match is None else self.factors.get(_squeezed(match[2]))
        if match is None or factor is None:
            raise UnitError(f"{text[:MAX_CHARACTERS]!r}: give a number, or one with a unit: {self.examples}")
        return times(match[1], factor)

    def read(self, text: str) -> float:
        """Parse a number with or without a unit, or infinity or NaN; convert it to the standard unit.

        Raises:
            UnitError: the text is not a number, with or without a known unit.
        """
        return float(text) if is_number(text) or text.strip().lower() in NOT_FINITE else self.number(text)

    def unit_of(self, text: str) -> tuple[float, str]:
        """Return the unit of a number in text: its factor to the standard unit, and its name.

        Numbers in the same unit are written with this name directly after them. Examples are ``(0.01, "%")``
        and ``(60.0, "/s")``; text without a known unit gives ``(1.0, "")``.
        """
        match = _NUMBER_AND_UNIT.fullmatch(text)
        factor = None if match is None else self.factors.get(_squeezed(match[2]))
        if match is None or factor is None:
            return 1.0, ""
        return float(factor), match[2] if match[2][:1] in {"%", "/"} else f" {match[2]}"

    @property
    def examples(self) -> str:
        """Common units as a list for messages: ``ms, s or min``."""
        return f"{', '.join(self.shown[:-1])} or {self.shown[-1]}" if len(self.shown) > 1 else self.shown[0]

    @property
    def pattern(self) -> str:
        """Regular expression of common formats, for the JSON schema."""
        return f"^{NUMBER} ?({'|'.join(self.shown)})$"


def is_number(text: str) -> bool:
    """Return whether a text is a number without a unit."""
    return _NUMBER_ALONE.fullmatch(text) is not None


def time_s(text: str) -> float:
    """Parse a time [s]: a number of seconds, or a date with a time (UTC by default) as seconds since 1970.

    Raises:
        UnitError: the text is neither, or not finite.
    """
    try:
        value = float(text)
    except ValueError:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            wanted = "neither a date with a time nor a number of seconds"
            raise UnitError(f"{text[:MAX_CHARACTERS]!r} is {wanted}") from None
        value = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    if not isfinite(value):
        raise UnitError(f"{text[:MAX_CHARACTERS]!r} is not finite")
    return value


def times(number: str, factor: Decimal) -> float:
    """Multiply a number given as text by a factor; the result is rounded only once.

    Raises:
        UnitError: the exponent is too large.
    """
    try:
        return float(Decimal(number) * factor)
    except (InvalidOperation, OverflowError, ArithmeticError):
        raise UnitError(f"{number!r}: the number is too large") from None


def _squeezed(unit: str) -> str:
    return "".join(unit.lower().split())


def _decimal(value: str) -> Decimal:
    top, _, bottom = value.partition("/")
    return Decimal(top) / Decimal(bottom or 1)


def _scale(unit: str, shown: str, factors: Mapping[str, str]) -> Scale:
    """Build a scale; keys of `factors` contain the names of one unit, separated by spaces."""
    table = {name: _decimal(value) for names, value in factors.items() for name in names.split()}
    return Scale(unit, table, tuple(shown.split()))


def _per(things: str, second: str, unit: str, shown: str, **short: str) -> Scale:
    """Build the scale of a rate, such as requests per time.

    Args:
        things: names of the counted thing, separated by spaces; ``-`` allows a rate without a name, such as
            ``10/s``.
        second: value of one per second in the standard unit.
        unit: standard unit.
        shown: common units, separated by spaces.
        short: factors of abbreviations, such as ``rps``.
    """
    spans = {"s sec second": "1", "min minute": "1/60", "h hr hour": "1/3600"}
    table = {
        f"{thing.strip('-')}/{span}": _decimal(second) * _decimal(share)
        for thing in things.split()
        for names, share in spans.items()
        for span in names.split()
    }
    return Scale(unit, {**table, **_scale(unit, shown, short).factors}, tuple(shown.split()))


_MS = {"us µs μs": "0.001", "ms": "1", "s sec": "1000", "min": "60000"}
_REQUESTS = "- req request requests"
MILLISECONDS = _scale("ms", "ms s us min", _MS)
MILLISECONDS_PER_TOKEN, MILLISECONDS_PER_REQUEST = (
    _scale(
        f"ms/{thing}",
        f"ms us ms/{thing} us/{thing}",
        _MS | {f"{name}/{thing}": value for names, value in _MS.items() for name in names.split()},
    )
    for thing in ("token", "request")
)
SECONDS = _scale("s", "s ms min h", {"ms": "0.001", "s sec": "1", "min": "60", "h": "3600"})
REQUESTS_PER_MINUTE = _per(_REQUESTS, "60", "requests/min", "/s /min rps rpm", rps="60", rpm="1", rph="1/60")
REQUESTS_PER_SECOND = _per(_REQUESTS, "1", "requests/s", "/s /min rps rpm", rps="1", rpm="1/60", rph="1/3600")
TOKENS_PER_SECOND = _per("token tokens tok", "1", "tokens/s", "tokens/s tokens/min tps", tps="1", tpm="1/60")
TOKENS = _scale("tokens", "tokens", {"token tokens tok": "1"})
_GB = {"mb": "0.001", "gb": "1", "tb": "1000", "mib": "0.001048576", "gib": "1.073741824"}
_GB |= {"tib": "1099.511627776"}
GIGABYTES = _scale("GB", "GB GiB TB", _GB)
GIGABYTES_PER_SECOND = _scale("GB/s", "GB/s TB/s", {f"{name}/s": value for name, value in _GB.items()})
WATTS = _scale("W", "W kW", {"w": "1", "kw": "1000"})
SHARE = _scale("1", "%", {"%": "0.01"})
PERCENTILE = _scale("%", "%", {"%": "1"})
