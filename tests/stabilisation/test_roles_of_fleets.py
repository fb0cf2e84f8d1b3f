"""Prefill and decode pools of a running fleet: they scale together, and one way replaces the other safely."""

from collections.abc import Sequence

import pytest
from role_oracles import document

from optimizer import System, load_system
from optimizer.plan import Plan
from optimizer.solvers.deadline import Deadline
from optimizer.stabilisation.decisions import Decisions, Observation, ReplicaStatus
from optimizer.stabilisation.keeping import Planner
from optimizer.stabilisation.rules import RECOMMENDED, Rules
from optimizer.stabilisation.stabilise import denoise_loads, plan_next, stabilise

POOLS = "s (prefill)", "s (decode)"


def at_rates(system: System, rates_rps: Sequence[float], rules: Rules) -> list[tuple[Plan, Decisions]]:
    """Return plan and decisions for each rate, one a minute; replicas are ready after a minute."""
    steps: list[tuple[Plan, Decisions]] = []
    for k, rate_rps in enumerate(rates_rps):
        last = steps[-1][1] if steps else None
        now = system.with_load("s", arrival_rate_rpm=60 * rate_rps)
        seen = Observation(60.0 * (k + 1), replicas=running(last) if last else {})
        to_plan, estimates = denoise_loads(now, rules, last, seen)
        plan = plan_next(to_plan, rules, last, seen, Planner(Deadline.after(60)))
        steps.append((plan, stabilise(plan, now, rules, last, seen, estimates)))
    return steps


def running(decisions: Decisions) -> dict[str, dict[str, ReplicaStatus]]:
    """Return the desired replicas as ready ones."""
    return {
        name: {on: ReplicaStatus(number, 0) for on, number in one.replicas.items()}
        for name, one in decisions.servers.items()
    }


def sizes(decisions: Decisions) -> tuple[int, ...]:
    return tuple(sum(decisions.servers[name].replicas.values()) for name in POOLS)


def planned(plan: Plan) -> tuple[int, ...]:
    return tuple(sum(pool.num_replicas for pool in plan.allocations[name]) for name in POOLS)


@pytest.mark.slow
def test_both_pools_keep_their_ratio_while_they_scale() -> None:
    """A pool shrinks when the window allows it, and so does the other."""
    rates = (20.0, 60.0, 30.0, 30.0, 30.0, 30.0)
    steps = at_rates(load_system(document(itl_ms=14)), rates, Rules(scale_down_window_s=150.0))
    low, high, after = (planned(steps[k][0]) for k in (0, 1, 2))
    assert low[0] < after[0] < high[0]
    assert low[1] < after[1] < high[1]
    assert [sizes(decisions) for _, decisions in steps] == [low, high, high, high, after, after]


@pytest.mark.slow
def test_noise_of_a_load_changes_no_pool() -> None:
    """The estimate of the load stays with the pools, whatever their names are."""
    steps = at_rates(load_system(document(itl_ms=14)), (20.0, 20.4, 19.8, 20.2), RECOMMENDED)
    assert len({sizes(decisions) for _, decisions in steps}) == 1
    estimates = [decisions.servers[POOLS[0]].load for _, decisions in steps]
    levels = {estimate.level_rpm for estimate in estimates if estimate is not None}
    assert levels == {1200.0}


def test_pools_that_no_longer_fit_keep_what_fits() -> None:
    system = load_system(document(itl_ms=14))
    (_, first), *_ = at_rates(system, (20.0,), Rules())
    fewer = load_system(document(itl_ms=14, cards=4))
    seen = Observation(120.0, replicas=running(first))
    plan = plan_next(fewer, Rules(), first, seen, Planner(Deadline.after(60)))
    decisions = stabilise(plan, fewer, Rules(), first, seen)
    assert [item.server for item in plan.unserved] == [*sorted(POOLS)]
    assert sum(sizes(decisions)) == 4
    assert min(sizes(decisions)) > 0
