"""What is said of the proof of a plan, the same in tables and reports."""

from optimizer.plan import Plan, PlanLevel
from optimizer.solvers.levels import CHANGES, VALUE


def proved(plan: Plan) -> str:
    """Return how far a plan is proved whose solver ended with a proof: exactly, or within the gap."""
    return "proved within the gap" if any(level.gap for level in plan.levels) else "proved optimal"


def is_service(level: PlanLevel) -> bool:
    """Return whether a level is about service, not about value or changes."""
    return level.name not in (VALUE, CHANGES)
