"""Finds the patterns of shared cards: combinations of replicas of servers with `sharedCard` on one card.

Each part of a card (the full card, a share, or a slice) becomes an accelerator of an auxiliary system, in
which each server is sized alone. Servers that share a card in time are sized together, with fixed proportions
of their rates. Equation numbers refer to ``docs/math.md``.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from optimizer.arrays import frozen, grouped, sorted_by_key
from optimizer.candidates.caution import slower
from optimizer.candidates.table import Candidates
from optimizer.errors import SpecError
from optimizer.features.shared_cards.patterns import (
    COMPUTE_SLICES,
    MEMORY_SLICES,
    CardPattern,
    Occupant,
    SharedCards,
    SharingMode,
    maximal,
)
from optimizer.features.shared_cards.turns import largest_rates_rps, turn_of
from optimizer.schema import Accelerator, AllocationData, ModelProfile, Server
from optimizer.spec.system import System

MAX_PATTERNS = 1000
"""Maximum number of patterns per accelerator."""
MAX_TURNS = 4
"""Maximum number of servers that share a card in time; the model was validated with 2 to 4."""
MIN_LOAD_PART = 0.01
"""Fraction of a load below which its remainder after full cards is ignored in the proportions of rates."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a card, represented as an accelerator of the auxiliary system that is sized."""

    name: str
    source: str
    """Name of the accelerator whose token or batch times apply: the card or the slice."""
    card: str
    mode: SharingMode
    uses: tuple[float, float]
    """Amounts that the part uses of a card: memory and a share of the compute, or memory and compute slices.
    """
    slowdown: float = 1.0
    model: str | None = None
    """Only model that can run in the part, if it is a share; None if any can."""


def find_patterns(
    system: System,
    size: Callable[[System], Candidates],
    can_take_turns: Callable[[frozenset[int]], bool] = lambda _: True,
) -> SharedCards:
    """Return the patterns of shared cards of a system that has servers with `sharedCard`.

    Args:
        size: function that finds the candidates of a system without shared cards.
        can_take_turns: whether the servers with these indices can share a card in time.

    Raises:
        SpecError: an accelerator has too many patterns.
    """
    sharing = {name: server for name, server in system.servers.items() if server.shared_card}
    parts = {part.name: part for part in _parts(system, {server.model for server in sharing.values()})}
    sized = size(_divided(system, sharing, parts))
    occupants = _seats(system, sized, parts)
    index = {name: s for s, name in enumerate(system.servers)}
    rates = zip(sized.arrays.server_names, sized.arrays.servers.load_rps.tolist(), strict=True)
    loads = {index[name]: rate for name, rate in rates}
    patterns: list[CardPattern] = []
    for a, card in enumerate(system.accelerators.values()):
        of_mode = grouped((occupant.mode, occupant) for occupant in occupants.get(card.name, []))
        whole, shares, slices = (of_mode.get(mode, []) for mode in ("whole", "shares", "slices"))
        patterns += [CardPattern(a, "whole", ((occupant, 1),), (occupant.rate_rps,)) for occupant in whole]
        patterns += _multisets((a, card), "shares", shares, (card.memory_gb, 1.0))
        patterns += _multisets((a, card), "slices", slices, (MEMORY_SLICES, COMPUTE_SLICES))
        patterns += _turns(system, sized, (a, card), whole, loads, can_take_turns)
    servers = sorted({occupant.server for pattern in patterns for occupant, _ in pattern.occupants})
    return SharedCards(
        tuple(patterns),
        frozen(np.array(servers, np.int64)),
        frozen(np.array([loads[s] for s in servers])),
        tuple(system.servers),
        sized.system,
        sized.arrays,
        MappingProxyType({name: part.card for name, part in parts.items()}),
    )


# --- parts of cards ------------------------------------------------------------------------------------


def _parts(system: System, models: set[str]) -> Iterator[_Part]:
    """Yield the parts of cards: slices, full cards, and the shares that profiles of the models state."""
    for name, card in system.accelerators.items():
        if card.slice is not None:
            uses = float(card.slice.memory), float(card.slice.compute)
            yield _Part(name, name, card.slice.card, "slices", uses)
        elif card.multiplicity == 1:
            yield _Part(name, name, name, "whole", (0.0, 1.0))
            for model in sorted(models):
                profile = system.profiles.get((model, name))
                for i, one in enumerate(profile.shares if profile else ()):
                    share = f"{name} {model} {i}"
                    yield _Part(share, name, name, "shares", (0.0, one.share), one.slowdown, model)


def _divided(system: System, sharing: Mapping[str, Server], parts: Mapping[str, _Part]) -> System:
    """Return the auxiliary system: the sharing servers, with parts of cards as unlimited accelerators."""
    accelerators: dict[str, Accelerator] = {}
    profiles: dict[tuple[str, str], ModelProfile] = {}
    by_source: dict[str, list[_Part]] = {}
    for part in parts.values():
        changes = {"name": part.name, "slice": None, "tiers": ()}
        accelerators[part.name] = system.accelerators[part.source].model_copy(update=changes)
        by_source.setdefault(part.source, []).append(part)
    for (model, name), profile in system.profiles.items():
        for part in by_source.get(name, ()):
            if part.model in (None, model) and _fits(system.accelerators[name], profile):
                shown = slower(profile, part.slowdown) if part.slowdown > 1 else profile
                profiles[model, part.name] = shown.model_copy(update={"accelerator": part.name})
    known = {model for model, _ in profiles}
    servers = {name: _alone(server, parts) for name, server in sharing.items() if server.model in known}
    options = {"unlimited": True, "heterogeneous": False, "budget_cents_per_h": None}
    return replace(
        system,
        accelerators=sorted_by_key(accelerators),
        profiles=sorted_by_key(profiles),
        servers=MappingProxyType(servers),
        options=system.options.model_copy(update=options),
        kept=MappingProxyType({}),
    )


def _fits(card: Accelerator, profile: ModelProfile) -> bool:
    alone = profile.acc_count == 1 and not profile.is_estimated
    return alone and 0 < profile.memory_gb <= card.memory_gb


def _alone(server: Server, parts: Mapping[str, _Part]) -> Server:
    """Return a copy of the server for sizing on each part alone, without its current allocation."""
    allowed = server.accelerators
    names = tuple(
        name for name, part in parts.items() if allowed is None or {part.source, part.card} & {*allowed}
    )
    current = AllocationData(load=server.current.load)
    changes = {"shared_card": False, "accelerators": names, "external": None, "current": current}
    return server.model_copy(update=changes)


def _seats(system: System, sized: Candidates, parts: Mapping[str, _Part]) -> dict[str, list[Occupant]]:
    """Return the occupants that meet targets at all rates up to their maximum, by name of the card."""
    index = {name: s for s, name in enumerate(system.servers)}
    table, seats = sized.table, dict[str, list[Occupant]]()
    for c in np.flatnonzero(table.meets_targets_below_max_rate).tolist():
        name = sized.arrays.server_names[table.server[c]]
        part = parts[sized.arrays.accelerator_names[table.accelerator[c]]]
        memory_gb = sized.system.profiles[system.servers[name].model, part.name].memory_gb
        occupant = Occupant(
            index[name],
            int(table.accelerator[c]),
            part.mode,
            int(table.max_batch[c]),
            float(table.max_rate_rps[c]),
            part.uses if part.mode == "slices" else (memory_gb, part.uses[1]),
            part.slowdown,
        )
        if table.load_rps[c] > 0:
            seats.setdefault(part.card, []).append(occupant)
    return seats


# --- patterns ------------------------------------------------------------------------------------------


def _multisets(
    card: tuple[int, Accelerator],
    mode: SharingMode,
    occupants: Sequence[Occupant],
    limits: tuple[float, float],
) -> Iterator[CardPattern]:
    """Yield the patterns in shares or slices to which no replica can be added (eq. 230)."""
    counts = maximal(occupants, limits, MAX_PATTERNS) if occupants else []
    if counts is None:
        raise SpecError(
            f"accelerators.{card[1].name}: more than {MAX_PATTERNS} ways to share a card in {mode}; give "
            "fewer servers sharedCard, or limit their accelerators"
        )
    for numbers in counts:
        taken = tuple((occupant, count) for occupant, count in zip(occupants, numbers, strict=True) if count)
        yield CardPattern(card[0], mode, taken, tuple(count * occupant.rate_rps for occupant, count in taken))


def _turns(
    system: System,
    sized: Candidates,
    card: tuple[int, Accelerator],
    occupants: Sequence[Occupant],
    loads: Mapping[int, float],
    can_take_turns: Callable[[frozenset[int]], bool],
) -> Iterator[CardPattern]:
    """Yield the patterns in which servers share a card in time, in proportion to their loads (eq. 232).

    A second set of patterns has the proportions of the loads that remain after filling full cards.

    Args:
        sized: the candidates of parts of cards.
        card: the card's accelerator, with its index.
        occupants: the occupants on the full card.
        loads: load of each server [requests/s], by index.
        can_take_turns: as for `find_patterns`.
    """
    names = tuple(system.servers)
    tried = [
        (
            occupant,
            turn_of(sized.system, sized.arrays, names[occupant.server], occupant.place, occupant.max_batch),
        )
        for occupant in occupants
    ]
    shares = [
        system.profiles[system.servers[names[occupant.server]].model, card[1].name].shares
        for occupant in occupants
    ]
    turns = {
        occupant: turn for (occupant, turn), some in zip(tried, shares, strict=True) if turn and not some
    }
    for count in range(2, MAX_TURNS + 1):
        for some in itertools.combinations(turns, count):
            if sum(occupant.uses[0] for occupant in some) > card[1].memory_gb:
                continue
            if not can_take_turns(frozenset(occupant.server for occupant in some)):
                continue
            mixes = dict.fromkeys(
                tuple(_mix(occupant, loads[occupant.server], whole=whole) for occupant in some)
                for whole in (False, True)
            )
            for mix in mixes:
                rates = largest_rates_rps([turns[occupant] for occupant in some], np.array(mix))
                if rates is not None:
                    taken = tuple((occupant._replace(mode="time"), 1) for occupant in some)
                    yield CardPattern(card[0], "time", taken, tuple(rates.tolist()))


def _mix(occupant: Occupant, load_rps: float, *, whole: bool) -> float:
    """Return the proportion of an occupant: its server's load, or with `whole` the rest after full cards.

    If (almost) nothing remains, it is the entire load.
    """
    left = load_rps - np.floor(load_rps / occupant.rate_rps) * occupant.rate_rps if whole else load_rps
    return float(left if left > MIN_LOAD_PART * load_rps else load_rps)
