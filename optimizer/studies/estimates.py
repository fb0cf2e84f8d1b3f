"""Cost of not measuring token times: the plan at the middle of the estimates, compared with the actual plan.

Plans use the slow end of the intervals of estimated profiles, because missing a target is worse than an
unneeded replica. The difference to the middle shows whether measuring pays.
"""

from pydantic import Field

from optimizer.candidates import SizingMemo
from optimizer.documents import Document
from optimizer.pipeline import solve
from optimizer.plan import Plan
from optimizer.schema import EstimateEnd
from optimizer.solvers.deadline import Deadline
from optimizer.spec.system import System

LIMIT_S = 10.0
"""Time limit for planning at the middle of the estimates [s]."""
SLOW: EstimateEnd = "upper"
MIDDLE: EstimateEnd = "middle"


class PlanAtEnd(Document):
    """Size of a plan at one point of the intervals of estimated token times."""

    estimates: EstimateEnd
    """Point of the intervals: `upper` (the slow end) or `middle`."""
    served_in_full: int = Field(alias="servedInFull")
    """Number of servers served in full."""
    cards: int
    """Number of cards that the plan uses."""
    total_cost_cents_per_h: float = Field(alias="totalCost")
    """Total cost of the plan [cents/h]."""


class EstimatePrice(Document):
    """Sizes of the plan at the slow end of the estimates, and of the plan at their middle."""

    servers: int
    """Number of servers in the system."""
    upper: PlanAtEnd
    """The actual plan, at the slow end of the estimates."""
    middle: PlanAtEnd | None = None
    """The plan at the middle of the estimates; null if it was not solved in time."""


def price_of_estimates(
    system: System, plan: Plan, *, limit_s: float = LIMIT_S, memo: SizingMemo | None = None
) -> EstimatePrice | None:
    """Return the sizes of the plan and of a plan at the middle of the estimates.

    None if the plan does not use the slow end of the estimates.

    Args:
        limit_s: time limit of the second plan [s].
        memo: cache of sizings.

    Raises:
        SolverError: the solver failed, or a plan does not pass verification.
    """
    if system.options.estimates != SLOW or not _is_estimated(system):
        return None
    limit_s = min(limit_s, system.options.time_limit_s)
    other = system.with_options(estimates=MIDDLE).with_rate_factors(plan.factor_of_pair)
    result = solve(other, deadline=Deadline.after(limit_s), memo=memo)
    # An interrupted solve is not reproducible, so its result is not used.
    middle = None if result.status == "feasible" else _size(result, system, MIDDLE)
    return EstimatePrice(servers=len(system.streams), upper=_size(plan, system, SLOW), middle=middle)


def _is_estimated(system: System) -> bool:
    """Return whether any server can run with estimated token times."""
    models = {server.model for server in system.servers.values()}
    return any(profile.is_estimated for (model, _), profile in system.profiles.items() if model in models)


def _size(plan: Plan, system: System, end: EstimateEnd) -> PlanAtEnd:
    served, cards = len(system.streams) - len(plan.unserved), sum(use.used for use in plan.capacity)
    return PlanAtEnd.taken_from(plan, estimates=end, served_in_full=served, cards=cards)
