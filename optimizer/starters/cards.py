"""Finds the catalogue's card for an offer in a price list, from its name, variant and memory.

Lists often use one name for a PCIe and an SXM card, although the SXM card has two thirds more bandwidth.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from optimizer.errors import SpecError
from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.facts import AcceleratorFacts

SKYPILOT_NAMES: Mapping[str, str] = {"a100": "A100-40", "v100": "", "h100-mega": "H100", "l40": ""}
"""Card names of SkyPilot that differ from the catalogue's; empty if the catalogue has no such accelerator."""
_VARIANT = re.compile(r"(?<![a-z])(pcie|nvl|sxm)(?![a-z])\d?(?!\d)", re.IGNORECASE)
_MEMORY = re.compile(r"(?<!\d)(\d{2,3})\s?gi?b?(?![a-z])", re.IGNORECASE)
_STATED_MEMORY = re.compile(r"SizeInMiB'?: ?([\d.]+)")
_OTHER_WORDS = re.compile(r"\b(nvidia|amd|intel|instinct|tesla|gpu|hbm\d\w*)\b", re.IGNORECASE)
_MIB_FROM = 1024.0
"""Sizes from this number on are in MiB; some lists state GB in the same column."""
SAME_MEMORY = 0.1
"""Largest relative difference at which a stated memory counts as the memory of a card."""


class LeftOut(NamedTuple):
    """An offer that cannot be used, with the reason."""

    name: str
    reason: str


def find_cards(name: str, description: str) -> tuple[str, ...] | LeftOut:
    """Return the catalogue's names of the cards that an offer can mean, or the reason why it has none.

    Args:
        name: the card's name in the price list.
        description: other texts of the offer: instance type, description, memory.
    """
    variant = next((cards[1] for text in (name, description) if (cards := _VARIANT.search(text))), "").lower()
    stated = _memory_gb(name, description)
    facts = next((card for spelling in _spellings(name, variant) if (card := _known(spelling))), None)
    if facts is None:
        return LeftOut(name, "not in the catalogue")
    texts = (facts.name, *facts.aliases)
    own = next((match for text in texts if (match := _VARIANT.search(text))), None)
    if variant and own is not None and own[1].lower() != variant:
        return LeftOut(name, f"its variant {variant.upper()} is not in the catalogue")
    if stated is None or abs(stated / facts.memory_gb - 1) <= SAME_MEMORY:
        return (facts.name,)
    reason = f"it has {stated:g} GB, the catalogue's {facts.name} {facts.memory_gb:g}"
    return _with_memory(facts, stated) or LeftOut(name, reason)


def _spellings(name: str, variant: str) -> Iterator[str]:
    """Yield possible spellings of a card's name, the most specific first."""
    yield f"{name}-{variant}" if variant and not _VARIANT.search(name) else name
    bare = _OTHER_WORDS.sub(" ", name)
    memory = _MEMORY.search(bare)
    base = "-".join(re.findall(r"[\w.]+", _MEMORY.sub(" ", _VARIANT.sub(" ", bare))))
    size = f"{memory[1]}GB" if memory else ""
    for parts in ((base, variant, size), (base, size, variant), (base, size), (base, variant)):
        if all(parts):
            yield "-".join(parts)
    yield name
    yield base


def _memory_gb(name: str, description: str) -> float | None:
    """Return the memory of a card that an offer states [GB]; None if it states none."""
    if (match := _STATED_MEMORY.search(description)) and float(match[1]) > 0:
        size = float(match[1])
        return size / 1024 if size >= _MIB_FROM else size
    return float(memory[1]) if (memory := _MEMORY.search(name)) else None


def _with_memory(facts: AcceleratorFacts, memory_gb: float) -> tuple[str, ...]:
    """Return the cards of the same family that have a given memory."""
    family = facts.name.partition("-")[0]
    return tuple(
        card.name
        for card in load_catalogue().accelerators.values()
        if card.name.partition("-")[0] == family and abs(memory_gb / card.memory_gb - 1) <= SAME_MEMORY
    )


def _known(name: str) -> AcceleratorFacts | None:
    """Return an accelerator of the catalogue; None if it is unknown."""
    try:
        return load_catalogue().accelerator(name) if name else None
    except SpecError:
        return None
