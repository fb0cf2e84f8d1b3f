"""Value of limited items, such as cards: the plan with one step more or fewer, and the shadow price."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.candidates import Candidates
from optimizer.limits.budget import BUDGET
from optimizer.limits.cards import CARDS
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
"""Index of a limited item, and 1 for one step more or -1 for one step fewer."""


def unit_questions(before: BasePlan) -> dict[UnitQuestion, Question]:
    """Return the what-if questions with one step more and one step fewer of each limited item."""
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
    """Return the value of one step more and fewer of each type's cards, and of each other limit.

    Shadow prices are included if time permits.

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
        if (use.limit, use.item) in steps
    )
    return types, limits


def _askable(before: BasePlan) -> list[tuple[int, LimitItem]]:
    """Return the items of which one step can be added or removed, with their row indices."""
    items = enumerate(before.problem.limits.items)
    return [(place, row) for place, row in items if row.limit.has_steps and not row.limit.follows]


def _spares_one(before: BasePlan, place: int) -> bool:
    """Return whether one step fewer of an item changes nothing, because the plan leaves it unused.

    Unused cards count only if no saturation policy would use them.
    """
    policy = before.candidates.system.options.saturation_policy != "None" and not before.plan.complete
    left = -before.problem.limits.of_sources(-before.left)
    return not policy and bool(left[place] >= step_of(before, place))


def step_of(before: BasePlan, place: int) -> float:
    """Return the amount of an item by which what-if questions change it (math.md section 16).

    Unless the limit states a step, it is the largest amount that a replica of the plan uses, and at least the
    smallest amount that serves an unserved server.
    """
    problem, stated = before.problem, before.problem.limits.items[place].limit.step
    if stated is not None:
        return stated
    table, each = problem.table, problem.limits.used_of(place, np.ones(len(problem.table), np.int64))
    if problem.limits.items[place].limit.name == BUDGET:  # tiers: rows have the first step's price
        each = np.maximum(each, table.cost_per_replica)
    placed = each[before.replicas(problem) > 0].max(initial=0.0)
    missing = np.append(before.left_out, False)[table.server] & problem.full & (each > 0)
    needed = (each * table.num_replicas)[missing].min(initial=np.inf)
    least = each[each > 0].min(initial=np.inf)
    return float(next(step for step in (max(placed, needed), placed, least, 1.0) if 0 < step < np.inf))


def one_of(place: int, items: int) -> FloatArray:
    """Return an array of shape (R,) with one unit of the item at index `place`."""
    one = np.zeros(items)
    one[place] = 1.0
    return one


def _prices(candidates: Candidates, plan: Plan, deadline: Deadline) -> FloatArray | None:
    """Return the shadow price of each limited item for the servers that a plan serves in full, shape (R,).

    None if no prices are defined or time runs out.
    """
    problem = build_problem(candidates)
    if problem.serves_jointly:
        return None  # a price is defined only if all servers are served
    partly = {item.server for item in plan.unserved}
    served = np.array([name not in partly for name in candidates.arrays.server_names], dtype=np.bool_)
    return unit_prices(problem.of_servers(problem.with_partners(served)), deadline)
