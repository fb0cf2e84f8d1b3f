"""What a comparison comes to, in words: the same sentence for the terminal and for the page."""

from optimizer.studies.comparison.document import Comparison, Figures

HALF_A_HUNDREDTH = 0.005
"""A difference below this [cents/h] reads as none."""


def headline(found: Comparison) -> str:
    """Return in one sentence what a comparison comes to."""
    if not anything_runs(found):
        return f"Nothing runs, {found.first.label} or {found.second.label}: {_why_nothing(found)}."
    before, after = (cost_of(side) for side in (found.total.first, found.total.second))
    if found.same:
        both = f"{found.first.label} and {found.second.label}"
        return f"No difference: {both} run and serve the same, at {before:,.2f} cents/h."
    return _difference(found, before, after)


def _difference(found: Comparison, before: float, after: float) -> str:
    """Return in one sentence what the second side costs more, or less."""
    difference, share = found.total.difference.cost_cents_per_h, found.relative_cost_difference
    if abs(difference) < HALF_A_HUNDREDTH:
        return f"The two plans cost the same, {before:,.2f} cents/h, but differ."
    by = f"{abs(difference):,.2f} cents/h"
    percent = "" if share is None else f" ({signed(share, '.2%')})"
    costs = f"{found.first.label} {before:,.2f}, {found.second.label} {after:,.2f}"
    if found.kind == "scarcity" and not found.equal_service:
        return f"Scarcity has no price here, as the plans do not serve the same: {costs} cents/h."
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


def signed(value: float, form: str) -> str:
    """Return a difference with its sign; one that reads as nothing has none."""
    text = format(value, f"+{form}")
    return text if any(digit in text for digit in "123456789") else format(abs(value), form)


def cost_of(figures: Figures | None) -> float:
    """Return the cost of a side [cents/h]; one that is not there costs nothing."""
    return 0.0 if figures is None else figures.cost_cents_per_h
