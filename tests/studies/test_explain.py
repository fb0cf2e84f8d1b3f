"""What an explanation says, against full solves of changed systems and brute force."""

import itertools
import random
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from builders import accelerator, document, random_document, running, server, service_class, system
from slow_cases import mostly_slow, seeds

from optimizer import Explanation, Plan, SpecError, System, explain, find_candidates, load_system, solve
from optimizer.candidates import SizingMemo
from optimizer.generate import generate_system
from optimizer.solvers.deadline import Deadline, OutOfTimeError
from optimizer.solvers.solution import Status
from optimizer.studies.explanation.explanation_document import Effect
from optimizer.studies.explanation.intervals import interval_of
from optimizer.studies.explanation.outcome import PlanOutcome
from optimizer.studies.explanation.repair import find_repair
from optimizer.studies.explanation.resolving import QuestionBudget, no_worse

SPECS = Path(__file__).resolve().parents[2] / "specs"
SEEDS = mostly_slow(range(12), 3)
POLICIES = ("None", "RoundRobin", "PriorityExhaustive")


@cache
def a_random_system(seed: int, *, mixed: bool = False) -> System:
    """Return one of two kinds: by hand with everything odd in it, and realistic with latency targets."""
    source = load_system(random_document(random.Random(seed)))
    if seed % 2:
        source = generate_system(3 + seed % 2, 4, 3, seed, tightness=1.0 + seed % 3)
    return source.with_options(heterogeneous=mixed, saturation_policy=POLICIES[seed % 3])


@cache
def explanation(seed: int, *, mixed: bool = False) -> Explanation:
    return explain(a_random_system(seed, mixed=mixed))


def served_shares(plan: Plan, names: Iterable[str]) -> dict[str, float]:
    left = {item.server: item.served_fraction for item in plan.unserved}
    return {name: left.get(name, 1.0) for name in names}


def assert_effect_is_the_difference(effect: Effect, before: Plan, after: Plan, names: list[str]) -> None:
    """Compare an effect with two plans that were solved from their documents."""
    cost = after.total_cost_cents_per_h - before.total_cost_cents_per_h
    assert effect.cost_change_cents_per_h == pytest.approx(cost, abs=1e-6)
    assert effect.value_change_cents_per_h == pytest.approx(after.objective - before.objective, abs=1e-6)
    was, is_now = served_shares(before, names), served_shares(after, names)
    short = [{item.server for item in plan.unserved} for plan in (before, after)]
    changed = {name for name in names if abs(was[name] - is_now[name]) > 1e-9} | short[0] ^ short[1]
    assert {item.server for item in effect.service} == changed
    for item in effect.service:
        assert (item.served_before, item.served_after) == (was[item.server], is_now[item.server])
    if effect.serves == "same":
        assert sum(item.load_change_rpm for item in effect.service) == pytest.approx(0, abs=1e-6)


def kept_off(source: System, name: str, banned: set[str]) -> System:
    """Return the system with a server that may run on every accelerator it may use now, but for some."""
    mine = source.servers[name]
    allowed = source.accelerators if mine.accelerators is None else mine.accelerators
    left = tuple(sorted(set(allowed) - banned))
    return source.with_planned({name: mine.model_copy(update={"accelerators": left})})


# --- the next-best alternative ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_next_best_alternative_forced_costs_what_was_said(seed: int, *, mixed: bool) -> None:
    source, found = a_random_system(seed, mixed=mixed), explanation(seed, mixed=mixed)
    for item in found.servers:
        chosen = {pool.accelerator for pool in item.pools}
        assert (item.next_best is None) == (not chosen)
        if item.next_best is None:
            continue
        forced = solve(kept_off(source, item.server, chosen))
        assert_effect_is_the_difference(item.next_best.effect, found.plan, forced, list(source.servers))
        named = {pool.accelerator: pool.num_replicas for pool in item.next_best.pools}
        assert not chosen & named.keys()
        assert named == {
            pool.accelerator: pool.num_replicas for pool in forced.allocations.get(item.server, ())
        }
        if named:  # and kept to the alternative alone it costs the same
            alone = solve(kept_off(source, item.server, set(source.accelerators) - named.keys()))
            assert alone.objective == pytest.approx(forced.objective, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 3))
def test_in_depth_every_candidate_forced_costs_what_was_said(seed: int) -> None:
    source = a_random_system(seed)
    plan = solve(source)
    for name in source.servers:
        (item,) = explain(source, name).servers
        for option in item.options:
            assert option.forced is not None
            forced = solve(kept_off(source, name, set(source.accelerators) - {option.accelerator}))
            assert_effect_is_the_difference(option.forced.effect, plan, forced, list(source.servers))


def test_a_sole_accelerator_has_no_serving_alternative() -> None:
    source = system(
        [server("a", accelerators=["A0"]), server("b", 120.0)],
        [accelerator("A0"), accelerator("A1", cost=20.0)],
        {"A0": 9, "A1": 9},
    )
    first = explain(source).servers[0]
    assert first.next_best is not None
    assert first.next_best.pools == ()
    (change,) = first.next_best.effect.service
    assert (change.server, change.load_change_rpm, change.served_after) == ("a", -60.0, 0.0)
    assert first.next_best.effect.serves == "less"


# --- units -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_value_of_a_unit_is_the_difference_of_two_solves(seed: int, *, mixed: bool) -> None:
    source, found = a_random_system(seed, mixed=mixed), explanation(seed, mixed=mixed)
    for item in found.types:
        limit = source.capacity.get(item.type, 0)
        assert item.limit == limit
        assert item.left == limit - item.used
        for step, effect in ((1, item.one_more), (-1, item.one_fewer)):
            if limit + step < 0:
                assert effect is None
                continue
            assert effect is not None
            changed = solve(source.with_capacity({item.type: limit + step}))
            assert_effect_is_the_difference(effect, found.plan, changed, list(source.servers))


def with_limit(seed: int, option: str, share: float) -> System:
    """Return a random system whose power or cost is limited to a share of what it takes without a limit."""
    rng = random.Random(seed)
    source = random_document(rng)
    source["optimizer"] |= {"unlimited": False, "milpSolver": True, "saturationPolicy": "None"}
    for item in source["accelerators"]:
        full = rng.randrange(100, 900)
        item["power"] = {"idle": 20, "full": full, "midPower": full * 0.8, "midUtil": 0.6}
    plenty = solve(load_system(source | {"optimizer": source["optimizer"] | {option: 1e9}}))
    (use,) = plenty.limits
    return load_system(source | {"optimizer": source["optimizer"] | {option: max(share * use.used, 1.0)}})


@pytest.mark.slow
@pytest.mark.parametrize("option", mostly_slow(["maxPower", "budget"], 1))
def test_a_step_of_power_or_money_changes_plans(option: str) -> None:
    field = {"maxPower": "max_power_w", "budget": "budget_cents_per_h"}[option]
    moved = 0
    for seed in range(8):
        source = with_limit(seed, option, 0.75)
        found = explain(source)
        (item,) = found.limits
        for sign, effect in ((1, item.one_more), (-1, item.one_fewer)):
            amount = item.amount + sign * item.step
            assert (effect is None) == (amount < 0)
            if effect is not None:
                changed = solve(source.with_options(**{field: amount}))
                assert_effect_is_the_difference(effect, found.plan, changed, list(source.servers))
                moved += bool(effect.service or effect.value_change_cents_per_h)
    assert moved >= 8  # by the watt and by the cent it is 0


@pytest.mark.slow
def test_a_step_serves_the_unserved_server_that_needs_least() -> None:
    cards = [
        accelerator("A", cost=40.0) | {"power": {"idle": 50, "full": 400, "midPower": 300, "midUtil": 0.5}}
    ]
    source = system(
        [server("small", replicas=1), server("large", 60, replicas=5), server("huge", 60, replicas=9)],
        cards, {"A": 99}, budget=100.0,
    )  # fmt: skip
    (item,) = explain(source).limits
    assert (item.used, item.step) == (40.0, 200.0)  # five replicas at 40 cents/h
    assert item.one_more is not None
    assert [change.server for change in item.one_more.service] == ["large"]
    assert item.one_fewer is None  # there are less than 200 cents/h


@pytest.mark.slow
def test_a_server_that_the_budget_leaves_out_needs_more_of_it() -> None:
    source = system(
        [server("small", replicas=1), server("large", replicas=5)],
        [accelerator("A", cost=40.0)],
        {"A": 99},
        budget=100.0,
    )
    repair = explain(source).repair
    assert repair is not None
    assert [(item.server, item.detail) for item in repair.beyond_units] == [
        ("large", "with enough cards for the others it needs more of another limit (budget)")
    ]


def test_a_repair_names_served_servers_that_it_leaves_out() -> None:
    """With enough cards the budget serves the server with more load instead."""
    servers = [server("large", 100.0, replicas=5), server("small", replicas=1)]
    source = system(servers, [accelerator("A", cost=40.0)], {"A": 1}, budget=220.0)
    found = explain(source)
    assert [item.server for item in found.plan.unserved] == ["large"]
    assert found.repair is not None
    assert found.repair.cheapest is not None
    assert found.repair.cheapest.added == {"A": 4}
    assert [item.server for item in found.repair.beyond_units] == ["small"]
    assert [item.server for item in solve(source.with_capacity({"A": 5})).unserved] == ["small"]


@pytest.mark.slow
def test_units_of_an_unlimited_plan_have_no_worth() -> None:
    found = explain(a_random_system(1), unlimited=True)
    assert {(item.limit, item.left, item.one_more, item.one_fewer) for item in found.types} == {
        (None, None, None, None)
    }
    assert found.repair is None


def test_a_stopped_solver_never_raises_known_costs() -> None:
    source = generate_system(5, 5, 2, seed=3)
    off = kept_off(source, "class-000/model-000", {"T00", "T01"})
    before, dearer = (PlanOutcome.of_plan(solve(each)) for each in (source, off))
    assert dearer.value_cents_per_h > before.value_cents_per_h
    stopped = replace(dearer, status=Status.feasible)
    kept = no_worse(before, stopped)
    assert (kept.value_cents_per_h, kept.pools) == (before.value_cents_per_h, before.pools)
    assert kept.status == "feasible"
    for was, found, level in zip(before.levels, stopped.levels, kept.levels, strict=True):
        assert found.bound is not None
        assert level.bound == min(found.bound, was.value)
    unsure = tuple(replace(level, bound=level.value - 10) for level in dearer.levels)
    open_levels = no_worse(before, replace(stopped, levels=unsure))
    assert interval_of(before, open_levels, "better", {level.name for level in before.levels}) is not None
    assert no_worse(before, dearer) is dearer  # what is proved is taken as it is
    better = replace(before, status=Status.feasible)
    assert no_worse(dearer, better) is better


# --- repair ----------------------------------------------------------------------------------------------


def scarce(seed: int) -> System:
    """Return a small system of which every server can be served, but not with the units that exist."""
    rng = random.Random(seed)
    kinds = ["A0", "A1"]
    catalogue = [accelerator(kind, cost=rng.choice([8.0, 10.0, 12.25])) for kind in kinds]
    catalogue.append(accelerator("2xA1", "A1", rng.choice([18.0, 21.0]), 2))
    servers = [
        server(f"s{i}", rng.randint(1, 12) * 100.0, service=rng.choice(["gold", "tin"])) for i in range(3)
    ]
    classes = [service_class("gold", 1, itl=30), service_class("tin", 2, itl=13, ttft=40)]
    source = document(servers, catalogue, {"A0": rng.randint(0, 2), "A1": rng.randint(0, 1)}, classes=classes)
    return load_system(source)


def with_added(source: System, added: dict[str, int]) -> System:
    return source.with_capacity({kind: source.capacity.get(kind, 0) + n for kind, n in added.items()})


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "mixed"), mostly_slow(itertools.product(range(3), [False, True]), 2))
def test_the_repair_serves_everything_and_nothing_cheaper_does(seed: int, *, mixed: bool) -> None:
    source = scarce(seed).with_options(heterogeneous=mixed)
    found = explain(source)
    if found.plan.complete:
        assert found.repair is None
        return
    assert found.repair is not None
    costs: dict[tuple[int, ...], float] = {}
    memo = SizingMemo()  # cards do not change what a replica takes
    for more in (each for each in itertools.product(range(10), repeat=2) if sum(each) < 10):
        plan = solve(with_added(source, dict(zip(["A0", "A1"], more, strict=True))), memo=memo)
        if plan.complete:
            costs[more] = plan.total_cost_cents_per_h
    cheapest, fewest = found.repair.cheapest, found.repair.fewest
    assert cheapest is not None
    assert fewest is not None
    assert cheapest.proved
    assert fewest.proved
    for repair in (cheapest, fewest, *found.repair.of_one_type):
        plan = solve(with_added(source, repair.added))
        assert plan.complete
        assert plan.total_cost_cents_per_h == pytest.approx(repair.total_cost_cents_per_h)
        assert_effect_is_the_difference(repair.effect, found.plan, plan, list(source.servers))
    assert (cheapest.total_cost_cents_per_h, cheapest.units) == pytest.approx(
        min((cost, sum(more)) for more, cost in costs.items())
    )
    assert (fewest.units, fewest.total_cost_cents_per_h) == pytest.approx(
        min((sum(more), cost) for more, cost in costs.items())
    )
    alone = {
        kind: min((more[i] for more in costs if more[1 - i] == 0), default=None)
        for i, kind in enumerate(["A0", "A1"])
    }
    said = {kind: n for item in found.repair.of_one_type for kind, n in item.added.items()}
    assert {kind: n for kind, n in alone.items() if n is not None} == said


@pytest.mark.slow
@pytest.mark.parametrize("units", mostly_slow([5, 6, 7], 1))
def test_relaxed_targets_are_the_least_that_serve_everything(units: int) -> None:
    source = system(
        [server("a", 900.0, service="tin"), server("b", 300.0)],
        [accelerator("A0"), accelerator("A1", cost=20.0)],
        {"A0": units},
        classes=[service_class("gold", itl=12), service_class("tin", 2, itl=11.5, ttft=90)],
    )
    found = explain(source)
    assert found.repair is not None
    assert {(item.service_class, item.metric) for item in found.repair.relaxations} == {("tin", "itl")}
    for item in found.repair.relaxations:
        key = f"{item.metric}_ms"
        enough = solve(source.with_target(item.service_class, item.model, **{key: item.needed_ms}))
        assert enough.complete
        assert_effect_is_the_difference(item.effect, found.plan, enough, list(source.servers))
        less = item.needed_ms - 0.01  # the next of four digits
        assert not solve(source.with_target(item.service_class, item.model, **{key: less})).complete
    factor = found.repair.common_factor
    assert factor is not None

    def all_served_at(factor: float) -> bool:
        relaxed = source.with_target("tin", "m", itl_ms=11.5 * factor, ttft_ms=90 * factor)
        return solve(relaxed).complete

    assert all_served_at(factor)
    assert not all_served_at(factor - 0.001)


def test_a_goodput_target_is_given_up_with_its_last_limit() -> None:
    times = {"alpha": 10, "beta": 0.05, "gamma": 1e-5}
    law = {"name": "m", "acc": "A", "maxBatchSize": 8, "perfParms": times}
    target = {"model": "m", "slo-ttft": 60.0, "goodputShare": 0.9}
    classes = [{"name": "gold", "priority": 1, "modelTargets": [target]}]
    source = system([server("s", 1500.0)], [accelerator("A")], {"A": 1}, classes=classes, models=[law])
    repair = explain(source).repair
    assert repair is not None
    assert repair.cheapest is not None
    looser = solve(source.with_target("gold", "m", ttft_ms=0.0, goodput_share=None))
    assert bool(repair.relaxations) == looser.complete


def test_where_no_single_target_is_enough_the_repair_says_so() -> None:
    source = system(
        [server("a", service="tin"), server("b")],
        [accelerator("A0")],
        {"A0": 400},
        classes=[service_class("gold", itl=8), service_class("tin", 2, itl=9)],
    )
    repair = explain(source).repair
    assert repair is not None
    assert repair.relaxations == ()
    assert repair.common_factor == 1.313  # a lone request has an ITL of 10.5 ms: 10.5 / 8, rounded up


def test_what_no_unit_serves_is_said_in_words() -> None:
    source = system(
        [server("a", service="gold"), server("b", service="tin", maxNumReplicas=1, rate=5000.0)],
        [accelerator("A0")],
        {"A0": 100},
        classes=[service_class("gold", itl=1), service_class("tin", itl=30)],
    )
    repair = explain(source).repair
    assert repair is not None
    first, second = repair.beyond_units
    assert first.server == "a"
    assert "a looser target (A0: best ITL at batch 1 is 10.5 ms, target 1 ms)" in first.detail
    assert "a higher maxNumReplicas" in second.detail
    assert repair.cheapest is None
    assert repair.relaxations == ()
    assert repair.summary == "no number of cards and no single target serves a, b"


@pytest.mark.slow
def test_cheapest_repair_has_least_cost_with_running_servers() -> None:
    source = system(
        [server("a", 100.0, current=running("A1", 4, 40.0)), server("b", replicas=1)],
        [accelerator("A0", cost=9.0), accelerator("A1", cost=10.0)],
        {"A0": 1},
        transitionPenalty=0.5,
    )
    found = explain(source)
    assert [item.server for item in found.plan.unserved] == ["b"]
    costs = {}
    for more in itertools.product(range(3), repeat=2):
        plan = solve(with_added(source, dict(zip(["A0", "A1"], more, strict=True))))
        if plan.complete:
            costs[more] = plan.total_cost_cents_per_h
    assert found.repair is not None
    assert found.repair.cheapest is not None
    assert found.repair.cheapest.proved
    cheapest = found.repair.cheapest.total_cost_cents_per_h, found.repair.cheapest.units
    assert cheapest == min((cost, sum(more)) for more, cost in costs.items())


@pytest.mark.few(1)
@pytest.mark.parametrize("policy", ["PriorityExhaustive", "PriorityRoundRobin", "RoundRobin"])
def test_repair_counts_units_of_servers_that_precede(
    policy: str,
) -> None:
    source = system(
        [server("a", 5000.0, maxNumReplicas=2), server("b", 900.0, service="tin")],
        [accelerator("A0"), accelerator("A1", cost=20.0)],
        {"A0": 3},
        classes=[service_class("gold"), service_class("tin", 2, itl=14)],
        saturationPolicy=policy,
        delayedBestEffort=False,
    )
    found = explain(source)
    assert found.repair is not None
    assert [item.server for item in found.plan.unserved] == ["a", "b"]
    assert found.repair.summary == "+1 A0, or +2 A1; no number of cards serves a"
    for item in found.repair.of_one_type:
        repaired = solve(with_added(source, item.added))
        assert [left.server for left in repaired.unserved] == ["a"]
        assert_effect_is_the_difference(item.effect, found.plan, repaired, ["a", "b"])


# --- targets ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[1::2])
def test_price_of_a_target_is_the_difference_of_two_solves(seed: int) -> None:
    source, found = a_random_system(seed), explanation(seed)
    assert found.targets
    for item in found.targets:
        assert item.relaxed_ms == pytest.approx(1.1 * item.target_ms)
        changed = source.with_target(item.service_class, item.model, **{f"{item.metric}_ms": item.relaxed_ms})
        assert_effect_is_the_difference(item.effect, found.plan, solve(changed), list(source.servers))


# --- the whole -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rejected_pairs_match_candidates_nearest_first() -> None:
    source = generate_system(6, 8, 3, seed=2)
    candidates = find_candidates(source)
    for s, item in enumerate(explain(source).servers):
        pairs = item.rejections
        expected = {(item.accelerator, item.reason, item.detail) for item in candidates.rejections(s)}
        assert {(pair.accelerator, pair.reason, pair.detail) for pair in pairs} == expected
        factors = [pair.factor for pair in pairs if pair.factor is not None]
        assert factors == sorted(factors)
        assert all(factor >= 1 for factor in factors)


@pytest.mark.slow
def test_the_greedy_solver_is_not_explained_but_the_exact_one() -> None:
    source = generate_system(5, 5, 2, seed=3)
    found = explain(source.with_options(milp_solver=False))
    assert found.plan == solve(source).model_copy(update={"warnings": found.plan.warnings})
    assert "greedy" in found.notes[0]
    assert found.model_copy(update={"notes": ()}) == explain(source)


def test_an_unknown_server_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(SpecError, match="server: 's00' does not exist; did you mean 's0'"):
        explain(scarce(0), "s00")


@pytest.mark.few(1)
@pytest.mark.parametrize("options", [{}, {"unlimited": True}, {"heterogeneous": True}])
def test_the_document_is_the_same_from_its_own_json(options: dict[str, Any]) -> None:
    found = explain(scarce(1), **options)
    text = found.to_json()
    assert Explanation.model_validate_json(text) == found
    assert text == explain(scarce(1), **options).to_json()


# --- one time limit for all of it --------------------------------------------------------------------------


def test_a_question_that_is_not_solved_in_time_has_an_interval() -> None:
    source = scarce(2)
    found, whole = explain(source, time_limit_s=1e-6), explain(source)
    assert found.plan.status == "feasible"
    assert all(item.shadow_price_cents_per_h is None for item in found.types)
    assert "shadow prices" in found.unanswered
    effects = [item.next_best.effect for item in found.servers if item.next_best]
    assert len(effects) == sum(bool(item.pools) for item in found.servers)
    for item in found.types:
        assert item.one_more
        assert (item.one_fewer is not None) == bool(item.limit)
    effects += [effect for item in found.types for effect in (item.one_more, item.one_fewer) if effect]
    effects += [item.effect for item in found.targets]
    assert [item.metric for item in found.targets] == [item.metric for item in whole.targets]
    assert all(
        effect.interval is not None and effect.interval.low <= 0 <= effect.interval.high for effect in effects
    )
    assert whole.unanswered == ()
    assert "interval" not in whole.to_json()


@pytest.mark.parametrize("mixed", [False, True])
def test_a_fleet_without_cards_is_explained_at_time_limit_0(*, mixed: bool) -> None:
    source = generate_system(4, 4, 3, seed=1)
    source = source.with_capacity(dict.fromkeys(source.capacity, 0)).with_options(heterogeneous=mixed)
    for item in explain(source, time_limit_s=1e-6).types:
        assert item.one_more is not None
        assert item.one_more.interval is not None


def test_repairs_without_an_answer_in_time_are_no_verdict() -> None:
    source = generate_system(8, 8, 4, seed=1, tightness=3.0)
    plan = solve(source)
    assert not plan.complete
    budget = QuestionBudget(Deadline(0.0))
    repair = find_repair(find_candidates(source), plan, budget)
    assert repair is not None
    assert (repair.cheapest, repair.fewest, repair.of_one_type, repair.relaxations) == (None, None, (), ())
    assert repair.common_factor is None
    assert repair.summary == "no repair was found within the time limit; give it more time"
    assert "the repair with the fewest cards" in budget.unanswered
    assert "the common factor of the latency targets" in budget.unanswered


def test_answers_keep_to_their_questions_when_some_come_too_late() -> None:
    budget = QuestionBudget(Deadline.after(3600))

    def work(item: int, deadline: Deadline) -> int:
        assert not deadline.passed
        if item % 3 == 0:
            raise OutOfTimeError
        return item * item

    found = budget.part(0.5).ask(work, {f"q{n}": n for n in range(1, 10)}, lambda key: f"question {key}")
    assert found == {f"q{n}": n * n for n in (1, 2, 4, 5, 7, 8)}
    assert budget.unanswered == ["question q3", "question q6", "question q9"]


def test_a_server_on_two_accelerators_is_explained_in_depth() -> None:
    """Four replicas of 540 requests/min on three cards of each of two types; each type alone is too small."""
    source = document(
        [server("s", 1750.0, current=running("B", 2))],
        [accelerator("A", cost=8.0), accelerator("B", cost=8.0)],
        {"A": 3, "B": 3},
        heterogeneous=True,
    )
    (found,) = explain(load_system(source), "s").servers
    assert {pool.accelerator for pool in found.pools} == {"A", "B"}
    assert [option.forced and option.forced.pools for option in found.options] == [(), ()]
    assert found.next_best is not None
    assert found.next_best.pools == ()
