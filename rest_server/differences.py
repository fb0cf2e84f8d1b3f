"""Differences between two fleets, item by item; parts that both share are skipped quickly."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from optimizer.documents import Document
from rest_server.fleet import SECTIONS, Entities, Key


@dataclass(frozen=True, slots=True)
class SectionDiff:
    """One section of a fleet, with its items before and after a change, in order."""

    name: str
    """Name of the section in `SECTIONS`."""
    before: Mapping[Any, Any]
    """Items before the change, by name or by names."""
    after: Mapping[Any, Any]

    def put(self) -> Iterator[Key]:
        """Yield the keys of items that the change adds or replaces."""
        for name, item in self.after.items():
            there = self.before.get(name, self)
            if there is not item and there != item:
                yield _key(name)

    def removed(self) -> Iterator[Key]:
        """Yield the keys of items that the change removes."""
        return (_key(name) for name in self.before if name not in self.after)

    def items(self) -> dict[Key, Document | None]:
        """Return the items after the change, by key."""
        return {_key(name): item for name, item in self.after.items()}


def fleet_sections(before: Entities, after: Entities) -> Iterator[SectionDiff]:
    """Yield every section in which two fleets can differ."""
    for name, section in SECTIONS.items():
        if getattr(before, section.field) is not getattr(after, section.field):
            yield SectionDiff(name, before.section(name), after.section(name))


def _key(name: str | Key) -> Key:
    return (name,) if isinstance(name, str) else name
