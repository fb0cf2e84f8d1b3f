"""Places: the network is part of latencies, and servers run only where they may."""

import itertools
import random
from typing import Any

import pytest
from slow_cases import seeds

from optimizer import SpecError, System, explain, find_candidates, load_system, solve, verify
from optimizer.simulation.replicas import Effort
from optimizer.studies.simulation.plans import simulate_pools

PLACES = ("eu", "us", "asia")


def document(seed: int) -> dict[str, Any]:
    """Return a random system of 3 types at 3 places and 3 servers, with tokens and without."""
    rng = random.Random(seed)
    times = {a: {b: rng.choice([20, 60, 150]) for b in PLACES if b > a} for a in PLACES}
    accelerators = [
        {"name": f"a{i}", "type": f"a{i}", "cost": rng.randint(20, 90), "place": place}
        for i, place in enumerate(PLACES)
    ]
    models = []
    for item in accelerators:
        speed = rng.uniform(0.5, 2)
        parms = {"alpha": 8 * speed, "beta": 0.05 * speed, "gamma": 0.0002 * speed}
        models += [
            {"name": "llm", "acc": item["name"], "maxBatchSize": 16, "perfParms": parms},
            {"name": "ranker", "acc": item["name"], "maxBatchSize": 4, "batchParms": {"base": 20 * speed}},
        ]
    classes = [
        {
            "name": f"c{i}",
            "modelTargets": [
                {"model": "llm", "slo-ttft": rng.choice([100, 250, 600]), "slo-itl": 40}
                | rng.choice([{}, {"percentile": 90}, {"goodputShare": 0.9}, {"slo-e2e": 1500}]),
                {
                    "model": "ranker",
                    "latency": [{"ms": 200}, {"percentile": 99, "ms": rng.choice([120, 300])}],
                },
            ],
        }
        for i in range(3)
    ]
    servers = []
    for i in range(3):
        load = {"arrivalRate": rng.randint(60, 900), "avgInTokens": 100, "avgOutTokens": 20}
        servers.append(
            {
                "name": f"s{i}",
                "class": f"c{i}",
                "model": rng.choice(["llm", "ranker"]),
                "place": rng.choice(PLACES),
            }
            | {"currentAlloc": {"load": load}}
            | rng.choice([{}, {"mayServeFrom": rng.sample(PLACES, 2)}])
        )
    return {
        "accelerators": accelerators, "models": models, "serviceClasses": classes, "servers": servers,
        "count": [{"type": item["name"], "count": rng.choice([1, 3, 40])} for item in accelerators],
        "optimizer": {"networkMs": times},
    }  # fmt: skip


def network_of(spec: dict[str, Any], server: dict[str, Any], accelerator: dict[str, Any]) -> float:
    here, there = server["place"], accelerator["place"]
    return 0.0 if here == there else float(spec["optimizer"]["networkMs"][min(here, there)][max(here, there)])


def alone(spec: dict[str, Any], server: dict[str, Any], accelerator: dict[str, Any]) -> dict[str, Any] | None:
    """Return the candidate of a pair in a system without places, whose limits are less by the network."""
    ms = network_of(spec, server, accelerator)
    if accelerator["place"] not in server.get("mayServeFrom", PLACES):
        return None
    (owner,) = (one for one in spec["serviceClasses"] if one["name"] == server["class"])
    (target,) = (dict(one) for one in owner["modelTargets"] if one["model"] == server["model"])
    for name in {"slo-ttft", "slo-e2e"} & target.keys():
        target[name] -= ms
    if "latency" in target:
        target["latency"] = [item | {"ms": item["ms"] - ms} for item in target["latency"]]
    limits = [target.get("slo-ttft", 1), target.get("slo-e2e", 1)]
    limits += [item["ms"] for item in target.get("latency", ())]
    if min(limits) <= 0:
        return None
    system = load_system(
        {
            "accelerators": [{key: value for key, value in accelerator.items() if key != "place"}],
            "models": [one for one in spec["models"] if one["acc"] == accelerator["name"]],
            "serviceClasses": [{"name": server["class"], "modelTargets": [target]}],
            "servers": [
                {key: value for key, value in server.items() if key not in {"place", "mayServeFrom"}}
            ],
            "optimizer": {"unlimited": True},
        }
    )
    found: list[dict[str, Any]] = find_candidates(system).to_wire()["candidates"]
    return found[0] | {"ttftMs": found[0]["ttftMs"] + ms} if found else None


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 39))
def test_plans_are_those_of_shorter_targets(seed: int) -> None:
    spec = document(seed)
    system = load_system(spec)
    listed: list[dict[str, Any]] = find_candidates(system).to_wire()["candidates"]
    options: dict[str, list[dict[str, Any]]] = {}
    for server, accelerator in itertools.product(spec["servers"], spec["accelerators"]):
        expected = alone(spec, server, accelerator)
        pair = {"server": server["name"], "accelerator": accelerator["name"]}
        mine = [
            one
            for one in listed
            if one["server"] == server["name"] and one["accelerator"] == accelerator["name"]
        ]
        assert (expected is None) == (not mine), pair
        if expected is not None:
            assert mine[0]["numReplicas"] == expected["numReplicas"]
            for name in ("maxRateRpm", "ttftMs", "itlMs"):
                assert mine[0][name] == pytest.approx(expected[name], rel=1e-9), (pair, name)
            options.setdefault(server["name"], []).append(mine[0])
    plan = solve(system)
    assert verify(plan, system) == []
    left = {item["type"]: item["count"] for item in spec["count"]}
    costs = []
    for chosen in itertools.product(*options.values()):
        used = {kind: sum(one["units"] for one in chosen if one["type"] == kind) for kind in left}
        if all(used[kind] <= left[kind] for kind in left):
            costs.append(sum(one["costCentsPerH"] for one in chosen))
    if len(options) == len(spec["servers"]) and costs:
        assert plan.unserved == ()
        total = sum(pool.cost_cents_per_h for pools in plan.allocations.values() for pool in pools)
        assert total == pytest.approx(min(costs), rel=1e-9)


def near(**changes: Any) -> System:
    spec = document(3)
    spec["servers"] = [spec["servers"][0] | {"model": "llm", "class": "c0", "place": "eu"} | changes]
    spec["serviceClasses"][0]["modelTargets"][0] = {"model": "llm", "slo-ttft": 400, "slo-itl": 100}
    return load_system(spec)


def test_simulated_latencies_include_the_network() -> None:
    far = near(mayServeFrom=["us"])
    plan = solve(far)
    (pool,) = plan.allocations["s0"]
    assert pool.accelerator == "a1"
    assert verify(plan, far) == []
    time_ms = far.options.network_ms["eu"]["us"]
    ((here,),) = solve(near(mayServeFrom=["us"], place="us")).allocations.values()
    assert here.num_replicas == pool.num_replicas
    assert pool.ttft_ms == pytest.approx(here.ttft_ms + time_ms)
    simulated = simulate_pools(far, plan, Effort(requests=2000)).pools[0]
    assert simulated.ttft is not None
    assert simulated.e2e is not None
    assert simulated.ttft.mean.value == pytest.approx(pool.ttft_ms, rel=0.15)
    assert simulated.ttft.mean.value > time_ms
    assert (simulated.e2e.predicted_mean or 0.0) > pool.ttft_ms


@pytest.mark.slow
def test_rejections_and_explanations_name_the_places() -> None:
    system = near(mayServeFrom=["us"])
    reasons = {item.accelerator: item for item in find_candidates(system).rejections()}
    assert reasons["a0"].reason == "place"
    assert reasons["a0"].detail == "it is at eu, which mayServeFrom does not list"
    assert explain(system).servers[0].pools[0].accelerator == "a1"
    spec = document(3)
    spec["optimizer"]["networkMs"] = {"asia": {"eu": 900, "us": 900}, "eu": {"us": 900}}
    details = [
        item.detail for item in find_candidates(load_system(spec)).rejections() if item.reason == "place"
    ]
    assert any("takes 900 ms, a target is" in detail for detail in details)


def test_a_plan_at_a_forbidden_place_is_not_verified() -> None:
    system = near(mayServeFrom=["us"])
    plan = solve(system)
    assert any("place" in text for text in verify(plan, near(mayServeFrom=["eu"])))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"accelerators": {"name": "b", "type": "a0", "place": "us"}}, "give all of a type one place"),
        (
            {"servers": {"name": "t", "model": "llm", "class": "c0", "mayServeFrom": ["mars"]}},
            "no accelerator is at",
        ),
        (
            {"servers": {"name": "t", "model": "llm", "class": "c0", "place": "mars"}},
            "the network latency between 'mars'",
        ),
    ],
)
def test_contradictions_are_refused(change: dict[str, Any], text: str) -> None:
    spec = document(1)
    for section, item in change.items():
        spec[section].append(item)
    with pytest.raises(SpecError, match=text):
        load_system(spec)


# --- shared queues -----------------------------------------------------------------------------------------


def queue_spec(seed: int, *, network: bool) -> dict[str, Any]:
    """Return a system whose servers share a queue at eu; without the network, with targets less its time."""
    spec = document(seed)
    time_ms = float(spec["optimizer"]["networkMs"]["eu"]["us"])
    spec["accelerators"] = [item for item in spec["accelerators"] if item["place"] == "us"]
    for i, owner in enumerate(spec["serviceClasses"]):
        target = next(one for one in owner["modelTargets"] if one["model"] == "llm")
        for name in {"slo-ttft", "slo-e2e"} & target.keys():
            target[name] += i * 10 + (time_ms if network else 0)
        owner["priority"] = i + 1
    for server, owner in zip(spec["servers"], spec["serviceClasses"], strict=True):
        server |= {"model": "llm", "class": owner["name"], "place": "eu" if network else "us"}
        server["sharedQueue"] = "q"
        server.pop("mayServeFrom", None)
    spec["models"] = [item for item in spec["models"] if item["acc"] == spec["accelerators"][0]["name"]]
    spec["count"] = [{"type": item["name"], "count": 40} for item in spec["accelerators"]]
    return spec


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 7))
def test_a_far_shared_queue_is_a_near_one_with_shorter_targets(seed: int) -> None:
    far, near_by = (load_system(queue_spec(seed, network=network)) for network in (True, False))
    time_ms = far.options.network_ms["eu"]["us"]
    plan, other = solve(far), solve(near_by)
    assert verify(plan, far) == []
    assert plan.complete
    ((pool,), (near_pool,)) = plan.allocations["q"], other.allocations["q"]
    assert (pool.num_replicas, pool.max_batch) == (near_pool.num_replicas, near_pool.max_batch)
    assert pool.max_arrival_rate_rpm == pytest.approx(near_pool.max_arrival_rate_rpm)
    assert pool.ttft_ms == pytest.approx(near_pool.ttft_ms + time_ms)
    for name, member in plan.shared_queues["q"].members.items():
        near_member = other.shared_queues["q"].members[name]
        assert member.ttft_ms == pytest.approx(near_member.ttft_ms + time_ms)
        assert member.wait_ms == pytest.approx(near_member.wait_ms)
        for mine, its in zip(member.targets, near_member.targets, strict=True):
            delay_ms = time_ms if any(name in mine.measure for name in ("TTFT", "end-to-end")) else 0.0
            assert (mine.value, mine.limit) == pytest.approx((its.value + delay_ms, its.limit + delay_ms))


def test_a_simulated_shared_queue_includes_the_network() -> None:
    far = load_system(queue_spec(0, network=True))
    plan = solve(far)
    for pool in simulate_pools(far, plan, Effort(requests=4000)).pools:
        member = plan.shared_queues["q"].members[pool.server]
        assert pool.ttft is not None
        assert pool.ttft.mean.value == pytest.approx(member.ttft_ms, rel=0.1)
        assert pool.e2e is not None
        assert pool.e2e.mean.value == pytest.approx(pool.e2e.predicted_mean, rel=0.1)


def test_only_the_classes_that_are_near_enough_are_served() -> None:
    spec = queue_spec(0, network=True)
    time_ms = spec["optimizer"]["networkMs"]["eu"]["us"]
    spec["serviceClasses"][0]["modelTargets"][0] = {"model": "llm", "slo-ttft": time_ms, "slo-itl": 40}
    system = load_system(spec)
    plan = solve(system)
    assert verify(plan, system) == []
    assert [item.server for item in plan.unserved] == ["s0"]
    assert sorted(plan.shared_queues["q"].members) == ["s1", "s2"]
    for owner in spec["serviceClasses"]:
        owner["modelTargets"][0] = {"model": "llm", "slo-ttft": time_ms, "slo-itl": 40}
    (rejection,) = find_candidates(load_system(spec)).rejections()
    assert rejection.detail == f"the network from eu to us takes {time_ms} ms, a target is {time_ms} ms"
