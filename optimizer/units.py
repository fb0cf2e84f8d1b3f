"""Numbers with units, for example ``500ms``, ``10/s``, ``20 tokens/s`` or ``80 GiB``.

Each quantity has a standard unit in documents and a table of other units, which can follow a number in text.
Plain numbers are in the standard unit and are not handled here; for prices see `optimizer.money`.
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
"""Maximum length of text that is read."""
NUMBER = r"[0-9]{1,15}(\.[0-9]{1,15})?"
"""Regular expression of a number before a unit in the JSON schema; signs and exponents are also
understood."""
NOT_FINITE = {f"{sign}{word}" for sign in ("", "-", "+") for word in ("nan", "inf", "infinity")}
_NUMBER_AND_UNIT = re.compile(r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*(\S.*?)\s*")
_NUMBER_ALONE = re.compile(r"\s*[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*")


class UnitError(ValueError):
    """Raised for text that is not a number with a known unit; the message lists valid units."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Units of one quantity."""

    unit: str
    """Unit of plain numbers."""
    factors: Mapping[str, Decimal]
    """Factor from each unit to that unit, by its name in lower case without spaces."""
    shown: tuple[str, ...]
    """Common units, for messages."""

    def number(self, text: str) -> float:
        """Read a number with a unit, in the scale's own unit.

        Raises:
            UnitError: the text is not a number with a known unit.
        """
        found = _NUMBER_AND_UNIT.fullmatch(text) if len(text) <= MAX_CHARACTERS else None
        factor = None if found is None else self.factors.get(_squeezed(found[2]))
        if found is None or factor is None:
            raise UnitError(f"{text[:MAX_CHARACTERS]!r}: give a number, or one with a unit: {self.examples}")
        return times(found[1], factor)

    def read(self, text: str) -> float:
        """Read a number with or without a unit; it can be infinite.

        Raises:
            UnitError: the text is not a number, with or without a known unit.
        """
        return float(text) if is_number(text) or text.strip().lower() in NOT_FINITE else self.number(text)

    def unit_of(self, text: str) -> tuple[float, str]:
        """Return the unit of text for other numbers: its factor, and the unit as it follows a number.

        For example ``(0.01, "%")``, ``(60.0, "/s")``; ``(1.0, "")`` for text without a known unit.
        """
        found = _NUMBER_AND_UNIT.fullmatch(text)
        factor = None if found is None else self.factors.get(_squeezed(found[2]))
        if found is None or factor is None:
            return 1.0, ""
        return float(factor), found[2] if found[2][:1] in {"%", "/"} else f" {found[2]}"

    @property
    def examples(self) -> str:
        """Common units in the form of messages."""
        return f"{', '.join(self.shown[:-1])} or {self.shown[-1]}" if len(self.shown) > 1 else self.shown[0]

    @property
    def pattern(self) -> str:
        """Regular expression of common formats, for the JSON schema."""
        return f"^{NUMBER} ?({'|'.join(self.shown)})$"


def is_number(text: str) -> bool:
    """Return whether text is a number without a unit."""
    return _NUMBER_ALONE.fullmatch(text) is not None


def time_s(text: str) -> float:
    """Read a time in seconds from a number of seconds, or a date with a time (UTC by default).

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
    """Multiply a number in text by a factor, rounding once.

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
    """Build a scale; names of the same unit are separated by spaces."""
    table = {name: _decimal(value) for names, value in factors.items() for name in names.split()}
    return Scale(unit, table, tuple(shown.split()))


def _per(things: str, second: str, unit: str, shown: str) -> Scale:
    """Build the scale of a rate.

    Args:
        things: names of the counted thing, separated by spaces; ``-`` for none.
        second: one per second in the scale's unit.
        unit: unit of plain numbers.
        shown: common units, separated by spaces.
    """
    names = things.split()
    spans = {"s sec second": "1", "min minute": "1/60", "h hr hour": "1/3600"}
    return Scale(
        unit,
        {
            f"{thing if thing != '-' else ''}/{span}": _decimal(second) * _decimal(share)
            for thing in names
            for spelled, share in spans.items()
            for span in spelled.split()
        },
        tuple(shown.split()),
    )


def _joined(scale: Scale, factors: Mapping[str, str]) -> Scale:
    added = {name: _decimal(value) for name, value in factors.items()}
    return Scale(scale.unit, {**scale.factors, **added}, scale.shown)


_MS = {"us µs μs": "0.001", "ms": "1", "s sec": "1000", "min": "60000"}
_REQUESTS = "- req request requests"
MILLISECONDS = _scale("ms", "ms s us min", _MS)
MILLISECONDS_PER_TOKEN, MILLISECONDS_PER_REQUEST = (
    _joined(
        _scale(f"ms/{thing}", f"ms us ms/{thing} us/{thing}", _MS),
        {f"{name}/{thing}": value for names, value in _MS.items() for name in names.split()},
    )
    for thing in ("token", "request")
)
SECONDS = _scale("s", "s ms min h", {"ms": "0.001", "s sec": "1", "min": "60", "h": "3600"})
REQUESTS_PER_MINUTE = _joined(
    _per(_REQUESTS, "60", "requests/min", "/s /min rps rpm"), {"rps": "60", "rpm": "1", "rph": "1/60"}
)
REQUESTS_PER_SECOND = _joined(
    _per(_REQUESTS, "1", "requests/s", "/s /min rps rpm"), {"rps": "1", "rpm": "1/60", "rph": "1/3600"}
)
TOKENS_PER_SECOND = _joined(
    _per("token tokens tok", "1", "tokens/s", "tokens/s tokens/min tps"), {"tps": "1", "tpm": "1/60"}
)
TOKENS = _scale("tokens", "tokens", {"token tokens tok": "1"})
_GB = {"mb": "0.001", "gb": "1", "tb": "1000", "mib": "0.001048576", "gib": "1.073741824"}
_GB |= {"tib": "1099.511627776"}
GIGABYTES = _scale("GB", "GB GiB TB", _GB)
GIGABYTES_PER_SECOND = _scale("GB/s", "GB/s TB/s", {f"{name}/s": value for name, value in _GB.items()})
WATTS = _scale("W", "W kW", {"w": "1", "kw": "1000"})
SHARE = _scale("1", "%", {"%": "0.01"})
