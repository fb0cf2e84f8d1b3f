"""Large fleets that do not fit: an answer within the time limit, at least as good as the baseline's."""

import time
from collections import defaultdict
from functools import cache

import pytest

from optimizer import Plan, System, Timings, solve, verify
from optimizer.generate import generate_system

SECONDS = 10.0
"""A few, on a busy machine."""


@cache
def fleet(servers: int, accelerators: int, types: int) -> System:
    return generate_system(servers, accelerators, types, seed=1, tightness=2.0)


def carried(plan: Plan, system: System) -> list[float]:
    """Return the load that is served in full, from the highest priority down."""
    left_out = {item.server for item in plan.unserved}
    loads: dict[int, float] = defaultdict(float)
    for name, server in system.servers.items():
        loads[system.priority(server)] += 0.0 if name in left_out else server.current.load.arrival_rate_rpm
    return [round(loads[priority], 3) for priority in sorted(loads)]


def assert_a_good_answer(system: System, *, largest_gap: float) -> Plan:
    timings = Timings()
    plan = solve(system, timings=timings)
    assert timings.stages_s["solve"] < 1.2 * system.options.time_limit_s + 1.0
    assert not plan.complete
    assert verify(plan, system) == []
    assert all(item.used <= (item.limit or 0) for item in plan.capacity)
    for level in plan.levels:
        assert level.bound is not None, level.name
        assert level.gap is not None, level.name
        assert level.bound <= level.value + 1e-9 * abs(level.value), level.name
    service = [level for level in plan.levels if level.name.endswith("rate")]
    total = sum(server.current.load.arrival_rate_rpm for server in system.servers.values())
    assert sum(level.value - (level.bound or 0.0) for level in service) <= largest_gap * total
    return plan


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("policy", ["None", "PriorityExhaustive"])
def test_two_hundred_servers_of_which_many_must_wait(policy: str, *, delayed: bool) -> None:
    system = fleet(200, 16, 6).with_options(
        time_limit_s=4.0, saturation_policy=policy, delayed_best_effort=delayed
    )
    plan = assert_a_good_answer(system, largest_gap=0.01)
    if policy == "None" or delayed:
        assert carried(plan, system) >= carried(solve(system, milp_solver=False), system)


@pytest.mark.slow
def test_two_thousand_servers_of_which_many_must_wait() -> None:
    system = fleet(2000, 30, 10).with_options(time_limit_s=30.0)
    plan = assert_a_good_answer(system, largest_gap=0.001)
    assert carried(plan, system) >= carried(solve(system, milp_solver=False), system)


@pytest.mark.slow
def test_a_mixed_plan_of_two_thousand_servers_is_no_worse_than_greedy_when_it_is_stopped() -> None:
    system = fleet(2000, 30, 10).with_options(time_limit_s=30.0, heterogeneous=True)
    plan = assert_a_good_answer(system, largest_gap=1.0)
    assert carried(plan, system) >= carried(solve(system, milp_solver=False), system)


@pytest.mark.slow
def test_ten_thousand_servers_of_which_many_must_wait() -> None:
    """The size of docs/design.md, "one run for every level": 10,000 x 50, here with half of the units."""
    system = fleet(10_000, 50, 12).with_options(time_limit_s=30.0)
    plan = assert_a_good_answer(system, largest_gap=1.0)
    assert carried(plan, system) >= carried(solve(system, milp_solver=False), system)


@pytest.mark.parametrize("policy", ["PriorityExhaustive", "RoundRobin"])
def test_greedy_and_partial_service_of_fifteen_hundred_servers_take_seconds(policy: str) -> None:
    system = fleet(1500, 20, 8).with_options(
        milp_solver=False, saturation_policy=policy, delayed_best_effort=True
    )
    begin = time.perf_counter()
    plan = solve(system)
    assert time.perf_counter() - begin < SECONDS
    assert not plan.complete
