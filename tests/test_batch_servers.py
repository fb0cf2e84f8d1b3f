"""Batch servers from the document to the plan: sized, verified, explained, simulated, or refused."""

import json
from typing import Any

import pytest
from builders import Json, accelerator, document

from optimizer import explain, load_system, solve, verify
from optimizer.compat.queue_service import read_problems
from optimizer.compat.row_types import kind_of_row
from optimizer.compat.rows import ReplicaRow
from optimizer.errors import SpecError
from optimizer.kinds.batch_servers.rows import BatchAnswer, BatchRow
from optimizer.simulation.replicas import Effort
from optimizer.spec.system import System
from optimizer.studies.simulation.plans import simulate_pools

SENTIMENT: Json = {"base": 37.5, "slope": 2.5}  # 40 ms for one, 50 ms for five

PRE: Json = {"name": "pre", "where": "before", "time": 7.5}


def system_of(
    rate_rps: float = 1000.0,
    target: Json | None = None,
    profile: Json | None = None,
    **server: Any,
) -> System:
    limits = {"latency": [{"percentile": 50, "ms": 100}, {"percentile": 99, "ms": 500}]}
    model = {"name": "m", "acc": "T4", "maxBatchSize": 5, "batchParms": SENTIMENT} | (profile or {})
    targets = [{"model": "m"} | (limits if target is None else target)]
    load = {"currentAlloc": {"load": {"arrivalRate": rate_rps * 60}}}
    return load_system(
        document(
            [{"name": "s", "class": "c", "model": "m"} | load | server],
            [accelerator("T4")],
            classes=[{"name": "c", "modelTargets": targets}],
            models=[model],
        )
    )


@pytest.mark.slow
def test_batch_server_with_several_percentiles_is_planned() -> None:
    system = system_of(batchTimeout=10)
    plan = solve(system)
    (pool,) = plan.allocations["s"]
    # One takes 91.1 requests/s (the reference's workloads.md, A.5), where the median binds.
    assert pool.num_replicas == 11
    assert pool.max_arrival_rate_rpm / 60 / 11 == pytest.approx(91.1, abs=0.1)
    assert [figure.measure for figure in pool.targets] == ["p50 end-to-end latency", "p99 end-to-end latency"]
    assert pool.busy is not None
    assert pool.utilization == pytest.approx(1000 / 11 / 100)
    assert verify(plan, system) == []
    assert explain(system).servers[0].pools[0].accelerator == "T4"
    simulation = simulate_pools(system, plan, Effort(requests=400_000))
    assert simulation.pools[0].e2e is not None
    assert simulation.pools[0].e2e.mean.value == pytest.approx(pool.ttft_ms, rel=0.05)


def test_a_server_without_tokens_is_idle_only_without_arrivals() -> None:
    assert solve(system_of(20.0)).allocations["s"][0].num_replicas == 1
    for rate_rps in (0.0, 1e-200):  # a load that decayed to next to nothing is none
        assert solve(system_of(rate_rps)).allocations["s"] == ()


def test_too_long_window_is_the_rejection_reason() -> None:
    # A lone request waits for the whole window, so that the target holds at high rates only.
    system = system_of(20.0, {"latency": [{"percentile": 99, "ms": 300}]}, batchTimeout=400)
    (item,) = solve(system).unserved
    assert item.reason == "slo_unattainable"
    assert "window" in item.detail


def test_optimal_window_meets_the_targets() -> None:
    target = {"latency": [{"percentile": 99, "ms": 150}]}
    system = system_of(20.0, target, batchTimeout=400, batchWindow="optimal")
    plan = solve(system)
    (pool,) = plan.allocations["s"]
    assert pool.batch_window_ms in {0, 100}  # 200 and 400 ms alone are too long
    assert pool.targets[0].value <= 150
    assert verify(plan, system) == []


def test_rejections_are_a_target() -> None:
    row = {"batchParms": SENTIMENT, "maxBatchSize": 5, "maxQueueSize": 6, "maxRejected": 0.01}
    found = BatchRow.model_validate(row).size()
    assert found.rejected == pytest.approx(0.01, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"target": {"slo-itl": 20}}, "slo-itl: does not apply to 'm' on 'T4': a batch server"),
        ({"target": {"slo-e2e": 20, "goodputShare": 0.95}}, "goodputShare: does not apply to 'm' on 'T4'"),
        ({"target": {"slo-tps": 20}}, "slo-tps: does not apply to 'm' on 'T4': a batch server"),
        ({"profile": {"atTokens": 20}}, "atTokens: requests of a batch server"),
        ({"profile": {"kvCapacity": 20}}, "kvCapacity: requests of a batch server"),
        ({"profile": {"decodeParms": {"alpha": 1}}}, "keep one of the two latency models"),
        (
            {"batchTimeout": 5, "maxQueueSize": 4},
            "maxQueueSize: on 'T4': a queue of 4 never fills a batch of 5",
        ),
        ({"batchTrigger": "clock", "batchTimeout": 5}, "batchTimeout: on 'T4': a clock tick of 5 ms"),
        (
            {"batchTrigger": "clock", "batchTimeout": 500, "batchWindow": "optimal"},
            "batchWindow: the time between the ticks of a clock is not chosen by plans; remove it",
        ),
        ({"profile": {"batchParms": {"base": 1e-6}}}, "a request alone takes 1e-06 ms (base + slope)"),
        ({"stages": [PRE, PRE]}, "stages: two stages have the name 'pre'"),
        ({"stages": [PRE | {"time": 0}]}, "stages[0].time: must be more than 0"),
        ({"jobs": 4, "maxQueueSize": 9}, "maxQueueSize: on 'T4': with jobs, the queue before"),
        ({"jobs": 4, "batchTimeout": 9}, "batchTimeout: on 'T4': with jobs, batches start"),
        (
            {"target": {"slo-e2e": 90}, "profile": {"queueModel": "reference"}},
            "does not support the batch latency model",
        ),
    ],
)
def test_what_contradicts_a_batch_server_is_said_with_its_place(change: Json, text: str) -> None:
    with pytest.raises(SpecError) as error:
        system_of(**change)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_a_window_without_a_batch_server_is_refused() -> None:
    with pytest.raises(SpecError, match=r"batchTimeout: 'm' has no batchParms"):
        system_of(
            target={"slo-e2e": 90}, batchTimeout=5, profile={"batchParms": None, "decodeParms": {"alpha": 1}}
        )


def test_rows_of_both_kinds_are_told_apart_by_their_law() -> None:
    lines = [
        json.dumps({"RPS": 20, "maxBatchSize": 5, "BATCHPARMS": SENTIMENT}),
        json.dumps({"RPS": 3, "maxBatchSize": 4, "avgInputTokens": 1, "avgOutputTokens": 2, "alpha": 9}),
        json.dumps({"RPS": 20, "maxBatchSize": 5, "batchParms": {"base": 0}}),
    ]
    batch, tokens, bad = read_problems(lines, kind_of_row)
    assert isinstance(batch, BatchRow)
    assert isinstance(tokens, ReplicaRow)
    assert isinstance(bad, SpecError)
    answer = batch.analyze()
    assert isinstance(answer, BatchAnswer)
    assert answer.busy > answer.utilization  # small batches cost nearly as much as large ones


POST: Json = {"name": "post", "where": "after", "time": 6, "cv": 0.3}


@pytest.mark.slow
def test_stages_are_planned_verified_explained_and_simulated() -> None:
    target = {"latency": [{"percentile": 95, "ms": 400}]}
    system = system_of(300.0, target, stages=[PRE | {"time": 12.0, "cv": 0.5}, POST])
    plan = solve(system)
    (pool,) = plan.allocations["s"]
    # One worker of 12 ms takes 83.3 requests/s, fewer than the 100 of the server.
    assert pool.binding == "stage:pre"
    assert pool.max_arrival_rate_rpm / 60 / pool.num_replicas < 83.3
    assert verify(plan, system) == []
    assert verify(
        plan.model_copy(update={"allocations": {"s": (pool.model_copy(update={"binding": "server"}),)}}),
        system,
    )
    simulation = simulate_pools(system, plan, Effort(requests=200_000))
    assert simulation.pools[0].e2e is not None
    assert simulation.pools[0].e2e.mean.value == pytest.approx(pool.ttft_ms, rel=0.06)


@pytest.mark.slow
def test_saturated_stage_is_the_binding_constraint() -> None:
    system = system_of(300.0, {"latency": [{"percentile": 50, "ms": 1e6}]}, stages=[PRE | {"time": 12.0}])
    (limit,) = explain(system).servers[0].pools[0].binding
    assert (limit.limit, limit.stage) == ("stage", "pre")


@pytest.mark.slow
def test_a_replica_of_so_many_jobs_takes_what_they_carry() -> None:
    target = {"latency": [{"ms": 5000}]}
    system = system_of(40.0, target, jobs=2, stages=[PRE | {"time": 100.0, "workers": 2}, POST])
    plan = solve(system)
    (pool,) = plan.allocations["s"]
    assert pool.binding == "jobs"
    each_rps = pool.max_arrival_rate_rpm / 60 / pool.num_replicas
    assert 0.75 * 2000 / 146 < each_rps < 2000 / 146  # two jobs of 146 ms each
    assert verify(plan, system) == []
    simulated = simulate_pools(system, plan, Effort(requests=50_000)).pools[0]
    assert simulated.overload is None


def test_rows_take_stages_and_jobs() -> None:
    row = {"batchParms": SENTIMENT, "maxBatchSize": 5, "RPS": 30, "stages": [PRE, POST]}
    found = BatchRow.model_validate(row).analyze()
    assert isinstance(found, BatchAnswer)
    assert found.binding == "server"
    bursty = BatchRow.model_validate(row | {"arrivalCV": 2}).analyze()
    assert isinstance(bursty, BatchAnswer)
    assert bursty.p99_ms > found.p99_ms
    with pytest.raises(ValueError, match="two stages have the name 'pre'"):
        BatchRow.model_validate(row | {"stages": [PRE, PRE]})
    overrun = BatchRow.model_validate(row | {"jobs": 1, "RPS": 20}).analyze()
    assert not isinstance(overrun, BatchAnswer)
    assert overrun.stable_rate_rps == pytest.approx(1000 / (7.5 + 40 + 6), rel=0.02)


def test_the_time_limit_interrupts_sizing_by_simulation() -> None:
    simulated = system_of(stages=[PRE | {"workers": 9}])
    with pytest.raises(SpecError, match=r"^optimizer\.timeLimit: it ends before .* \(--time-limit\)$"):
        solve(simulated, time_limit_s=1e-6)
    assert solve(simulated).complete
    assert solve(system_of(), time_limit_s=1e-6).complete
