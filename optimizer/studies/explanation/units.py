"""Value of limited items, such as the cards of each type: one step more or fewer, and the shadow price."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.candidates import Candidates
from optimizer.limits.budget import BUDGET
from optimizer.limits.cards import CARDS
from optimizer.limits.tier_rows import PRICE_ROWS
from optimizer.plan import Plan
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.expansion import unit_prices
from optimizer.solvers.limit_rows import LimitItem
from optimizer.solvers.problem import build_problem
from optimizer.studies.explanation.answering import Answer, Question, effect_of
from optimizer.studies.explanation.base_plan import BasePlan
from optimizer.studies.explanation.explanation_document import LimitExplanation, TypeExplanation, UnitValues
from optimizer.studies.explanation.intervals import interval_of
from optimizer.studies.explanation.resolving import QuestionBudget, with_more

UnitQuestion = tuple[int, int]
"""A limited item, and 1 for one unit more or -1 for one fewer."""


def unit_questions(before: BasePlan) -> dict[UnitQuestion, Question]:
    """Return the question for one unit more and one unit fewer of each item."""
    candidates, limits = before.candidates, before.problem.limits
    questions = {}
    for place, _ in _askable(before):
        for sign in (1, -1):
            step = one_of(place, len(limits)) * sign * step_of(before, place)
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
    spare = {(place, -1): same for place, _ in _askable(before) if _spares_one(before, place)}
    effects = {step: effect_of(before, answer) for step, answer in (spare | dict(answers)).items()}
    ask = partial(_prices, before.candidates, plan)
    asked = {"": None} if items else {}
    prices = budget.ask(lambda _, due: ask(due), asked, lambda _: "shadow prices").get("")
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
            **dict(item),
            left=None if item.limit is None else item.limit - item.used,
            **dict(values.get((CARDS, item.type), UnitValues())),
        )
        for item in plan.capacity
    )
    steps = {row.key: step_of(before, place) for place, row in _askable(before)}
    limits = tuple(
        LimitExplanation(
            **dict(use),
            left=max(use.amount - use.used, 0.0),
            step=steps[use.limit, use.item],
            **dict(values[use.limit, use.item]),
        )
        for use in plan.limits
        if (use.limit, use.item) in values
    )
    return types, limits


def _askable(before: BasePlan) -> list[tuple[int, LimitItem]]:
    """Return the items that can have one unit more or fewer, with their places."""
    items = enumerate(before.problem.limits.items)
    return [
        (place, row) for place, row in items if row.limit.name not in PRICE_ROWS and not row.limit.follows
    ]


def _spares_one(before: BasePlan, place: int) -> bool:
    """Return whether one unit fewer changes nothing, because the plan leaves one that no policy uses."""
    policy = before.candidates.system.options.saturation_policy != "None" and not before.plan.complete
    left = -before.problem.limits.of_sources(-before.left)
    return not policy and bool(left[place] >= step_of(before, place))


def step_of(before: BasePlan, place: int) -> float:
    """Return the amount of an item that explanations add and take away (math.md section 16).

    Unless the limit states a step, it is the largest use of a replica of the plan, and at least the use of
    the unserved server that needs the least.
    """
    problem, stated = before.problem, before.problem.limits.items[place].limit.step
    if stated is not None:
        return stated
    table, each = problem.table, problem.limits.used_of(place, np.ones(len(problem.table), np.int64))
    if problem.limits.items[place].limit.name == BUDGET:  # with tiers, rows state the price of the first step
        each = np.maximum(each, table.cost_per_replica)
    placed = each[before.replicas(problem) > 0].max(initial=0.0)
    missing = np.append(before.left_out, False)[table.server] & problem.full & (each > 0)
    needed = (each * table.num_replicas)[missing].min(initial=np.inf)
    least = each[each > 0].min(initial=np.inf)
    return float(next(step for step in (max(placed, needed), placed, least, 1.0) if 0 < step < np.inf))


def one_of(place: int, items: int) -> FloatArray:
    """Return one unit of an item, shape (R,)."""
    one = np.zeros(items)
    one[place] = 1.0
    return one


def _prices(candidates: Candidates, plan: Plan, deadline: Deadline) -> FloatArray | None:
    """Return the shadow prices of units for the servers that a plan serves in full."""
    problem = build_problem(candidates)
    if problem.is_compact_only:
        return None  # a price is defined only if all servers are served
    partly = {item.server for item in plan.unserved}
    served = np.array([name not in partly for name in candidates.arrays.server_names], dtype=np.bool_)
    return unit_prices(problem.of_servers(problem.with_partners(served)), deadline)
