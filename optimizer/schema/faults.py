"""Finds all faults of documents, with their locations.

`validated` stops at the first fault of a list, so that invalid input is cheap to reject. This module then
validates a rejected document item by item, and keeps its valid parts for the checks across documents.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Generic, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from optimizer.errors import SpecError
from optimizer.schema.messages import others, path_text, problem_text
from optimizer.schema.positions import Location, Position

MAX_FAULTS = 1000
"""Maximum number of faults that are listed."""
_IDENTITY = frozenset({"name", "type", "acc", "class", "model", "count"})
"""Keys by which other documents refer to an item; they are kept even if the item is otherwise invalid."""

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Fault:
    """An error in a document, with its location."""

    location: Location
    """Location of the error in the document."""
    problem: str
    """Message that states the problem, the limit and the fix."""
    source: str = ""
    """Name of the document's file; empty for a document in memory."""
    position: Position | None = None
    """Line and column in the file; None if unknown."""

    @property
    def path(self) -> str:
        """Location as a path: ``servers[3].model``."""
        return path_text(self.location)

    @property
    def place(self) -> str:
        """File, line and column, separated by colons; empty for a document in memory."""
        if not self.source or self.position is None:
            return self.source
        return f"{self.source}:{self.position[0]}:{self.position[1]}"

    def to_wire(self) -> dict[str, str | int | None]:
        """Return the fault as a dictionary for JSON output."""
        line, column = self.position or (None, None)
        return {
            "file": self.source or None,
            "line": line,
            "column": column,
            "path": self.path or None,
            "message": self.problem,
        }

    def __str__(self) -> str:
        return ": ".join(part for part in (self.place, self.path, self.problem) if part)


def sorted_faults(faults: Iterable[Fault]) -> list[Fault]:
    """Sort faults by file and line; faults of documents in memory keep their order."""
    return sorted(faults, key=lambda fault: (fault.source, fault.position or (0, 0)))


class FaultyDocumentsError(SpecError):
    """Documents have faults; the message states the first one and the number of the others."""

    def __init__(self, faults: Sequence[Fault], others: int = 0) -> None:
        super().__init__(faults, others)
        self.faults = tuple(sorted_faults(faults))
        self.others = others
        """Number of faults after the first one."""

    def __str__(self) -> str:
        return f"{self.faults[0]}{others(len(self.faults) - 1 + self.others)}"


def document_problems(
    model: type[BaseModel], raw: object, context: Mapping[str, object], at: Location = ()
) -> Iterator[tuple[Location, str]]:
    """Yield all schema errors of a document given as plain values, in field order, with their locations.

    Args:
        model: the document type.
        raw: the plain values.
        context: validation context.
        at: location of the values.
    """
    lists = _lists(model)
    rest, items = _parted(raw, lists)
    try:
        model.model_validate(rest, context=dict(context))
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            yield (*at, *problem["loc"]), problem_text(problem, model)
    except RecursionError:
        yield at, "the document is nested too deeply"
    for name, values in items.items():
        for i, value in enumerate(values):
            yield from document_problems(lists[name], value, context, (*at, name, i))


@dataclass(frozen=True, slots=True)
class Sound(Generic[_Model]):
    """The valid part of a document."""

    document: _Model
    kept: Mapping[str, tuple[int, ...]]
    """For each list of documents, the indices of its valid items."""
    incomplete: frozenset[str]
    """Names of the lists from which invalid items were removed."""
    repaired: frozenset[Location]
    """Locations of items that were kept without their invalid parts."""


def sound_part(model: type[_Model], raw: Mapping[Any, Any], context: Mapping[str, object]) -> Sound[_Model]:
    """Return the valid part of a document given as plain values; required fields can be missing.

    Args:
        model: the document type.
        raw: the plain values.
        context: validation context.
    """
    lists = _lists(model)
    rest, items = _parted(raw, lists)
    sound = {
        name: [_sound_item(lists[name], value, context) for value in values] for name, values in items.items()
    }
    kept = {
        name: tuple(i for i, item in enumerate(of_section) if item is not None)
        for name, of_section in sound.items()
    }
    values = {name: [sound[name][i] for i in indices] for name, indices in kept.items()}
    missing = {name for name in items if len(kept[name]) < len(items[name])}
    missing |= {name for name in lists if name.lower() in {str(key).lower() for key in rest}}
    repaired: set[Location] = {
        (name, i)
        for name, indices in kept.items()
        for i in indices
        if any(document_problems(lists[name], items[name][i], context))
    }
    document = _without_faults(model, rest, values, context) or model()
    return Sound(document, kept, frozenset(missing), frozenset(repaired))


def _sound_item(model: type[_Model], raw: object, context: Mapping[str, object]) -> _Model | None:
    """Return the valid part of an item; its lists end before their first unusable item.

    Args:
        model: the item's document type.
        raw: the item as plain values.
        context: validation context.
    """
    if not isinstance(raw, Mapping):
        return None
    lists = _lists(model)
    rest, items = _parted(raw, lists)
    sound_item = {
        name: [_sound_item(lists[name], value, context) for value in values] for name, values in items.items()
    }
    kept = {
        name: list(takewhile(lambda item: item is not None, of_field))
        for name, of_field in sound_item.items()
    }
    return _without_faults(model, rest, kept, context)


def _without_faults(
    model: type[_Model], rest: Mapping[Any, Any], lists: Mapping[str, Any], context: Mapping[str, object]
) -> _Model | None:
    """Return an item without its invalid values.

    If the combination of its values is invalid, only the names in it are kept.

    Args:
        model: the item's document type.
        rest: values of the item other than lists of documents.
        lists: lists of documents in the item.
        context: validation context.
    """
    for _ in range(3):
        try:
            return model.model_validate({**rest, **lists}, context=dict(context))
        except ValidationError as error:
            wrong = {str(problem["loc"][0]).lower() if problem["loc"] else "" for problem in error.errors()}
        rest = {
            key: value
            for key, value in rest.items()
            if str(key).lower() not in wrong and ("" not in wrong or str(key).lower() in _IDENTITY)
        }
    return None


def _lists(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Return the document types of the items in a document's lists, by wire name."""
    lists = {}
    for name, field in model.model_fields.items():
        inner = get_args(field.annotation)
        if get_origin(field.annotation) is tuple and issubclass(inner[0], BaseModel):
            lists[field.alias or name] = inner[0]
    return lists


def _parted(raw: object, lists: Mapping[str, object]) -> tuple[Any, dict[str, Sequence[object]]]:
    """Split plain values into the lists of documents, by wire name, and all other values."""
    if not isinstance(raw, Mapping):
        return raw, {}
    spelling = {name.lower(): name for name in lists}
    items: dict[str, Sequence[object]] = {}
    rest = {}
    for key, value in raw.items():
        name = spelling.get(str(key).lower())
        if name is not None and name not in items and isinstance(value, list | tuple):
            items[name] = value
        else:
            rest[key] = value
    return rest, items
