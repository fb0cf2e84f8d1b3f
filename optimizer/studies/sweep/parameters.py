"""Parameters that a sweep can vary: a table of functions that apply a value to a system, by name.

A variation is text, ``NAME=VALUES`` or ``NAME:ITEM=VALUES``. Values are a list (``1,2,4``) or a range
(``0.5..3``), optionally with a number of points (``0.5..3/64``).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from optimizer.errors import SpecError
from optimizer.features.routes.streams import route_of
from optimizer.limits.table import LIMITS
from optimizer.money import CENTS, cost_unit, currency_of, read_price
from optimizer.schema import Accelerator, OptimizerOptions
from optimizer.schema.messages import known_name, validated
from optimizer.spec.system import System, with_changed_route
from optimizer.studies.load_changes import scale_loads
from optimizer.units import SHARE, WATTS, Scale, UnitError, is_number

POINTS, POINTS_OF_A_MAP = 21, 9
"""Default number of points of a range, alone and with other parameters."""
MAX_POINTS = 10_000
"""Maximum number of combinations of values in a sweep."""
_FORM = re.compile(r"\s*(\w+)\s*(?::(.*?))?\s*=\s*([^=]+?)\s*")
_RANGE = re.compile(r"(.+?)\s*\.\.\s*(.+?)(?:\s*/\s*(\d+))?")
_EXAMPLE = "write load=0.5..3, load=0.5..3/64, count:H100=0..64 or cost:A100=100,200,400"


class SweepParameter(NamedTuple):
    """A parameter that can be varied."""

    unit: str
    """Unit of its values; empty for factors and shares."""
    apply: Callable[[System, str, float], System]
    """Function that returns a system with a value for an item."""
    items: Callable[[System], Sequence[str]]
    """Function that returns the available items, such as accelerator types."""
    whole: bool = False
    """Whether values are integers of which a larger one never makes a plan worse."""
    needs_item: bool = False
    """Whether an item must be named."""


def _with_load(system: System, name: str, factor: float) -> System:
    if not name:
        return scale_loads(system, factor)
    if name in system.routes:
        return _with_route(system, name, arrival_rate_rpm=system.routes[name].arrival_rate_rpm * factor)
    rate = system.named[name].current.load.arrival_rate_rpm
    return system.with_load(name, arrival_rate_rpm=rate * factor)


def _loaded_items(system: System) -> list[str]:
    """Return the names of servers and routes that own a load."""
    routes = system.routes.values()
    return [*system.routes, *(name for name in system.named if route_of(routes, name) is None)]


def _with_cost(system: System, name: str, cost: float) -> System:
    values = system.accelerators[name].model_dump() | {"cost_cents_per_h": cost}
    changed = validated(Accelerator, values, f"accelerators.{name}.")
    return replace(system, accelerators=MappingProxyType({**system.accelerators, name: changed}))


def _with_route(system: System, name: str, **changes: float) -> System:
    return system.with_routes({name: with_changed_route(system.routes[name], **changes)})


PARAMETERS: Mapping[str, SweepParameter] = MappingProxyType(
    {
        "load": SweepParameter("", _with_load, _loaded_items),
        "count": SweepParameter(
            "cards",
            lambda system, kind, units: system.with_capacity({kind: int(units)}),
            lambda system: sorted({item.type for item in system.accelerators.values()}),
            whole=True,
            needs_item=True,
        ),
        "cost": SweepParameter(CENTS, _with_cost, lambda system: list(system.accelerators), needs_item=True),
        "maxLoss": SweepParameter(
            "",
            lambda system, route, share: _with_route(system, route, max_loss=share),
            lambda system: list(system.routes),
            needs_item=True,
        ),
    }
)
"""Parameters of a system; numeric optimizer options are also parameters."""
_READERS: Mapping[str, Scale] = {WATTS.unit: WATTS}
"""Units of values on the command line, by the unit of the parameter; for all others %."""
_OPTION_UNITS = {limit.option: limit.unit for limit in LIMITS if limit.option}
_SOLVER_OPTIONS = frozenset({"gap", "timeLimit"})
"""Numeric options about solving, which do not change the system."""


@dataclass(frozen=True, slots=True)
class Variation:
    """A parameter with its values."""

    name: str
    """Name as given: ``count:H100``."""
    parameter: str
    item: str
    unit: str
    whole: bool
    values: tuple[float, ...]
    """Values of the grid, or the ends of a range of integers."""
    every: bool = False
    """Whether all integers between the two values are covered."""

    def applied_to(self, system: System, value: float) -> System:
        """Return a system with a value of the parameter.

        Raises:
            SpecError: the value is out of range.
        """
        known = PARAMETERS.get(self.parameter)
        if known is None:
            return system.with_options(**{_options()[self.parameter]: value})
        return known.apply(system, self.item, value)


def read_variations(system: System, texts: Sequence[str]) -> tuple[Variation, ...]:
    """Parse the variations from texts.

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
    found = _FORM.fullmatch(text)
    if found is None:
        raise SpecError(f"vary {text!r}: no variation; {_EXAMPLE}")
    parameter, item, values = found[1], found[2] or "", found[3]
    known = PARAMETERS.get(parameter)
    if known is None:
        known_name(parameter, dict.fromkeys([*PARAMETERS, *_options()]), "parameter")
        known = SweepParameter(_OPTION_UNITS.get(parameter, ""), _with_load, lambda _: ())
    if item:
        known_name(item, known.items(system), f"item of {parameter}")
    elif known.needs_item:
        raise SpecError(f"vary {parameter}: name an item, {parameter}:{known.items(system)[0]}")
    name = f"{parameter}:{item}" if item else parameter
    read = partial(_cost, name, system) if known.unit == CENTS else _READERS.get(known.unit, SHARE).read
    numbers, every = _values(name, values, read, whole=known.whole, alone=alone)
    return Variation(name, parameter, item, known.unit, known.whole, numbers, every)


def _options() -> dict[str, str]:
    """Return the Python names of the numeric options of the optimizer by their names in documents."""
    found = {}
    for name, field in OptimizerOptions.model_fields.items():
        types = {field.annotation, *getattr(field.annotation, "__args__", ())}
        wire = field.alias or name
        if wire not in _SOLVER_OPTIONS and any(_is_number(each) for each in types):
            found[wire] = name
    return found


def _is_number(annotation: object) -> bool:
    bare = getattr(annotation, "__origin__", annotation)
    return bare is float or bare is int


def _cost(name: str, system: System, text: str) -> float:
    """Read a cost [cents/h], with or without the currency of the system.

    Raises:
        UnitError: it is not a cost.
        SpecError: it is in another currency.
    """
    if is_number(text):
        return float(text)
    cost = read_price(text)
    if currency_of(cost) not in {None, system.currency}:
        usual = cost_unit(system.currency)
        raise SpecError(f"vary {name}: {text.strip()!r}: the system's prices are in {usual}; give it in that")
    return float(cost)


def _values(
    name: str, text: str, read: Callable[[str], float], *, whole: bool, alone: bool
) -> tuple[tuple[float, ...], bool]:
    """Return the values of a variation, and whether they are the ends of a range of integers."""
    found = _RANGE.fullmatch(text)
    try:
        values = sorted({read(part) for part in text.split(",")}) if found is None else []
        first, last = (0.0, 0.0) if found is None else (read(found[1]), read(found[2]))
    except UnitError:
        raise SpecError(f"vary {name}: {text!r} is not a list or range of numbers; {_EXAMPLE}") from None
    if found is None:
        return _checked(name, values, whole=whole), False
    _checked(name, (first, last), whole=whole)
    if first >= last:
        raise SpecError(f"vary {name}: {text} is empty; the first number must be below the last")
    if whole and alone and found[3] is None:
        return _checked(name, [first, last], whole=True), True
    points = int(found[3] or (POINTS if alone else POINTS_OF_A_MAP))
    if points < 2:
        raise SpecError(f"vary {name}: a range has at least 2 points, not {points}")
    if points > MAX_POINTS:
        raise SpecError(f"vary {name}: {points:,} points, at most {MAX_POINTS:,}")
    grid = np.linspace(first, last, points)
    rounded = np.unique(np.round(grid)) if whole else np.array([float(f"{x:.12g}") for x in grid])
    return _checked(name, rounded.tolist(), whole=whole), False


def _checked(name: str, values: Sequence[float], *, whole: bool) -> tuple[float, ...]:
    for value in values:
        if not np.isfinite(value):
            raise SpecError(f"vary {name}: {value} is not a finite number")
        if whole and not value.is_integer():
            raise SpecError(f"vary {name}: {value:g} is not an integer")
    return tuple(values)
