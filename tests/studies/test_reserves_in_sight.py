"""Lost reserves are in sight: every number about them equals that of new solves of changed systems."""

import re
from functools import cache
from pathlib import Path

import pytest
from builders import Json, accelerator, document, server, service_class
from coupled_fleets import random_coupled
from feature_fleets import random_features
from slow_cases import mostly_slow

from optimizer import Plan, System, compare, explain, load_system, scale_loads, solve
from optimizer.features.shared_queues.streams import SharedQueue
from optimizer.features.versions.streams import Version
from optimizer.render.comparison_text import headline
from optimizer.schema import AllocationData
from optimizer.spec.streams import members_of
from optimizer.studies.explanation.explanation_document import Effect, Explanation
from optimizer.studies.sweep.checkpoint import Checkpoint
from optimizer.studies.sweep.parameters import read_variations
from optimizer.studies.sweep.sweep import sweep

CASES = mostly_slow(range(120), 3)
EXACT = {"gap": 0.0, "milp_solver": True}


def _document(case: int) -> Json:
    """Return a document with reserves: of several features, or with routes and shared cards."""
    if case % 3 == 2:
        source = random_coupled(3 * case + 2 * (case % 2))
        coupled = {item["name"] for item in source["servers"] if item.get("sharedCard")}
        coupled |= {route[side] for route in source.get("routes", ()) for side in ("small", "large")}
        free = [item for item in source["servers"] if item["name"] not in coupled]
        for place, item in enumerate(free):
            item.update([{"spareReplicas": 1}, {"headroomShare": 0.5}][place % 2])
        return source
    source = random_features(case)
    own = [item for item in source["servers"] if item["model"] != "b" and "sharedQueue" not in item]
    for item in own[::2]:
        item.setdefault("spareReplicas", 1)
    for item in source["count"]:
        item["count"] = min(item["count"], 10)
    for item in source["servers"]:
        load = item["currentAlloc"]["load"]
        if load.get("arrivalRate"):  # the solver cannot tell the smallest loads from none
            load["arrivalRate"] = max(load["arrivalRate"], 3)
    source["optimizer"]["timeLimit"] = 60
    return source


@cache
def system_of(case: int) -> System:
    return load_system(_document(case)).with_options(**EXACT)


@cache
def explained(case: int) -> Explanation:
    return explain(system_of(case))


def held(plan: Plan) -> set[str]:
    return {item.server for item in plan.reserves if item.has_reserve}


def assert_difference(effect: Effect, before: Plan, after: Plan) -> None:
    """Compare an effect with two plans, each solved from its document."""
    if effect.interval is not None:
        return
    for name in ("objective", "total_cost_cents_per_h"):
        assert getattr(after, name) - getattr(before, name) == pytest.approx(
            effect.value_change_cents_per_h if name == "objective" else effect.cost_change_cents_per_h,
            abs=1e-6,
        )
    assert set(effect.reserves_gained) == held(after) & set(before.lacks_reserve)
    assert set(effect.reserves_lost) == held(before) & set(after.lacks_reserve)
    short = [{item.server: item.served_fraction for item in plan.unserved} for plan in (before, after)]
    changed = {item.server for item in effect.service}
    assert changed == {n for n in short[0].keys() | short[1].keys() if short[0].get(n) != short[1].get(n)}


@pytest.mark.slow
@pytest.mark.parametrize("case", mostly_slow(CASES, 1))
def test_card_values_include_reserves(case: int) -> None:
    system, found = system_of(case), explained(case)
    for item in found.types:
        for step, effect in ((1, item.one_more), (-1, item.one_fewer)):
            if effect is not None and item.limit is not None:
                changed = system.with_capacity({item.type: item.limit + step})
                assert_difference(effect, found.plan, solve(changed))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_repairs_give_all_reserves(case: int) -> None:
    system, found = system_of(case), explained(case)
    assert (found.repair is None) == (found.plan.complete and not found.plan.lacks_reserve)
    if found.repair is None:
        return
    units = (found.repair.cheapest, found.repair.fewest, *found.repair.of_one_type)
    for repair in filter(None, units):
        capacity = {kind: system.capacity.get(kind, 0) + count for kind, count in repair.added.items()}
        plan = solve(system.with_capacity(capacity))
        assert_difference(repair.effect, found.plan, plan)
        assert plan.total_cost_cents_per_h == pytest.approx(repair.total_cost_cents_per_h)
        beyond = {item.server for item in found.repair.beyond_units}
        no_reserve = beyond | {item.server for item in found.repair.beyond_reserves}
        queues = (system.servers[name] for name in beyond & system.servers.keys())
        parts = beyond.union(part.name for queue in queues for part in members_of(queue))
        assert {item.server for item in plan.unserved} <= parts
        assert set(plan.lacks_reserve) - plan.left_out.keys() <= no_reserve


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_alternatives_state_lost_reserves(case: int) -> None:
    system, found = system_of(case), explained(case)
    for item in found.servers:
        if item.next_best is not None and not found.plan.routes and not found.plan.shared_cards:
            server, chosen = system.servers[item.server], {pool.accelerator for pool in item.pools}
            allowed = server.accelerators or tuple(system.accelerators)
            left = tuple(sorted({*allowed} - chosen))
            kept = system.with_planned({item.server: server.model_copy(update={"accelerators": left})})
            if not isinstance(server, SharedQueue | Version) and not server.shared_card:
                assert_difference(item.next_best.effect, found.plan, solve(kept))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_target_prices_include_reserves(case: int) -> None:
    system, found = system_of(case), explained(case)
    for item in found.targets:
        changes = {f"{item.metric}_ms": item.relaxed_ms}
        after = solve(system.with_target(item.service_class, item.model, **changes))
        assert_difference(item.effect, found.plan, after)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_headroom_ends_at_the_next_replica(case: int) -> None:
    system, found = system_of(case).with_options(unlimited=True, budget_cents_per_h=None), explained(case)
    for item in found.servers:
        server = system.servers[item.server]
        plain = (
            not isinstance(server, SharedQueue | Version)
            and not server.cache_hit_rate
            and not server.deadline
        )
        if len(item.pools) != 1 or not item.headroom_rpm or item.served_fraction < 1 or not plain:
            continue
        if any(item.server in (use.small, use.large) for use in found.plan.routes.values()):
            continue
        bare = (
            {}
            if item.has_reserve
            else {"spare_replicas": 0, "availability_target": None, "headroom_share": 0.0}
        )
        (pool,) = item.pools
        for share, enough in ((0.999, True), (1.001, False)):
            rate = item.load_rpm + share * item.headroom_rpm
            alone = {"accelerators": (pool.accelerator,), "external": None, "shared_card": False, **bare}
            load = server.current.load.model_copy(update={"arrival_rate_rpm": rate})
            current = AllocationData(load=load)
            changed = server.model_copy(update={**alone, "current": current, "max_num_replicas": None})
            plan = solve(system.with_planned({item.server: changed}))
            needed = sum(each.num_replicas for each in plan.allocations[item.server])
            assert (needed <= pool.num_replicas) == enough


@pytest.mark.parametrize("case", CASES)
def test_options_list_the_planned_replicas(case: int) -> None:
    routed = {name for use in explained(case).plan.routes.values() for name in (use.small, use.large)}
    for item in explained(case).servers:
        if item.served_fraction < 1 or len(item.pools) != 1 or item.server in routed:
            continue
        (pool,) = item.pools
        (option,) = (each for each in item.options if each.accelerator == pool.accelerator)
        assert option.num_replicas <= pool.num_replicas
        if item.has_reserve:
            assert option.with_reserve is not None
            assert option.with_reserve.num_replicas == pool.num_replicas
        elif item.has_reserve is False:
            assert option.with_reserve is None or option.with_reserve.num_replicas > pool.num_replicas


@pytest.mark.slow
@pytest.mark.parametrize("case", mostly_slow(CASES, 1))
def test_sweeps_count_missing_reserves(case: int) -> None:
    system = system_of(case)
    for text in ("load=0.5,1,2", f"count:{min(system.capacity)}=0,2,30"):
        found = sweep(system, read_variations(system, [text]), Checkpoint())
        for point, (value,) in ((point, point.values) for point in found.points):
            (variation,) = read_variations(system, [text])
            plan = solve(variation.applied_to(system, value))
            assert (point.reserves, point.lacks_reserve) == (len(plan.reserves), plan.lacks_reserve)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_unequal_comparisons_do_not_lead_with_money(case: int) -> None:
    system = system_of(case)
    for other in (
        system.with_options(unlimited=True),
        system.with_capacity(dict.fromkeys(system.capacity, 2)),
    ):
        found = compare(system, other)
        sides = found.first.plan, found.second.plan
        text, equal = headline(found), held(sides[0]) == held(sides[1])
        assert found.equal_reserves == equal
        if not (found.equal_service and equal):
            assert not re.match(r"(?!Nothing).{0,45}\d+\.\d\d", text)
        for words, names in (
            (r"(\d+) servers? loses? ", held(sides[0]) - held(sides[1])),
            (r"(\d+) servers? gets? ", held(sides[1]) - held(sides[0])),
        ):
            said = re.search(words, text)
            assert (int(said[1]) if said else 0) == len(names) * (not text.startswith("Nothing"))
        figures = found.total.first, found.total.second
        assert [side and side.lack_reserve for side in figures] == [len(side.lacks_reserve) for side in sides]


@pytest.mark.slow
def test_alternatives_exclude_only_the_chosen_accelerators() -> None:
    """With a policy, the plan on that accelerator alone can serve other loads."""
    source = load_system(Path(__file__).parents[1] / "data" / "reserves" / "stock.yaml")
    system = scale_loads(source, 1.5).with_options(time_limit_s=60.0)
    name = "chat-gpt-oss-120b"
    found = explain(system, name)
    (item,) = found.servers
    assert item.next_best is not None
    left = tuple({*system.accelerators} - {pool.accelerator for pool in item.pools})
    changed = system.servers[name].model_copy(update={"accelerators": left})
    after = solve(system.with_planned({name: changed}))
    assert_difference(item.next_best.effect, found.plan, after)
    placed = [(pool.accelerator, pool.num_replicas) for pool in after.allocations[name]]
    assert [(pool.accelerator, pool.num_replicas) for pool in item.next_best.pools] == placed


def test_repairs_serve_the_members_that_a_queue_can_have() -> None:
    """No accelerator meets the target of the first server; the second needs a card."""
    classes = [service_class("gold", ttft=0.1), service_class("tin", 2, ttft=800)]
    servers = [server("a", 100, sharedQueue="q"), server("b", 300, service="tin", sharedQueue="q")]
    system = load_system(document(servers, [accelerator("A")], {"A": 0}, classes=classes))
    repair = explain(system).repair
    assert repair is not None
    assert repair.cheapest is not None
    assert repair.cheapest.added == {"A": 1}
    assert [item.server for item in repair.beyond_units] == ["a"]
    assert [item.server for item in solve(system.with_capacity({"A": 1})).unserved] == ["a"]
    left = explain(system.with_capacity({"A": 1})).repair
    assert left is not None
    assert (left.cheapest, [item.server for item in left.beyond_units]) == (None, ["a"])


def test_alternatives_give_the_partial_service_of_a_new_solve() -> None:
    """Plans of equal value leave a card of T0 or of T2; only one of them serves the last server in part."""
    cards = [accelerator("T0", cost=390), accelerator("T1", cost=100), accelerator("T2", cost=500)]
    models = [
        {"name": "m", "acc": name, "maxBatchSize": batch}
        | {"decodeParms": {"alpha": 10 * slow, "beta": 0.4 * slow}}
        | {"prefillParms": {"gamma": 5 * slow, "delta": 0.01 * slow}}
        for name, slow, batch in (("T0", 2.456, 4), ("T1", 1.046, 8), ("T2", 1.322, 4))
    ]
    classes = [
        service_class("long", 2, itl=90, ttft=1000),
        service_class("short", 2, itl=60, ttft=3000),
        service_class("tin", 9, itl=60, ttft=500),
    ]
    loads: dict[str, tuple[str, float, int, int, Json]] = {
        "s0": ("short", 747.5, 50, 10, {}),
        "s1": ("long", 4532.5, 200, 64, {"cacheHitRate": 0.5}),
        "s2": ("short", 1, 1000, 64, {"surge": 0.25}),
        "s3": ("long", 534.2, 50, 64, {"cacheHitRate": 0.5}),
        "s4": ("tin", 576.7, 1000, 64, {}),
        "s5": ("tin", 818.6, 50, 200, {}),
    }
    servers: list[Json] = [
        {"name": name, "class": of, "model": "m", **more}
        | {"currentAlloc": {"load": {"arrivalRate": rate, "avgInTokens": given, "avgOutTokens": made}}}
        for name, (of, rate, given, made, more) in loads.items()
    ]
    servers[3]["currentAlloc"] |= {"accelerator": "T1", "numReplicas": 2}
    options: Json = {"heterogeneous": True, "saturationPolicy": "PriorityRoundRobin", "rollout": "one"}
    units = {"T0": 2, "T1": 12, "T2": 5}
    system = load_system(document(servers, cards, units, classes=classes, models=models, **options))
    found = explain(system, "s4")
    (item,) = found.servers
    assert item.next_best is not None
    left = tuple({*system.accelerators} - {pool.accelerator for pool in item.pools})
    changed = system.servers["s4"].model_copy(update={"accelerators": left})
    assert_difference(item.next_best.effect, found.plan, solve(system.with_planned({"s4": changed})))
