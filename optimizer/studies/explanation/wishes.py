"""Costs of reserves, limits and other options: the plan without an option, minus the plan.

Each option is removed from the entire system, which is then sized and planned again.
"""

from optimizer.candidates import SizingMemo, find_candidates
from optimizer.schema import OptimizerOptions
from optimizer.spec.changes import CHANGES, OPTIONS, SystemChange
from optimizer.spec.system import System
from optimizer.studies.explanation.explanation_document import WishCost
from optimizer.studies.explanation.outcome import PlanOutcome
from optimizer.studies.explanation.resolving import QuestionBudget, effect, solved

_RESERVES = ("headroomShare", "rollBack", "spareReplicas", "availabilityTarget", "rollout", "safety")
_LIMITS = tuple(
    name
    for name, python in OPTIONS.items()
    if CHANGES[name].is_quantity and OptimizerOptions.model_fields[python].exclude_if
)
"""Numeric options that documents can omit, such as limits; named as in documents."""
REMOVABLE = tuple(dict.fromkeys([*_RESERVES, *_LIMITS, "preferred", "tiers", "external"]))
"""Options whose cost is stated; named as in documents."""


def wish_costs(
    system: System, before: PlanOutcome, budget: QuestionBudget, memo: SizingMemo
) -> tuple[WishCost, ...]:
    """Return the cost of each removable option that a system uses, as far as time permits.

    Raises:
        SolverError: the solver failed.
    """
    asked = {name: SystemChange(name).applied_to(system) for name in REMOVABLE}
    used = {name: other for name, other in asked.items() if other is not system}
    if not used:
        return ()
    costs = budget.ask(
        lambda other, due: solved(find_candidates(other, memo), due), used, lambda name: f"what {name} costs"
    )
    return tuple(
        WishCost(option=name, without=effect(before, after, system)) for name, after in costs.items()
    )
