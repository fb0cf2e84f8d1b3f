"""Servers that share a queue: the choice against exhaustive search, what verification says, what is refused."""

import pytest
from shared_queue_oracles import best_levels, random_queues

from optimizer import load_system, solve, verify

FEW, MANY = range(20), range(20, 220)
SEEDS = [*FEW, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MANY)]


@pytest.mark.parametrize("seed", SEEDS)
def test_choice_matches_exhaustive_search_at_every_level(seed: int) -> None:
    mixed = seed % 3 == 0
    document = random_queues(seed, queues=1 + seed % 2, others=0 if mixed else 1)
    system = load_system(document).with_options(heterogeneous=mixed, unlimited=seed % 7 == 6)
    plan = solve(system)
    assert plan.status == "optimal"
    assert {
        level.name: pytest.approx(level.value, rel=1e-7, abs=1e-6) for level in plan.levels
    } == best_levels(system)
    assert verify(plan, system) == []
    in_plan = {*plan.allocations, *(item.server for item in plan.unserved)} | plan.queued_servers
    assert in_plan >= system.stated.keys()
