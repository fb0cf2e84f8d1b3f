"""Versions of split servers: the choice against an oracle, loads, verification, refusals, the service."""

from typing import Any

import numpy as np
import pytest
import yaml
from api_clients import client
from builders import Json, accelerator, document, profile, refusal, running, server, service_class
from doc_pages import ROOT
from robust_oracles import best_levels
from slow_cases import seeds
from small_fleets import canary
from version_oracles import random_splits, spelled_out

from optimizer import SpecError, compare, explain, load_system, scale_loads, solve, vary_loads, verify
from optimizer.features.versions.streams import Version, versions_of
from optimizer.features.versions.uses import OneVersion
from optimizer.jobs.horizons import HorizonOptions, horizon_of
from optimizer.schema import ModelTarget, Server
from optimizer.simulation.replicas import Effort
from optimizer.spec.system import System
from optimizer.stabilisation.decisions import Observation
from optimizer.stabilisation.rules import RECOMMENDED
from optimizer.stabilisation.stabilise import denoise_loads, stabilise
from optimizer.studies.simulation.plans import simulate_pools
from optimizer.studies.sweep.days import lognormal_days

# --- the choice ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2, 198))
def test_choice_matches_exhaustive_search_at_every_level(seed: int) -> None:
    """The oracle searches the versions as servers of their own, spelled out by plain arithmetic."""
    source = random_splits(seed, mixed=seed % 2 == 1)
    system, plain = load_system(source), load_system(spelled_out(source))
    plan = solve(system)
    assert plan.status == "optimal"
    reached = {level.name: pytest.approx(level.value, rel=1e-7, abs=1e-6) for level in plan.levels}
    assert reached == {name: float(value) for name, value in best_levels(plain).items()}
    assert verify(plan, system) == []
    greedy = system.with_options(milp_solver=False, saturation_policy="RoundRobin")
    assert verify(solve(greedy), greedy) == []
    again = solve(plain)
    assert again.allocations.keys() == plan.allocations.keys()
    assert again.total_cost_cents_per_h == pytest.approx(plan.total_cost_cents_per_h)


@pytest.mark.parametrize("cv", [0.5, 1.0, 2.0])
def test_versions_see_the_arrivals_that_are_sent_to_them(cv: float) -> None:
    """Of gamma interarrival times each request goes to the version with probability 0.3."""
    split = [{"model": "m", "weight": 0.7}, {"model": "n", "weight": 0.3}]
    source = canary(split=split)
    fitted = {"maxBatchSize": 8, "perfParms": {"alpha": 10, "beta": 0.05, "gamma": 1e-5}}
    source["models"] = [{"name": name, "acc": "A"} | fitted for name in "mn"]
    source["servers"][0]["currentAlloc"]["load"]["arrivalCV"] = cv
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.gamma(cv**-2, cv**2, 1_000_000))
    gaps = np.diff(times[rng.random(len(times)) < 0.3])
    load = load_system(source).servers["chat (n)"].current.load
    assert load.arrival_cv == pytest.approx(gaps.std() / gaps.mean(), rel=0.01)
    assert load.arrival_rate_rpm == pytest.approx(6000 / gaps.mean(), rel=0.01)


def test_a_roll_back_is_sized_for_arrivals_as_they_then_come() -> None:
    source = yaml.safe_load((ROOT / "specs" / "chat.yaml").read_text("utf-8"))
    source["models"] += [item | {"name": "next"} for item in source["models"]]
    (item,) = source["servers"]
    model, load = item["model"], item["currentAlloc"]["load"]
    load["arrivalCV"] = 2.0
    shares = [{"model": model, "weight": 0.5}, {"model": "next", "weight": 0.5}]
    system = load_system(source | {"servers": [item | {"split": shares, "rollBack": True}]})
    plan, name = solve(system), f"{item['name']} ({model})"
    (pool,) = plan.allocations[name]
    (alone,) = solve(load_system(source)).allocations[item["name"]]
    assert verify(plan, system) == []
    assert (
        pool.num_replicas >= alone.num_replicas > plan.allocations[f"{item['name']} (next)"][0].num_replicas
    )


# --- what the plan says ----------------------------------------------------------------------------------


def test_a_split_costs_what_rounding_up_each_version_costs() -> None:
    """Versions that are alike: eight full replicas become eight and one (the workloads' example)."""
    alone = load_system(document([server("a", 1)], [accelerator("A")]))
    each = solve(alone).allocations["a"][0].max_arrival_rate_rpm
    source = canary(rate=8 * each)
    source["models"] = [profile("m", "A"), profile("n", "A")]
    source["serviceClasses"] = [service_class("gold", models=["m", "n"])]
    use = solve(load_system(source)).versions["chat"]
    assert [item.num_replicas for item in use.versions] == [8, 1]
    assert [item.needed_replicas for item in use.versions] == [pytest.approx(7.2), pytest.approx(0.8)]
    assert [item.unused_cost_cents_per_h for item in use.versions] == [pytest.approx(8), pytest.approx(2)]
    assert use.one_version == OneVersion(accelerator="A", num_replicas=8, cost_cents_per_h=80)
    assert use.extra_cost_cents_per_h == pytest.approx(10)
    assert use.roll_back is None


def test_a_roll_back_has_the_replicas_for_all_requests() -> None:
    plain, back = (solve(load_system(canary(rollBack=wanted))).versions["chat"] for wanted in (False, True))
    assert plain.one_version == back.one_version is not None
    assert back.versions[0].num_replicas == back.one_version.num_replicas > plain.versions[0].num_replicas
    assert back.roll_back is True
    fewer = solve(load_system(canary(units=17, rollBack=True)))
    assert fewer.complete
    assert fewer.versions["chat"].roll_back is False
    assert fewer.versions["chat"].one_version is None


def test_a_version_has_targets_of_its_own_or_of_its_server() -> None:
    source = canary()
    source["serviceClasses"] = [
        service_class("gold", ttft=300, tps=900),
        service_class("own", 2, models=["m", "n"], ttft=80),
    ]
    source["serviceClasses"][1]["modelTargets"][0]["slo-ttft"] = 300
    system = load_system(source)
    target = system.target_of(system.servers["chat (n)"])
    assert target is not None
    assert (target.model, target.ttft_ms) == ("n", 300)
    assert target.tps == pytest.approx(90)
    source["servers"][0]["class"] = "own"
    target = load_system(source).target_of(load_system(source).servers["chat (n)"])
    assert target is not None
    assert (target.ttft_ms, target.tps) == (80, 0)


def test_loads_of_versions_follow_their_server() -> None:
    system = load_system(canary())
    for changed in (
        system.with_load("chat", arrival_rate_rpm=3000.0),
        scale_loads(system, 0.5),
        load_system(system.with_load("chat", arrival_rate_rpm=3000.0).to_spec().model_dump(by_alias=True)),
    ):
        rates = [changed.servers[f"chat ({m})"].current.load.arrival_rate_rpm for m in "mn"]
        assert rates == [pytest.approx(2700), pytest.approx(300)]
        assert changed.documented["chat"].current.load.arrival_rate_rpm == pytest.approx(3000)
        assert changed.documented["chat"].split == system.documented["chat"].split
    with pytest.raises(SpecError, match=r"its load is a share of the load of 'chat'; change that"):
        system.with_load("chat (n)", arrival_rate_rpm=1.0)


def test_a_system_with_versions_is_written_as_it_was_read() -> None:
    current = running("A", 12) | {"load": {"arrivalRate": 6000, "avgInTokens": 16, "avgOutTokens": 64}}
    split = [{"model": "m", "weight": 0.9}, {"model": "n", "weight": 0.1, "currentAlloc": running("A", 1)}]
    system = load_system(canary(split=split, currentAlloc=current, rollBack=True))
    assert load_system(system.to_spec().model_dump(by_alias=True)).servers == system.servers
    assert system.servers["chat (m)"].current.num_replicas == 12
    assert system.servers["chat (n)"].current.num_replicas == 1
    plan = solve(system)
    applied = plan.applied_to(system)
    assert load_system(applied.to_spec().model_dump(by_alias=True)).to_spec() == applied.to_spec()
    assert solve(applied).changes == ()


def test_studies_take_versions_as_servers() -> None:
    source = yaml.safe_load((ROOT / "specs" / "versions.yaml").read_text("utf-8"))
    system = load_system(source)
    plan = solve(system)
    assert simulate_pools(system, plan, Effort(requests=5000)).holds
    changes = compare(system, system.with_options(unlimited=True))
    assert changes.servers[0].server == "chat (chat-1)"
    (wish,) = explain(system).wishes
    assert (wish.option, wish.without.cost_change_cents_per_h) == ("rollBack", -300)
    with pytest.raises(SpecError, match=r"'chat' is split; name a version: chat \(chat-1\), chat \(chat-2\)"):
        explain(system, "chat")


# --- what is refused -------------------------------------------------------------------------------------

TWO = [{"model": "m", "weight": 0.9}, {"model": "n", "weight": 0.1}]


def weights(*shares: tuple[str, Any]) -> Json:
    return {"split": [{"model": model, "weight": weight} for model, weight in shares]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (weights(("m", -0.1), ("n", 1.1)), "servers[0].split[0].weight: "),
        (weights(("m", 0.5), ("x", 0.5)), "servers[0].split[1].model: model 'x' does not exist"),
        (
            {"split": [TWO[0], TWO[1] | {"currentAlloc": running("Z", 1)}]},
            "servers[0].split[1].currentAlloc.accelerator: accelerator 'Z' does not exist",
        ),
    ],
)
def test_contradictions_are_refused(changes: Json, message: str) -> None:
    assert refusal(lambda: load_system(canary(**changes))).startswith(message)


@pytest.mark.parametrize("taken", ["chat (n)", "q"])
def test_names_of_versions_are_taken_once(taken: str) -> None:
    source = canary()
    source["servers"].append(server("chat (n)") if taken != "q" else server("b", sharedQueue="chat (n)"))
    with pytest.raises(SpecError, match=r"its version would be named 'chat \(n\)', which is a"):
        load_system(source)


def test_a_version_that_does_not_fit_its_server_is_refused() -> None:
    source = canary()
    source["serviceClasses"][0]["modelTargets"][0]["percentile"] = 95
    source["models"][0] = {
        "name": "m",
        "acc": "A",
        "maxBatchSize": 8,
        "perfParms": {"alpha": 10, "beta": 0.1},
    }
    source["servers"].pop()
    with pytest.raises(SpecError, match=r"servers\[0\].split\[1\].model: the targets of 'm' in class 'gold'"):
        load_system(source)


# --- plans that are false --------------------------------------------------------------------------------


def test_a_plan_for_other_weights_is_found() -> None:
    system = load_system(canary())
    other = load_system(canary(**weights(("m", 0.8), ("n", 0.2))))
    assert any(line.startswith("chat (m): A carries ") for line in verify(solve(other), system))
    without = solve(load_system(canary(rollBack=False)))
    assert any("reserve" in line for line in verify(without, load_system(canary(rollBack=True))))


def test_versions_add_up_to_their_server() -> None:
    system = load_system(canary(**weights(("m", 0.33), ("n", 0.67))))
    versions = [one for one in system.servers.values() if isinstance(one, Version)]
    assert sum(one.current.load.arrival_rate_rpm for one in versions) == pytest.approx(6000)
    assert tuple(versions) == versions_of(system.documented["chat"])


# --- the service -----------------------------------------------------------------------------------------


def test_the_service_plans_and_applies_each_version() -> None:
    with client(stateful=True) as service:
        assert service.put("/v1/fleet", json=canary()).status_code == 200
        loads: Json = {"chat": {"arrivalRate": 3000}, "other": {"arrivalRate": 600}}
        answer = service.post("/v1/loads", json=loads)
        assert answer.status_code == 200, answer.text
        plan = answer.json()
        replicas = {name: pools[0]["numReplicas"] for name, pools in plan["allocations"].items()}
        assert [*replicas] == ["chat (m)", "chat (n)", "other"]
        found = service.get("/v1/targets").json()["targets"]
        assert {item["server"]: item["desiredReplicas"] for item in found} == replicas
        assert service.get("/v1/targets/chat%20(n)/A").json()["desiredReplicas"] == replicas["chat (n)"]
        refused = service.get("/v1/targets/chat/A")
        assert refused.status_code == 404
        assert "server 'chat' is split; read the targets of chat (m), chat (n)" in refused.text
        assert 'inferplan_desired_replicas{accelerator="A",model="n",server="chat (n)"' in (
            service.get("/metrics").text
        )
        applied = service.post("/v1/plan/apply")
        assert applied.status_code == 200, applied.text
        (chat,) = [item for item in applied.json()["servers"] if item["name"] == "chat"]
        assert chat["currentAlloc"]["numReplicas"] == replicas["chat (m)"]
        assert chat["currentAlloc"]["load"]["arrivalRate"] == 3000
        assert chat["split"][1]["currentAlloc"]["numReplicas"] == replicas["chat (n)"]
        for name, count in replicas.items():
            loads.setdefault(name if name != "chat (m)" else "chat", {})["replicas"] = {"A": {"ready": count}}
        again = service.post("/v1/loads", json=loads)
        assert again.status_code == 200, again.text
        assert again.json()["changes"] == []
        wrong = service.post("/v1/loads", json={"chat (n)": {"arrivalRate": 5}})
        assert wrong.status_code == 422
        assert "chat (n): its load is a share of the load of 'chat'; give that" in wrong.text


def test_answers_of_the_reference_name_versions() -> None:
    with client() as service:
        bare = service.post("/optimizeOne", json=canary(2000))
        assert bare.status_code == 200, bare.text
        allocations = bare.json()["allocations"]
        assert [*allocations] == ["chat (m)", "chat (n)", "other"]
        assert allocations["chat (n)"]["load"]["arrivalRate"] == pytest.approx(200)
        assert "X-Inferplan-Unserved" not in bare.headers
        gone = [{"model": "m", "weight": 0.9}, {"model": "n", "weight": 0.1, "currentAlloc": running("Z", 1)}]
        assert [*service.post("/optimizeOne", json=canary(2000, split=gone)).json()["allocations"]] == [
            *allocations
        ]
        missing = canary(2000, split=[{"model": "m", "weight": 0.9}, {"model": "x", "weight": 0.1}])
        left = service.post("/optimizeOne", json=missing)
        assert (left.status_code, [*left.json()["allocations"]]) == (200, ["other"])
        assert left.headers["X-Inferplan-Unplanned"] == "servers/chat"


@pytest.mark.slow
def test_the_reference_s_wire_keeps_what_versions_desire() -> None:
    with client(stateful=True) as service:
        service.put("/v1/fleet", json=canary(2000))
        assert service.post("/optimize", json={"unlimited": False}).status_code == 200
        assert service.get("/applyAllocation").status_code == 200
        (chat,) = [item for item in service.get("/getServers").json()["servers"] if item["name"] == "chat"]
        assert chat["desiredAlloc"]["numReplicas"] > 0
        assert chat["currentAlloc"]["numReplicas"] == chat["desiredAlloc"]["numReplicas"]
        assert [share.get("currentAlloc", {}).get("numReplicas") for share in chat["split"]] == [None, 1]
        again = service.post("/optimize", json={"unlimited": False})
        assert again.json()["allocations"]["chat (n)"]["numReplicas"] == 1


def test_noise_is_taken_from_all_versions_together() -> None:
    """Counts of one server are told from noise once, so that its versions keep their weights."""
    system, rules = load_system(canary()), RECOMMENDED
    last, rates = None, []
    for minute, rate in enumerate([6000.0, 6050.0, 5960.0, 7400.0, 7350.0, 7420.0]):
        seen = Observation(60.0 * minute)
        counted = system.with_load("chat", arrival_rate_rpm=rate)
        level, estimates = denoise_loads(counted, rules, last, seen)
        plan = solve(level)
        last = stabilise(plan, level, rules, last, seen, estimates)
        rates.append([level.servers[f"chat ({m})"].current.load.arrival_rate_rpm for m in "mn"])
        assert [share.weight for share in level.documented["chat"].split or ()] == [0.9, 0.1]
    assert all(pair[0] == pytest.approx(9 * pair[1]) for pair in rates)
    assert rates[0] == rates[1] == rates[2] != rates[5]


def test_days_and_hours_name_the_server_and_not_its_versions() -> None:
    system = load_system(canary())
    rates = lognormal_days(system, 5, 0.3, seed=1)
    assert rates[:, 0] == pytest.approx(9 * rates[:, 1])
    assert rates[:, 0].std() > 0
    hours = horizon_of(system, HorizonOptions(loads=("chat=6000,3000",)))
    assert [hour.load_rpm for hour in hours.plans] == [6600, 3600]
    other = vary_loads(system, np.random.default_rng(1)).documented["chat"]
    assert other.split == system.documented["chat"].split
    assert other.current.load.in_tokens != 16


def test_versions_count_as_servers_for_the_size_of_a_system() -> None:
    with client(max_servers=2) as service:
        answer = service.post("/v1/plan", json=canary())
        assert (answer.status_code, "3 items exceed the limit of 2" in answer.text) == (422, True)


def test_versions_of_unknown_output_length_get_a_replica() -> None:
    source = canary()
    source["servers"][0]["currentAlloc"] = {"load": {"arrivalRate": 3000, "avgInTokens": 16}}
    with pytest.raises(SpecError, match=r"avgOutTokens: 0 or missing"):
        load_system(source)
    source["servers"][0]["currentAlloc"] = {}
    with client(stateful=True) as service:
        assert service.put("/v1/fleet", json=source).status_code == 200
        answer = service.post("/v1/loads", json={"chat": {"arrivalRate": 3000}, "other": {"arrivalRate": 60}})
        assert (answer.status_code, answer.headers["X-Inferplan-Missing"]) == (200, "chat")
        for name in ("chat (m)", "chat (n)"):
            assert [pool["numReplicas"] for pool in answer.json()["allocations"][name]] == [1]


def test_targets_are_read_as_often_for_many_split_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loads of all servers were computed for each split server, so that a thousand took ten seconds."""
    read, numbers, target_of = list[str](), [], System.target_of

    def counted(system: System, one: Server) -> ModelTarget | None:
        read.append(one.name)
        return target_of(system, one)

    for count in (3, 12):
        source = canary()
        chat = source["servers"][0]
        source["servers"] = [chat | {"name": f"chat {number}"} for number in range(count)]
        source["count"][0]["count"] *= count
        system = load_system(source)
        plan = solve(system)
        assert len(plan.versions) == count
        with monkeypatch.context() as patched:
            patched.setattr(System, "target_of", counted)
            assert verify(plan, system) == []
        numbers.append(len(read) / count)
        read.clear()
    assert numbers[0] == numbers[1]
