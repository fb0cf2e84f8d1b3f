"""Planned prefill and decode pools, simulated together: the same run as a row's, and repairs."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from builders import Json
from role_oracles import LAW, LAWS, document
from slow_cases import mostly_slow

from optimizer import SpecError, load_system, solve, verify
from optimizer.compat.disaggregated_rows import DisaggregatedRow
from optimizer.features.disaggregation.simulated import BothPools, both_pools
from optimizer.features.disaggregation.streams import RolePool
from optimizer.jobs.effort import EffortOptions
from optimizer.jobs.simulating import SimulateOptions, repair_plan, simulate_plan
from optimizer.kinds.replicas import LatencyFigures
from optimizer.plan import Plan
from optimizer.schema.messages import validated
from optimizer.simulation.pools import decode_coefficients
from optimizer.simulation.replicas import Effort
from optimizer.simulation.summary import latency_percentile
from optimizer.spec.system import System
from optimizer.studies.simulation.plans import simulate_pools
from optimizer.studies.simulation.pools import pool_runs
from optimizer.studies.simulation.repair import _role_to_blame

SHORT = 1000


def both_of(system: System, plan: Plan, role: str = "prefill") -> BothPools:
    planned = plan.planned_in(system)
    pool = planned.servers[f"s ({role})"]
    assert isinstance(pool, RolePool)
    return both_pools(planned, plan, pool)


def p95_document(**server: Any) -> Json:
    """Return the server of `document` with limits on the 95th percentiles."""
    source = document(itl_ms=14, **server)
    source["serviceClasses"][0]["modelTargets"][0]["percentile"] = 95
    return source


@cache
def planned(**server: Any) -> tuple[System, Plan]:
    """Return the system of `p95_document` and its plan."""
    system = load_system(p95_document(**server))
    return system, solve(system)


@pytest.mark.parametrize("first_token", mostly_slow(["decode", "prefill"], 1))
def test_planned_pools_run_as_the_same_row(first_token: str) -> None:
    """Both pools of a plan give the latencies of the same row of `analyze --batch`, to the last digit."""
    system, plan = planned(firstToken=first_token)
    both = both_of(system, plan)
    pools = {
        "prefillReplicas": both.replicas["prefill"], "decodeReplicas": both.replicas["decode"],
        "linkBandwidth": 50, "kvBytesPerToken": 131_072, "fixedMs": 20, "firstToken": first_token,
    }  # fmt: skip
    row = LAW | {"RPS": 20, "avgInputTokens": 4000, "avgOutputTokens": 250, "inTokensCV": 0,
                 "maxBatchSize": 256, "kvCapacity": 450_000, "disaggregated": pools}  # fmt: skip
    most = max(both.replicas.values())
    alone = validated(DisaggregatedRow, row).simulate(Effort(SHORT * most))
    seen = [
        replace(both, role=role).seen(run)
        for role in ("prefill", "decode")
        for run in both.runs(Effort(SHORT), 0)
    ]
    assert isinstance(alone, LatencyFigures)
    assert alone.p95_ttft_ms == latency_percentile(seen[:1], "ttft_ms", 95).value
    assert alone.p95_itl_ms == latency_percentile(seen[1:], "itl_ms", 95).value


def test_both_rows_come_from_one_run() -> None:
    system, plan = planned()
    found = simulate_pools(system, plan, Effort(SHORT))
    decode, prefill = found.pools
    parts = {name: plan.allocations[f"s ({name})"][0] for name in ("prefill", "decode")}
    assert [(check.target, check.limit) for check in prefill.targets] == [("p95 TTFT", 2000)]
    assert [(check.target, check.limit) for check in decode.targets] == [("p95 ITL", 14)]
    assert prefill.targets[0].predicted == pytest.approx(
        sum(figure.value for part in parts.values() for figure in part.targets if figure.metric == "ttft")
    )
    assert (prefill.itl, prefill.e2e, prefill.batch) == (None, None, None)
    assert prefill.ttft is not None
    assert decode.ttft is not None
    assert prefill.ttft.predicted_mean == pytest.approx(sum(part.ttft_ms for part in parts.values()))
    (run,) = both_of(system, plan).runs(Effort(SHORT), pool_runs(system, plan)[0].stream)
    kept = slice(len(run.requests) // 10, -(len(run.requests) // 10))
    assert prefill.ttft.mean.value == pytest.approx(
        (run.prefill_ms + run.handover_ms + run.first_step_ms)[kept].mean()
    )
    assert decode.ttft.mean.value == pytest.approx(run.first_step_ms[kept].mean())
    assert found.offered_rps == pytest.approx(20)
    assert prefill.throughput_rps.value == pytest.approx(20 / parts["prefill"].num_replicas, rel=0.05)
    within = (run.ttft_ms <= 2000) & (run.itl_ms <= 14)
    assert found.goodput_rps == pytest.approx(20 * within[kept].mean())


def test_each_pool_has_the_law_of_its_accelerator() -> None:
    source = p95_document()
    source["accelerators"] = [
        {"name": "A", "type": "H100", "cost": 300, "links": {"A100": 7}, "memSize": 80},
        {"name": "B", "type": "A100", "cost": 20, "linkBandwidth": 0},
    ]
    source["count"].append({"type": "A100", "count": 99})
    (profile,) = source["models"]
    source["models"] = [
        profile | {"acc": "A", "perfParms": LAWS["A"], "maxNumTokens": 4096},
        profile | {"acc": "B", "perfParms": LAWS["B"], "kvCapacity": 300_000, "maxBatchSize": 64},
    ]
    source["servers"][0]["disaggregation"] = "required"
    source["serviceClasses"][0]["modelTargets"][0] |= {"slo-itl": 30, "slo-ttft": 1000}
    system = load_system(source)
    plan = solve(system)
    assert {name: pools[0].accelerator for name, pools in plan.allocations.items()} == {
        "s (prefill)": "A", "s (decode)": "B",
    }  # fmt: skip
    replica = both_of(system, plan).replica
    assert (replica.times.base_ms, replica.decode_times.base_ms) == (6.83, 9.0)
    assert replica.decode_times == decode_coefficients(replica.decode_times)
    assert (replica.budget, replica.prefill_kv_tokens) == (4096, 450_000)
    assert (replica.limits.kv_tokens, replica.limits.max_batch) == (300_000, 64)
    assert replica.transfer.bandwidth == 7


@pytest.mark.slow
@pytest.mark.parametrize("wish", [None, "required"])
def test_answers_of_one_token_have_no_itl(wish: str | None) -> None:
    source = document(wish)
    source["servers"][0]["currentAlloc"]["load"] |= {"avgOutTokens": 1, "outTokensCV": 0}
    system = load_system(source)
    found = simulate_pools(system, solve(system), Effort(SHORT))
    assert [check.target for pool in found.pools for check in pool.targets] == ["TTFT"]


def test_a_plan_without_one_of_the_pools_is_refused() -> None:
    system, plan = planned()
    half = plan.model_copy(update={"allocations": {"s (prefill)": plan.allocations["s (prefill)"]}})
    with pytest.raises(SpecError, match=r"allocations.s \(decode\): must have one accelerator, not 0"):
        simulate_pools(system, half, Effort(SHORT))


@pytest.mark.parametrize("capacity", mostly_slow([60_000, 450_000], 1))
def test_the_time_to_the_second_token_counts_for_itl(capacity: int) -> None:
    """If the prefill replica sends the first token, waits of decode replicas count for the ITL (eq. 301)."""
    source = document("required", firstToken="prefill")
    source["models"][0]["kvCapacity"] = capacity
    load = {"arrivalRate": "10/s", "avgInTokens": 8000, "avgOutTokens": 60, "inTokensCV": 0, "outTokensCV": 1}
    source["servers"][0]["currentAlloc"]["load"] = load
    source["serviceClasses"][0]["modelTargets"][0] |= {"percentile": 95, "slo-itl": 25, "slo-ttft": 3000}
    system = load_system(source)
    plan = solve(system)
    assert plan.disaggregation["s"].decode_share == 0
    (check,) = simulate_pools(system, plan, Effort(4 * SHORT)).pools[0].targets
    assert check.target == "p95 ITL"
    assert check.simulated.value <= 1.1 * check.limit
    assert check.predicted is not None
    assert 0.9 <= check.predicted / check.simulated.value <= 1.7


SHAPES = [
    {"name": "a", "share": 0.6, "avgInTokens": 1000, "avgOutTokens": 200, "inTokensCV": 0.5},
    {"name": "b", "share": 0.4, "avgInTokens": 7000, "avgOutTokens": 400, "prefixTokens": 3000,
     "prefixHitRate": 0.8},
]  # fmt: skip
PREFIX = {"avgInTokens": 4000, "avgOutTokens": 250, "prefixTokens": 3000, "prefixHitRate": 0.9}
REQUESTS: Json = {"shapes": {"shapes": SHAPES}, "prefix": PREFIX, "once": PREFIX | {"prefixStored": "once"}}


@pytest.mark.parametrize("name", mostly_slow([*REQUESTS], 1))
def test_shapes_and_prefixes_are_planned(name: str) -> None:
    """Simulated, targets hold; without hits of the prefix, the plan has more prefill replicas."""
    source = p95_document()
    source["servers"][0] |= {
        "disaggregation": "required",
        "currentAlloc": {"load": {"arrivalRate": "60/s", **REQUESTS[name]}},
    }
    system = load_system(source)
    plan = solve(system)
    assert verify(plan, system) == []
    decode, prefill = simulate_pools(system, plan, Effort(2 * SHORT)).pools
    for shape in prefill.shapes:
        parts = [
            one for (pool,) in plan.allocations.values() for one in pool.shapes if one.name == shape.name
        ]
        assert shape.ttft is not None
        assert sum(one.ttft_ms for one in parts) == pytest.approx(shape.ttft.mean.value, rel=0.1)
    for pool in (decode, prefill):
        for check in pool.targets:
            assert check.predicted == pytest.approx(check.simulated.value, rel=0.15)
            assert check.simulated.value <= 1.1 * check.limit
    replicas = both_of(system, plan).replicas
    load = source["servers"][0]["currentAlloc"]["load"]
    for shape in load.get("shapes", [load]):
        shape.pop("prefixHitRate", None)
    without = both_of(system := load_system(source), solve(system)).replicas
    assert without["prefill"] > replicas["prefill"]
    assert without["decode"] >= replicas["decode"]


# --- repair ----------------------------------------------------------------------------------------------


def kept_document() -> Json:
    """Return a server whose decode pool misses its ITL target after bursts, by 5 %."""
    source = document("required")
    load = {
        "arrivalRate": "10/s",
        "avgInTokens": 4000,
        "avgOutTokens": 300,
        "inTokensCV": 0,
        "arrivalCV": 2,
        "outTokensCV": 0,
    }
    source["servers"][0]["currentAlloc"] = {"load": load}
    source["serviceClasses"][0]["modelTargets"][0] |= {"percentile": 90, "slo-itl": 25, "slo-ttft": 1500}
    source["accelerators"][0]["linkBandwidth"] = 5
    source["optimizer"]["handover"] = {"fixedMs": 150, "layerwise": True}
    return source


def test_a_repair_adds_replicas_to_the_pool_that_misses() -> None:
    system = load_system(kept_document())
    mended = repair_plan(system, EffortOptions(requests=SHORT))
    before, after = solve(system).allocations, mended.plan.allocations
    assert [repair.server for repair in mended.repairs] == ["s (decode)"]
    assert [check.target for check in mended.repairs[0].missed] == ["p90 ITL"]
    assert after["s (prefill)"][0].num_replicas == before["s (prefill)"][0].num_replicas
    assert after["s (decode)"][0].num_replicas == mended.repairs[0].replicas_after
    assert mended.holds
    assert mended.simulation.holds


def test_the_pool_that_exceeds_the_plan_is_to_blame() -> None:
    decode, prefill = simulate_pools(*planned(), Effort(SHORT)).pools
    assert prefill.ttft is not None
    assert decode.ttft is not None
    late = prefill.model_copy(update={"ttft": prefill.ttft.model_copy(update={"predicted_mean": -1e4})})
    slow = decode.model_copy(update={"ttft": decode.ttft.model_copy(update={"predicted_mean": -1e4})})
    assert _role_to_blame({"prefill": late, "decode": decode}) == "prefill"
    assert _role_to_blame({"prefill": late, "decode": slow}) == "decode"
    full = decode.model_copy(update={"overload": "the queue grows"})
    assert _role_to_blame({"prefill": prefill, "decode": full}) == "decode"


@pytest.mark.slow
def test_a_decode_pool_without_memory_is_overloaded() -> None:
    """The queue grows at the decode pool, not at the prefill replicas that it holds back."""
    source = p95_document(maxBatchSize=64)
    source["models"][0]["kvCapacity"] = 60_000
    source["servers"][0]["disaggregation"] = "required"
    plan = solve(load_system(source))
    source["servers"][0]["currentAlloc"]["load"]["avgOutTokens"] = 400
    decode, prefill = simulate_pools(load_system(source), plan, Effort(2 * SHORT)).pools
    assert decode.overload is not None
    assert _role_to_blame({"prefill": prefill, "decode": decode}) == "decode"


@pytest.mark.slow
def test_a_trace_is_sent_to_both_pools(tmp_path: Path) -> None:
    """A trace belongs to the server; its requests are not divided before the pools."""
    lines = [f"{i / 20:.3f},4000,{200 + i % 100}" for i in range(SHORT)]
    file = tmp_path / "trace.csv"
    file.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]) + "\n", encoding="utf-8")
    system, _ = planned()
    found = simulate_plan(system, SimulateOptions(trace=file, server="s"))
    assert found.requests == SHORT
    assert found.offered_rps == pytest.approx(20, rel=0.01)
    assert [pool.server for pool in found.pools] == ["s (decode)", "s (prefill)"]
