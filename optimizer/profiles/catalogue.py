"""The built-in catalogue of accelerators and models, from YAML files of the package.

Lookups by name ignore case and dashes, and accept aliases; models can also be looked up by their repository.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, TypeVar

from optimizer.errors import SpecError
from optimizer.profiles.facts import AcceleratorFacts, ModelEntry, Sourced
from optimizer.profiles.layers import ModelFacts
from optimizer.schema.files import plain_value
from optimizer.schema.messages import validated

_Entry = TypeVar("_Entry", bound=Sourced)
_TUNED = re.compile(r"(instruct|chat|base|hf|it|\d{4})$")
"""Suffixes of repository names that do not change the architecture, such as "instruct" or a date."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All entries of the catalogue by name, in file order."""

    accelerators: Mapping[str, AcceleratorFacts]
    models: Mapping[str, ModelEntry]

    def accelerator(self, name: str) -> AcceleratorFacts:
        """Return the data sheet of an accelerator, looked up by name.

        Raises:
            SpecError: the catalogue has no such accelerator.
        """
        return _found(name, self.accelerators, "accelerator")

    def model(self, name: str) -> ModelFacts:
        """Return the architecture of a model, looked up by name.

        Raises:
            SpecError: the catalogue has no such model.
        """
        return _found(name, self.models, "model").facts

    def repository(self, name: str) -> str:
        """Return the repository of a model, looked up by name; empty if the catalogue does not state it.

        Raises:
            SpecError: the catalogue has no such model.
        """
        return _found(name, self.models, "model").repository

    def entry(self, name: str) -> AcceleratorFacts | ModelEntry:
        """Return the entry of an accelerator or model, looked up by name.

        Raises:
            SpecError: the catalogue has no such entry.
        """
        both: dict[str, AcceleratorFacts | ModelEntry] = {**self.accelerators, **self.models}
        return _found(name, both, "catalogue")


@cache
def load_catalogue() -> Catalogue:
    """Return the built-in catalogue; its files are read only once.

    Raises:
        SpecError: an entry violates the schema.
    """
    accelerators = read_entries(_text("accelerators.yaml"), "accelerators.yaml", AcceleratorFacts)
    models = read_entries(_text("models.yaml"), "models.yaml", ModelEntry)
    return Catalogue(MappingProxyType(accelerators), MappingProxyType(models))


def read_entries(text: str, source: str, entry: type[_Entry]) -> dict[str, _Entry]:
    """Read catalogue entries from YAML: a mapping of names to facts.

    Args:
        text: the YAML text.
        source: name of the file, for messages.
        entry: type of the entries.

    Raises:
        SpecError: an entry violates the schema, or two names differ only in case or dashes.
    """
    raw: Any = plain_value(text, source, json_only=False)
    entries: dict[str, _Entry] = {}
    for name, facts in raw.items():
        entries[str(name)] = validated(entry, {**facts, "name": str(name)}, f"{source}: {name}: ")
    _by_spelling(entries)
    return entries


def _text(file: str) -> str:
    return resources.files("optimizer.profiles").joinpath(file).read_text(encoding="utf-8")


def _spelling(name: str) -> str:
    """Convert a name to the form for lookups: lower case, without dashes and spaces."""
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def _by_spelling(entries: Mapping[str, _Entry]) -> dict[str, str]:
    """Return the name of an entry by every accepted spelling."""
    result: dict[str, str] = {}
    for name, entry in entries.items():
        for spelling in {_spelling(text) for text in (name, *entry.aliases)}:
            if result.setdefault(spelling, name) != name:
                raise SpecError(
                    f"catalogue: {name!r} and {result[spelling]!r} share the spelling {spelling!r}"
                )
    for name, entry in entries.items():
        repository = getattr(entry, "repository", "")
        for text in (repository, repository.rpartition("/")[2]):
            result.setdefault(_spelling(text), name)
    result.pop("", None)
    return result


def _found(asked: str, entries: Mapping[str, _Entry], what: str) -> _Entry:
    spellings = _by_spelling(entries)
    spelling = _spelling(asked.rpartition("/")[2])
    while spelling not in spellings and (tuned := _TUNED.search(spelling)):
        spelling = spelling[: tuned.start()]
    name = (
        spellings.get(_spelling(asked))
        or spellings.get(spelling)
        or spellings.get(spelling.removeprefix("meta"))
    )
    if name is not None:
        return entries[name]
    raise SpecError(f"{what}: {asked!r} is not in the catalogue; {_hint(asked, spellings, what)}")


def _hint(asked: str, spellings: Mapping[str, str], what: str) -> str:
    """Return a suggestion for an unknown name, for messages."""
    near = difflib.get_close_matches(_spelling(asked.rpartition("/")[2]), spellings, n=3, cutoff=0.7)
    names = " or ".join(dict.fromkeys(repr(spellings[spelling]) for spelling in near))
    hint = f"did you mean {names}?" if names else "'inferplan catalogue' lists the names"
    return f"{hint}; for any other model give the path of its config.json" if what == "model" else hint
