"""The plan: a document that covers every server, built from a solution and verified without the solver."""

from typing import TYPE_CHECKING

from optimizer.lazy import names_of_modules

if TYPE_CHECKING:
    from optimizer.plan.build import make_plan
    from optimizer.plan.document import CapacityUse, Change, Plan, PlanLevel, Unserved
    from optimizer.plan.files import load_plan, load_system_or_plan, plan_from_value
    from optimizer.plan.verification import verify
    from optimizer.schema.pools import Placement, Pool, TargetFigure

__all__ = [
    "CapacityUse",
    "Change",
    "Placement",
    "Plan",
    "PlanLevel",
    "Pool",
    "TargetFigure",
    "Unserved",
    "load_plan",
    "load_system_or_plan",
    "make_plan",
    "plan_from_value",
    "verify",
]

__getattr__, __dir__ = names_of_modules(
    __name__,
    {
        "optimizer.plan.build": ("make_plan",),
        "optimizer.plan.document": ("CapacityUse", "Change", "Plan", "PlanLevel", "Unserved"),
        "optimizer.plan.files": ("load_plan", "load_system_or_plan", "plan_from_value"),
        "optimizer.plan.verification": ("verify",),
        "optimizer.schema.pools": ("Placement", "Pool", "TargetFigure"),
    },
)
