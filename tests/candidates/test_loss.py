"""The bound on lost requests, checked against Erlang's loss formula and a walk over states."""

import random

import pytest
from builders import accelerator, document, profile, server, service_class
from queue_oracles import Linear, bisect, erlang_b, walk
from slow_cases import seeds

from optimizer import (
    LatencyTargets,
    Replica,
    find_candidates,
    load_system,
    size_replicas,
    solve,
    verify,
)
from optimizer.documents import SMALLEST_SHARE


@pytest.mark.parametrize("bound", [0.0012, 0.01, 0.2])
@pytest.mark.parametrize("batch", [1, 4, 32])
def test_the_maximum_rate_without_a_queue_matches_erlang_b(batch: int, bound: float) -> None:
    replica = Replica.model_validate(
        {"maxBatch": batch, "maxQueue": 0, "inTokens": 0, "outTokens": 101, "decodeParms": {"alpha": 10}}
    )
    (sizing,) = size_replicas([replica], [LatencyTargets(max_loss=bound)])
    assert not isinstance(sizing, Exception)
    most = 0.999 * batch / 1.0  # a request takes one second, whatever the batch
    blocked = bisect(lambda load: erlang_b(load, batch) <= bound, 0.0, 10.0 * batch, 200)
    assert sizing.max_rate_rps == pytest.approx(min(blocked, most), rel=1e-8)
    assert sizing.rate_loss_rps == sizing.max_rate_rps
    assert sizing.rate_ttft_rps == pytest.approx(most, rel=1e-9)  # the other targets alone know of no loss


def lossy(rng: random.Random) -> dict[str, object]:
    """Return a random unlimited system whose queues are small or none."""
    servers = [
        server(f"s{i}", rng.uniform(5, 900), maxQueueSize=rng.choice([0, 0, 1, 3, 8, 40]))
        | ({"maxBatchSize": rng.randint(1, 24)} if rng.random() < 0.7 else {})
        for i in range(rng.randint(1, 4))
    ]
    for item in servers:
        item["currentAlloc"]["load"]["avgOutTokens"] = rng.randint(2, 200)
    classes = [service_class("gold")]
    for key, value in (("slo-itl", 40.0), ("slo-ttft", 900.0)):
        if rng.random() < 0.5:
            classes[0]["modelTargets"][0][key] = value
    if rng.random() < 0.5:
        classes[0]["modelTargets"][0]["maxLoss"] = rng.choice([0.0005, 0.02, 0.1])
    options = {"maxLoss": rng.choice([0.002, 0.05])} if rng.random() < 0.5 else {}
    if rng.random() < 0.3:
        options["heterogeneous"] = True
    names = [accelerator("A", cost=10), accelerator("B", cost=14)]
    models = [profile("m", "A", alpha=rng.uniform(4, 20)), profile("m", "B", alpha=rng.uniform(2, 12))]
    return document(servers, names, {"A": 400, "B": 400}, classes=classes, models=models, **options)


@pytest.mark.parametrize("seed", seeds(7, 193))
def test_a_complete_plan_loses_at_most_the_bound(seed: int) -> None:
    system = load_system(lossy(random.Random(seed)))
    plan = solve(system)
    assert verify(plan, system) == []
    target = system.targets["gold", "m"]
    bound = target.max_loss or system.options.max_loss or 0.001
    for name, pools in plan.allocations.items():
        load = system.servers[name].current.load
        for pool in pools:
            parms = system.profiles["m", pool.accelerator]
            assert parms.decode is not None
            assert parms.prefill is not None
            law = Linear(
                parms.decode.base_ms, parms.decode.per_request_ms, parms.prefill.base_ms,
                parms.prefill.per_token_ms, int(load.in_tokens), int(load.out_tokens),
            )  # fmt: skip
            departures = [n / float(law.service(n)) for n in range(1, pool.max_batch + 1)]
            rate = pool.arrival_rate_rpm / 60e3 / pool.num_replicas
            room = system.servers[name].max_queue_size
            assert room is not None
            lost = 1 - walk(rate, departures, room).acceptance
            assert lost <= bound * (1 + 1e-6)
            assert pool.loss == pytest.approx(lost, rel=1e-6, abs=SMALLEST_SHARE)


def test_more_replicas_are_taken_where_requests_would_be_lost() -> None:
    one = [server("a", 500, maxQueueSize=0)]
    bounded = solve(load_system(document(one, [accelerator("A")])))
    unbounded = solve(load_system(document(one, [accelerator("A")], maxLoss="none")))
    assert unbounded.allocations["a"][0].loss > 0.01
    assert unbounded.complete
    assert bounded.allocations["a"][0].loss <= 0.001
    assert bounded.allocations["a"][0].num_replicas > unbounded.allocations["a"][0].num_replicas


def test_unattainable_loss_limits_are_rejected_with_numbers() -> None:
    source = document([server("a", maxQueueSize=0, maxBatchSize=1)], [accelerator("A")], maxLoss=1e-6)
    (rejection,) = find_candidates(load_system(source)).rejections()
    assert rejection.reason == "slo_unattainable"
    assert rejection.detail == "best loss at batch 1 is 0.0999 %, target 0.0001 %"
    assert rejection.factor == pytest.approx(999, rel=1e-3)
