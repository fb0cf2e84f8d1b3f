"""Inserts a fitted profile into the documents of a system, and leaves all other text unchanged."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from optimizer.errors import SpecError
from optimizer.fitting.profile import FittedProfile
from optimizer.kinds.fields import DEFAULT_MAX_BATCH
from optimizer.kinds.table import LawFields
from optimizer.profiles.engines import read_engine
from optimizer.profiles.estimate import find_slice
from optimizer.schema import ModelProfile, SystemSpec
from optimizer.schema.files import Part, Text, part_of, read_parts, section_items
from optimizer.schema.messages import validated
from optimizer.spec.editing import with_item
from optimizer.spec.system import join_parts, joined_document

_BATCH_KEYS = {"maxBatchSize", "atTokens"}
"""Keys that a profile with a batch limit replaces together."""


@dataclass(frozen=True, slots=True)
class WithProfile:
    """Documents of a system with an inserted profile."""

    source: str
    """File of the document that contains the profile."""
    text: Text | None
    """Text of the document that contains the profile, changed only in the entry; None if that is impossible,
    for example because an alias shares the entry's text with other places.
    """
    parts: tuple[Part, ...]
    """All documents of the system."""
    note: str | None = None
    """Sentence about a batch limit that the profile does not state; None if it states one."""

    def text_for(self, path: Path) -> str | None:
        """Return the changed text if `path` is the document's file, or if it is the only one; else None."""
        if self.text is None:
            return None
        same_format = (path.suffix.lower() == ".json") == self.text.json_only
        takes_it = str(path) == self.source or (len(self.parts) == 1 and same_format)
        return self.text.content if takes_it else None

    def document(self) -> dict[str, Any]:
        """Return the entire system as one document of plain values."""
        return joined_document(self.parts)


def with_profile(
    path: str | os.PathLike[str], profile: FittedProfile, model: str | None, accelerator: str | None
) -> WithProfile:
    """Insert a profile into a system, replacing the token times of its model and accelerator.

    Args:
        path: file or folder of the system.
        model: name of the model in the system; default: that of the profile.
        accelerator: name of the accelerator in the system; default: that of the profile.

    Raises:
        SpecError: the system cannot be read, or has no such model or accelerator.
    """
    parts = read_parts(path)
    names = model or profile.name, accelerator or profile.accelerator
    entry = {**profile.entry(), "name": names[0], "acc": names[1]}
    _check_names([part.spec for part in parts], *names)
    part = _holder(parts, *names)
    limit, note = _default_limit(profile, part, *names)
    entry |= {} if limit is None else {"maxBatchSize": limit}
    edited = _edited(part, entry)
    changed = tuple(edited if item is part else item for item in parts)
    join_parts(changed)  # loading rejects contradictions
    return WithProfile(part.source, edited.text, changed, note)


def _check_names(specs: Sequence[SystemSpec], model: str, accelerator: str) -> None:
    """Check that the system contains the model and the accelerator; token times for them can be missing."""
    accelerators = sorted({item.name for spec in specs for item in spec.accelerators})
    if accelerator not in accelerators:
        known = ", ".join(accelerators) or "none"
        raise SpecError(
            f"acc: the system has no accelerator {accelerator!r}; name one of these with --acc: {known}"
        )
    used = sorted({server.model for spec in specs for server in spec.servers})
    listed = {item.name for spec in specs for item in spec.models}
    listed |= {
        target.model for spec in specs for item in spec.service_classes for target in item.model_targets
    }
    known_models = used or sorted(listed)
    if known_models and model not in known_models:
        what = "no server uses" if used else "the system has no"
        raise SpecError(
            f"model: {what} model {model!r}; name one of these with --model: {', '.join(known_models)}"
        )


def _default_limit(
    profile: FittedProfile, part: Part, model: str, accelerator: str
) -> tuple[int | None, str | None]:
    """Return the engine's default batch limit and a note, if neither profile nor document state the limit."""
    old = next((one for one in part.spec.models if (one.name, one.accelerator) == (model, accelerator)), None)
    if profile.max_batch_size or (old is not None and old.max_batch_size):
        return None, None
    unknown = "maxBatchSize: the profile does not state it (fit --max-seqs)"
    try:
        engine = read_engine(profile.provenance.engine)
        limit = engine.max_requests(find_slice(profile.accelerator)[0])
    except SpecError:
        limit = None
    if limit is None:
        return None, f"{unknown}: plans assume {DEFAULT_MAX_BATCH}"
    return limit, f"{unknown}: {limit}, the default of {engine} on {profile.accelerator}"


def _holder(parts: Sequence[Part], model: str, accelerator: str) -> Part:
    """Return the document with the entry of a model and accelerator; else the last with profiles, or last."""
    for part in parts:
        if any((item.name, item.accelerator) == (model, accelerator) for item in part.spec.models):
            return part
    return next((part for part in reversed(parts) if part.spec.models), parts[-1])


def _edited(part: Part, entry: dict[str, Any]) -> Part:
    """Return the document with an entry added or replaced; without text if that alone cannot be changed."""
    assert part.text is not None
    models = list(part.spec.models)
    pair = entry["name"], entry["acc"]
    place = next((i for i, item in enumerate(models) if (item.name, item.accelerator) == pair), None)
    old: tuple[int, dict[str, Any]] | None = None
    if place is None:
        models.append(validated(ModelProfile, entry))
    else:
        old = place, section_items(part.text, "models")[place]
        entry = _merged(old[1], entry)
        models[place] = validated(ModelProfile, entry)
    wanted = part.spec.model_copy(update={"models": tuple(models)})
    try:
        text = replace(part.text, content=with_item(part.text, "models", entry, old))
        edited = part_of(text, text.value())
    except SpecError:
        return Part(wanted)
    return edited if edited.spec == wanted else Part(wanted)


def _merged(old: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """Return the entry with all keys of the old one except token times and batch limit."""
    replaced = {field.alias or name for name, field in LawFields.model_fields.items()}
    replaced |= {"provenance"} | (_BATCH_KEYS if "maxBatchSize" in entry else set())
    lower = {key.lower() for key in replaced | entry.keys()}
    stays = {key: value for key, value in old.items() if key.lower() not in lower}
    own = {key: value for key, value in old.items() if key.lower() == "acccount"}
    kept = {key: value for key, value in entry.items() if not (own and key == "accCount")}
    return kept | own | stays
