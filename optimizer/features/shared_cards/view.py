"""Computes the shared cards of a plan: cards of each pattern, the servers on them, and their metrics.

Equation numbers refer to ``docs/math.md``.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from optimizer.arrays import IntArray
from optimizer.candidates import Candidates
from optimizer.candidates.measuring import ReplicaMetrics, measure_pairs
from optimizer.candidates.pairs import Pairs
from optimizer.candidates.table import Source
from optimizer.features.shared_cards.patterns import CardPattern, Occupant, SharedCards
from optimizer.features.shared_cards.turns import MARGIN, Turn, measure_turns, turn_of
from optimizer.features.shared_cards.uses import SharedCardUse, SharedPool
from optimizer.plan.document import Plan
from optimizer.plan.rows import origin_of, owner_of, pool_figures
from optimizer.queueing.measures import LOSS, TargetMeasure
from optimizer.queueing.targets import CARD_MISS_TOLERANCE, meets_target
from optimizer.schema.pools import Placement, TargetFigure
from optimizer.solvers.problem import Problem
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE

SHARED_NAME = "shared"
"""Prefix of the names of groups of shared cards; the names of their servers follow."""


def card_uses(candidates: Candidates, problem: Problem, replicas: IntArray) -> tuple[SharedCardUse, ...]:
    """Return the groups of shared cards in a solution, sorted by name.

    Args:
        problem: the planning problem.
        replicas: number of replicas of each candidate in the solution, shape (C,).
    """
    shared, table = candidates.shared, problem.table
    if shared is None:
        return ()
    on_cards = np.flatnonzero((table.source == Source.on_cards) & (replicas > 0))
    servers = frozenset(table.server[on_cards].tolist())
    units: Counter[CardPattern] = Counter()
    for c in np.flatnonzero((table.source == Source.units) & (replicas > 0)).tolist():
        kept = shared.patterns[int(table.pattern[c])].only(servers)
        if kept.occupants:
            units[kept] += int(replicas[c])
    return uses_of(candidates, shared, units)


def uses_of(
    candidates: Candidates, shared: SharedCards, units: Mapping[CardPattern, int]
) -> tuple[SharedCardUse, ...]:
    """Return the groups of shared cards for given numbers of cards of each pattern, sorted by name."""
    carried: dict[int, float] = {}
    for pattern, count in units.items():
        for (occupant, _), rate in zip(pattern.occupants, pattern.rates, strict=True):
            carried[occupant.server] = carried.get(occupant.server, 0.0) + count * rate
    loads = dict(zip(shared.servers.tolist(), shared.load_rps.tolist(), strict=True))
    shares = {s: loads[s] / rate for s, rate in carried.items()}
    uses, names = [], Counter[str]()
    for pattern, count in sorted(units.items(), key=lambda item: _order(candidates, item[0])):
        name = _name(candidates, pattern)
        names[name] += 1
        name += f"-{names[name]}" if names[name] > 1 else ""
        uses.append(_use(candidates, shared, name, pattern, count, shares))
    return tuple(sorted(uses, key=lambda use: use.name))


def card_names(plan: Plan, system: System) -> Iterator[str]:
    """Yield an error for each name in shared cards that does not exist in the system."""
    for name, count in Counter(use.name for use in plan.shared_cards).items():
        if count > 1:
            yield f"{name}: {count} times in sharedCards"
    for use in plan.shared_cards:
        card = system.accelerators.get(use.accelerator)
        if card is None or card.slice is not None:
            yield f"{use.name}: {use.accelerator} is not a card of the system"
        for item in use.servers:
            server = system.servers.get(item.server)
            if server is None or not server.shared_card:
                yield f"{use.name}: {item.server} is not a server that can share cards"
            elif (server.model, item.accelerator) not in system.profiles:
                yield f"{use.name}: no profile of {server.model} on {item.accelerator}"
            elif plan.allocations.get(item.server) != ():
                yield f"{item.server}: on shared cards, but not without pools in allocations"


def _order(candidates: Candidates, pattern: CardPattern) -> tuple[object, ...]:
    return _name(candidates, pattern), pattern.mode, pattern.occupants, pattern.rates


def _name(candidates: Candidates, pattern: CardPattern) -> str:
    servers = dict.fromkeys(
        candidates.arrays.server_names[occupant.server] for occupant, _ in pattern.occupants
    )
    return "-".join([SHARED_NAME, *servers])


def _use(
    candidates: Candidates,
    shared: SharedCards,
    name: str,
    pattern: CardPattern,
    count: int,
    shares: Mapping[int, float],
) -> SharedCardUse:
    """Return the plan's entry for a group of `count` cards with one pattern.

    `shares` is the load of each server divided by the rate that all its shared cards can carry, by index.
    """
    card = candidates.arrays.accelerator_names[pattern.accelerator]
    cost = count * candidates.system.accelerators[card].cost_cents_per_h
    # The cost of a card is divided by shares, by memory slices, or equally if servers take turns.
    each = [
        {"shares": occupant.uses[1], "slices": occupant.uses[0]}.get(occupant.mode, 1.0)
        for occupant, _ in pattern.occupants
    ]
    weights = [copies * one for (_, copies), one in zip(pattern.occupants, each, strict=True)]
    rates = [
        rate * shares[occupant.server]
        for (occupant, _), rate in zip(pattern.occupants, pattern.rates, strict=True)
    ]
    servers = [
        SharedPool(
            **_occupant_fields(candidates, shared, occupant, figures),
            num_replicas=copies * count,
            per_card=copies,
            cost_cents_per_h=cost * weight / sum(weights),
            arrival_rate_rpm=count * rate * SECONDS_PER_MINUTE,
            max_arrival_rate_rpm=count * most * SECONDS_PER_MINUTE,
            **figures,
        )
        for (occupant, copies), weight, rate, most, figures in zip(
            pattern.occupants, weights, rates, pattern.rates, _figures(shared, pattern, rates), strict=True
        )
    ]
    return SharedCardUse(
        name=name,
        accelerator=card,
        mode=pattern.mode,
        num_cards=count,
        cost_cents_per_h=cost,
        servers=tuple(servers),
    )


def _occupant_fields(
    candidates: Candidates, shared: SharedCards, occupant: Occupant, figures: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of a server's pool on an occupant that do not depend on the number of cards."""
    place = shared.arrays.accelerator_names[occupant.place]
    server = candidates.system.servers[candidates.arrays.server_names[occupant.server]]
    whole, whole_cost = cheapest_cards(candidates, occupant.server)
    accelerator = place if occupant.mode == "slices" else shared.card_of[place]
    return {
        "server": server.name,
        "accelerator": accelerator,
        "max_batch": occupant.max_batch,
        "memory_gb": shared.system.profiles[server.model, place].memory_gb,
        "share": occupant.uses[1] if occupant.mode == "shares" else None,
        "slowdown": occupant.slowdown if occupant.mode == "shares" else None,
        "whole_cards": whole,
        "whole_cost_cents_per_h": whole_cost,
        **owner_of(candidates.system, server.name, accelerator, 0),
        **origin_of(candidates.system, server.name, accelerator, figures["utilization"] * occupant.max_batch),
    }


def cheapest_cards(candidates: Candidates, s: int) -> tuple[Placement | None, float | None]:
    """Return the cheapest unshared cards for a server, and their cost [cents/h]; None if there are none."""
    table = candidates.table
    rows = np.flatnonzero(table.server == s)
    if not len(rows):
        return None, None
    best = rows[np.argmin(table.cost_cents_per_h[rows])]
    accelerator = candidates.arrays.accelerator_names[table.accelerator[best]]
    count = int(table.num_replicas[best])
    own = Placement(accelerator=accelerator, num_replicas=count)
    return own, float(table.cost_cents_per_h[best])


# --- figures -------------------------------------------------------------------------------------------


def _figures(shared: SharedCards, pattern: CardPattern, rates: Sequence[float]) -> list[dict[str, Any]]:
    """Return the metrics of each occupant by field name, at the occupants' rates on one card [requests/s]."""
    if pattern.mode == "time":
        return [
            figures.fields
            | {
                "targets": tuple(
                    TargetFigure.of(measure, value, limit)
                    for measure, (value, limit) in figures.targets.items()
                    if measure != LOSS and math.isfinite(limit)
                )
            }
            for figures in measure_turns(_turns(shared, pattern), np.array(rates))
        ]
    pairs, figures = _measured(shared, pattern, rates)
    return list(pool_figures(shared.arrays, shared.system, pairs, figures))


def missed_targets(shared: SharedCards, pattern: CardPattern) -> Iterator[tuple[str, str]]:
    """Yield the server and a text for each target that is missed at the maximum rates of a card."""
    for (occupant, _), targets in zip(pattern.occupants, _measured_targets(shared, pattern), strict=True):
        for measure, (value, limit) in targets.items():
            if not meets_target(value, limit, CARD_MISS_TOLERANCE):
                text = f"{measure.text(value)}, target {measure.text(limit)}"
                yield shared.names[occupant.server], f"{measure.label} at its largest rate is {text}"


def _measured_targets(
    shared: SharedCards, pattern: CardPattern
) -> Iterator[dict[TargetMeasure, tuple[float, float]]]:
    """Yield value and limit of each target of each occupant at the maximum rates of a card.

    Percentiles of servers that share a card in time include the model's safety factor.
    """
    if pattern.mode == "time":
        turns = _turns(shared, pattern)
        for turn, measured_targets in zip(turns, measure_turns(turns, np.array(pattern.rates)), strict=True):
            yield {
                measure: (_with_margin(measure, value - turn.delay_ms) + turn.delay_ms, limit)
                for measure, (value, limit) in measured_targets.targets.items()
            }
        return
    pairs, measured = _measured(shared, pattern, pattern.rates)
    targets = shared.arrays.servers.targets.take(pairs.server)
    for values, limits in zip(measured.targets.T.tolist(), targets.limits.T.tolist(), strict=True):
        yield dict(zip(targets.measures, zip(values, limits, strict=True), strict=True))


def _measured(
    shared: SharedCards, pattern: CardPattern, rates: Sequence[float]
) -> tuple[Pairs, ReplicaMetrics]:
    """Return the occupants as pairs, and the metrics of their replicas at `rates` [requests/s]."""
    names = shared.arrays.server_names
    pairs = Pairs.of(
        shared.arrays,
        np.array([names.index(shared.names[occupant.server]) for occupant, _ in pattern.occupants]),
        np.array([occupant.place for occupant, _ in pattern.occupants]),
        np.array([occupant.max_batch for occupant, _ in pattern.occupants]),
    )
    each_rps = np.array([rate / copies for rate, (_, copies) in zip(rates, pattern.occupants, strict=True)])
    return pairs, measure_pairs(shared.arrays, pairs, each_rps)


def _turns(shared: SharedCards, pattern: CardPattern) -> list[Turn]:
    occupants = [occupant for occupant, _ in pattern.occupants]
    turns = [
        turn_of(shared.system, shared.arrays, shared.names[s.server], s.place, s.max_batch) for s in occupants
    ]
    return [turn for turn in turns if turn is not None]


def _with_margin(measure: TargetMeasure, value_ms: float) -> float:
    return value_ms if measure.percentile is None else MARGIN * value_ms
