"""Index of the items of documents by name; it finds duplicate and undefined names."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from optimizer.arrays import grouped
from optimizer.features.fields import SystemFeatureFields
from optimizer.schema.faults import Fault
from optimizer.schema.files import Part
from optimizer.schema.messages import did_you_mean, path_text
from optimizer.schema.positions import Location

MAX_COMPARED = 200_000
"""Maximum number of name comparisons for suggestions; beyond it, nothing is suggested."""


class Entry(NamedTuple):
    """An item of a section, with its document and location."""

    part: Part
    at: Location
    item: Any


class Finding(NamedTuple):
    """An error or warning about documents, with its location.

    `other` is a second location that the text mentions.
    """

    part: Part
    at: Location
    text: str
    other: tuple[Part, Location] | None = None
    code: str = ""
    """Code of a warning that other documents show, too; empty for other findings."""


@dataclass(frozen=True, slots=True)
class Index:
    """The items of all documents by name."""

    accelerators: dict[str, Entry]
    profiles: dict[tuple[str, str], Entry]
    classes: dict[str, Entry]
    servers: dict[str, Entry]
    capacity: dict[str, Entry]
    sections: dict[str, dict[str, Entry]]
    """Items of the sections of features, by section and name."""
    options: list[Entry]
    """The sections with options; more than one is an error."""
    twice: list[Finding]
    """Findings about duplicate names, and about sections that occur twice but must not."""

    @classmethod
    def of(cls, parts: Sequence[Part]) -> "Index":
        """Index the items of documents by name."""
        twice: list[Finding] = []
        given = [part for part in parts if "optimizer" in part.spec.model_fields_set]
        index = cls(
            accelerators=_indexed(parts, "accelerators", lambda item: item.name, twice),
            profiles=_indexed(parts, "models", lambda item: (item.name, item.accelerator), twice),
            classes=_indexed(parts, "serviceClasses", lambda item: item.name, twice),
            servers=_indexed(parts, "servers", lambda item: item.name, twice),
            capacity=_indexed(parts, "count", lambda item: item.type, twice),
            sections={
                section: _indexed(parts, section, lambda item: item.name, twice)
                for section in SystemFeatureFields.model_fields
            },
            options=[Entry(part, ("optimizer",), part.spec.optimizer) for part in given],
            twice=twice,
        )
        twice += (
            Finding(part, ("optimizer",), f"the section is also in {given[0].source}; keep one")
            for part in given[1:]
        )
        return index

    @property
    def types_in_nodes(self) -> frozenset[str]:
        """Accelerator types whose cards exist only in nodes, which have their cost."""
        return frozenset(entry.item.type for entry in self.sections["nodes"].values())


def _indexed(
    parts: Sequence[Part], section: str, key: Callable[[Any], Any], twice: list[Finding]
) -> dict[Any, Entry]:
    """Return the items of a section by name, and add findings about duplicate names to `twice`.

    Args:
        parts: the documents.
        section: name of the section.
        key: function that returns the name of an item.
        twice: list to which findings are added.
    """
    index: dict[Any, Entry] = {}
    field = {"serviceClasses": "service_classes"}.get(section, section)
    for part in parts:
        for i, item in enumerate(getattr(part.spec, field)):
            name, at = key(item), part.location(section, i)
            if name in index:
                shown = " on ".join(map(repr, name)) if isinstance(name, tuple) else repr(name)
                text = f"{shown} occurs twice; it is also at "
                twice.append(Finding(part, at, text, index[name][:2]))
            else:
                index[name] = Entry(part, at, item)
    return index


def located(problems: Sequence[Finding]) -> list[Fault]:
    """Convert findings to faults; each text is read once to find the lines."""
    places = [(problem.part, problem.at) for problem in problems]
    places += [problem.other for problem in problems if problem.other is not None]
    parts = {id(part): part for part, _ in places}
    wanted = grouped((id(part), (at, "")) for part, at in places)
    positions = {
        (key, fault.location): fault for key, part in parts.items() for fault in part.faults(wanted[key])
    }
    faults = []
    for problem in problems:
        text = problem.text
        if problem.other is not None:
            text += str(positions[id(problem.other[0]), problem.other[1]])
        faults.append(replace(positions[id(problem.part), problem.at], problem=text))
    return faults


class Names:
    """The names that a section defines."""

    def __init__(self, what: str, known: Collection[str], incomplete: bool) -> None:  # noqa: FBT001  set above
        self._what = what
        self._known = known
        self._incomplete = incomplete
        self._hints: dict[str, str] = {}
        self._compared = 0

    def missing(self, part: Part, at: Location, name: str, note: str = "") -> Iterator[Finding]:
        """Yield a finding if a name is undefined, with the most similar defined name.

        Args:
            part: the document.
            at: location of the name.
            note: text after the name.
        """
        if name in self._known or self._incomplete:
            return
        if name not in self._hints:
            self._compared += len(self._known)
            near = did_you_mean(name, self._known) if self._compared <= MAX_COMPARED else ""
            self._hints[name] = near
        correct = path_text(at).rsplit(".", 1)[-1]
        hint = self._hints[name] or f"; add it, or correct {correct!r}"
        yield Finding(part, at, f"{self._what} {name!r}{note} does not exist{hint}")
