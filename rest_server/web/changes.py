"""Changes that a visitor of the web page makes to a document: as a query string, applied, and undone.

A change has a key. ``load`` and ``targets`` are factors for all servers, ``load:SERVER`` for one.
``count:TYPE`` is a number of cards, ``card:TYPE`` the price of a card, and ``cost:ACCELERATOR`` that of an
accelerator. ``headroom`` [%] and ``spares`` are reserves of all servers, and ``ttft:CLASS/MODEL`` is a target
[ms]. Options with named values have the keys of `OPTIONS`; all other numbers have the names of
`optimizer.spec.changes`. All functions are pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from pydantic import BaseModel, ConfigDict

from optimizer.errors import SpecError
from optimizer.spec.changes import CHANGES, QUANTITIES, SystemChange
from optimizer.spec.system import System
from optimizer.units import UnitError

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
"""Options with named values, by key: name of the change, and the values by their display text."""
_RESERVES = {"headroom": ("headroomShare", 0.01), "spares": ("spareReplicas", 1)}
"""Reserves of all servers, by key: name of the change, and factor from the displayed number to its value."""
_MEAN = "mean"
"""Display text for targets that apply to means instead of a percentile."""
SOURCE = "open"
"""Query parameter of a URL that names the document."""


class ChangeError(SpecError):
    """Raised for a change that does not fit the document, such as half a replica."""

    def __init__(self, key: str, text: str) -> None:
        """Describe the change.

        Args:
            key: key of the change.
            text: what is wrong with its value.
        """
        super().__init__(f"{key}: {text}")
        self.key, self.text = key, text

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to rebuild the error in another process."""
        return ChangeError, (self.key, self.text)


class Changes(BaseModel):
    """Changes of a document by key, in the order in which they were first made."""

    model_config = ConfigDict(frozen=True)

    given: dict[str, str] = {}

    def with_change(self, key: str, value: str | None) -> "Changes":
        """Return a copy with one change; None removes it."""
        rest = {name: text for name, text in self.given.items() if name != key or value is not None}
        return Changes(given=rest if value is None else rest | {key: value})

    def query(self, source: str) -> str:
        """Return the query string of a URL that shows a document with these changes."""
        return urlencode([(SOURCE, source), *self.given.items()], safe=":/")

    def applied_to(self, system: System) -> System:
        """Return a copy of a system with these changes.

        Raises:
            ChangeError: a change does not match any item of the system, or its value is invalid.
        """
        for key, text in self.given.items():
            try:
                for change in _changes(system, key, text):
                    system = change.applied_to(system)
            except (SpecError, UnitError) as error:
                raise ChangeError(key, str(error)) from None
        return system


UNCHANGED = Changes()
"""No changes."""


def read_query(query: str) -> tuple[str, Changes]:
    """Return the name of the document in a query string, empty if there is none, and the changes.

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
    """Current changes, and earlier ones for undo."""

    now: Changes = UNCHANGED
    before: tuple[Changes, ...] = ()

    def then(self, changes: Changes) -> "Steps":
        """Return the steps with another one added; unchanged changes add no step."""
        return self if changes == self.now else Steps(changes, (*self.before, self.now)[-MAX_STEPS:])

    def corrected(self, changes: Changes) -> "Steps":
        """Return the steps with the current changes replaced, as part of the last step."""
        return replace(self, now=changes)

    def without_invalid(self, key: str, valid: Changes) -> "Steps":
        """Return the steps with one key of the current changes as in other changes that are valid."""
        now = self.now.with_change(key, valid.given.get(key))
        return self.undone() if self.before[-1:] == (now,) else self.corrected(now)

    def undone(self) -> "Steps":
        """Return the steps without the last one."""
        return replace(self, now=self.before[-1], before=self.before[:-1]) if self.before else self


def _changes(system: System, key: str, text: str) -> Iterator[SystemChange]:
    """Yield the changes of a system that a key and its text stand for.

    Raises:
        SpecError: no change has this name, or the text is not one of the values of an option.
        UnitError: the text is not a number.
    """
    name, _, item = key.partition(":")
    if name in OPTIONS and not item:
        option, values = OPTIONS[name]
        if text not in values:
            raise SpecError(f"must be one of {', '.join(values)}, not {text[:40]!r}")
        if option == "heterogeneous" and values[text]:
            yield SystemChange("milpSolver", value=True)  # only the exact solver supports mixed plans
        yield SystemChange(option, value=values[text])
    elif name in _RESERVES and not item:
        reserve, factor = _RESERVES[name]
        yield SystemChange(reserve)  # also of servers and classes that state their own
        yield SystemChange(reserve, value=CHANGES[reserve].read(system, text) * factor)
    elif name == "percentile" and text == _MEAN:
        yield SystemChange(name)
    elif name in QUANTITIES:
        yield SystemChange(name, item, text)
    else:
        raise SpecError("no change has this name")
