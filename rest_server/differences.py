"""Differences between two fleets, item by item; common parts are not compared."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from optimizer.documents import Document
from optimizer.spec.schema import Capacity
from rest_server.fleet import Entities

Key = tuple[str, ...]
"""The names of an item: one, or model and accelerator of a profile; empty for the options."""


@dataclass(frozen=True, slots=True)
class SectionDiff:
    """One kind of item of a fleet: the items before and after a change, in their order."""

    name: str
    """As in the documents; ``profilelessModels`` for models as such, which no document has."""
    before: Mapping[Any, Any]
    """By name, or by the key where that has several."""
    after: Mapping[Any, Any]

    def put(self) -> Iterator[Key]:
        """Yield the keys of added and replaced items."""
        for name, item in self.after.items():
            there = self.before.get(name, self)
            if there is not item and there != item:
                yield _key(name)

    def removed(self) -> Iterator[Key]:
        """Yield the keys of removed items."""
        return (_key(name) for name in self.before if name not in self.after)

    def items(self) -> dict[Key, Document | None]:
        """Return the items after the change, by key."""
        capacity = self.name == "count"
        return {
            _key(name): Capacity(type=name, count=item) if capacity else item
            for name, item in self.after.items()
        }


def sections(before: Entities, after: Entities) -> Iterator[SectionDiff]:
    """Yield every section in which two fleets may differ."""
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
"""The section of models as such: they may be there without a profile, and have an order."""


def _names(entities: Entities) -> Iterator[Key]:
    return ((model,) for model in entities.models)


def _profiles(entities: Entities, models: list[str]) -> dict[Key, Any]:
    return {
        (model, accelerator): profile
        for model in models
        for accelerator, profile in entities.models.get(model, {}).items()
    }
