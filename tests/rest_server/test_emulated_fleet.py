"""Which replicas an emulated fleet has: those of the plan, each with its servers."""

import pytest

from optimizer import load_system, solve
from rest_server.emulator.engine import LAG_S
from rest_server.emulator.fleet import backends, placements
from rest_server.emulator.metrics import Histogram
from rest_server.emulator.settings import FleetSettings


@pytest.mark.parametrize("sample", ["shared-cards", "shared-queue", "queue-servers"])
def test_emulated_replicas_are_those_of_the_plan(sample: str) -> None:
    system = load_system(f"sample:{sample}")
    plan = solve(system)
    found = backends(system, placements(system, plan), FleetSettings(), Histogram(LAG_S), str)
    counts: dict[str, int] = {}
    for one in found:
        assert len(set(one.servers)) == len(one.servers)
        for server in one.servers:
            counts[server] = counts.get(server, 0) + 1
    planned: dict[str, int] = {}
    pools = [(name, pool) for name, pools in plan.allocations.items() for pool in pools]
    pools += [(pool.server, pool) for use in plan.shared_cards for pool in use.servers]
    for name, pool in pools:
        members = plan.shared_queues[name].members if name in plan.shared_queues else [name]
        for member in members:
            planned[member] = planned.get(member, 0) + pool.num_replicas
    assert counts == planned
    assert len({one.id for one in found}) == len(found)
