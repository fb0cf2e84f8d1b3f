"""Costs of accelerators with price tiers in a plan; its pools state list prices."""

from collections import Counter
from collections.abc import Iterable, Mapping

from optimizer.plan.document import Pool, SharedCardUse, TierUse
from optimizer.spec.schema import Accelerator
from optimizer.spec.system import System


def tier_uses(
    system: System, allocations: Mapping[str, Iterable[Pool]], cards: Iterable[SharedCardUse] = ()
) -> tuple[TierUse, ...]:
    """Return the cost of each accelerator with tiers, including shared cards (eq. 147)."""
    used = accelerators_used(system, allocations, cards)
    return tuple(
        TierUse(
            accelerator=item.name,
            used=used[item.name],
            cost_cents_per_h=tier_cost(item, used[item.name]),
            difference_cents_per_h=tier_cost(item, used[item.name]) - used[item.name] * item.cost_cents_per_h,
        )
        for item in system.accelerators.values()
        if item.tiers
    )


def accelerators_used(
    system: System, allocations: Mapping[str, Iterable[Pool]], cards: Iterable[SharedCardUse]
) -> Counter[str]:
    """Return the number of accelerators of each name used by pools and shared cards."""
    used: Counter[str] = Counter()
    for name, pools in allocations.items():
        for pool in pools:
            profile = system.profiles.get((system.servers[name].model, pool.accelerator))
            used[pool.accelerator] += pool.num_replicas * (profile.acc_count if profile else 1)
    for use in cards:
        used[use.accelerator] += use.num_cards
    return used


def tier_cost(item: Accelerator, used: int) -> float:
    """Return the cost of a number of accelerators, including unused commitments [cents/h]."""
    cost, left = 0.0, used
    for tier in sorted(item.tiers, key=lambda tier: not tier.committed):
        taken = min(left, tier.units)
        cost += (tier.units if tier.committed else taken) * tier.cost_cents_per_h
        left -= taken
    return cost + left * item.cost_cents_per_h


def difference_cents_per_h(uses: Iterable[TierUse]) -> float:
    """Return the difference between tier prices and list prices of the pools [cents/h]."""
    return sum(use.difference_cents_per_h for use in uses)
