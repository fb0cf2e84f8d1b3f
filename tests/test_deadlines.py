"""Offline work with a deadline: brute force, a second solver, by its meaning, and false plans."""

import json
from pathlib import Path

import pytest
from builders import Json, accelerator, document, profile, refusal, server, service_class
from small_fleets import offline

from optimizer import SpecError, load_system, solve, verify
from optimizer.jobs.horizons import HorizonOptions, horizon_of
from optimizer.plan import Plan
from optimizer.simulation.replicas import Effort
from optimizer.spec.load_traces import read_load_trace
from optimizer.stabilisation.rules import Rules
from optimizer.studies.load_changes import scale_loads
from optimizer.studies.replay.replay import replay
from optimizer.studies.simulation.plans import simulate_pools

# --- by its meaning --------------------------------------------------------------------------------------


def test_it_runs_at_the_saturated_throughput_of_a_replica() -> None:
    """Profile: a request takes prefill 5 + 0.1 × 16 × 8 ms and 63 × (10 + 8) ms in a full batch of 8."""
    (pool,) = solve(offline(8)).allocations["night"]
    item = profile("m", "A")
    prefill, decode = item["prefillParms"], item["decodeParms"]
    prefill_ms = prefill["gamma"] + prefill["delta"] * 16 * 8
    full_ms = prefill_ms + 63 * (decode["alpha"] + decode["beta"] * 8)
    each_rpm = pool.max_arrival_rate_rpm / pool.num_replicas
    assert each_rpm == pytest.approx(0.999 * 8 / full_ms * 60_000, rel=1e-6)


def test_it_finishes_at_the_planned_capacity() -> None:
    plan = solve(offline(8))
    (item,) = plan.deadlines
    (pool,) = plan.allocations["night"]
    assert (item.in_time, item.done_in_time, pool.num_replicas) == (True, 500_000, 4)
    assert item.finishes_h == pytest.approx(500_000 / (pool.max_arrival_rate_rpm * 60))
    assert item.finishes_h is not None
    assert item.finishes_h < 5 <= item.finishes_h * 4 / 3


def test_it_gets_what_others_leave() -> None:
    """The server by day needs 3 cards; the offline work needs 4."""
    plan = solve(offline(6))
    assert [*plan.allocations] == ["day"]
    (item,) = plan.deadlines
    assert (item.finishes_h, item.done_in_time, item.in_time) == (None, 0, False)
    assert [unserved.priority for unserved in plan.unserved] == [101]


def test_with_a_policy_it_is_done_later() -> None:
    plan = solve(offline(5, saturationPolicy="PriorityExhaustive"))
    (item,) = plan.deadlines
    (pool,) = plan.allocations["night"]
    assert pool.num_replicas == 2
    assert item.finishes_h == pytest.approx(500_000 / (pool.max_arrival_rate_rpm * 60))
    assert item.done_in_time == pytest.approx(5 * 60 * pool.max_arrival_rate_rpm)
    assert plan.unserved[0].served_fraction == pytest.approx(item.done_in_time / 500_000)


def test_a_lower_priority_is_served_before_it() -> None:
    lowest = [service_class("gold", 100, itl=40)]
    night = server("a-night", 0, deadline={"requests": 500_000, "hours": 5})
    system = load_system(
        document([server("z-day", 1500), night], [accelerator("A")], {"A": 4}, classes=lowest)
    )
    assert [*solve(system).allocations] == ["z-day"]


def test_neither_targets_nor_headroom_of_others_bind_it() -> None:
    """No class needs to know its model, and a target that nothing meets does not count."""
    tight = [service_class("gold", 1, itl=0.001)]
    night = server("night", 0, deadline={"requests": 1, "hours": 100}, maxQueueSize=1)
    system = load_system(
        document([night], [accelerator("A")], {"A": 4}, classes=tight, headroomShare=2.0, maxLoss=1e-12)
    )
    plan = solve(system)
    assert (plan.complete, plan.reserves) == (True, ())
    assert verify(plan, system) == []


@pytest.mark.parametrize("window", [0, 50])
@pytest.mark.parametrize("requests", [1, 1e6])
def test_batch_servers_work_offline_at_full_batches(window: float, requests: float) -> None:
    item = {"name": "m", "acc": "A", "batchParms": {"base": 30, "slope": 5}, "maxBatchSize": 8}
    night = server("night", 0, deadline={"requests": requests, "hours": 2}) | {"batchTimeout": window}
    source = document([night], [accelerator("A")], {"A": 40}, models=[item])
    source["serviceClasses"] = [{"name": "gold", "priority": 1}]
    system = load_system(source)
    plan = solve(system)
    (pool,) = plan.allocations["night"]
    assert pool.max_arrival_rate_rpm == pytest.approx(pool.num_replicas * 0.999 * 8 / 70 * 60_000, rel=1e-6)
    assert plan.deadlines[0].in_time
    assert verify(plan, system) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("hours", [0.05, 10])
@pytest.mark.parametrize("kind", ["tokens", "batches"])
def test_a_simulated_backlog_ends_when_the_plan_says(kind: str, hours: float) -> None:
    models = [{"name": "m", "acc": "A", "batchParms": {"base": 30, "slope": 5}, "maxBatchSize": 8}]
    night = server("night", 0, deadline={"requests": 40_000, "hours": hours})
    source = document([night], [accelerator("A")], {"A": 1}, saturationPolicy="PriorityExhaustive")
    system = load_system(source if kind == "tokens" else source | {"models": models})
    plan = solve(system)
    found = simulate_pools(system, plan, Effort())
    assert found.holds
    assert found.pools[0].finishes_h == pytest.approx(plan.deadlines[0].finishes_h, rel=0.05)


# --- documents -------------------------------------------------------------------------------------------


def test_the_load_follows_from_the_deadline() -> None:
    system = offline(8)
    assert system.servers["night"].current.load.arrival_rate_rpm == pytest.approx(500_000 / 300)
    again = load_system(system.to_spec().model_dump(by_alias=True))
    assert again.servers == system.servers


def test_a_larger_load_is_more_requests() -> None:
    twice = scale_loads(offline(8), 2.0).servers["night"].deadline
    assert twice is not None
    assert twice.requests == pytest.approx(1_000_000)
    assert twice.hours == 5


@pytest.mark.parametrize(
    ("deadline", "load", "message"),
    [
        (
            {},
            {"arrivalRate": 10},
            "load.arrivalRate: 10 requests/min, but the deadline requires 1; ",
        ),
        (
            {},
            {"avgOutTokens": 0},
            "load.avgOutTokens: 0 or missing, but 1 requests/min arrive; ",
        ),
        (
            {"requests": 1e15, "hours": 1e-6},
            {},
            "deadline: 1e+15 requests in 0.000001 h exceed ",
        ),
    ],
)
def test_contradictions_are_refused(deadline: Json, load: Json, message: str) -> None:
    item = server("a", 0, deadline={"requests": 60, "hours": 1} | deadline)
    item["currentAlloc"]["load"] |= load
    found = refusal(lambda: load_system(document([item], [accelerator("A")], {"A": 4})))
    assert found.startswith(f"servers[0].{'currentAlloc.' if load else ''}{message}")


# --- a false plan is found -------------------------------------------------------------------------------


def test_a_faster_pool_is_found() -> None:
    """A capacity that replicas do not have, with every figure that follows from it."""
    plan = json.loads(solve(offline(8)).to_json())
    pool, item = plan["allocations"]["night"][0], plan["deadlines"][0]
    pool["maxArrivalRateRpm"] *= 2
    item["capacityRpm"] *= 2
    item["finishesH"] /= 2
    assert any("night" in line for line in verify(Plan.model_validate(plan), offline(8)))


# --- loads over time -------------------------------------------------------------------------------------

TRACE = "time,server,arrivalRate\n" + "".join(
    f"{3600 * h},day,{rate}\n" for h, rate in enumerate((1500, 900) * 2)
)


@pytest.mark.slow
def test_a_horizon_runs_offline_work_until_its_deadline(tmp_path: Path) -> None:
    """1,000 requests/min take two of the replicas for two hours; 1,500 by day take three, 900 two."""
    (tmp_path / "day.csv").write_text(TRACE, encoding="utf-8")
    system = offline(8, requests=120_000, hours=2)
    for options in (HorizonOptions(trace=tmp_path / "day.csv"), HorizonOptions(factors=(1, 0.6, 1, 0.6))):
        found = horizon_of(system, options)
        night = [sum(pool.num_replicas for pool in hour.servers["night"]) for hour in found.plans]
        day = [sum(pool.num_replicas for pool in hour.servers["day"]) for hour in found.plans]
        assert (night, day) == ([2, 2, 0, 0], [3, 2, 3, 2])
        assert [hour.load_rpm for hour in found.plans] == pytest.approx([2500, 1900, 1500, 900])


def test_a_replay_runs_offline_work_until_its_deadline(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text(TRACE, encoding="utf-8")
    system = offline(8, requests=120_000, hours=2)
    found = replay(system, read_load_trace(system, tmp_path / "day.csv"), {"every plan": Rules()}, 180.0)
    every, _ = found.variants
    (night,) = [item for item in every.servers if item.server == "night"]
    assert night.offered == pytest.approx(120_000)
    assert (night.missed, night.most_replicas) == (0, 2)
    assert [point.planned for point in every.points] == [5, 4, 3]


@pytest.mark.slow
@pytest.mark.parametrize(("requests", "planned"), [(120_000, [5, 4, 3]), (1e7, [3, 2, 3])])
def test_the_noise_rule_drops_work_after_its_deadline(
    tmp_path: Path, requests: float, planned: list[int]
) -> None:
    """Work of 120,000 requests kept its replicas; 10 million were planned at their rate without requests."""
    (tmp_path / "day.csv").write_text(TRACE, encoding="utf-8")
    system = offline(8, requests=requests, hours=2)
    trace = read_load_trace(system, tmp_path / "day.csv")
    quiet, _ = replay(system, trace, {"noise": Rules(noise=2)}, 180.0).variants
    assert [point.planned for point in quiet.points] == planned


def test_loads_of_offline_work_are_refused(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text(f"{TRACE}0,night,5\n", encoding="utf-8")
    with pytest.raises(
        SpecError, match=r"day.csv:6: server 'night' has a deadline, which sets its load; remove it"
    ):
        horizon_of(offline(8), HorizonOptions(trace=tmp_path / "day.csv"))
    with pytest.raises(
        SpecError, match=r"loads: server 'night' has a deadline, which sets its load; remove it"
    ):
        horizon_of(offline(8), HorizonOptions(loads=("day=1,2", "night=3,4")))
