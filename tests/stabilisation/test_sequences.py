"""Sequences of snapshots: replicas always fit the cards, no served server stops, and targets settle."""

import random

import pytest
from fleets import RULES, Loop, Place, desired, loaded, random_loop, units
from route_oracles import random_routes
from slow_cases import mostly_slow

from optimizer import load_system
from optimizer.plan import verify
from optimizer.stabilisation.decisions import Decisions, TargetReason
from optimizer.stabilisation.rules import Rules

SNAPSHOTS = 20
RATES_RPM = [0.0, 300.0, 900.0, 2000.0, 4000.0]
UNFINISHED = {TargetReason.waits_for_new_pool, TargetReason.units}
ROUTED_SEEDS = mostly_slow(range(500), 2)
SEEDS = mostly_slow(range(1000), 4)


def served(loop: Loop, name: str) -> bool:
    return any(pool.num_replicas for pool in loop.plan.allocations.get(name, ()))


def check(loop: Loop, before: dict[Place, int], ready: dict[Place, int], excused: frozenset[str]) -> None:
    """Check one snapshot; servers that are excused have lost cards, or have not said what is ready."""
    now = desired(loop.decisions)
    for kind, taken in units(loop.system, now).items():
        assert taken <= loop.system.capacity[kind]
    for name in loop.system.servers:
        had = {on: n for (server, on), n in ready.items() if server == name and n and before.get((name, on))}
        if had and served(loop, name) and name not in excused:
            assert any(now.get((name, on)) for on in had), f"{name} is served, and stops"
    _check_reasons(loop)


def _check_reasons(loop: Loop) -> None:
    for name, decision in loop.decisions.servers.items():
        planned = {pool.accelerator: pool.num_replicas for pool in loop.plan.allocations.get(name, ())}
        assert planned.keys() <= decision.targets.keys()
        for on, target in decision.targets.items():
            if name not in loop.plan.allocations:
                assert (target.reason, target.held) == (TargetReason.unserved, target.replicas > 0)
                continue
            assert target.held == (target.replicas != planned.get(on, 0))
            if target.reason is TargetReason.not_chosen:
                assert (target.replicas, planned.get(on, 0)) == (0, 0)
            if target.reason is TargetReason.switch:
                assert target.replicas == planned[on] > 0


def check_load_reasons(loop: Loop, earlier: Decisions | None, before: dict[Place, int]) -> None:
    """Check that a number is said to follow the load only if both moved the same way since it was sized."""
    for name, decision in loop.decisions.servers.items():
        last = None if earlier is None else earlier.servers.get(name)
        for on, target in decision.targets.items():
            change = target.replicas - before.get((name, on), 0)
            sized = None if last is None else last.load_rpm
            if last is not None and on in last.targets:
                sized = last.targets[on].sized_rpm
            if target.reason is TargetReason.load_increase:
                assert change > 0
                assert sized is not None
                assert decision.load_rpm is not None
                assert decision.load_rpm >= sized
            if target.reason is TargetReason.load_decrease:
                assert change < 0
                assert sized is not None
                assert decision.load_rpm is not None
                assert decision.load_rpm <= sized


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", SEEDS)
def test_any_sequence_is_safe_and_settles(seed: int) -> None:
    loop, rng = random_loop(seed, list(RULES.values())[seed % len(RULES)])
    _run(loop, rng)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", ROUTED_SEEDS)
def test_any_sequence_of_routes_is_safe_and_settles(seed: int) -> None:
    rng = random.Random(seed)
    system = load_system(random_routes(seed, routes=1 + seed % 2, others=seed % 3))
    system = system.with_options(heterogeneous=seed == 4, transition_penalty=0.1 * (seed % 2))
    _run(Loop(system, list(RULES.values())[seed % len(RULES)]), rng)


def _run(loop: Loop, rng: random.Random) -> None:
    before: dict[Place, int] = {}
    earlier: Decisions | None = None
    for number in range(SNAPSHOTS):
        names, shrunk = sorted(loop.system.servers), set[str]()
        if number:
            rates = {name: rng.choice(RATES_RPM) for name in loaded(loop.system) if rng.random() < 0.3}
            cards = {kind: rng.randint(0, 8) for kind in loop.system.capacity if rng.random() < 0.15}
            shrunk = {kind for kind, count in cards.items() if count < loop.system.capacity[kind]}
            loop.change(rates, cards)
        gone = [name for name in names if rng.random() < 0.1]
        missing = frozenset(loop.system.served_with(gone))
        silent = frozenset(name for name in names if rng.random() < 0.3)
        ready = {place: loop.cluster.ready(place) for place in loop.cluster.starting}
        loop.snapshot(missing, silent)
        lost = {name for name, on in before if loop.system.accelerators[on].type in shrunk}
        check(loop, before, ready, missing | silent | lost)
        if loop.rules.noise is None:  # which plans for other loads than were counted
            check_load_reasons(loop, earlier, before)
            assert not verify(loop.plan, loop.system)
        before = desired(loop.decisions)
        earlier = loop.decisions
        loop.cluster.follow(before, rng, slowest=3)
        loop.now_s += rng.choice([15.0, 60.0, 60.0, 240.0])
        loop.cluster.pass_time()
    _settles(loop, before)


def _settles(loop: Loop, before: dict[Place, int]) -> None:
    """With constant loads and replicas that are ready at once, targets reach the plan, or say why not."""
    numbers = [before]
    step_s = 60.0 if loop.rules == Rules() else 2000.0
    while len(numbers) < 4 or not numbers[-1] == numbers[-2] == numbers[-3]:
        moved = _difference(numbers[0], numbers[-1]) + max(sum(found.values()) for found in numbers)
        assert len(numbers) <= moved + 5, "it does not settle"
        ready = {place: loop.cluster.ready(place) for place in loop.cluster.starting}
        loop.snapshot()
        check(loop, numbers[-1], ready, frozenset())
        numbers.append(desired(loop.decisions))
        loop.cluster.starting = {place: [0] * count for place, count in numbers[-1].items()}
        loop.now_s += step_s
    kept = {place: count for place, count in loop.plan.kept_replicas.items() if count}
    for name, decision in loop.decisions.servers.items():
        for on, target in decision.targets.items():
            assert target.reason not in UNFINISHED, f"{name} is still on its way"
            assert not target.held or loop.rules != Rules() or kept.get((name, on)) == target.replicas


def _difference(one: dict[Place, int], other: dict[Place, int]) -> int:
    return sum(abs(one.get(place, 0) - other.get(place, 0)) for place in one.keys() | other.keys())
