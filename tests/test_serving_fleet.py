"""The large sample of the scenarios, with routes, queues and places: proved, and held in simulation."""

import pytest
from serving_fleet_page import fleet, planned

from optimizer import verify
from optimizer.simulation.replicas import Effort
from optimizer.studies.simulation.plans import simulate_pools

pytestmark = pytest.mark.slow


def test_the_plan_is_proved_and_verified() -> None:
    plan = planned()
    assert (plan.status, plan.gap, plan.unserved) == ("optimal", 0, ())
    assert verify(plan, fleet()) == []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_simulated_target_is_missed_by_a_tenth(seed: int) -> None:
    for pool in simulate_pools(fleet(), planned(), Effort(requests=20_000, seed=seed)).pools:
        for check in pool.targets:
            assert check.simulated.value <= 1.1 * check.limit, (pool.server, check.target)
