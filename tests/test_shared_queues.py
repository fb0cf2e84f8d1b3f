"""Servers that share a queue: choice against an oracle, verification, refusals, simulation, the service."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from api_clients import client
from builders import Json, accelerator, document, running, server, service_class
from shared_queue_oracles import best_levels, random_queues
from slow_cases import seeds

from optimizer import SpecError, System, compare, explain, load_system, solve, verify
from optimizer.candidates.class_rows import rows_of
from optimizer.candidates.pairs import arrays_of, sizable_pairs
from optimizer.candidates.table import Verdicts
from optimizer.cli.main import main
from optimizer.simulation.replicas import Effort
from optimizer.spec.streams import members_of
from optimizer.studies.simulation.plans import simulate_pools

# --- the choice ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(3, 217))
def test_choice_matches_exhaustive_search_at_every_level(seed: int) -> None:
    mixed = seed % 3 == 0
    made = random_queues(seed, queues=1 + seed % 2, others=0 if mixed else 1)
    is_the_best(load_system(made).with_options(heterogeneous=mixed, unlimited=seed % 7 == 6))


def is_the_best(system: System) -> None:
    plan = solve(system)
    assert plan.status == "optimal"
    reached = {level.name: pytest.approx(level.value, rel=1e-7, abs=1e-6) for level in plan.levels}
    assert reached == best_levels(system)
    assert verify(plan, system) == []
    in_plan = {*plan.allocations, *(item.server for item in plan.unserved)} | plan.queued_servers
    assert in_plan >= system.documented.keys()


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 49))
def test_choice_of_several_queues_matches_exhaustive_search(seed: int) -> None:
    is_the_best(load_system(random_queues(1000 + seed, queues=4, most=4, others=5)))


@pytest.mark.parametrize("seed", seeds(1, 39))
def test_greedy_plans_hold_and_serve_no_more(seed: int) -> None:
    system = load_system(random_queues(seed))
    greedy, exact = solve(system, milp_solver=False), solve(system)
    assert verify(greedy, system.with_options(milp_solver=False)) == []
    values = [[round(level.value, 6) for level in plan.levels] for plan in (exact, greedy)]
    assert values[0] <= values[1]


def test_a_saturation_policy_is_refused() -> None:
    message = r"optimizer.saturationPolicy: a server of a shared queue is served in full or not at all"
    with pytest.raises(SpecError, match=message):
        load_system(random_queues(2)).with_options(saturation_policy="RoundRobin")


# --- what is refused -------------------------------------------------------------------------------------


def two(**second: Any) -> Json:
    """Return a system with two servers that share a queue, of which the second has other fields."""
    servers = [server("a", sharedQueue="q"), server("b", sharedQueue="q") | second]
    classes = [service_class("gold", ttft=500), service_class("roomy", 3) | {"headroomShare": 0.5}]
    return document(servers, [accelerator("A")], {"A": 9}, classes=classes)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (
            {"maxNumReplicas": 3},
            r"servers\[1\].maxNumReplicas: 3, but 'a' in the same shared queue has nothing",
        ),
        (
            {"class": "roomy"},
            r"servers\[1\].headroomShare: 0.5, but 'a' in the same shared queue has nothing",
        ),
    ],
)
def test_contradictions_in_a_queue_are_errors_with_their_place(second: Json, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load_system(two(**second))


def test_members_state_one_current_allocation_or_none() -> None:
    both = two()
    both["servers"][0]["currentAlloc"] |= running("A", 2)
    assert load_system(both).servers["q"].current.num_replicas == 2
    both["servers"][1]["currentAlloc"] |= running("A", 3)
    with pytest.raises(
        SpecError, match="currentAlloc: 3 x A at 0, but 'a' in the same shared queue runs on 2"
    ):
        load_system(both)


def test_at_most_six_servers_share_a_queue() -> None:
    seven = two()
    seven["servers"] = [server(f"s{i}", sharedQueue="q") for i in range(7)]
    with pytest.raises(SpecError, match=r"servers\[6\]: 7 servers share 'q', at most 6 can; divide them"):
        load_system(seven)


# --- one server under the queue's name ---------------------------------------------------------------------


def queues() -> System:
    return load_system(random_queues(5))


@pytest.mark.slow
def test_a_system_with_queues_survives_writing_and_reading() -> None:
    system = queues()
    again = load_system(system.to_spec().model_dump(mode="json", by_alias=True))
    assert solve(again).to_json() == solve(system).to_json()
    applied = solve(system).applied_to(system)
    again = load_system(applied.to_spec().model_dump(mode="json", by_alias=True))
    assert solve(again).changes == ()


def test_loads_of_members_and_of_the_queue_can_change() -> None:
    system = load_system(two())
    queue = system.servers["q"]
    assert queue.current.load.arrival_rate_rpm == 120
    changed = system.with_load("a", arrival_rate_rpm=90)
    assert changed.servers["q"].current.load.arrival_rate_rpm == 150
    twice = changed.with_load("q", arrival_rate_rpm=300)
    assert [part.current.load.arrival_rate_rpm for part in members_of(twice.servers["q"])] == [180, 120]


@pytest.mark.slow
def test_questions_about_a_plan_name_its_servers() -> None:
    path = Path(__file__).resolve().parent.parent / "specs" / "shared-queue.yaml"
    made = yaml.safe_load(path.read_text("utf-8"))
    system = load_system(made | {"count": [{"type": "H100", "count": 1}]})
    explained = explain(system, server="free")
    assert [item.server for item in explained.servers] == ["chat"]
    found = compare(system)
    rows = {row.server: row for row in found.servers}
    assert rows["free"].service == "newly_unserved"
    assert set(rows) == {"chat", "premium", "standard", "free"}


def test_a_comparison_has_the_figures_of_the_members(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).resolve().parent.parent / "specs" / "shared-queue.yaml"
    found = compare(load_system(path))
    rows = {row.server: row for row in found.servers}
    for name, member in found.first.plan.shared_queues["chat"].members.items():
        side = rows[name].first
        assert side is not None
        assert (side.carried_rate_rpm, side.ttft_ms) == (member.arrival_rate_rpm, member.ttft_ms)
        assert (side.num_replicas, side.cost_cents_per_h) == (0, 0)
    assert found.total.first is not None
    assert found.total.first.carried_rate_rpm == pytest.approx(840)
    assert main(["compare", str(path), "--scale", "1.5"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert " of 3 servers and 1 queue change" in out
    assert "unchanged" not in out
    assert "The cost of a shared queue counts in the class of its highest priority." in out
    assert "premium in chat in chat" in out
    assert "free in chat not served not in full" in out


# --- simulated -------------------------------------------------------------------------------------------


def simulated_fleet(seed: int) -> System:
    made = random_queues(2000 + seed, queues=1, most=3, others=0)
    for profile in made["models"]:
        alpha, beta = profile.pop("decodeParms").values()
        del profile["prefillParms"]
        profile["perfParms"] = {"alpha": alpha, "beta": beta, "gamma": 0.01}
    return load_system(made).with_options(unlimited=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 19))
def test_no_simulated_class_misses_a_target_by_a_tenth(seed: int) -> None:
    system = simulated_fleet(seed)
    plan = solve(system)
    for stream in (1, 2, 3):
        found = simulate_pools(system, plan, Effort(requests=8000, seed=stream))
        for pool in found.pools:
            for check in pool.targets:
                width = check.simulated.half_width or 0.0
                assert check.simulated.value - width <= 1.1 * check.limit, (seed, pool.server, check.target)


# --- the service -----------------------------------------------------------------------------------------


def test_the_service_has_one_target_for_a_queue() -> None:
    with client(stateful=True) as service:
        assert service.put("/v1/fleet", json=two()).status_code == 200
        answer = service.post("/v1/loads", json={"a": {"arrivalRate": 600}, "b": {"arrivalRate": 900}})
        assert answer.status_code == 200, answer.text
        plan = answer.json()
        (pool,) = plan["allocations"]["q"]
        assert {name: m["arrivalRateRpm"] for name, m in plan["sharedQueues"]["q"]["members"].items()} == {
            "a": 600,
            "b": 900,
        }
        found = service.get("/v1/targets").json()["targets"]
        assert [(item["server"], item["desiredReplicas"]) for item in found] == [("q", pool["numReplicas"])]
        assert service.get("/v1/targets/q/A").json()["desiredReplicas"] == pool["numReplicas"]
        refused = service.get("/v1/targets/a/A")
        assert (refused.status_code, "shares the replicas of 'q'" in refused.text) == (404, True)
        assert service.post("/v1/plan/apply").status_code == 200
        ready = {"replicas": {"A": {"ready": pool["numReplicas"]}}}
        again = service.post("/v1/loads", json={"a": {"arrivalRate": 600} | ready, "b": {"arrivalRate": 900}})
        assert again.status_code == 200, again.text
        assert again.json()["changes"] == []


# --- sizing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queued", [False, True])
def test_some_pairs_have_the_metrics_that_they_have_among_all(*, queued: bool) -> None:
    arrays = arrays_of(load_system(random_queues(3, queues=2, others=3)))
    pairs = sizable_pairs(arrays, Verdicts.none(arrays.profile_of.shape), choose_batch=False)
    pairs = pairs.take(arrays.servers.is_queue[pairs.server] == queued)
    rows, few = rows_of(arrays, pairs), np.arange(1, len(pairs.server), 2)
    assert len(few) > 1
    rates = arrays.servers.load_rps[pairs.server] / np.arange(2, len(pairs.server) + 2)
    some = rows.take(few)
    found, every = (each.mean(each.analyze(rate)) for each, rate in ((some, rates[few]), (rows, rates)))
    assert found.ttft_ms == pytest.approx(every.ttft_ms[few], rel=1e-12)
    assert found.itl_ms == pytest.approx(every.itl_ms[few], rel=1e-12)
    held = rows.met(rows.analyze(rates))
    assert (some.met(some.analyze(rates[few])) == held[few]).all()
