"""The plan: a document with every server, built from a solution and verified independently of the solver."""

from optimizer.plan.build import make_plan
from optimizer.plan.document import CapacityUse, Change, Plan, PlanLevel, Unserved
from optimizer.plan.files import load_plan, load_system_or_plan, plan_from_value
from optimizer.plan.verify import verify
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
