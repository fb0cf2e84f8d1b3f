"""Check that costs, cards and changes are the sums of the pools."""

import math
from collections.abc import Iterator

from optimizer.candidates.arrays import current_cost_cents_per_h
from optimizer.limits.cards import CARDS
from optimizer.limits.power import POWER
from optimizer.plan.checks.facts import RELATIVE_TOLERANCE, Facts, PoolCounts, close, differing
from optimizer.plan.document import Change, LimitUse
from optimizer.plan.power import power_at_load_w
from optimizer.quantities import be, counted, precise


def check_totals(facts: Facts) -> list[str]:
    """Return wrong sums."""
    return [*_costs(facts), *_units(facts), *_limits(facts), *_completeness(facts), *_changes(facts)]


def _costs(facts: Facts) -> Iterator[str]:
    for name, pool in facts.pools:
        cost, stated = facts.cost_of(name, pool), pool.cost_cents_per_h
        yield from differing(f"{name}: cost on {pool.accelerator} is", cost, stated)
    if facts.plan.currency != facts.system.currency:
        yield f"costs are in {facts.system.currency}, the plan says {facts.plan.currency}"
    yield from _tiers(facts)
    total = math.fsum([*facts.cost_cents_per_h.values(), *facts.cost_beside.values()])
    yield from differing("the allocations cost", total, facts.plan.total_cost_cents_per_h)


def _tiers(facts: Facts) -> Iterator[str]:
    """Check that every accelerator with tiers is listed, with its used number and cost."""
    said = [use.accelerator for use in facts.plan.tiers]
    if said != [*facts.tiered]:
        yield f"tiers: must be those of {[*facts.tiered]}, the plan says {said}"
        return
    for claim, (name, (used, cost)) in zip(facts.plan.tiers, facts.tiered.items(), strict=True):
        for word, value, stated in (
            ("used", used, claim.used),
            ("cost", cost, claim.cost_cents_per_h),
            ("difference", facts.cost_beside[name], claim.difference_cents_per_h),
        ):
            yield from differing(f"tiers: {word} of {name} is", value, stated)


def _units(facts: Facts) -> Iterator[str]:
    """Check that every accelerator type has a row with its available and used cards."""
    system, units, kept = facts.system, facts.units, facts.kept_units
    shown = {item.type: item for item in facts.plan.capacity}
    known = {item.type for item in system.accelerators.values()} | system.capacity.keys()
    for kind in sorted(known | shown.keys()):
        item, limit = shown.get(kind), facts.limit_of(kind)
        if kind not in known:
            yield f"{kind}: in capacity, but not in the system"
        elif item is None:
            yield f"{kind}: {_used(units[kind])}, the plan does not list them"
        else:
            if units[kind] != item.used:
                yield f"{kind}: {_used(units[kind])}, the plan says {item.used:,}"
            if limit != item.limit:
                verb = "exists" if limit == 1 else "exist"
                yield f"{kind}: {_count(limit)} {verb}, the plan says {_count(item.limit)}"
        if limit is not None and units[kind] + kept[kind] > limit:
            also = f" and {kept[kind]:,} kept" if kept[kind] else ""
            yield f"{kind}: {_used(units[kind])}{also}, {limit:,} exist"


def _limits(facts: Facts) -> Iterator[str]:
    """Check the listed amounts and use of limits other than cards, and that they are not exceeded."""
    shown = {(use.limit, use.item): use for use in facts.plan.limits}
    if len(shown) < len(facts.plan.limits):
        yield "limits: one is listed twice"
    for limit, amounts in facts.amounts.items():
        if limit.name == CARDS:
            continue
        for item, amount in amounts.items():
            use, used = shown.pop((limit.name, item), None), facts.used[limit].get(item, 0.0)
            if use is None:
                yield f"{limit.name}: {item}: {precise(used)} used, the plan does not list it"
            elif not close(use.used, used) or not close(use.amount, amount):
                stated = f"{precise(use.used)} of {precise(use.amount)}"
                text = f"{precise(used)} of {precise(amount)} used, the plan says {stated}"
                yield f"{limit.name}: {item}: {text}"
            if use is not None:
                yield from _at_load(facts, use)
            kept = facts.kept_use[limit].get(item, 0.0)
            if used + kept > amount * (1 + RELATIVE_TOLERANCE):
                yield f"{limit.name}: {item}: {precise(used + kept)} used, there is {precise(amount)}"
    for name, item in shown:
        yield f"{name}: {item}: in limits, but the system has no such limit"


def _at_load(facts: Facts, use: LimitUse) -> Iterator[str]:
    """Check the power at the load; no other limit depends on it."""
    true = None
    if use.limit == POWER and all(pool.num_replicas >= 1 for _, pool in facts.pools):
        true = float(power_at_load_w(facts.system, facts.arrays, facts.pools).sum())
    stated = use.used_at_load
    if (true is None) != (stated is None) or (
        true is not None and stated is not None and not close(true, stated)
    ):
        yield f"{use.limit}: {true} used at the load, the plan says {stated}"


def _used(cards: int) -> str:
    return f"{counted(cards, 'card')} {be(cards)} used"


def _count(limit: int | None) -> str:
    return "cards without limit" if limit is None else counted(limit, "card")


def _completeness(facts: Facts) -> Iterator[str]:
    if facts.plan.complete != (not facts.plan.unserved):
        yield "complete contradicts the list of unserved servers"


def _changes(facts: Facts) -> Iterator[str]:
    """Check that every changed server is listed, with its change of cost."""
    stated = {item.server: item for item in facts.plan.changes}
    for name in sorted(stated.keys() - facts.system.servers.keys()):
        yield f"{name}: in changes, but not in the system"
    for name in facts.system.servers:
        item = stated.get(name)
        if item is None:
            if name in facts.changed:
                yield f"{name}: changes, but is not listed in changes"
        elif name not in facts.changed:
            yield f"{name}: does not change, but is listed in changes"
        else:
            yield from _change(facts, item)


def _change(facts: Facts, item: Change) -> Iterator[str]:
    listed = (("from", item.before), ("to", item.after))
    for (word, places), true in zip(listed, facts.placed[item.server], strict=True):
        stated = tuple((place.accelerator, place.num_replicas) for place in places)
        if true != stated:
            yield f"{item.server}: changes {word} {_shown(true)}, the plan says {_shown(stated)}"
    cost = facts.cost_cents_per_h[item.server] - current_cost_cents_per_h(facts.system, item.server)
    yield from differing(f"{item.server}: cost changes by", cost, item.cost_change_cents_per_h)


def _shown(placed: PoolCounts) -> str:
    return " + ".join(f"{replicas} x {accelerator}" for accelerator, replicas in placed) or "nothing"
