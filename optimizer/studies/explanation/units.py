"""What the units of each accelerator type are worth: one more, one fewer, and the shadow price."""

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates import Candidates
from optimizer.plan import Plan
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.expansion import unit_prices
from optimizer.solvers.problem import build_problem
from optimizer.studies.explanation.document import TypeExplanation
from optimizer.studies.explanation.resolving import Before, Inquiry, effect, plan_of, with_units


def explain_types(candidates: Candidates, plan: Plan, inquiry: Inquiry) -> tuple[TypeExplanation, ...]:
    """Solve again with one unit more and one unit fewer of each type, as far as there is time.

    Raises:
        SolverError: the solver failed.
    """
    if candidates.system.options.unlimited:
        return tuple(TypeExplanation(type=item.type, used=item.used) for item in plan.capacity)
    steps = [
        (t, step)
        for t in range(len(plan.capacity))
        for step in (1, -1)
        if candidates.arrays.capacity[t] + step >= 0
    ]
    types = len(plan.capacity)
    kinds, before = [item.type for item in plan.capacity], Before(candidates, plan)

    def solved(step: tuple[int, int], deadline: Deadline) -> Plan:
        changed = with_units(candidates, one_of(step[0], types) * step[1])
        return plan_of(changed, deadline, before, restricts=step[1] < 0)

    same = {(t, -1): plan for t in range(types) if _spares_one(plan, candidates, t)}
    plans = same | inquiry.ask(
        solved,
        {step: step for step in steps if step not in same},
        lambda step: f"one card {'more' if step[1] > 0 else 'fewer'} of {kinds[step[0]]}",
    )
    effects = {step: effect(plan, other, candidates.system) for step, other in plans.items()}
    found = inquiry.ask(
        lambda _, deadline: _prices(candidates, plan, deadline), {"": None}, lambda _: "shadow prices"
    )
    prices = found.get("")
    return tuple(
        TypeExplanation(
            type=item.type,
            limit=item.limit,
            used=item.used,
            left=None if item.limit is None else item.limit - item.used,
            one_more=effects.get((t, 1)),
            one_fewer=effects.get((t, -1)),
            shadow_price_cents_per_h=None if prices is None else round(float(prices[t]), 9) + 0.0,
        )
        for t, item in enumerate(plan.capacity)
    )


def _spares_one(plan: Plan, candidates: Candidates, kind: int) -> bool:
    """Return whether one unit fewer changes nothing: the best plan leaves one that no policy gives out."""
    limit = plan.capacity[kind].limit
    policy = candidates.system.options.saturation_policy != "None" and not plan.complete
    return plan.status == "optimal" and not policy and limit is not None and plan.capacity[kind].used < limit


def one_of(kind: int, types: int) -> IntArray:
    """Return one unit of a type, shape (T,)."""
    one = np.zeros(types, np.int64)
    one[kind] = 1
    return one


def _prices(candidates: Candidates, plan: Plan, deadline: Deadline) -> FloatArray | None:
    """Return the shadow prices of units for the servers that a plan serves in full."""
    from optimizer.solvers.highs import HighsSession

    problem = build_problem(candidates)
    partly = {item.server for item in plan.unserved}
    served = np.array([name not in partly for name in candidates.arrays.server_names], dtype=np.bool_)
    return unit_prices(problem.of_servers(served), HighsSession, deadline)
