"""Computes the costs of accelerators with price tiers in a plan, whose pools state list prices."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from optimizer.plan.document import TierUse
from optimizer.plan.placements import PlacementGroup
from optimizer.schema import Accelerator
from optimizer.spec.prices import tiered
from optimizer.spec.system import System


def tier_uses(system: System, rows: Iterable[PlacementGroup]) -> tuple[TierUse, ...]:
    """Return the cost of each accelerator and type with price tiers, including shared cards (eq. 147)."""
    used = accelerators_used(system, rows)
    return (*_of_accelerators(system, used), *_of_types(system, used))


def _of_types(system: System, used: Mapping[str, int]) -> Iterator[TierUse]:
    """Yield the cost of the types with a different price for further cards."""
    for units in tiered(system.accelerators, system.capacity):
        if not units.is_type:
            continue
        of_type = [item for item in system.accelerators.values() if item.type == units.name]
        cards = sum(used.get(item.name, 0) * item.multiplicity for item in of_type)
        # Cards up to `count` have the list price, further ones the price `more`.
        (owned, _), (_, more) = units.steps
        # Only the difference to the list price is stated, because pools state list prices.
        extra = max(cards - owned, 0.0) * (more - units.listed)
        yield TierUse(
            type=units.name,
            used=cards,
            cost_cents_per_h=cards * units.listed + extra,
            difference_cents_per_h=extra,
        )


def _of_accelerators(system: System, used: Mapping[str, int]) -> tuple[TierUse, ...]:
    """Return the cost of each accelerator with price tiers."""
    numbers = ((item, used.get(item.name, 0)) for item in system.accelerators.values() if item.tiers)
    return tuple(
        TierUse(
            accelerator=item.name,
            used=number,
            cost_cents_per_h=tier_cost(item, number),
            difference_cents_per_h=tier_cost(item, number) - number * item.cost_cents_per_h,
        )
        for item, number in numbers
    )


def accelerators_used(system: System, rows: Iterable[PlacementGroup]) -> Counter[str]:
    """Return the number of accelerators that placements use, by name."""
    used: Counter[str] = Counter()
    for row in (row for row in rows if row.mode != "external"):
        profile, (group, accelerator) = None, row.spot
        if row.mode == "own":
            profile = system.profiles.get((system.servers[group].model, accelerator))
        used[accelerator] += row.count * (profile.acc_count if profile else 1)
    return used


def tier_cost(item: Accelerator, used: int) -> float:
    """Return the cost of a number of accelerators, including unused commitments [cents/h]."""
    cost, left = 0.0, used
    # Committed units are paid anyway, so they are used first.
    for tier in sorted(item.tiers, key=lambda tier: not tier.committed):
        taken = min(left, tier.units)
        # A commitment costs all its units, other tiers those that are used.
        cost += (tier.units if tier.committed else taken) * tier.cost_cents_per_h
        left -= taken
    return cost + left * item.cost_cents_per_h
