"""Sentences that describe a comparison of two plans, the same for the terminal and for pages.

Changes of service and of reserves come first. A cost difference is called a cost or a saving only if both
plans serve the same load with the same reserves; if service differs, the cost per served request is added.
"""

from optimizer.quantities import be, counted, quantity
from optimizer.render.money import Money, signed
from optimizer.render.service_text import service_changes
from optimizer.studies.comparison.comparison_document import (
    Comparison,
    ComparisonType,
    ReserveChange,
    ServerChange,
    Side,
    SideMetrics,
)
from optimizer.text import capitalised, some_names

REQUESTS = 1000
"""Number of requests for which the cost of service is stated."""
_OPENINGS: dict[ComparisonType, str] = {
    "load_change": "Service changes with the load",
    "scarcity": "The limits change what is served",
}

_CHANGES: dict[ServerChange, str] = {
    "moved": "to other accelerators",
    "scaled": "to other replicas",
    "batch": "to another batch limit only",
    "started": "to something from nothing",
    "stopped": "to nothing",
    "added": "new",
    "removed": "gone",
}


_RESERVES: dict[ReserveChange, tuple[str, str]] = {
    "lost": ("loses its reserve", "lose their reserves"),
    "gained": ("gets its reserve", "get their reserves"),
    "other": ("requires another reserve", "require other reserves"),
}
"""Text for each change of reserves: singular for one server, plural for several."""


def headline(comparison: Comparison) -> str:
    """Describe the outcome of a comparison: differences in service and reserves, if any, and in cost."""
    if not anything_runs(comparison):
        sides = f"{comparison.first.label} or {comparison.second.label}"
        return f"Nothing runs, {sides}: {_why_nothing(comparison)}."
    if comparison.same:
        both, cost = (
            f"{comparison.first.label} and {comparison.second.label}",
            cost_of(comparison.total.first),
        )
        return f"No difference: {both} run and serve the same, at {money_of(comparison).text(cost)}."
    if not comparison.equal_service:
        more = "" if comparison.equal_reserves else f" {capitalised(reserve_changes(comparison))}."
        return (
            f"{_service_difference(comparison)}.{more} {_costs(comparison)}; {_cost_per_request(comparison)}."
        )
    if not comparison.equal_reserves:
        opening = "Every server is served to the same share, but not with the same reserve"
        return f"{opening}: {reserve_changes(comparison)}. {_costs(comparison)}."
    return _cost_difference(comparison)


def reserve_changes(comparison: Comparison) -> str:
    """Name the servers whose reserve differs between the two plans, in a sentence."""
    return "; ".join(
        f"{counted(len(names), 'server')} {words[len(names) > 1]}: {some_names(names)}"
        for change, words in _RESERVES.items()
        if (names := [row.server for row in comparison.servers if row.reserve == change])
    )


def _service_difference(comparison: Comparison) -> str:
    """Describe the difference in service between the two plans."""
    opening = _OPENINGS.get(comparison.kind, "The two sides do not serve the same")
    if any(row.first is None or row.second is None for row in comparison.servers):
        opening = "The two sides have different servers"
    changes = service_changes(comparison.priorities)
    return f"{opening}. {capitalised(changes)}" if changes else opening


def _costs(comparison: Comparison) -> str:
    """State the costs of both plans in a sentence."""
    money = money_of(comparison)
    before, after = (money.amount(cost_of(side)) for side in comparison.total.both)
    return f"Cost: {comparison.first.label} {before}, {comparison.second.label} {after} {money.unit}"


def _cost_per_request(comparison: Comparison) -> str:
    """State the cost of `REQUESTS` served requests in both plans."""
    money = money_of(comparison)
    texts = []
    for side, figures in zip(comparison.both, comparison.total.both, strict=True):
        per_h = 0.0 if figures is None else figures.carried_rate_rpm * 60
        cost = money.number(cost_of(figures) / per_h * REQUESTS) if per_h else None
        amount = "none served" if cost is None else f"{quantity(cost)} {money.sum_unit}"
        texts.append(f"{side.label} {amount}")
    return f"per {REQUESTS:,} served requests: {', '.join(texts)}"


def _cost_difference(comparison: Comparison) -> str:
    """State the cost difference of two plans that serve the same load."""
    money = money_of(comparison)
    before, after = (cost_of(side) for side in comparison.total.both)
    difference, share = comparison.total.difference.cost_cents_per_h, comparison.relative_cost_difference
    if not difference and not comparison.changed():
        return f"The two plans run the same replicas, at {money.text(before)}; loads or latencies differ."
    if not difference:
        return f"The two plans cost the same, {money.text(before)}, but differ."
    by = f"{money.distance(difference)} {money.unit}"
    percent = "" if share is None else f" ({signed(share, ',.2%')})"
    costs = (
        f"{comparison.first.label} {money.amount(before)}, {comparison.second.label} {money.amount(after)}"
    )
    if comparison.kind == "scarcity" and difference > 0:
        return f"The limits on cards cost {by}{percent}: {costs}."
    if comparison.kind == "load_change":
        return f"The load change {'costs' if difference > 0 else 'saves'} {by}{percent}: {costs}."
    return f"The second plan costs {by} {'more' if difference > 0 else 'less'}{percent}: {costs}."


def changes_text(comparison: Comparison) -> str:
    """State the number of changed servers by type of change."""
    changed = comparison.changed()
    counts = [
        f"{len(mine):,} {words}" for change, words in _CHANGES.items() if (mine := comparison.changed(change))
    ]
    verb = "changes" if len(changed) == 1 else "change"
    how = f": {', '.join(counts)}" if counts else ""
    queues = len(queue_names(comparison))
    of = counted(len(comparison.servers) - queues, "server") + (
        f" and {counted(queues, 'queue')}" if queues else ""
    )
    return f"{len(changed):,} of {of} {verb}{how}."


def queue_names(comparison: Comparison) -> frozenset[str]:
    """Return the names of the shared queues of either plan.

    Tables have rows for a shared queue in addition to the rows of its servers.
    """
    groups = frozenset[str]().union(*(side.plan.groups for side in comparison.both))
    return groups.intersection(row.server for row in comparison.servers)


def anything_runs(comparison: Comparison) -> bool:
    """Return whether at least one plan runs a replica."""
    return any(side and side.num_replicas for side in comparison.total.both)


def _why_nothing(comparison: Comparison) -> str:
    if not comparison.servers:
        return "there are no servers"
    reasons = [_why_nothing_of(*side) for side in zip(comparison.both, comparison.total.both, strict=True)]
    if reasons[0] == reasons[1]:
        return reasons[0]
    return "; ".join(f"{side.label} {reason}" for side, reason in zip(comparison.both, reasons, strict=True))


def _why_nothing_of(side: Side, figures: SideMetrics | None) -> str:
    """Explain why a plan runs nothing: its servers are idle or cannot be served."""
    servers, short = 0 if figures is None else figures.servers, len(side.plan.unserved)
    if not servers:
        return "there are no servers"
    if not short:
        return "every server is idle and needs no replicas"
    if short == servers:
        return "no server can be served"
    rest = servers - short
    return f"{counted(short, 'server')} cannot be served, and {rest:,} {be(rest)} idle"


def money_of(comparison: Comparison) -> Money:
    """Return the currency format for the costs of a comparison."""
    return Money.of(*(side.plan for side in comparison.both))


def cost_of(figures: SideMetrics | None) -> float:
    """Return the cost of a plan [cents/h]; 0 if the plan is missing."""
    return 0.0 if figures is None else figures.cost_cents_per_h
