"""Sentences on a plan: its proof, and the load that other options would serve."""

from collections.abc import Callable, Iterable, Iterator

from optimizer.plan import Plan, PlanLevel, TargetFigure
from optimizer.quantities import be, percent
from optimizer.render.money import Money
from optimizer.solvers.objectives import CHANGES, OFF_PREFERRED, VALUE, unit_of_level
from optimizer.studies.overload import OtherOptions, Overload


def proof_text(plan: Plan, *, unlimited: bool) -> str:
    """Describe what is proved of a plan: that no other serves more, or costs less; or that nothing is.

    Args:
        plan: the plan.
        unlimited: whether the plan may use any number of cards.
    """
    cards = "with any number of cards" if unlimited else "with the cards that exist"
    if plan.status == "heuristic":
        return f"found by a heuristic {cards}, without proof"
    if plan.status == "feasible":
        above = f", at most {percent(plan.gap)} above the optimum" if plan.gap else ""
        return f"the best plan found in time {cards}{above}"
    decisive, more, what = _proved(plan)
    gap = max((level.gap for level in plan.levels if level.gap and decisive(level)), default=0.0)
    than = f"over {percent(gap)} {more}" if gap else more
    return f"proved: no plan {cards} {what.format(than)}"


def _proved(plan: Plan) -> tuple[Callable[[PlanLevel], bool], str, str]:
    """Return the levels that decide how good a plan is, the better direction, and what has it."""
    if not plan.complete:
        return is_service, "more", "serves {} load in full, priority by priority"
    if plan.lacks_reserve:
        return is_service, "more", "gives {} load its reserve"
    also = ", moves included" if any(change.before for change in plan.changes) else ""
    if any(level.name == OFF_PREFERRED for level in plan.levels):
        also += ", with as much load on preferred accelerators"
    return lambda level: level.name == VALUE, "less", f"costs {{}}{also}"


def is_service(level: PlanLevel) -> bool:
    """Return whether a lexicographic objective is about service, not about transition cost or changes."""
    return level.name not in (VALUE, CHANGES)


def level_unit(level: str, money: Money) -> str:
    """Return the unit of an objective's values.

    Args:
        level: name of the objective.
        money: currency of costs.
    """
    return money.unit if level == VALUE else unit_of_level(level)


def figures_text(figures: Iterable[TargetFigure]) -> str:
    """Return the values of targets as text, each with its limit in brackets."""
    return ", ".join(figure.text for figure in figures)


def overload_notes(overload: Overload) -> Iterator[str]:
    """Yield the reason that load is unserved although cards remain, and what full service first costs."""
    if overload.options:
        yield _cards_left(overload)
    if overload.in_part is not None:
        item = overload.in_part
        yield (
            f"Full service comes first: {item.served_rpm:,.0f} requests/min of priority {item.priority} are "
            f"served. Served in part, its servers could get {item.possible_rpm:,.0f} on the same cards."
        )


def _cards_left(overload: Overload) -> str:
    left = ", ".join(f"{count:,} {name}" for name, count in overload.cards_left.items())
    verb = be(sum(overload.cards_left.values()))
    return (
        f"{left} {verb} left while load is not served. The flags stand for saturationPolicy and "
        "heterogeneous of the document's optimizer."
    )


def flags_text(item: OtherOptions) -> str:
    """Return the flags of the command line that select other options."""
    policy = [] if item.saturation_policy is None else [f"--saturation {item.saturation_policy}"]
    return " ".join([*policy, *(["--mixed"] if item.heterogeneous else [])])
