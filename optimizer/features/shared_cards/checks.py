"""Checks the shared cards of a plan: whether replicas fit on a card, and all stated numbers.

A pattern is a combination of replicas on one card. The check finds the pattern with the stated servers, batch
limits and maximum rates among all patterns of the system, and recomputes the numbers from it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from optimizer.candidates import Candidates, SizingMemo, find_candidates
from optimizer.features.shared_cards.offers import find_patterns
from optimizer.features.shared_cards.patterns import CardPattern, Occupant, SharedCards
from optimizer.features.shared_cards.uses import SharedCardUse
from optimizer.features.shared_cards.view import missed_targets, uses_of
from optimizer.plan.checks.differences import close, differences
from optimizer.plan.checks.facts import Facts
from optimizer.quantities import precise
from optimizer.tolerances import SAME
from optimizer.units import SECONDS_PER_MINUTE

MEMORY_SLICES, COMPUTE_SLICES, ALL_SHARES = 8, 7, 1.0
"""Capacity of one card: memory slices, compute slices, and shares of the compute."""
MAX_TURNS = 4
"""Maximum number of servers that share a card in time."""


def check(facts: Facts, candidates: Candidates | None) -> list[str]:
    """Return the errors in a plan's shared cards.

    Args:
        facts: facts of the plan and its system.
        candidates: candidates of the system; None sizes the servers again.
    """
    uses = facts.plan.shared_cards
    if not uses:
        return []
    problems = [f"{use.name}: {line}" for use in uses for line in _room(facts, use)]
    if problems:
        return problems
    known = candidates or _sized(facts)
    shared = known.shared
    assert shared is not None
    units, problems = _units(known, shared, uses)
    if problems:
        return problems
    given = units if candidates else ()  # what is sized here is not measured again
    missed = [f"{name}: {line}" for pattern in given for name, line in missed_targets(shared, pattern)]
    return [*missed, *_loads(facts), *differences(uses_of(known, shared, units), uses, "sharedCards")]


def _sized(facts: Facts) -> Candidates:
    """Find the candidates of the servers that can share cards: alone, and together as the plan states."""
    uses, memo = facts.plan.shared_cards, SizingMemo()
    sharing = {name: server for name, server in facts.whole.servers.items() if server.shared_card}
    alone = {name: server.model_copy(update={"shared_card": False}) for name, server in sharing.items()}
    system, names = replace(facts.whole, servers=MappingProxyType(sharing)), [*sharing]
    in_turns = {frozenset(item.server for item in use.servers) for use in uses if use.mode == "time"}
    shared = find_patterns(
        system,
        partial(find_candidates, memo=memo),
        lambda servers: facts.on_cards & {names[s] for s in servers} in in_turns,
    )
    candidates = find_candidates(replace(system, servers=MappingProxyType(alone)), memo)
    return replace(candidates, system=system, shared=shared)


def _units(
    candidates: Candidates, shared: SharedCards, uses: Sequence[SharedCardUse]
) -> tuple[Counter[CardPattern], list[str]]:
    """Return the number of cards of each pattern in the plan, and errors for cards that match no pattern."""
    names = candidates.arrays.server_names
    servers = frozenset(names.index(item.server) for use in uses for item in use.servers)
    known: dict[tuple[object, ...], list[CardPattern]] = {}
    for pattern in (one.only(servers) for one in shared.patterns):
        occupants = tuple(
            (names[occupant.server], copies, *_place(shared, occupant))
            for occupant, copies in pattern.occupants
        )
        card = candidates.arrays.accelerator_names[pattern.accelerator]
        known.setdefault((card, pattern.mode, occupants), []).append(pattern)
    units, problems = Counter[CardPattern](), list[str]()
    for use in uses:
        occupants = tuple(
            (item.server, item.per_card, item.accelerator, item.share, item.slowdown, item.max_batch)
            for item in use.servers
        )
        rates = [item.max_arrival_rate_rpm / SECONDS_PER_MINUTE / use.num_cards for item in use.servers]
        options = known.get((use.accelerator, use.mode, occupants), [])
        first = next((one for one in options if all(map(close, rates, one.rates))), None)
        if first is None:
            shown = " or ".join(_rates(one.rates) for one in options) or "nothing"
            problems.append(f"{use.name}: a card carries {shown} requests/s, the plan says {_rates(rates)}")
        else:
            units[first] += use.num_cards
    return units, problems


def _place(shared: SharedCards, occupant: Occupant) -> tuple[object, ...]:
    """Return the accelerator, share, slowdown and batch limit of an occupant, as plans state them."""
    name = shared.arrays.accelerator_names[occupant.place]
    if occupant.mode != "shares":
        return name, None, None, occupant.max_batch
    return shared.card_of[name], occupant.uses[1], occupant.slowdown, occupant.max_batch


def _rates(rates: Sequence[float]) -> str:
    return " + ".join(precise(rate) for rate in rates)


def _loads(facts: Facts) -> Iterator[str]:
    """Yield an error for each server whose shared cards cannot carry its load."""
    for name, items in facts.plan.on_shared_cards.items():
        load, most = facts.load_rpm[name], math.fsum(item.max_arrival_rate_rpm for item in items)
        if most < load * (1 - SAME) or name in facts.listed:
            yield f"{name}: its shared cards carry {precise(most)} of {precise(load)} requests/min"


def _room(facts: Facts, use: SharedCardUse) -> Iterator[str]:
    """Yield an error if the replicas of one card exceed its memory or compute (eq. 230)."""
    if use.num_cards < 1 or not use.servers or any(item.per_card < 1 for item in use.servers):
        yield f"{use.num_cards} cards with {len(use.servers)} servers"
    card = facts.whole.accelerators[use.accelerator]
    if use.mode == "slices":
        parts = [(item.per_card, facts.whole.accelerators[item.accelerator].slice) for item in use.servers]
        memory = sum(count * part.memory for count, part in parts if part)
        compute = sum(count * part.compute for count, part in parts if part)
        if memory > MEMORY_SLICES or compute > COMPUTE_SLICES:
            there = f"a card has {MEMORY_SLICES} and {COMPUTE_SLICES}"
            yield f"{memory} memory and {compute} compute slices, {there}"
        return
    memory_gb = math.fsum(item.per_card * item.memory_gb for item in use.servers)
    if memory_gb > card.memory_gb * (1 + SAME):
        yield f"{precise(memory_gb)} GB of memory, a card has {precise(card.memory_gb)} GB"
    shares = math.fsum(item.per_card * (item.share or 0.0) for item in use.servers)
    if shares > ALL_SHARES + SAME:
        yield f"shares add up to {precise(shares)}, a card has {precise(ALL_SHARES)}"
    count = sum(item.per_card for item in use.servers)
    if use.mode == "whole" and count > 1:
        yield f"{count} replicas on a full card"
    if use.mode == "time" and (count > MAX_TURNS or count > len({item.server for item in use.servers})):
        yield f"{count} replicas share a card in time, at most one replica of each of {MAX_TURNS} servers can"
