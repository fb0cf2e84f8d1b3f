"""Memory of prefill replicas in plans: prompts wait until their KV cache fits."""

import numpy as np
import pytest
from builders import Json
from role_oracles import document

from optimizer import Plan, load_system, solve
from optimizer.queueing.disaggregated.memory import PromptMemory
from optimizer.queueing.disaggregated.points import LengthPoints
from optimizer.simulation.replicas import Effort
from optimizer.studies.simulation.plans import simulate_pools


def two_types(capacity: int, rate: str = "20/s", prompts_cv: float = 0.0) -> Json:
    """Return a server whose prefill replicas run on cards P with a KV cache of `capacity` tokens."""
    source = document("required", itl_ms=14)
    (model,), (card,) = source["models"], source["accelerators"]
    source["accelerators"] = [
        card | {"name": "P", "type": "P", "linkBandwidth": 0, "links": {"D": 25}},
        card | {"name": "D", "type": "D", "linkBandwidth": 0},
    ]
    source["count"] = [{"type": "P", "count": 90}, {"type": "D", "count": 90}]
    source["models"] = [model | {"acc": "P", "kvCapacity": capacity}, model | {"acc": "D"}]
    source["servers"][0]["currentAlloc"]["load"] |= {"arrivalRate": rate, "inTokensCV": prompts_cv}
    source["optimizer"]["handover"] = {"fixedMs": 150}
    return source


def prefill_replicas(plan: Plan) -> int:
    return plan.allocations["s (prefill)"][0].num_replicas


def memory_of(tokens: list[float], weights: list[float], capacity: float) -> PromptMemory:
    points = LengthPoints(*(np.array([values]) for values in (weights, tokens, [0.0] * len(tokens))))
    return PromptMemory.of(points, np.array([capacity]))


def test_equal_prompts_have_whole_places() -> None:
    assert memory_of([4000.0], [1.0], 11_999.0).places == 2
    assert memory_of([4000.0], [1.0], 100.0).places == 1
    assert memory_of([4000.0], [1.0], np.inf).places == np.inf
    unequal = memory_of([2000.0, 6000.0], [0.5, 0.5], 12_000.0)
    assert unequal.places == pytest.approx(3 - (1 + 0.25) / 2)
    assert unequal.held_ms(np.array([[1.0, 2.0]])) == pytest.approx((1 * 2000 + 2 * 6000) / 8000)


def test_one_place_waits_as_a_queue_with_one_server() -> None:
    """With one place and Poisson arrivals, the wait is that of an M/D/1 queue."""
    memory, held = memory_of([4000.0], [1.0], 5000.0), np.array([[300.0]])
    mean, variance = memory.wait(np.array([0.002]), np.ones(1), held)
    assert mean == pytest.approx(0.6 * 300 / (2 * (1 - 0.6)))
    assert variance > 0
    assert memory.largest_rate(held) == pytest.approx(1 / 300)


def test_ample_memory_changes_nothing() -> None:
    plans = [solve(load_system(two_types(capacity))) for capacity in (1_200_000, 4_500_000)]
    pools = [plan.allocations["s (prefill)"][0] for plan in plans]
    assert pools[0].model_copy(update={"max_batch": pools[1].max_batch}) == pools[1]


@pytest.mark.slow
@pytest.mark.parametrize("prompts_cv", [0.0, 0.5])
@pytest.mark.parametrize("capacity", [8500, 12_500, 21_000])
def test_plans_with_small_memory_hold_in_simulation(capacity: int, prompts_cv: float) -> None:
    system = load_system(two_types(capacity, prompts_cv=prompts_cv))
    plan = solve(system)
    assert plan.complete
    ample = solve(load_system(two_types(450_000, prompts_cv=prompts_cv)))
    assert prefill_replicas(plan) >= prefill_replicas(ample)
    for pool in simulate_pools(system, plan, Effort(3000)).pools:
        assert pool.overload is None
        assert all(check.simulated.value <= 1.1 * check.limit for check in pool.targets)


@pytest.mark.slow
@pytest.mark.parametrize("first_token", ["decode", "prefill"])
def test_prompts_that_queue_for_slots_fill_no_prefill_replica(first_token: str) -> None:
    """If decode replicas have little memory, too, prefill replicas hold prompts for longer."""
    source = document("required", itl_ms=18)
    source["models"][0]["kvCapacity"] = 6000
    source["servers"][0]["firstToken"] = first_token
    load = {"arrivalRate": "20/s", "avgInTokens": 2000, "avgOutTokens": 60, "inTokensCV": 0}
    source["servers"][0]["currentAlloc"]["load"] = load
    system = load_system(source)
    plan = solve(system)
    assert plan.complete
    for pool in simulate_pools(system, plan, Effort(3000)).pools:
        assert pool.overload is None
        assert all(check.simulated.value <= 1.1 * check.limit for check in pool.targets)
