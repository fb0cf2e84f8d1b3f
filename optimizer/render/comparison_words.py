"""What a comparison comes to, in words: the same sentence for the terminal and for the page."""

from optimizer.render.money import Money, signed
from optimizer.studies.comparison.document import Comparison, Figures


def headline(found: Comparison) -> str:
    """Return in one sentence what a comparison comes to."""
    if not anything_runs(found):
        return f"Nothing runs, {found.first.label} or {found.second.label}: {_why_nothing(found)}."
    money = money_of(found)
    before, after = (cost_of(side) for side in (found.total.first, found.total.second))
    if found.same:
        both = f"{found.first.label} and {found.second.label}"
        return f"No difference: {both} run and serve the same, at {money.text(before)}."
    return _difference(found, before, after)


def _difference(found: Comparison, before: float, after: float) -> str:
    """Return in one sentence what the second side costs more, or less."""
    money = money_of(found)
    difference, share = found.total.difference.cost_cents_per_h, found.relative_cost_difference
    if money.is_nothing(difference):
        return f"The two plans cost the same, {money.text(before)}, but differ."
    by = money.text(abs(difference))
    percent = "" if share is None else f" ({signed(share, '.2%')})"
    costs = f"{found.first.label} {money.amount(before)}, {found.second.label} {money.amount(after)}"
    if found.kind == "scarcity" and not found.equal_service:
        return f"Scarcity has no price here, as the plans do not serve the same: {costs} {money.unit}."
    if found.kind == "scarcity" and difference > 0:
        return f"Scarcity costs {by}{percent}: {costs}."
    if found.kind == "load_change":
        return f"The load change {'costs' if difference > 0 else 'saves'} {by}{percent}: {costs}."
    return f"The second plan costs {by} {'more' if difference > 0 else 'less'}{percent}: {costs}."


def anything_runs(found: Comparison) -> bool:
    """Say whether any side has a replica."""
    return any(side and side.num_replicas for side in (found.total.first, found.total.second))


def _why_nothing(found: Comparison) -> str:
    if not found.servers:
        return "there are no servers"
    if not found.first.plan.unserved and not found.second.plan.unserved:
        return "every server is idle and needs no replicas"
    return "no server that has load can be served"


def money_of(found: Comparison) -> Money:
    """Return how the costs of a comparison are written."""
    return Money.of(found.first.plan, found.second.plan)


def cost_of(figures: Figures | None) -> float:
    """Return the cost of a side [cents/h]; one that is not there costs nothing."""
    return 0.0 if figures is None else figures.cost_cents_per_h
