"""The share of a load that is served in part, at the edge of the whole, where only rounding is missing."""

import pytest
from builders import accelerator, server, service_class, system

from optimizer import Plan, find_candidates, solve


def one_replica_of_two(excess: float) -> Plan:
    """Return the plan of a server that needs two replicas and gets one, at a load over the rate of one."""
    accelerators, classes = [accelerator("A")], [service_class("gold", itl=15)]
    (most,) = find_candidates(system([server("a", 60)], accelerators, classes=classes)).table.max_rate_rps
    source = system(
        [server("a", 60 * float(most) * (1 + excess), replicas=2)],
        accelerators,
        {"A": 1},
        classes=classes,
        saturationPolicy="PriorityExhaustive",
    )
    plan = solve(source)
    assert [pool.num_replicas for pool in plan.allocations["a"]] == [1]
    return plan


@pytest.mark.parametrize("excess", [-0.5, 0.0, 2e-10, 5e-10])
def test_a_share_that_lacks_no_more_than_rounding_is_the_whole(excess: float) -> None:
    """One replica counts as enough for a load of 1 + 1e-9 times its rate, so it serves all of that load."""
    (item,) = one_replica_of_two(excess).unserved
    assert item.served_fraction == 1.0


@pytest.mark.parametrize("excess", [3e-9, 1e-6, 0.25, 0.9])
def test_a_share_that_lacks_more_is_what_the_replica_carries(excess: float) -> None:
    (item,) = one_replica_of_two(excess).unserved
    assert item.served_fraction < 1
    assert item.served_fraction == pytest.approx(1 / (1 + excess), rel=1e-12)
