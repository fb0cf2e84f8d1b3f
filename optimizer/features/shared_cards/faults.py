"""Checks documents for errors in shared cards and slices: value ranges, missing data, names of cards."""

from collections.abc import Iterator, Sequence

from optimizer.kinds.table import KINDS, kind_of_profile
from optimizer.schema import ModelProfile
from optimizer.schema.names import Entry, Finding, Index
from optimizer.spec.feature import Documents

MAX_SHARING = 8
"""Maximum number of servers with `sharedCard`, because all their combinations on a card are considered."""


def shared_card_problems(documents: Documents) -> Iterator[Finding]:
    """Yield an error for each contradiction in the documents of servers that share cards."""
    index = documents.index
    entries = [entry for entry in index.servers.values() if entry.item.shared_card]
    for part, at, _ in entries[MAX_SHARING : MAX_SHARING + 1]:
        text = f"{len(entries)} servers have sharedCard, at most {MAX_SHARING} can; remove it from some"
        yield Finding(part, (*at, "sharedCard"), text)
    for entry in entries:
        yield from _parts(entry, index, documents.profiles.get(entry.item.model, ()))


def slice_problems(documents: Documents) -> Iterator[Finding]:
    """Yield an error for each slice whose card does not exist or does not match it."""
    index = documents.index
    for part, at, item in index.accelerators.values():
        if item.slice is None:
            continue
        here = (*at, "slice", "card")
        card = index.accelerators.get(item.slice.card)
        if card is None or card.item.slice is not None:
            yield Finding(part, here, f"{item.slice.card!r} is not a complete card of the system; name one")
        elif card.item.type != item.type or card.item.multiplicity != 1 or item.multiplicity != 1:
            text = f"must be one card of type {item.type!r}; correct the type or the multiplicity"
            yield Finding(part, here, text)


def _parts(entry: Entry, index: Index, profiles: Sequence[ModelProfile]) -> Iterator[Finding]:
    """Yield an error for each missing value, and for a server that cannot share any card."""
    part, at, server = entry
    known = [one for one in profiles if one.accelerator in index.accelerators]
    here = (*at, "sharedCard")
    with_memory = [one for one in known if one.memory_gb and one.acc_count == 1]
    if known and not with_memory:
        text = f"the memory of {server.model!r} on one card is unknown; add memory [GB] to its profiles"
        yield Finding(part, here, text)
        return
    cards = [index.accelerators[one.accelerator].item for one in with_memory]
    for one, card in zip(with_memory, cards, strict=True):
        if not card.memory_gb:
            text = f"the memory of {card.name} is unknown; add memSize [GB] to it"
            yield Finding(part, here, text)
            return
        if not one.is_estimated or not one.shares:
            continue
        text = (
            f"the token times of {server.model!r} on {card.name} are estimated; measure them to share cards"
        )
        yield Finding(part, here, text)
    able = any(
        one.shares or card.slice or kind_of_profile(one) is not KINDS[0]
        for one, card in zip(with_memory, cards, strict=True)
    )
    if known and not able:
        text = (
            f"{server.model!r} cannot run on a part of a card; give its profiles shares, or times on slices"
        )
        yield Finding(part, here, text)
