"""Features of one document together: small systems that once failed, and random ones of several features."""

import json
import math
from itertools import combinations, count
from typing import Any

import pytest
import yaml
from builders import Json
from doc_pages import ROOT
from feature_fleets import random_features, with_features
from slow_cases import seeds

from optimizer import System, explain, load_system, make_report, render_report, solve, verify
from optimizer.features.table import FEATURES
from optimizer.plan.files import plan_from_value
from optimizer.render.explanation_sections import explanation_sections
from optimizer.render.manifests import deployment_patch, manifests_text, variants
from optimizer.solvers.deadline import Deadline
from optimizer.stabilisation.keeping import Planner, plan_keeping

POWER = {"idle": 40, "full": 150, "midPower": 100, "midUtil": 0.5}


def system(models: list[Json], servers: list[Json], targets: Json, cards: int, **more: Any) -> System:
    """Return a system of one class on cards of two types, with a target for each model."""
    accelerators = [
        {"name": name, "type": name, "cost": cost, "memSize": 16, "power": POWER, "availability": 0.9}
        for name, cost in (("A", 10), ("B", 600))
    ]
    return load_system(
        {
            "accelerators": accelerators,
            "models": models,
            "serviceClasses": [
                {"name": "c", "modelTargets": [{"model": name, **each} for name, each in targets.items()]}
            ],
            "servers": [{"class": "c", **server} for server in servers],
            "count": [{"type": "A", "count": cards}, {"type": "B", "count": cards}],
            **more,
        }
    )


def chat(acc: str = "A", **more: Any) -> Json:
    laws = {
        "decodeParms": {"alpha": 7, "beta": 0.3},
        "prefillParms": {"gamma": 4, "delta": 0.01},
    }
    return {"name": "chat", "acc": acc, "maxBatchSize": 16, **laws, **more}


def embed(**more: Any) -> Json:
    times = {"base": 37.5, "slope": 0.5}
    return {"name": "embed", "acc": "A", "maxBatchSize": 1, "memory": 9, "batchParms": times, **more}


def load(rate_rpm: float, in_tokens: float = 200, out_tokens: float = 200) -> Json:
    return {"load": {"arrivalRate": rate_rpm, "avgInTokens": in_tokens, "avgOutTokens": out_tokens}}


CHAT = {"chat": {"slo-itl": 40, "slo-ttft": 500}}
EMBED = {"embed": {"latency": [{"percentile": 90, "ms": 400}]}}


def queue(**more: Any) -> list[Json]:
    """Return two servers of a queue whose loads together need more than one card, but not each alone."""
    shared = {"model": "chat", "sharedQueue": "q", **more}
    return [
        {"name": "short", **shared, "currentAlloc": load(3, 1, 1)},
        {"name": "long", **shared, "currentAlloc": load(2500, 2000)},
    ]


def test_replicas_by_purpose_are_those_of_served_members() -> None:
    found = solve(system([chat()], queue(availabilityTarget=0.99, headroomShare=1), CHAT, 5))
    assert [item.server for item in found.unserved] == ["long"]
    assert found.replica_counts["q"].load == 1


def test_power_at_the_load_is_that_of_served_members() -> None:
    both = system([chat()], queue(), CHAT, 1, optimizer={"maxPower": 500})
    found = solve(both)
    alone = solve(system([chat()], queue()[:1], CHAT, 1, optimizer={"maxPower": 500}))
    assert [item.server for item in found.unserved] == ["long"]
    assert found.limits[0].used_at_load == pytest.approx(alone.limits[0].used_at_load)


def test_a_tiny_load_off_its_preferred_accelerators_is_proved() -> None:
    server = {"name": "s", "model": "chat", "preferred": ["B"], "currentAlloc": load(1e-6)}
    models = [chat(), chat("B")]
    found = solve(system(models, [server], CHAT, 4, optimizer={"maxPower": 3000}))
    assert found.status == "optimal"
    assert all(level.bound == level.value for level in found.levels)


def test_a_system_that_lacks_shared_cards_is_explained() -> None:
    shared = {"name": "s", "model": "embed", "sharedCard": True, "currentAlloc": load(3000)}
    other = {"name": "t", "model": "embed", "currentAlloc": load(5)}
    explained = explain(system([embed()], [shared, other], EMBED, 0))
    assert explained.repair is not None
    assert explained.repair.fewest is not None
    assert explanation_sections(explained)
    needed = explained.repair.fewest.added["A"]
    assert solve(system([embed()], [shared, other], EMBED, needed)).complete
    assert not solve(system([embed()], [shared, other], EMBED, needed - 1)).complete


@pytest.mark.slow
def test_a_report_proposes_no_partial_service_on_shared_cards() -> None:
    shared = {"name": "s", "model": "embed", "sharedCard": True, "currentAlloc": load(3000)}
    report = make_report(system([embed(shares=[{"share": 0.25}])], [shared], EMBED, 2))
    assert report.plan.unserved[0].reason == "capacity"
    assert report.overload is None


def test_cards_without_a_price_are_not_used_for_nothing() -> None:
    """A solver may leave units of shared cards that cost nothing in an answer, and serve no one on them."""
    small = chat(name="small", maxBatchSize=32, decodeParms={"alpha": 7.242, "beta": 0.29})
    large = chat(name="large", decodeParms={"alpha": 13.095, "beta": 0.524})
    third = embed(maxBatchSize=5, memory=2) | {"batchParms": {"base": 37.5, "slope": 2.5}}
    targets: Json = {
        "small": {"slo-itl": 20, "slo-ttft": 80},
        "large": {"slo-itl": 80, "slo-ttft": 80},
        "embed": {"latency": [{"percentile": 99, "ms": 400}]},
    }
    servers: list[Json] = [
        {"name": "s", "model": "embed", "sharedCard": True, "currentAlloc": load(20000)},
        {"name": "l", "model": "large"},
        {"name": "m", "model": "small"},
    ]
    kinds = [{"share": 1, "inTokens": 300, "outTokens": 300}]
    routes = [{"name": "r", "small": "m", "large": "l", "arrivalRate": 2000, "kinds": kinds}]
    card = {"name": "A", "type": "A", "memSize": 80}
    made = system([small, large, third], servers, targets, 0, accelerators=[card], routes=routes)
    free = made.with_options(unlimited=True, heterogeneous=True)
    assert verify(solve(free), free) == []


def test_a_route_leaves_shared_cards_as_they_are() -> None:
    """A plan with a route counts replicas; that does not limit the units of a pattern."""
    made = yaml.safe_load((ROOT / "specs/shared-cards.yaml").read_text(encoding="utf-8"))
    alone = solve(load_system(made))
    assert max(use.num_cards for use in alone.shared_cards) > 1
    made["accelerators"].append({"name": "A", "type": "A", "cost": 100})
    made["count"].append({"type": "A", "count": 10})
    made["models"] += [chat(), chat() | {"name": "large"}]
    targets = [{"model": name, "slo-itl": 40, "slo-ttft": 500} for name in ("chat", "large")]
    made["serviceClasses"][0]["modelTargets"] += targets
    made["servers"] += [{"name": name, "class": "online", "model": name} for name in ("chat", "large")]
    kinds = [{"share": 1, "inTokens": 300, "outTokens": 200}]
    made["routes"] = [{"name": "r", "small": "chat", "large": "large", "arrivalRate": 60, "kinds": kinds}]
    beside = solve(load_system(made))
    costs = (math.fsum(use.cost_cents_per_h for use in plan.shared_cards) for plan in (alone, beside))
    assert next(costs) == next(costs)


def test_offline_work_alone_is_reported() -> None:
    """A picture of latencies against targets has no columns."""
    work = {"name": "s", "model": "embed", "deadline": {"requests": 100, "hours": 1}}
    made = system([embed()], [work], EMBED, 1)
    assert "against targets" not in render_report(make_report(made), made, "html")


def test_a_cache_in_front_of_shared_cards_is_verified() -> None:
    """Two servers that share a card in time, of which a cache answers a part of the requests of one."""
    one = {"name": "s", "model": "embed", "sharedCard": True, "currentAlloc": load(60)}
    both = [one | {"cacheHitRate": 0.3}, one | {"name": "t"}]
    found = solve(system([embed(memory=2)], both, EMBED, 2))
    assert {item.server: item.arrival_rate_rpm for item in found.shared_cards[0].servers} == {
        "s": pytest.approx(42),
        "t": pytest.approx(60),
    }


def test_the_network_has_no_margin_on_shared_cards() -> None:
    """Of 400 ms the network takes 100; 1.25 times the percentile of the card must be within the other 300."""
    one = {"name": "s", "model": "embed", "sharedCard": True, "place": "ap", "currentAlloc": load(300)}
    card = {"name": "A", "type": "A", "cost": 10, "memSize": 16, "place": "us"}
    far = {"networkMs": {"us": {"ap": 100}}}
    both = [one, one | {"name": "t"}]
    made = system([embed(memory=2)], both, EMBED, 9, accelerators=[card], optimizer=far)
    assert [use.mode for use in solve(made).shared_cards] == ["time"]


def test_a_route_is_served_without_its_large_model() -> None:
    """A plan was not proved where the large server has no candidate, and is not needed."""
    server = {"name": "large", "model": "large", "accelerators": ["B"]}
    kinds = [{"share": 1, "inTokens": 300, "outTokens": 200}]
    route = {"name": "r", "small": "small", "large": "large", "arrivalRate": 60}
    servers: list[Json] = [{"name": "small", "model": "chat"}, server]
    targets = CHAT | {"large": CHAT["chat"]}
    models = [chat(), chat() | {"name": "large"}]
    both = system(models, servers, targets, 9, routes=[route | {"kinds": kinds}])
    plan = solve(both)
    assert (plan.complete, plan.total_cost_cents_per_h) == (True, 10)
    assert [level.bound for level in plan.levels] == [level.value for level in plan.levels]
    needed = system(models, servers, targets, 9, routes=[route | {"kinds": [kinds[0] | {"miss": 0.1}]}])
    assert [item.server for item in solve(needed).unserved] == ["large"]


@pytest.mark.parametrize(
    ("limit", "most"),
    [({"maxPower": 1000}, 5), ({"budget": 65}, 5), ({"rollout": "all"}, 6)],
    ids=["power", "budget", "rollout"],
)
def test_kept_replicas_stay_within_all_limits(limit: Json, most: int) -> None:
    """A server that is too large to be served keeps replicas beside the one of another server.

    One takes up to 150 W and 10 cents; the other server starts one more while it rolls out on one of 8 cards.
    """
    servers: list[Json] = [
        {"name": "low", "model": "chat", "surge": 1, "currentAlloc": load(300)},
        {"name": "large", "model": "chat", "currentAlloc": load(20000)},
    ]
    made = system([chat()], servers, CHAT, 8, optimizer=limit)
    plan = plan_keeping(made, {"large": {"A": 8}}, Planner(Deadline.after(10)))
    assert [item.server for item in plan.unserved] == ["large"]
    assert {item.server: item.num_replicas for item in plan.kept} == {"large": most}


def test_an_availability_near_one_is_counted_without_tolerance() -> None:
    """21 replicas of 50 % have two with a probability of 0.9999895, which is not 0.99999."""
    server: Json = {"name": "s", "model": "chat", "availabilityTarget": 0.99999, "minNumReplicas": 2}
    half = {"name": "half", "type": "A", "cost": 1, "availability": 0.5}
    made = system([chat("half")], [server | {"currentAlloc": load(300)}], CHAT, 100, accelerators=[half])
    assert solve(made).replica_counts["s"].availability == 20


@pytest.mark.parametrize("seed", seeds(0, 300))
def test_random_systems_of_several_features_hold(seed: int) -> None:
    found = load_system(random_features(seed))
    plan = solve(found)
    assert verify(plan, found) == []
    assert verify(plan_from_value(json.loads(plan.to_json())), found) == []
    assert render_report(make_report(found), found, "markdown")
    assert manifests_text(deployment_patch(each, "n", "c", replicas=True) for each in variants(plan, found))
    if seed % 4 == 0:
        assert explanation_sections(explain(found))


DRAWN = {
    "routes": "route",
    "shared_cards": "cards",
    "shared_queues": "queue",
    "versions": "split",
    "offline": "deadline",
    "caches": "cache",
    "external": "external",
    "places": "place",
    "nodes": "nodes",
}
"""How random documents get a feature."""


def test_pairs_are_tried_of_all_features() -> None:
    """`test_length_pools` and `test_role_choice` draw the pairs of pools by length and by role."""
    apart = {"slices", "length_pools", "disaggregation"}
    assert {feature.name for feature in FEATURES} - apart == DRAWN.keys()


@pytest.mark.few(9)
@pytest.mark.parametrize("pair", [*combinations(DRAWN, 2)], ids="-".join)
def test_every_pair_of_features_is_planned_and_verified(pair: tuple[str, str]) -> None:
    drawn = {DRAWN[name] for name in pair}
    systems = (load_system(with_features(seed, drawn)) for seed in count())
    found = next(each for each in systems if each.features >= {*pair})
    plan = solve(found)
    assert plan.status in {"optimal", "feasible"}
    assert verify(plan, found) == []
