"""Large fleets that do not fit: an answer whenever it is stopped, at least as good as the baseline's.

How long it takes is for ``tests/benchmarks/run.py``; here work is counted.
"""

from collections import defaultdict
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from slow_cases import mostly_slow

from optimizer import Plan, System, find_candidates, solve, verify
from optimizer.generate import generate_system
from optimizer.solvers import saturation
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.levels import levels_of
from optimizer.solvers.problem import Problem, build_problem
from optimizer.solvers.solution import Solution, Status
from optimizer.solvers.staged import solve_in_stages, waiting_servers


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


def assert_a_good_answer(system: System) -> Plan:
    plan = solve(system)
    assert not plan.complete
    assert verify(plan, system) == []
    assert all(item.used <= (item.limit or 0) for item in plan.capacity)
    for level in plan.levels:
        assert level.bound is not None, level.name
        assert level.gap is not None, level.name
        assert level.bound <= level.value + 1e-9 * abs(level.value), level.name
    return plan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "delayed"),
    mostly_slow(
        [("None", False), ("PriorityExhaustive", True), ("None", True), ("PriorityExhaustive", False)], 1
    ),
)
def test_two_hundred_servers_of_which_many_must_wait(policy: str, *, delayed: bool) -> None:
    system = fleet(200, 16, 6).with_options(
        time_limit_s=1.0, saturation_policy=policy, delayed_best_effort=delayed
    )
    plan = assert_a_good_answer(system)
    if policy == "None" or delayed:
        assert carried(plan, system) >= carried(solve(system, milp_solver=False), system)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "mixed"), [((2000, 30, 10), False), ((2000, 30, 10), True), ((10_000, 50, 12), False)]
)
def test_thousands_of_servers_of_which_many_must_wait(size: tuple[int, int, int], *, mixed: bool) -> None:
    """The largest size of docs/design.md is 10,000 x 50, here with half of the units."""
    system = fleet(*size).with_options(time_limit_s=30.0, heterogeneous=mixed)
    plan = assert_a_good_answer(system)
    assert carried(plan, system) >= carried(solve(system, milp_solver=False), system)


@pytest.mark.slow
@pytest.mark.parametrize("policy", mostly_slow(["PriorityExhaustive", "RoundRobin"], 1))
def test_partial_service_searches_about_once_per_replica(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = 0
    search = saturation._Leftover._best_column

    def counted(leftover: saturation._Leftover, server: int) -> tuple[int, int] | None:
        nonlocal searches
        searches += 1
        return search(leftover, server)

    monkeypatch.setattr(saturation._Leftover, "_best_column", counted)
    system = fleet(1500, 20, 8).with_options(
        milp_solver=False, saturation_policy=policy, delayed_best_effort=True
    )
    problem = build_problem(find_candidates(system))
    without = np.zeros(len(problem.table), np.int64)
    sharing = saturation.share_leftover(problem, without)
    assert sharing.finished
    given = int(sharing.replicas.sum() - without.sum())
    waiting = int(waiting_servers(problem, without).sum())
    assert given > 0
    assert searches <= 3 * (given + waiting)  # a move begins a new round


def test_units_not_assigned_in_time_are_left_and_reported() -> None:
    """The deadline is the answer's own: `math.inf` gives all, one that has passed gives nothing."""
    system = fleet(200, 16, 6).with_options(saturation_policy="RoundRobin")
    problem = build_problem(find_candidates(system))
    without = np.zeros(len(problem.table), np.int64)
    whole = saturation.share_leftover(problem, without)
    stopped = saturation.share_leftover(problem, without, Deadline(0.0))
    assert (whole.finished, stopped.finished) == (True, False)
    assert (stopped.replicas == without).all()
    assert (whole.replicas > without).any()

    def nothing_served(stage: Problem, _: Deadline) -> Solution:
        nobody = np.zeros(len(stage.table), np.int64)
        return Solution(nobody, Status.optimal, "milp", levels_of(stage, nobody, proved=True))

    for delayed in (False, True):
        options = problem.options.model_copy(update={"delayed_best_effort": delayed})
        asked = replace(problem, options=options)
        assert solve_in_stages(asked, nothing_served).status is Status.optimal
        late = solve_in_stages(asked, nothing_served, Deadline(0.0))
        assert late.status is Status.feasible
        assert not late.replicas.any()
