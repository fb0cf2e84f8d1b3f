"""Explanations of systems with routes and shared cards: each answer is that of a whole new solve."""

import pytest
from coupled_fleets import random_coupled

from optimizer import Plan, System, find_candidates, load_system, solve, verify
from optimizer.studies.explanation.before import Before
from optimizer.studies.explanation.servers import server_questions


def assert_routes_are_whole(plan: Plan, system: System) -> None:
    """Check that unserved routes have no replicas, and small models without a router only what runs now."""
    assert not [item for item in plan.unserved if 0 < item.served_fraction < 1]
    for use in plan.routes.values():
        for name in (use.small, use.large) if not use.served else ():
            assert not plan.allocations.get(name)
        running = system.servers[use.small].current.accelerator
        new = [pool for pool in plan.allocations.get(use.small, ()) if pool.accelerator != running]
        assert use.routed or not new


@pytest.mark.parametrize("seed", [0, 5, 8, 9, 15, 24])
def test_no_incumbent_serves_a_part_of_a_route(seed: int) -> None:
    system = load_system(random_coupled(seed))
    stopped = solve(system, time_limit_s=1e-9)
    assert_routes_are_whole(stopped, system)
    assert verify(stopped, system) == []
    plan = solve(system)
    before = Before(find_candidates(system), plan)
    for question in server_questions(before, range(len(system.servers)), in_depth=False).values():
        draft = before.draft(question.change(), restricts=True)
        assert not [share for share in draft.served_fraction.values() if 0 < share < 1]
        for route in system.routes.values():
            assert (
                route.large not in draft.served_fraction
                or not {route.small, route.large} & draft.pools.keys()
            )
