"""Explanations of systems with routes and shared cards: each answer is that of a whole new solve."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import Json
from coupled_fleets import random_coupled
from slow_cases import mostly_slow, seeds

from optimizer import Plan, System, explain, find_candidates, load_system, solve, verify
from optimizer.pipeline import solve_in_full, solve_problem
from optimizer.render.explanation_sections import explanation_sections
from optimizer.render.explanation_text import interval_text, is_unsettled
from optimizer.render.money import Money
from optimizer.render.terminal import Output, show
from optimizer.solvers.blocks import SolvedBlocks, solve_in_blocks
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.problem import Problem, build_problem
from optimizer.solvers.solution import Solution, Status
from optimizer.studies.explanation.answering import all_answers
from optimizer.studies.explanation.base_plan import BasePlan
from optimizer.studies.explanation.explanation_document import EffectRange, Explanation
from optimizer.studies.explanation.resolving import QuestionBudget
from optimizer.studies.explanation.servers import server_questions
from optimizer.studies.explanation.targets import relaxed, target_questions, targets_of_servers
from optimizer.studies.explanation.units import unit_questions

SPECS = Path(__file__).resolve().parents[2] / "specs"


def text_of(explanation: Explanation) -> str:
    file = io.StringIO()
    show(explanation_sections(explanation), file, Output(wide=True))
    return " ".join(file.getvalue().split())


def whole(problem: Problem, deadline: Deadline) -> Solution:
    return solve_problem(problem, deadline=deadline)


def with_fewer(document: Json, kind: str, count: int) -> System:
    """Return a system with another number of cards of a type."""
    return load_system(document).with_capacity({kind: count})


def assert_routes_are_whole(plan: Plan, system: System) -> None:
    """Check that unserved routes have no replicas, and small models without a router only what runs now."""
    assert not [item for item in plan.unserved if 0 < item.served_fraction < 1]
    for use in plan.routes.values():
        for name in (use.small, use.large) if not use.served else ():
            assert not plan.allocations.get(name)
        running = system.servers[use.small].current.accelerator
        new = [pool for pool in plan.allocations.get(use.small, ()) if pool.accelerator != running]
        assert use.routed or not new


@pytest.mark.parametrize("seed", [0, 8, 9])
def test_no_incumbent_serves_a_part_of_a_route(seed: int) -> None:
    system = load_system(random_coupled(seed))
    stopped = solve(system, time_limit_s=1e-9)
    assert_routes_are_whole(stopped, system)
    assert verify(stopped, system) == []
    before = BasePlan(solve_in_full(system))
    for question in server_questions(before, range(len(system.servers)), in_depth=False).values():
        draft = before.draft(question.change(), restricts=True)
        assert not [share for share in draft.served_fraction.values() if 0 < share < 1]
        for route in system.routes.values():
            assert (
                route.large not in draft.served_fraction
                or not {route.small, route.large} & draft.pools.keys()
            )


# --- answers against whole solves of the changed document ------------------------------------------------


def assert_levels_are(found: Any, expected: Any) -> None:
    """Compare the levels of two plans, with the solver's tolerances."""
    for one, other in zip(found.levels, expected.levels, strict=True):
        assert one.name == other.name
        assert one.value == pytest.approx(other.value, rel=1e-7, abs=1e-5), one.name


def assert_answers_are_those_of_whole_solves(document: Json) -> None:
    """Solve the changed document from the start for every question: cards, targets and accelerators."""
    system, soon = load_system(document), QuestionBudget(Deadline.after(3600))
    before = BasePlan(solve_in_full(system))
    servers, names = range(len(system.servers)), list(system.servers)
    answers = all_answers(before, unit_questions(before), soon)
    for (place, sign), answer in answers.items():
        kind = before.problem.limits.items[place].item
        assert answer.interval is None
        assert_levels_are(answer.outcome, solve(with_fewer(document, kind, system.capacity[kind] + sign)))
    for target, answer in all_answers(before, target_questions(before, servers), soon).items():
        service_class, model, metric = target
        now = getattr(system.targets[service_class, model], f"{metric}_ms")
        looser = system.with_target(service_class, model, **{f"{metric}_ms": float(f"{now * 1.1:.12g}")})
        assert_levels_are(answer.outcome, solve(looser))
    questions = server_questions(before, servers, in_depth=True)
    for (s, only), answer in all_answers(before, questions, soon).items():
        server = system.servers[names[s]]
        taken = {pool.accelerator for pool in before.plan.allocations.get(names[s], ())}
        allowed = server.accelerators or tuple(system.accelerators)
        left = [name for name in allowed if (name not in taken if only is None else name == only)]
        if not server.shared_card:
            kept = system.with_planned({names[s]: server.model_copy(update={"accelerators": tuple(left)})})
            assert_levels_are(answer.outcome, solve(kept))
        elif only is not None:  # on cards of its own
            alone = server.model_copy(update={"accelerators": tuple(left), "shared_card": False})
            assert_levels_are(answer.outcome, solve(system.with_planned({names[s]: alone})))


@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_slow([1, 9, 0, *range(2, 9), *range(10, 90)], 2))
def test_every_answer_is_that_of_a_whole_new_solve(seed: int) -> None:
    assert_answers_are_those_of_whole_solves(random_coupled(seed))


# --- blocks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(2, 58))
def test_solved_blocks_are_the_solution_of_the_whole(seed: int) -> None:
    problem = build_problem(find_candidates(load_system(random_coupled(seed))))
    found = solve_in_blocks(problem, whole, Deadline.after(3600)).solution
    assert found.status is Status.optimal
    assert (problem.left_by(found.replicas) >= 0).all()
    assert_levels_are(found, solve_problem(problem))


def test_blocks_that_do_not_differ_keep_their_solutions() -> None:
    document = random_coupled(5)
    problem = build_problem(find_candidates(load_system(document)))
    known = solve_in_blocks(problem, whole, Deadline.after(3600))
    assert len(known.solutions) > 1
    solved: list[Problem] = []

    def noted(part: Problem, due: Deadline) -> Solution:
        solved.append(part)
        return whole(part, due)

    again = solve_in_blocks(problem, noted, Deadline.after(3600), known)
    assert (again.replicas == known.replicas).all()
    assert not solved


def test_bounds_behind_an_open_level_of_a_block_are_trivial() -> None:
    problem = build_problem(find_candidates(load_system(random_coupled(5))))
    known = solve_in_blocks(problem, whole, Deadline.after(3600))
    first, *_ = known.solutions
    solution = known.solutions[first]
    level = next(item for item in solution.levels if item.name == "value")
    lower = tuple(
        replace(item, bound=item.value - 5) if item.name == "value" else item for item in solution.levels
    )
    stopped = replace(solution, levels=lower, status=Status.feasible)
    found = SolvedBlocks(problem, known.block, known.solutions | {first: stopped}).solution
    assert found.status is Status.feasible
    assert level.value
    value, changes = found.levels[-2:]
    assert value.bound == pytest.approx(value.value - 5)
    assert changes.bound == 0


# --- words -----------------------------------------------------------------------------------------------


def test_looser_targets_find_the_patterns_of_shared_cards_again() -> None:
    """Rates on parts of cards depend on the targets, like those on whole cards."""
    document = random_coupled(2)
    system = load_system(document)
    candidates = find_candidates(system)
    targets = targets_of_servers(candidates, range(len(system.servers)))
    assert candidates.shared is not None
    for target in targets:
        looser = relaxed(candidates, {target: 1e6})
        fresh = find_candidates(system.with_target(target[0], target[1], **{f"{target[2]}_ms": 1e6}))
        assert looser.shared is not None
        assert fresh.shared is not None
        assert (looser.shared.rates_rps == fresh.shared.rates_rps).all()


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (-40.0, 0.0, "saves at most 40.00 cents/h"),
        (0.0, 40.0, "costs at most 40.00 cents/h"),
        (-1e6, -4.0, "saves at least 4.00 cents/h"),
        (-1e6, 4.0, "costs at most 4.00 cents/h"),
        (3.0, 4.0, "+3.00 to +4.00 cents/h"),
        (-1e6, 0.0, "not settled in time"),
    ],
)
def test_intervals_without_a_bound_are_words(low: float, high: float, text: str) -> None:
    system = load_system(random_coupled(0))
    plan = solve(system).model_copy(update={"total_cost_cents_per_h": 1000.0})
    interval = EffectRange(level="value", unit="cents/h", low=low, high=high)
    assert interval_text(interval, Money.of(plan), plan) == text
    assert is_unsettled(interval, plan) == (text == "not settled in time")


def test_a_small_model_without_cards_leaves_all_to_the_large_one() -> None:
    """The small model can run on one accelerator only, and the large one can take everything."""
    document = yaml.safe_load((SPECS / "routes.yaml").read_text(encoding="utf-8"))
    document["servers"][0]["accelerators"] = ["A100"]
    explained = explain(load_system(document))
    assert "chat-8b 5 × A100" in text_of(explained)
    assert "large model alone +" in text_of(explained)
    assert not solve(with_fewer(document, "A100", 0)).allocations.get("chat-8b")


@pytest.mark.slow
def test_an_unserved_route_names_its_router() -> None:
    document = yaml.safe_load((SPECS / "routes.yaml").read_text(encoding="utf-8"))
    text = text_of(explain(with_fewer(document, "H100", 8).with_capacity({"A100": 8})))
    assert "chat-70b (0% served): too few cards for route chat with its router; without it, " in text


def test_servers_on_shared_cards_are_not_called_idle() -> None:
    text = text_of(explain(load_system(SPECS / "shared-cards.yaml"), "embed"))
    assert "It runs on shared cards (" in text
    assert "idle" not in text


@pytest.mark.slow
def test_the_cheapest_repair_is_no_dearer_than_another() -> None:
    """With reserves, the cards of the plan of least value can be used for reserves, which come first."""
    system = load_system(SPECS / "multi-model-service").with_capacity({"T4": 9, "L4": 1})
    repair = explain(system).repair
    assert repair is not None
    assert repair.cheapest is not None
    others = [item for item in (repair.fewest, *repair.of_one_type) if item is not None]
    assert all(
        repair.cheapest.total_cost_cents_per_h <= item.total_cost_cents_per_h + 1e-6 for item in others
    )
