"""Offers of reserved accelerators: systems with reservations, and the best reservations for a given use.

A committed price tier is such an offer: up to `units` accelerators can be reserved at its price for the
entire time.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optimizer.documents import UnlimitedCards
from optimizer.features.tiers.fields import PriceTier
from optimizer.plan import Plan
from optimizer.plan.placements import placements_of
from optimizer.plan.tier_uses import accelerators_used, tier_cost, tier_uses
from optimizer.schema import Accelerator, Capacity
from optimizer.spec.system import System

Taken = Mapping[str, tuple[int, ...]]
"""Number of accelerators reserved in each committed tier, by accelerator."""


@dataclass(frozen=True, slots=True)
class Offers:
    """Offers of reservations: the committed price tiers of a system's accelerators."""

    by_accelerator: Mapping[str, tuple[PriceTier, ...]]

    @classmethod
    def of(cls, system: System) -> "Offers":
        """Return the offers of a system."""
        by_type = {
            name: tuple(tier for tier in item.tiers if tier.committed)
            for name, item in system.accelerators.items()
        }
        return cls({name: tiers for name, tiers in by_type.items() if tiers})

    @property
    def none(self) -> Taken:
        """Return zero reservations for all offers."""
        return {name: (0,) * len(tiers) for name, tiers in self.by_accelerator.items()}


def reserving(item: Accelerator, taken: Sequence[int]) -> Accelerator:
    """Return a copy of an accelerator with given numbers of it reserved in its committed tiers."""
    left, tiers = iter(taken), list[PriceTier]()
    for tier in item.tiers:
        units = next(left) if tier.committed else tier.units
        if units:
            tiers.append(tier.model_copy(update={"units": units}))
    return item.model_copy(update={"tiers": tuple(tiers)})


def with_reservations(system: System, taken: Taken) -> System:
    """Return a copy of a system in which reserved accelerators are paid for, whether used or not."""
    return system.with_items(*(reserving(system.accelerators[name], some) for name, some in taken.items()))


def at_lowest_prices(system: System) -> System:
    """Return a copy of a system in which reservations cost only if used, and moving is free."""
    changed = []
    for item in system.spec.accelerators:
        tiers = (tier.model_copy(update={"committed": False}) for tier in item.tiers)
        changed.append(item.model_copy(update={"tiers": tuple(tiers)}))
    return system.with_items(*changed).with_options(transition_penalty=0.0)


def by_cards(system: System) -> System:
    """Return a copy of a system in which every card costs the same, and moving is free."""
    priced = (
        item.model_copy(update={"cost_cents_per_h": float(item.multiplicity), "tiers": ()})
        for item in system.spec.accelerators
    )
    unlimited = (
        Capacity(type=item.type, count=UnlimitedCards())
        for item in system.spec.count
        if isinstance(item.cards, UnlimitedCards)
    )
    return system.with_items(*priced, *unlimited).with_options(transition_penalty=0.0)


def used_by(plan: Plan, system: System) -> Counter[str]:
    """Return the number of accelerators of each name that a plan uses."""
    return accelerators_used(system, placements_of(plan))


def best_reservations(
    system: System, offers: Offers, used: Sequence[Mapping[str, int]], hours: Sequence[float]
) -> Taken:
    """Return the number of accelerators to reserve from each offer, given those used in each interval.

    For each tier, the number with the minimum cost is chosen, the smallest one if several cost the same.

    Args:
        used: accelerators of each name used in each interval.
        hours: length of each interval [h].
    """
    taken = {}
    for name, tiers in offers.by_accelerator.items():
        spans = defaultdict[int, float](float)
        for one, length in zip(used, hours, strict=True):
            spans[one.get(name, 0)] += length
        taken[name] = _best_of(system.accelerators[name], tiers, spans)
    return taken


def _best_of(item: Accelerator, tiers: Sequence[PriceTier], spans: Mapping[int, float]) -> tuple[int, ...]:
    most = max(spans)
    best = [0] * len(tiers)
    for k, tier in enumerate(tiers):
        costs = []
        for units in range(min(tier.units, max(most - sum(best[:k]), 0)) + 1):
            reserved = reserving(item, [*best[:k], units, *best[k + 1 :]])
            costs.append(sum(length * tier_cost(reserved, count) for count, length in spans.items()))
        best[k] = costs.index(min(costs))
    return tuple(best)


def cost_with(plan: Plan, system: System, taken: Taken) -> float:
    """Return the cost of a plan with given reservations [cents/h].

    Args:
        plan: the plan, possibly made for other prices.
        system: the system at its own prices.
        taken: reserved accelerators of each tier.
    """
    used, rows = used_by(plan, system), placements_of(plan)
    total = sum(row.cost_cents_per_h for row in rows if row.mode == "external")
    for name, item in system.accelerators.items():
        reserved = reserving(item, taken[name]) if name in taken else item
        total += tier_cost(reserved, used[name])
    return float(total) + sum(
        use.difference_cents_per_h for use in tier_uses(system, rows) if use.type is not None
    )
