"""What the units of each accelerator type are worth: one more, one fewer, and the shadow price."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates import Candidates
from optimizer.plan import Plan
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.expansion import unit_prices
from optimizer.solvers.problem import build_problem
from optimizer.studies.explanation.answering import Answer, Question, effect_of
from optimizer.studies.explanation.before import Before
from optimizer.studies.explanation.document import TypeExplanation
from optimizer.studies.explanation.intervals import interval_of
from optimizer.studies.explanation.resolving import Inquiry, with_units

UnitQuestion = tuple[int, int]
"""An accelerator type, and 1 for a unit more or -1 for one fewer."""


def unit_questions(before: Before) -> dict[UnitQuestion, Question]:
    """Return the question for one unit more and one unit fewer of each type."""
    candidates = before.candidates
    if candidates.system.options.unlimited:
        return {}
    types = len(before.plan.capacity)
    return {
        (t, step): Question(
            partial(with_units, candidates, one_of(t, types) * step), "better" if step > 0 else "worse"
        )
        for t in range(types)
        for step in (1, -1)
        if candidates.arrays.capacity[t] + step >= 0 and not (step < 0 and _spares_one(before, t))
    }


def explain_types(
    before: Before, answers: Mapping[UnitQuestion, Answer], inquiry: Inquiry
) -> tuple[TypeExplanation, ...]:
    """Say what units are worth by the answers to their questions, with shadow prices if there is time.

    Raises:
        SolverError: the solver failed.
    """
    candidates, plan = before.candidates, before.plan
    if candidates.system.options.unlimited:
        return tuple(TypeExplanation(type=item.type, used=item.used) for item in plan.capacity)
    same = Answer(plan, interval_of(plan, plan, "worse", before.ordered))
    spare = {(t, -1): same for t in range(len(plan.capacity)) if _spares_one(before, t)}
    effects = {step: effect_of(before, answer) for step, answer in (spare | dict(answers)).items()}
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


def _spares_one(before: Before, kind: int) -> bool:
    """Return whether one unit fewer changes nothing: the plan leaves one that no policy gives out."""
    use = before.plan.capacity[kind]
    policy = before.candidates.system.options.saturation_policy != "None" and not before.plan.complete
    return not policy and use.limit is not None and use.used < use.limit


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
