"""A visitor's changes to a document: as a query string, applied to the document, and undone.

A change has a key: ``load`` and ``targets`` are factors for all servers, ``load:SERVER`` for one,
``count:TYPE`` is a number of cards, ``card:TYPE`` the price of one, ``cost:ACCELERATOR`` that of a slice,
``headroom`` [%] and ``spares`` are reserves of all servers, ``ttft:CLASS/MODEL`` is a target [ms], and the
others are options. All functions are pure.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from pydantic import BaseModel, ConfigDict

from optimizer.errors import SpecError
from optimizer.money import read_price
from optimizer.units import REQUESTS_PER_MINUTE, UnitError

LATENCIES = ("ttft", "itl", "e2e")
MAX_CHANGES = 1_000
MAX_STEPS = 200
"""Maximum number of steps that can be undone."""
OPTIONS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "policy": (
        "saturationPolicy",
        {name: name for name in ("None", "PriorityExhaustive", "PriorityRoundRobin", "RoundRobin")},
    ),
    "mixed": ("heterogeneous", {"yes": True, "no": False}),
    "batches": ("batchSizing", {"profile": "profile", "optimal": "optimal"}),
    "cards": ("unlimited", {"limited": False, "unlimited": True}),
    "estimates": ("estimates", {"slow end": "upper", "middle": "middle", "fast end": "lower"}),
}
"""Options by key: the document field, and its values by their display text."""
SOURCE = "open"
"""Query parameter that names the document."""


class Changes(BaseModel):
    """Changes by key, in the order in which they were first made."""

    model_config = ConfigDict(frozen=True)

    given: dict[str, str] = {}

    def with_change(self, key: str, value: str | None) -> "Changes":
        """Return a copy with one change; None removes it."""
        rest = {name: text for name, text in self.given.items() if name != key or value is not None}
        return Changes(given=rest if value is None else rest | {key: value})

    def query(self, source: str) -> str:
        """Return the query string of a URL that shows a document with these changes."""
        return urlencode([(SOURCE, source), *self.given.items()], safe=":/")

    def applied_to(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of a document, in plain values by wire name, with these changes.

        Raises:
            SpecError: a change does not match any item of the document, or its value is invalid.
        """
        changed = deepcopy(dict(document))
        for key, text in self.given.items():
            kind, _, name = key.partition(":")
            if kind in OPTIONS and not name:
                _set_option(changed, kind, text)
            elif kind in _KINDS:
                _KINDS[kind](changed, name, text, key)
            else:
                raise SpecError(f"{key}: no change has this name")
        return changed


UNCHANGED = Changes()
"""No changes."""


def read_query(query: str) -> tuple[str, Changes]:
    """Return the document named in a URL, empty if none is, and the changes.

    Raises:
        SpecError: there are too many changes.
    """
    try:
        pairs = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_CHANGES))
    except ValueError:
        raise SpecError(f"the address has more than the limit of {MAX_CHANGES:,} changes") from None
    return pairs.pop(SOURCE, ""), Changes(given=pairs)


@dataclass(frozen=True, slots=True)
class Steps:
    """The current changes, and earlier ones for undo."""

    now: Changes = UNCHANGED
    before: tuple[Changes, ...] = ()

    def then(self, changes: Changes) -> "Steps":
        """Return the steps with another one added; unchanged changes add no step."""
        return self if changes == self.now else Steps(changes, (*self.before, self.now)[-MAX_STEPS:])

    def corrected(self, changes: Changes) -> "Steps":
        """Return the steps with the current changes replaced, as part of the last step."""
        return replace(self, now=changes)

    def undone(self) -> "Steps":
        """Return the steps without the last."""
        return replace(self, now=self.before[-1], before=self.before[:-1]) if self.before else self


def _number(text: str, key: str, low: float = 0.0, high: float = 1e9) -> float:
    try:
        value = float(text)
    except ValueError:
        raise SpecError(f"{key}: must be a number, not {text[:40]!r}") from None
    if not low <= value <= high:
        raise SpecError(f"{key}: must be {low:g} to {high:g}, not {text[:40]}")
    return value


def _named(items: Iterator[dict[str, Any]], name: str, key: str, field: str = "name") -> list[dict[str, Any]]:
    """Return the items with a name, or all if none is given.

    Raises:
        SpecError: no item has the name.
    """
    found = [item for item in items if not name or item.get(field) == name]
    if name and not found:
        raise SpecError(f"{key}: the document has no {name!r}")
    return found


def _load(document: dict[str, Any], name: str, text: str, key: str) -> None:
    factor = _number(text, key, high=1e6)
    for server in _named(iter(document.get("servers", ())), name, key):
        load = server.get("currentAlloc", {}).get("load", {})
        if load.get("arrivalRate"):
            load["arrivalRate"] = factor * _rate(load["arrivalRate"])


def _rate(value: object) -> float:
    """Return a rate in the document's unit, given as a number or with a unit."""
    try:
        return float(REQUESTS_PER_MINUTE.read(value) if isinstance(value, str) else value)  # type: ignore[arg-type]
    except UnitError as error:
        raise SpecError(str(error)) from None


def _count(document: dict[str, Any], name: str, text: str, key: str) -> None:
    cards = int(_number(text, key))
    found = [item for item in document.setdefault("count", []) if item.get("type") == name]
    if found:
        found[0]["count"] = cards
    elif any(item.get("type") == name for item in document.get("accelerators", ())):
        document["count"].append({"type": name, "count": cards})
    else:
        raise SpecError(f"{key}: the document has no accelerator type {name!r}")


def _cost(document: dict[str, Any], name: str, text: str, key: str) -> None:
    """Set a price: a number [cents/h], or text with a currency."""
    for item in _named(iter(document.get("accelerators", ())), name, key):
        try:
            item["cost"] = float(text)
        except ValueError:
            try:
                read_price(text)
            except UnitError as error:
                raise SpecError(f"{key}: {error}") from None
            item["cost"] = text


def _card(document: dict[str, Any], name: str, text: str, key: str) -> None:
    """Set the price of a card; a slice of n cards costs n times as much."""
    amount, _, currency = text.partition(" ")
    for item in _named(iter(document.get("accelerators", ())), name, key, "type"):
        each = _number(amount, key) * item.get("multiplicity", 1)
        _cost(document, item["name"], f"{each:.12g} {currency}".strip(), key)


def _headroom(document: dict[str, Any], _name: str, text: str, key: str) -> None:
    """Set the headroom of all servers [%]."""
    share = _number(text, key, high=1e4) / 100
    document.setdefault("optimizer", {})["headroomShare"] = share
    for item in (*document.get("servers", ()), *document.get("serviceClasses", ())):
        item.pop("headroomShare", None)


def _spares(document: dict[str, Any], _name: str, text: str, key: str) -> None:
    for server in document.get("servers", ()):
        server["spareReplicas"] = int(_number(text, key, high=1e3))


def _targets(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for group in document.get("serviceClasses", ()):
        for target in group.get("modelTargets", ()):
            yield f"{group['name']}/{target['model']}", target


def _factor_of_targets(document: dict[str, Any], _name: str, text: str, key: str) -> None:
    factor = _number(text, key, 1e-3, 1e3)
    for _, target in _targets(document):
        for latency in LATENCIES:
            if isinstance(target.get(f"slo-{latency}"), int | float):
                target[f"slo-{latency}"] *= factor


def _target(document: dict[str, Any], name: str, text: str, key: str) -> None:
    found = [target for place, target in _targets(document) if place == name]
    if not found:
        raise SpecError(f"{key}: the document has no targets of {name!r}")
    found[0][f"slo-{key.partition(':')[0]}"] = _number(text, key)


def _percentile(document: dict[str, Any], _name: str, text: str, key: str) -> None:
    for _, target in _targets(document):
        target.pop("percentile", None)
        if text != "mean":
            target.pop("goodputShare", None)
            target["percentile"] = _number(text, key)


def _set_option(document: dict[str, Any], kind: str, text: str) -> None:
    field, values = OPTIONS[kind]
    if text not in values:
        raise SpecError(f"{kind}: must be one of {', '.join(values)}, not {text[:40]!r}")
    options = document.setdefault("optimizer", {})
    options[field] = values[text]
    if field == "heterogeneous" and values[text]:
        options["milpSolver"] = True  # only the exact solver supports mixed plans


_KINDS: Mapping[str, Callable[[dict[str, Any], str, str, str], None]] = {
    "load": _load,
    "count": _count,
    "cost": _cost,
    "card": _card,
    "headroom": _headroom,
    "spares": _spares,
    "targets": _factor_of_targets,
    "percentile": _percentile,
    **dict.fromkeys(LATENCIES, _target),
}
"""Functions that apply a change, by the first part of its key."""
