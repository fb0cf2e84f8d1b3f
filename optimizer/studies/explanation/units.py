"""Value of limited items, such as the cards of each type: one more, one fewer, and the shadow price."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.candidates import Candidates
from optimizer.limits.cards import CARDS
from optimizer.limits.tiers import TIERS
from optimizer.plan import Plan
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.expansion import unit_prices
from optimizer.solvers.problem import build_problem
from optimizer.studies.explanation.answering import Answer, Question, effect_of
from optimizer.studies.explanation.base_plan import BasePlan
from optimizer.studies.explanation.document import LimitExplanation, TypeExplanation, UnitValues
from optimizer.studies.explanation.intervals import interval_of
from optimizer.studies.explanation.resolving import QuestionBudget, with_more

UnitQuestion = tuple[int, int]
"""A limited item, and 1 for one unit more or -1 for one fewer."""


def unit_questions(before: BasePlan) -> dict[UnitQuestion, Question]:
    """Return the question for one unit more and one unit fewer of each item."""
    candidates, limits = before.candidates, before.problem.limits
    questions = {}
    for place, row in enumerate(limits.items):
        if row.limit.name == TIERS or row.limit.follows:
            continue
        for sign in (1, -1):
            step = one_of(place, len(limits)) * sign * row.limit.step
            if limits.amount[place] + step[place] >= 0 and not (sign < 0 and _spares_one(before, place)):
                change = partial(with_more, candidates, limits.items, step)
                questions[place, sign] = Question(change, "better" if sign > 0 else "worse")
    return questions


def explain_units(
    before: BasePlan, answers: Mapping[UnitQuestion, Answer], budget: QuestionBudget
) -> tuple[tuple[TypeExplanation, ...], tuple[LimitExplanation, ...]]:
    """Return the value of one unit more or fewer from the answers, with shadow prices if time permits.

    Returns:
        The values for the cards of each type, and for other limits.

    Raises:
        SolverError: the solver failed.
    """
    plan, items = before.plan, before.problem.limits.items
    same = Answer(before.outcome, interval_of(before.outcome, before.outcome, "worse", before.ordered))
    limited = [place for place, row in enumerate(items) if row.limit.name != TIERS and not row.limit.follows]
    spare = {(place, -1): same for place in limited if _spares_one(before, place)}
    effects = {step: effect_of(before, answer) for step, answer in (spare | dict(answers)).items()}
    prices = None
    if items:
        ask = partial(_prices, before.candidates, plan)
        prices = budget.ask(lambda _, due: ask(due), {"": None}, lambda _: "shadow prices").get("")
    values = {
        row.key: UnitValues(
            one_more=effects.get((place, 1)),
            one_fewer=effects.get((place, -1)),
            shadow_price_cents_per_h=None if prices is None else round(float(prices[place]), 9) + 0.0,
        )
        for place, row in enumerate(items)
        if not row.limit.follows
    }
    types = tuple(
        TypeExplanation(
            type=item.type,
            limit=item.limit,
            used=item.used,
            left=None if item.limit is None else item.limit - item.used,
            **dict(values.get((CARDS, item.type), UnitValues())),
        )
        for item in plan.capacity
    )
    limits = tuple(
        LimitExplanation(
            **dict(use), left=max(use.amount - use.used, 0.0), **dict(values[use.limit, use.item])
        )
        for use in plan.limits
        if (use.limit, use.item) in values
    )
    return types, limits


def _spares_one(before: BasePlan, place: int) -> bool:
    """Return whether one unit fewer changes nothing, because the plan leaves one that no policy uses."""
    policy = before.candidates.system.options.saturation_policy != "None" and not before.plan.complete
    left = -before.problem.limits.of_sources(-before.left)
    return not policy and bool(left[place] >= before.problem.limits.items[place].limit.step)


def one_of(place: int, items: int) -> FloatArray:
    """Return one unit of an item, shape (R,)."""
    one = np.zeros(items)
    one[place] = 1.0
    return one


def _prices(candidates: Candidates, plan: Plan, deadline: Deadline) -> FloatArray | None:
    """Return the shadow prices of units for the servers that a plan serves in full."""
    from optimizer.milp.highs import HighsSession

    problem = build_problem(candidates)
    if problem.is_compact_only:
        return None  # a price is defined only if all servers are served
    partly = {item.server for item in plan.unserved}
    served = np.array([name not in partly for name in candidates.arrays.server_names], dtype=np.bool_)
    return unit_prices(problem.of_servers(problem.with_partners(served)), HighsSession, deadline)
