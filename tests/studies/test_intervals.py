"""Intervals of answers about a plan: the difference of two plans solved to the end lies in them, always."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from mixed_oracles import random_mixed_document
from slow_cases import mostly_slow, seeds

from optimizer import Plan, System, load_system
from optimizer.generate import generate_system
from optimizer.parallel import in_processes
from optimizer.pipeline import solve_in_full, solve_problem
from optimizer.plan import make_plan
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.objectives import CHANGES
from optimizer.solvers.problem import build_problem
from optimizer.studies.explanation import answering
from optimizer.studies.explanation.answering import (
    Answer,
    Question,
    all_answers,
)
from optimizer.studies.explanation.base_plan import BasePlan
from optimizer.studies.explanation.resolving import QuestionBudget
from optimizer.studies.explanation.servers import server_questions
from optimizer.studies.explanation.targets import target_questions
from optimizer.studies.explanation.units import unit_questions

Make = Callable[..., System]
LIMITS_S = (0.0, 0.05, 0.4)
"""Time for all the questions of a plan: none, for some of them, and for most."""


@cache
def scarce_system(seed: int, *, mixed: bool) -> System:
    source = generate_system(5 + seed % 4, 5, 3, seed, tightness=1.3 + 0.3 * (seed % 3))
    return source.with_options(heterogeneous=mixed)


@cache
def odd_system(seed: int, *, mixed: bool) -> System:
    """Return a system with priorities, running servers, a price of moving and limits on replicas."""
    document = load_system(random_mixed_document(seed))
    policy = "RoundRobin" if seed % 3 == 2 else "None"
    return document.with_options(heterogeneous=mixed, unlimited=False, saturation_policy=policy)


def questions_of(before: BasePlan) -> Mapping[Any, Question]:
    servers = range(len(before.candidates.arrays.server_names))
    found: dict[Any, Question] = {}
    found.update(server_questions(before, servers, in_depth=False))
    found.update(unit_questions(before))
    found.update(target_questions(before, servers))
    return found


def solved(question: Question) -> Plan:
    candidates = question.change()
    problem = build_problem(candidates)
    return make_plan(candidates, problem, solve_problem(problem))


def assert_the_truth_is_inside(before: BasePlan, truth: Plan, answer: Answer, after: Plan) -> None:
    """Compare an answer with the two optima: exact before the level of its interval, inside at that level.

    Where a policy decides this holds for the levels that it leaves to the solver.
    """
    for base, was, found, now in zip(
        before.plan.levels, truth.levels, answer.outcome.levels, after.levels, strict=True
    ):
        true_change = now.value - was.value
        if was.name == CHANGES or was.name not in before.ordered:
            return
        if answer.interval is not None and answer.interval.level == was.name:
            slack = 1e-6 * max(1.0, abs(now.value))
            assert answer.interval.low - slack <= true_change <= answer.interval.high + slack, was.name
            return
        assert found.value - base.value == pytest.approx(true_change, rel=1e-7, abs=1e-5), was.name


@pytest.mark.slow
@pytest.mark.parametrize("mixed", mostly_slow([False, True], 1))
@pytest.mark.parametrize("make", [scarce_system, odd_system])
@pytest.mark.parametrize("seed", seeds(1, 59))
def test_the_difference_of_two_optima_is_in_every_interval(seed: int, make: Make, *, mixed: bool) -> None:
    source = make(seed, mixed=mixed)
    solved_in_full = solve_in_full(source)
    truth = solved_in_full.plan
    assert truth.status == "optimal"
    for found in (solved_in_full, solve_in_full(source, deadline=Deadline.after(1e-9))):
        before = BasePlan(found)
        questions = questions_of(before)
        optima = {key: solved(question) for key, question in questions.items()}
        for limit_s in LIMITS_S:
            answers = all_answers(before, questions, QuestionBudget(Deadline.after(limit_s)))
            assert answers.keys() == questions.keys()
            for key, answer in answers.items():
                assert_the_truth_is_inside(before, truth, answer, optima[key])


@pytest.mark.slow
def test_answers_from_other_processes_are_those_of_full_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "FIRST_SHARE", 0.0)
    monkeypatch.setattr(answering, "MANY_LEFT", 1)
    monkeypatch.setattr(answering, "may_start_processes", lambda: True)
    sent = []

    def noted(work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        for result in in_processes(work, items):
            sent.append(result)
            yield result

    monkeypatch.setattr(answering, "in_processes", noted)
    source = scarce_system(1, mixed=True)
    before = BasePlan(solve_in_full(source))
    questions = questions_of(before)
    answers = all_answers(before, questions, QuestionBudget(Deadline.after(3600)))
    assert sent
    assert all(answer.interval is None for answer in answers.values())
    for key, question in questions.items():
        assert_the_truth_is_inside(before, before.plan, answers[key], solved(question))
