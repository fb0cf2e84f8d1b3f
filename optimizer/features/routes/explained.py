"""Explains the cost of a route's quality limit by plans with other limits."""

from optimizer.candidates import SizingMemo, find_candidates
from optimizer.schema import Route
from optimizer.spec.system import System
from optimizer.studies.explanation.explanation_document import LossPrice
from optimizer.studies.explanation.outcome import PlanOutcome
from optimizer.studies.explanation.resolving import QuestionBudget, effect, solved

MIN_LIMIT = 0.01
"""Limit on quality loss that is tried instead of twice the limit if the limit is 0."""


def price_losses(
    system: System, before: PlanOutcome, budget: QuestionBudget, memo: SizingMemo
) -> tuple[LossPrice, ...]:
    """Plan each route with other quality limits (0, twice its limit, 1), as time permits; return the effects.

    Raises:
        SolverError: the solver failed.
    """
    asked = {
        (name, other): system.with_items(route.model_copy(update={"max_loss": other}))
        for name, route in system.routes.items()
        for other in _others(route)
    }
    losses = budget.ask(
        lambda other, due: solved(find_candidates(other, memo), due),
        asked,
        lambda key: f"the cost of route {key[0]} with maxLoss {key[1]:g}",
    )
    return tuple(
        LossPrice(
            route=name,
            max_loss=system.routes[name].max_loss,
            other=other,
            effect=effect(before, after, system),
        )
        for (name, other), after in losses.items()
    )


def _others(route: Route) -> list[float]:
    limit = route.max_loss
    return [other for other in sorted({0.0, min(2 * limit or MIN_LIMIT, 1.0), 1.0}) if other != limit]
