"""Reads a config.json so that every key is either used, known to be harmless, or an error that names it."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from types import SimpleNamespace
from typing import Any

from optimizer.errors import SpecError
from optimizer.schema.files import plain_value

STATED = "estimate --memory with --weight-size GB and --cache-per-token BYTES (of one device)"
"""Flags that state the sizes if a config.json cannot be interpreted, for messages."""
REQUIRED: Any = object()
"""Default value of facts that must be stated."""


@dataclass(frozen=True)
class Config:
    """Values of a config.json, without null values, as one of its layers sees them."""

    values: Mapping[str, Any]
    family: SimpleNamespace
    """Model type: an entry of families.yaml."""
    source: str
    """Name of the file, for messages."""
    used: set[str] = field(default_factory=set)
    """Keys that have been read so far."""
    layers: int = 0
    """Number of layers."""
    index: int = 0
    """Index of the layer that is currently read, from 0."""
    own: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Values that single layers add or override, by index of the layer."""

    def error(self, key: str, text: str) -> SpecError:
        """Return an error that names a key and its value."""
        value = f" = {str(self.values[key])[:60]}" if key in self.values else ""
        return SpecError(f"{self.source}: {key}{value}: {text}")

    def key(self, fact: str) -> str:
        """Return the key that states a fact, and mark all names of the fact as read.

        Raises:
            SpecError: two names of the fact have different values.
        """
        names, different = _names(fact)
        kind_keys = [name for name in names if name in self.values]
        self.used.update(kind_keys)
        for other in () if different else kind_keys[1:]:
            if self.values[other] != self.values[kind_keys[0]]:
                raise self.error(kind_keys[0], f"contradicts {other} = {str(self.values[other])[:60]}")
        return str(kind_keys[0] if kind_keys else names[0])

    def get(self, fact: str, default: Any = REQUIRED) -> Any:
        """Return the value of a fact.

        Raises:
            SpecError: the fact is missing and has no default, or two of its names have different values.
        """
        key = self.key(fact)
        if key not in self.values and default is REQUIRED:
            names = [name for name in _names(fact)[0] if "." not in name] or [fact]
            raise self.error(" or ".join(names), "missing; this key is required")
        return self.values.get(key, default)

    def whole(self, fact: str, default: Any = REQUIRED, minimum: int = 1) -> Any:
        """Return an integer fact; if it is a list with one entry per layer, the entry of the current layer.

        Raises:
            SpecError: the fact is missing and has no default, or is not an integer of at least `minimum`.
        """
        value = self.get(fact, default)
        if isinstance(value, list) and self.layers and len(value) == self.layers:
            value = value[self.index]
        if value is default:
            return value
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= 10**9:
            raise self.error(self.key(fact), f"must be an integer of at least {minimum}")
        return value

    def flag(self, fact: str, default: bool = False) -> bool:  # noqa: FBT001, FBT002  a fact's value
        """Return a Boolean fact.

        Raises:
            SpecError: the value is neither true nor false.
        """
        value = self.get(fact, default)
        if not isinstance(value, bool):
            raise self.error(self.key(fact), "must be true or false")
        return value

    def meaning(self, key: str) -> str:
        """Return the meaning of the current layer's entry in a list, or letter in a text.

        Raises:
            SpecError: the list has the wrong length, or an entry cannot be interpreted.
        """
        value, more = self.get(key), self.whole("speculation", 0, 0)
        meanings = parts_table()["types"][key]
        if not isinstance(value, list | str) or not self.layers <= len(value) <= self.layers + more:
            length = f"{len(value)} entries" if isinstance(value, list | str) else "no list"
            also = f"{more} more for speculative decoding ({self.key('speculation')})"
            raise self.error(key, f"{length}, but the model has {self.layers} layers and {also}")
        for entry in value:
            if isinstance(entry, bool | float) or str(entry) not in map(str, meanings):
                raise self.error(key, f"the entry {str(entry)[:40]!r} is not understood")
        return str(meanings[value[self.index]])

    def at(self, index: int) -> "Config":
        """Return the config as the layer of the given index sees it."""
        return replace(self, index=index, values={**self.values, **self.own.get(index, {})})

    def inner(self, key: str) -> "Config":
        """Return the config of a nested object, which tracks its own keys.

        Raises:
            SpecError: the value is not an object.
        """
        value = self.get(key)
        if not isinstance(value, Mapping):
            raise self.error(key, "must be an object")
        return replace(self, values=without_null(value), source=f"{self.source}: {key}", used=set(), own={})

    def unknown(self, harmless: Collection[str] = ()) -> list[str]:
        """Return the keys that were neither read nor are known to be harmless.

        Args:
            harmless: further keys without effect.
        """
        without = self.used | {*harmless, *self.family.defaults}
        keys = dict.fromkeys((*self.values, *(key for keys in self.own.values() for key in keys)))
        return [
            key
            for key in keys
            if key not in without
            and not is_harmless(key)
            and not repeats(key, self.values.get(key), once=True)
        ]

    def finish(self, harmless: Collection[str] = ()) -> None:
        """Check that every key was read or is known to be harmless.

        Raises:
            SpecError: keys are unknown; the message names all of them.
        """
        left = self.unknown(harmless)
        if left:
            raise SpecError(f"{self.source}: {described(left, self.values)}")


def described(keys: Sequence[str], values: Mapping[str, Any]) -> str:
    """Return a text that names unknown keys with their values, and their possible effect."""
    named = ", ".join(f"{key} = {str(values[key])[:60]}" if key in values else key for key in keys)
    these = f"these {len(keys)} keys are" if len(keys) > 1 else "this key is"
    may = (
        "may change the memory"
        if any(_is("changes", key) or _is("repeats", key) for key in keys)
        else "may have an effect"
    )
    return f"{named}: {these} not known and {may}"


def repeats(key: str, value: object, *, once: bool = False) -> bool:
    """Return whether a key runs layers several times, which multiplies the cache.

    Args:
        once: return whether it is such a key, but its value says that layers run once.
    """
    is_once = value is False or (isinstance(value, int) and value is not True and value <= 1)
    return _is("repeats", key) and is_once == once


def without_null(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without null and "auto", which both mean the same as an absent key."""
    return {key: value for key, value in raw.items() if value not in (None, "auto")}


def flattened(raw: Mapping[str, Any], source: str, nested: Collection[str]) -> dict[str, Any]:
    """Return the values with those of nested objects under keys ``object.key``.

    Raises:
        SpecError: the value of a key in `nested` is not an object.
    """
    result: dict[str, Any] = {}
    for key, value in raw.items():
        if value is None or key not in nested:
            result[key] = value
        elif isinstance(value, Mapping):
            result |= {f"{key}.{name}": item for name, item in value.items()}
        else:
            raise SpecError(f"{source}: {key} = {str(value)[:60]}: must be an object")
    return result


def is_harmless(key: str) -> bool:
    """Return whether a key is known to affect neither weights nor cache."""
    name = key.rpartition(".")[2]
    known = name.startswith("_") or name in harmless_keys()
    return known or (_is("harmless", name) and not _is("sizes", name))


@cache
def _is(kind: str, key: str) -> bool:
    """Return whether a pattern of a kind in key_patterns.yaml is found in a key."""
    return any(re.search(pattern, key) for pattern in yaml_table("key_patterns.yaml")[kind])


@cache
def _names(fact: str) -> tuple[list[str], bool]:
    """Return the keys that state a fact, and whether they are alternatives of which the first is used."""
    tables = parts_table()
    return tables["facts"].get(fact) or tables["first"].get(fact) or [fact], fact in tables["first"]


@cache
def yaml_table(file: str) -> Mapping[str, Any]:
    """Read a YAML table in the package's folder."""
    text = resources.files("optimizer.profiles").joinpath(file).read_text(encoding="utf-8")
    raw: Any = plain_value(text, file, json_only=False)
    return raw  # type: ignore[no-any-return]


def parts_table() -> Mapping[str, Any]:
    """Return the table layer_parts.yaml: names of facts, types of layers, weights."""
    return yaml_table("layer_parts.yaml")


@cache
def readable_keys() -> frozenset[str]:
    """Return the keys that are read for some type of model."""
    tables = parts_table()
    facts = [name for table in ("facts", "first") for names in tables[table].values() for name in names]
    listed = [name for table in ("types", "rules", "experts", "only", "elsewhere") for name in tables[table]]
    return frozenset([*facts, *listed, *families()["_standard"].refused])


@cache
def families() -> Mapping[str, SimpleNamespace]:
    """Return the known model types, from families.yaml."""
    by_name: dict[str, dict[str, Any]] = {}
    for name, own in yaml_table("families.yaml").items():
        like = by_name[own["like"]] if "like" in own else by_name.get("_base", {})
        both = {key: {**like.get(key, {}), **own.get(key, {})} for key in ("defaults", "names")}
        by_name[name] = {**like, **own, **both}
    return {name: SimpleNamespace(**values) for name, values in by_name.items()}


@cache
def harmless_keys() -> Mapping[str, str]:
    """Return the keys that do not change the memory, each with the reason."""
    table = yaml_table("harmless_keys.yaml")
    return {key: reason for reason, keys in table.items() for key in keys.split()}
