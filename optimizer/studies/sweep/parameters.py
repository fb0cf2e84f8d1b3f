"""Parameters that a sweep varies: changes of a system whose values are numbers.

A variation is written ``NAME=VALUES`` or ``NAME:ITEM=VALUES``. Values are a list (``1,2,4``) or a range
(``0.5..3``), optionally with a number of points (``0.5..3/64``).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.errors import SpecError
from optimizer.schema.messages import known_name
from optimizer.spec.changes import QUANTITIES, Changeable, SystemChange
from optimizer.spec.system import System
from optimizer.units import UnitError

POINTS, POINTS_OF_A_MAP = 21, 9
"""Default number of points of a range: for a single parameter, and for several parameters."""
MAX_POINTS = 10_000
"""Maximum number of combinations of values in a sweep."""
_FORM = re.compile(r"\s*(\w+)\s*(?::(.*?))?\s*=\s*([^=]+?)\s*")
_RANGE = re.compile(r"(.+?)\s*\.\.\s*(.+?)(?:\s*/\s*(\d+))?")
_EXAMPLE = "write load=0.5..3, load=0.5..3/64, count:H100=0..64 or cost:A100=100,200,400"


@dataclass(frozen=True, slots=True)
class Variation:
    """A parameter of a sweep with its values."""

    name: str
    """Name of the parameter as given, such as ``count:H100``."""
    change: SystemChange
    """Change of the system to which the values belong."""
    unit: str
    whole: bool
    values: tuple[float, ...]
    """Values of the grid, or the two ends of a range of integers."""
    every: bool = False
    """Whether all integers between the two values are covered."""

    def applied_to(self, system: System, value: float) -> System:
        """Return a copy of a system with one value of the parameter.

        Raises:
            SpecError: the value is out of range.
        """
        return self.change._replace(value=value).applied_to(system)


def read_variations(system: System, texts: Sequence[str]) -> tuple[Variation, ...]:
    """Parse variations from texts such as ``load=1,2``.

    Raises:
        SpecError: a text has another form, names a parameter or an item that does not exist, or occurs twice.
    """
    read = tuple(_variation(system, text, alone=len(texts) == 1) for text in texts)
    names = [item.name for item in read]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SpecError(f"vary {twice}: given twice; remove one")
    total = int(np.prod([len(item.values) for item in read], dtype=np.float64))
    if total > MAX_POINTS:
        raise SpecError(f"vary: {total:,} combinations of values, at most {MAX_POINTS:,}; give fewer values")
    return read


def _variation(system: System, text: str, *, alone: bool) -> Variation:
    match = _FORM.fullmatch(text)
    if match is None:
        raise SpecError(f"vary {text!r}: not a variation; {_EXAMPLE}")
    parameter, item, values = match[1], match[2] or "", match[3]
    known_name(parameter, QUANTITIES, "parameter")
    name, change = f"{parameter}:{item}" if item else parameter, SystemChange(parameter, item)
    try:
        known = change.entry(system)
        numbers, every = _values(system, known, values, alone=alone)
    except UnitError:
        raise SpecError(f"vary {name}: {values!r} is not a list or range of numbers; {_EXAMPLE}") from None
    except SpecError as error:
        raise SpecError(f"vary {name}: {error}") from None
    return Variation(name, change, known.unit, known.whole, numbers, every)


def _values(system: System, known: Changeable, text: str, *, alone: bool) -> tuple[tuple[float, ...], bool]:
    """Parse the values of a variation, and return whether they are the ends of a range of integers."""
    match = _RANGE.fullmatch(text)
    if match is None:
        return tuple(sorted({known.read(system, part) for part in text.split(",")})), False
    first, last = (known.read(system, part) for part in match.groups()[:2])
    if first >= last:
        raise SpecError(f"{text} is empty; the first number must be below the last")
    if known.monotone and known.whole and alone and match[3] is None:
        return (first, last), True
    points = int(match[3] or (POINTS if alone else POINTS_OF_A_MAP))
    if points < 2:
        raise SpecError(f"a range has at least 2 points, not {points}")
    if points > MAX_POINTS:
        raise SpecError(f"{points:,} points, at most {MAX_POINTS:,}")
    grid = np.linspace(first, last, points)
    rounded = np.unique(np.round(grid)) if known.whole else (float(f"{x:.12g}") for x in grid)
    return tuple(map(float, rounded)), False
