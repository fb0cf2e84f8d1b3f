"""Shared cards under a control loop: they follow the plan, and own replicas wait until they are ready."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from fleets import RULES, Loop, desired, units
from shared_card_oracles import random_system
from slow_cases import mostly_slow

from optimizer import load_system, solve, verify
from optimizer.plan import placements
from optimizer.spec.system import System
from optimizer.stabilisation.decisions import Observation, ReplicaStatus
from optimizer.stabilisation.rules import Rules
from optimizer.stabilisation.stabilise import stabilise

SEEDS = mostly_slow(range(120), 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_cards_suffice_in_every_sequence(seed: int) -> None:
    rng = random.Random(seed)
    loop = Loop(random_system(seed, 3, cards=5), list(RULES.values())[seed % len(RULES)])
    rates = {name: item.current.load.arrival_rate_rpm for name, item in loop.system.servers.items()}
    for _ in range(8):
        loads = {name: rate * rng.choice([0.0, 0.5, 1.0, 2.0]) for name, rate in rates.items()}
        cards = {kind: rng.randint(1, 6) for kind in loop.system.capacity if rng.random() < 0.2}
        loop.change(loads, cards)
        loop.snapshot()
        if loop.rules.noise is None:
            assert verify(loop.plan, loop.system) == []
        taken = units(loop.system, desired(loop.decisions))
        for use in loop.plan.shared_cards:
            kind = loop.system.accelerators[use.accelerator].type
            taken[kind] = taken.get(kind, 0) + use.num_cards
        assert all(number <= loop.system.capacity[kind] for kind, number in taken.items())
        loop.cluster.follow(desired(loop.decisions), rng, slowest=2)
        loop.now_s += rng.choice([60.0, 400.0])
        loop.cluster.pass_time()


def pairs(count: int, cards: int) -> System:
    """Return pairs of text models that take turns on the T4s of each zone; the first runs on its own card."""
    models, targets, servers = [], [], []
    law = {"maxBatchSize": 8, "memory": 2, "batchParms": {"base": 20, "slope": 2}}
    load = {"load": {"arrivalRate": 600}}
    kinds = ["T4", *(f"T4-{zone}" for zone in range(1, count))]
    for zone, kind in enumerate(kinds):
        for letter, running in (("a", {"accelerator": kind, "numReplicas": 1}), ("b", {})):
            name = f"{letter}{zone or ''}"
            models.append({"name": name, "acc": kind, **law})
            targets.append({"model": name, "latency": [{"percentile": 99, "ms": 300}]})
            server = {"name": name, "class": "gold", "model": name, "sharedCard": True}
            servers.append({**server, "currentAlloc": load | running})
    return load_system(
        {
            "accelerators": [{"name": kind, "type": kind, "memSize": 16, "cost": 35} for kind in kinds],
            "models": models,
            "serviceClasses": [{"name": "gold", "priority": 1, "modelTargets": targets}],
            "servers": servers,
            "count": [{"type": kind, "count": cards} for kind in kinds],
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("reported", ["by time", "by report"])
def test_own_replicas_stay_until_shared_cards_are_ready(reported: str) -> None:
    loop = Loop(pairs(1, 2), Rules(startup_s=100.0))
    loop.cluster.starting = {("a", "T4"): [0]}
    loop.snapshot()
    (use,) = loop.plan.shared_cards
    assert desired(loop.decisions) == {("a", "T4"): 1}
    assert loop.decisions.servers["a"].targets["T4"].held
    loop.now_s += 99.0
    shared = {use.name: {"T4": ReplicaStatus(1)}} if reported == "by report" else {}
    loop.reported = shared
    loop.snapshot()
    assert (desired(loop.decisions) == {}) is bool(shared)
    loop.now_s += 1.0
    loop.snapshot()
    assert desired(loop.decisions) == {}


def test_own_replicas_give_way_if_no_other_card_is_free() -> None:
    loop = Loop(pairs(1, 1), Rules(startup_s=100.0))
    loop.cluster.starting = {("a", "T4"): [0]}
    decisions = loop.snapshot()
    assert len(loop.plan.shared_cards) == 1
    assert desired(decisions) == {}


def test_placements_are_listed_as_often_for_many_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[int] = []
    rows = placements.placement_groups

    def counted(*arguments: Any) -> Iterator[placements.PlacementGroup]:
        listed.append(len(arguments))
        return rows(*arguments)

    monkeypatch.setattr(placements, "placement_groups", counted)
    numbers = []
    for count in (1, 4):
        system = pairs(count, 2)
        plan = solve(system)
        assert len(plan.on_shared_cards) == 2 * count
        listed.clear()
        stabilise(plan, system, Rules(startup_s=100.0), None, Observation(0.0))
        numbers.append(len(listed))
    assert numbers[0] == numbers[1]
