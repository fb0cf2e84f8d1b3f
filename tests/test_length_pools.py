"""Pools by length: the choice against enumeration, plans, verification, refusals, simulation, commands."""

from typing import Any

import pytest
from builders import Json
from length_pool_oracles import best_bill, random_length_document, with_two_features
from slow_cases import seeds

from optimizer import Plan, SpecError, explain, load_system, simulate, solve, verify
from optimizer.candidates import find_candidates
from optimizer.features.hourly import check_hours
from optimizer.features.length_pools.sections import length_section
from optimizer.features.length_pools.streams import steps_of
from optimizer.render.manifests import metadata_of, variants
from optimizer.schema import Load, ModelTarget
from rest_server.v1.entity_types import check_alone


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 119))
def test_choice_matches_enumeration_of_all_partitions(seed: int) -> None:
    source = random_length_document(seed)
    system = load_system(source)
    plan = solve(system)
    assert plan.status == "optimal"
    assert verify(plan, system) == []
    short, value, changes = best_bill(source)
    levels = {level.name: level.value for level in plan.levels}
    service = [
        levels.pop(name, 0.0)
        for priority in (1, 2)
        for name in (f"priority {priority}: unserved rate", f"priority {priority}: unserved servers")
    ]
    assert service == pytest.approx(short)
    assert [*levels.values()] == pytest.approx([value, changes], abs=1e-4)


@pytest.mark.parametrize("seed", seeds(0, 40))
def test_plans_with_other_features_pass_verification(seed: int) -> None:
    system = load_system(with_two_features(seed))
    plan = solve(system)
    assert verify(plan, system) == []
    applied = plan.applied_to(system)
    assert verify(solve(applied), applied) == []


# --- what the plan says ----------------------------------------------------------------------------------

CHAT = {"name": "chat", "share": 0.9, "avgInTokens": 500, "avgOutTokens": 200, "outTokensCV": 0}
DOCS = {"name": "docs", "share": 0.1, "avgInTokens": 30_000, "avgOutTokens": 300, "outTokensCV": 0}
LAW = {"alpha": 7.331050698507463, "beta": 0.020968038510257643, "gamma": 4.603055311676909e-05}
SPLIT = {"chat": {"slo-ttft": "500ms"}, "docs": {"slo-ttft": "5s"}}
"""Targets by which a pool for each shape takes 3 cards, and one pool 5 (shared/reference/shapes.md)."""
ALIKE = {"chat": {"slo-ttft": "2500ms"}, "docs": {"slo-ttft": "2500ms"}}


def document(targets: Json, wish: str | None = "allowed", cards: int = 40, **server: Any) -> Json:
    profile = {"name": "m", "acc": "H100", "maxBatchSize": 256, "kvCapacity": 448_733, "perfParms": LAW}
    target = {"model": "m", "percentile": 95, "slo-itl": "50ms", "shapes": targets}
    load = {"arrivalRate": "10/s", "shapes": [DOCS, CHAT]}
    item = {"name": "s", "class": "c", "model": "m", "currentAlloc": {"load": load}, **server}
    return {
        "accelerators": [{"name": "H100", "type": "H100", "cost": 400}],
        "count": [{"type": "H100", "count": cards}],
        "models": [profile],
        "serviceClasses": [{"name": "c", "priority": 1, "modelTargets": [target]}],
        "servers": [item | ({} if wish is None else {"poolsByLength": wish})],
    }


def replicas(plan: Plan) -> dict[str, int]:
    return {name: pool.num_replicas for name, pools in plan.allocations.items() for pool in pools}


@pytest.mark.slow
def test_targets_of_shapes_decide_whether_the_plan_divides() -> None:
    plan = solve(load_system(document(SPLIT)))
    assert replicas(plan) == {"s (chat)": 1, "s (docs)": 2}
    use = plan.length_pools["s"]
    assert use.reason == "cheaper"
    assert use.together is not None
    assert (use.together.num_replicas, use.cost_cents_per_h) == (5, 1200)
    assert [(pool.shapes, pool.below_tokens) for pool in use.pools] == [(("chat",), 3873), (("docs",), None)]
    (pool,) = plan.allocations["s (docs)"]
    assert [shape.name for shape in pool.shapes] == ["docs"]
    plan = solve(load_system(document(ALIKE)))
    assert replicas(plan) == {"s": 2}
    use = plan.length_pools["s"]
    assert (use.reason, [pool.num_replicas for pool in use.by_length]) == ("one_replica_more", [1, 2])
    plan = solve(load_system(document(ALIKE, "required")))
    assert (replicas(plan), plan.length_pools["s"].reason) == ({"s (chat)": 1, "s (docs)": 2}, "required")


def test_a_server_is_served_in_full_or_not_at_all() -> None:
    system = load_system(document(SPLIT, cards=2))
    plan = solve(system)
    assert replicas(plan) == {}
    assert [(item.server, item.reason) for item in plan.unserved] == [("s", "capacity")]
    assert (plan.length_pools["s"].reason, verify(plan, system)) == ("unserved", [])
    system = load_system(document(ALIKE, "required", cards=2))
    (item,) = solve(system).unserved
    assert "two pools by length" in item.detail


def test_the_table_says_why_nothing_is_served() -> None:
    plans = [
        solve(load_system(document(targets, cards=cards)))
        for targets, cards in ((SPLIT, 2), ({"docs": {"slo-ttft": "100ms"}}, 40))
    ]
    pools = "1 × H100 for chat and 2 × H100 for docs"
    assert [length_section(plan).notes for plan in plans] == [
        [f"s: not served; the cheapest division would take {pools}: 1,200.00 cents/h."],
        ["s: not served; in no division do all pools meet their targets."],
    ]


@pytest.mark.slow
def test_never_changes_nothing() -> None:
    plain, never = (solve(load_system(document(SPLIT, wish))) for wish in (None, "never"))
    assert plain == never
    assert replicas(plain) == {"s": 5}
    assert not plain.length_pools


@pytest.mark.slow
def test_a_plan_can_be_applied_and_is_then_kept() -> None:
    system = load_system(document(SPLIT))
    plan = solve(system)
    assert verify(plan, load_system(document(SPLIT))) == []
    running = load_system(
        plan.applied_to(system).to_spec().model_dump(mode="json", by_alias=True, exclude_unset=True)
    )
    pools = running.documented["s"].current.pools
    assert [(pool.shapes, pool.num_replicas) for pool in pools] == [(("chat",), 1), (("docs",), 2)]
    again = solve(running)
    assert (replicas(again), again.changes) == (replicas(plan), ())
    target = running.targets["c", "m"].model_dump(by_alias=True) | {"shapes": ALIKE}
    (owner,) = running.spec.service_classes
    alike = ModelTarget.model_validate(target)
    system = running.with_items(owner.model_copy(update={"model_targets": (alike,)}))
    together = solve(system)
    assert replicas(together) == {"s": 2}
    assert sorted(change.server for change in together.changes) == ["s", "s (chat)", "s (docs)"]
    assert verify(together, system) == []


def test_a_plan_that_stops_pools_can_be_applied_again() -> None:
    system = load_system(document(SPLIT))
    running = solve(system).applied_to(system).with_load("s", arrival_rate_rpm=30.0)
    plan = solve(running)
    assert replicas(plan) == {"s": 1}
    assert plan.allocations["s (chat)"] == ()
    applied = plan.applied_to(running)
    assert plan.applied_to(applied).servers["s"].current == applied.servers["s"].current


def test_every_pool_is_simulated_with_its_own_shapes() -> None:
    system = load_system(document(SPLIT))
    found = simulate(system, solve(system), requests=2000)
    shapes = [(pool.server, [shape.name for shape in pool.shapes]) for pool in found.pools]
    assert shapes == [("s (chat)", ["chat"]), ("s (docs)", ["docs"])]


@pytest.mark.slow
def test_every_pool_has_a_deployment_with_its_shapes() -> None:
    system = load_system(document(SPLIT))
    plan = solve(system)
    notes = [metadata_of(one, "n", **one.notes)["annotations"] for one in variants(plan, system)]
    assert [note["inferplan.dev/shapes"] for note in notes] == ["chat", "docs"]
    assert notes[0]["inferplan.dev/prompts-below"] == "3873"


@pytest.mark.slow
def test_explanations_keep_the_pools_of_the_plan() -> None:
    found = explain(load_system(document(SPLIT, cards=3)))
    assert {item.server for item in found.servers} == {"s (chat)", "s (docs)"}


REFUSED = [
    ({"minNumReplicas": 2}, "the plan chooses the pools and their replicas"),
    ({"maxNumReplicas": 9}, "a limit on all pools together is not supported"),
    (
        {"currentAlloc": {"load": {"arrivalRate": 60, "avgInTokens": 9, "avgOutTokens": 9}}},
        "no shapes to divide",
    ),
    ({"currentAlloc": {"load": {"shapes": [CHAT | {"arrivalRate": 1, "share": None}]}}}, "do not separate"),
]


@pytest.mark.parametrize(("server", "text"), REFUSED)
def test_what_pools_by_length_do_not_support_is_refused_by_name(server: Json, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        load_system(document({}, "required", **server))


def test_options_and_commands_that_cannot_divide_refuse() -> None:
    system = load_system(document(SPLIT))
    with pytest.raises(SpecError, match="greedy solver cannot choose pools by length"):
        solve(system, milp_solver=False)
    with pytest.raises(SpecError, match="served in full or not at all"):
        solve(system, saturation_policy="PriorityExhaustive")
    with pytest.raises(SpecError, match="horizon does not support pools by length"):
        check_hours(system)
    with pytest.raises(SpecError, match="a fleet of the service does not support"):
        check_alone(system.documented["s"])


def test_shapes_that_no_length_separates_share_a_pool() -> None:
    shapes = [CHAT | {"share": 0.5}, CHAT | {"name": "code", "share": 0.4}, DOCS]
    steps = steps_of(Load.model_validate({"arrivalRate": 60, "shapes": shapes}))
    assert [[shape.name for shape in step] for step in steps] == [["chat", "code"], ["docs"]]
    without = [CHAT | {"share": 0.9}, CHAT | {"name": "mid", "avgInTokens": 900, "share": 0}, DOCS]
    steps = steps_of(Load.model_validate({"arrivalRate": 60, "shapes": without}))
    assert [[shape.name for shape in step] for step in steps] == [["chat", "mid"], ["docs"]]


@pytest.mark.slow
def test_repairs_and_candidates_know_all_possible_pools() -> None:
    """With 2 cards neither fits: one pool takes 5, pools by length take 3."""
    system = load_system(document(SPLIT, cards=2))
    repair = explain(system).repair
    assert repair is not None
    assert repair.fewest is not None
    assert repair.fewest.added == {"H100": 1}
    names = find_candidates(system.with_all_pools()).arrays.server_names
    assert names == ("s", "s (chat)", "s (docs)")
