"""Differences between two fleets, item by item; parts that both share are skipped quickly."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from optimizer.documents import Document
from optimizer.schema import Capacity
from rest_server.fleet import Entities

Key = tuple[str, ...]
"""Names of an item: one name, or model and accelerator for a profile; empty for the options."""


@dataclass(frozen=True, slots=True)
class SectionDiff:
    """One section of a fleet, with its items before and after a change, in order."""

    name: str
    """Name of the section as in documents; ``profilelessModels`` for models themselves, which no document
    contains.
    """
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
        capacity = self.name == "count"
        return {
            _key(name): Capacity.of(name, item) if capacity else item for name, item in self.after.items()
        }


def fleet_sections(before: Entities, after: Entities) -> Iterator[SectionDiff]:
    """Yield every section in which two fleets can differ."""
    for name, field in (
        ("accelerators", "accelerators"),
        ("serviceClasses", "service_classes"),
        ("servers", "servers"),
        ("count", "capacity"),
        ("routes", "routes"),
    ):
        old, new = getattr(before, field), getattr(after, field)
        if old is not new:
            yield SectionDiff(name, old, new)
    if before.optimizer is not after.optimizer:
        yield SectionDiff("optimizer", {(): before.optimizer}, {(): after.optimizer})
    yield from _models(before, after)


def _key(name: str | Key) -> Key:
    return (name,) if isinstance(name, str) else name


def _models(before: Entities, after: Entities) -> Iterator[SectionDiff]:
    changed = [
        model
        for model in {**before.models, **after.models}
        if before.models.get(model) is not after.models.get(model)
    ]
    if changed or list(before.models) != list(after.models):
        yield SectionDiff(MODELS, dict.fromkeys(_names(before)), dict.fromkeys(_names(after)))
        yield SectionDiff("models", _profiles(before, changed), _profiles(after, changed))


MODELS = "profilelessModels"
"""Name of the section of models themselves, which can exist without profiles and have an order."""


def _names(entities: Entities) -> Iterator[Key]:
    return ((model,) for model in entities.models)


def _profiles(entities: Entities, models: list[str]) -> dict[Key, Any]:
    return {
        (model, accelerator): profile
        for model in models
        for accelerator, profile in entities.models.get(model, {}).items()
    }
