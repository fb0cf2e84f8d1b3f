"""Servers that move, grow and give way on scarce cards: cases worked out by hand, and orders of steps."""

import itertools
import random
from typing import Any

import pytest
from builders import Json, accelerator, document, profile, running, server, service_class
from fleets import RULES, Loop, desired

from optimizer import load_system, verify
from optimizer.spec.system import System
from optimizer.stabilisation.decisions import Observation, TargetReason
from optimizer.stabilisation.free_cards import FreeCards
from optimizer.stabilisation.rules import Rules
from optimizer.stabilisation.running import RunningPool
from optimizer.stabilisation.stabilise import stabilise
from optimizer.stabilisation.transition import MoveGoal, Transition

REPLICA_RPM = 540.0
"""Load that a replica of the builders' profile carries within its targets."""


def fleet(*servers: Json, cards: dict[str, int], **options: Any) -> System:
    """Return a system of servers of priorities 1 to 3 on accelerators of one card."""
    classes = [service_class(f"p{i}", i, itl=50.0) for i in (1, 2, 3)]
    names = [accelerator(name) for name in cards]
    return load_system(document(list(servers), names, cards, classes=classes, **options))


def ready(loop: Loop) -> None:
    """Let every desired replica be there and ready, a minute later."""
    loop.cluster.starting = {place: [0] * number for place, number in desired(loop.decisions).items()}
    loop.now_s += 60.0


def running_loop(system: System) -> Loop:
    """Return a loop around a fleet whose current allocations are there and ready."""
    loop = Loop(system, Rules())
    currents = [(item.name, item.current) for item in system.servers.values() if item.current.is_running]
    loop.cluster.starting = {
        (name, current.accelerator): [0] * current.num_replicas for name, current in currents
    }
    return loop


def after(loop: Loop, snapshots: int) -> dict[tuple[str, str], int]:
    """Return what is desired after some snapshots, each with all replicas ready."""
    for _ in range(snapshots):
        loop.snapshot()
        ready(loop)
    return desired(loop.decisions)


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_higher_priorities_take_cards_of_lower_ones(rules: Rules) -> None:
    loop = Loop(
        fleet(server("a", 1000.0, service="p1"), server("b", 1000.0, service="p2"), cards={"H": 4}), rules
    )
    assert after(loop, 1) == {("a", "H"): 2, ("b", "H"): 2}
    loop.now_s += 3600.0
    loop.change({"a": 2000.0}, {})
    loop.snapshot()
    assert [item.server for item in loop.plan.unserved] == ["b"]
    assert loop.decisions.servers["b"].targets["H"].reason is TargetReason.unserved
    ready(loop)
    assert after(loop, 5) == {("a", "H"): 4}


@pytest.mark.slow
def test_others_are_planned_around_what_an_unserved_server_keeps() -> None:
    """b needs 6 of 5 cards and runs 3; a takes 1, so b keeps its 3, and c, after it, gets 1 of its 2."""
    system = fleet(
        server("a", 500.0, service="p1"),
        server("b", 3000.0, service="p2", current=running("H", 3)),
        server("c", 1000.0, service="p3", current=running("H", 1)),
        cards={"H": 5},
    )
    loop = running_loop(system)
    assert after(loop, 3) == {("a", "H"): 1, ("b", "H"): 3, ("c", "H"): 1}
    assert loop.plan.kept_replicas == {("b", "H"): 3, ("c", "H"): 1}
    assert {item.server for item in loop.plan.unserved} == {"b", "c"}
    assert verify(loop.plan, system) == []
    more = loop.plan.model_copy(
        update={"kept": (*loop.plan.kept[:1], loop.plan.kept[1].model_copy(update={"num_replicas": 2}))}
    )
    assert verify(more, system)[0] == "6 cards of H are used, with those kept; 5 are available"


def test_servers_on_removed_cards_move_before_lower_priorities() -> None:
    models = [profile("m", "H"), profile("m", "G")]
    source = document(
        [
            server("code", 1000.0, service="p1", accelerators=["G", "H"], current=running("G", 2)),
            server("chat", 2000.0, service="p2", accelerators=["H"], current=running("H", 4)),
        ],
        [accelerator("G", cost=5.0), accelerator("H")],
        {"G": 2, "H": 4},
        models=models,
        classes=[service_class("p1", 1, itl=50.0), service_class("p2", 2, itl=50.0)],
    )
    loop = running_loop(load_system(source))
    assert after(loop, 1) == {("code", "G"): 2, ("chat", "H"): 4}
    loop.change({}, {"G": 0})
    loop.snapshot()
    assert desired(loop.decisions) == {("code", "H"): 2, ("chat", "H"): 2}
    assert loop.decisions.servers["code"].targets["H"].reason is TargetReason.switch
    assert loop.decisions.servers["code"].targets["G"].reason is TargetReason.not_chosen


def test_a_move_waits_for_ready_replicas_and_names_no_load() -> None:
    source = document(
        [server("s", 1000.0)], [accelerator("A"), accelerator("B", cost=20.0)], {"A": 4, "B": 4},
        classes=[service_class("gold", itl=50.0)],
    )  # fmt: skip
    loop = Loop(load_system(source), Rules())
    assert after(loop, 1) == {("s", "A"): 2}
    source["accelerators"][0]["cost"] = 30.0
    loop.system = load_system(source)
    assert after(loop, 1) == {("s", "A"): 2, ("s", "B"): 2}
    assert loop.decisions.servers["s"].targets["A"].reason is TargetReason.waits_for_new_pool
    assert loop.decisions.servers["s"].targets["B"].reason is TargetReason.switch
    loop.snapshot()
    targets = loop.decisions.servers["s"].targets
    assert {on: (target.replicas, target.reason) for on, target in targets.items()} == {
        "A": (0, TargetReason.not_chosen),
        "B": (2, TargetReason.unchanged),
    }


@pytest.mark.slow
def test_deadlocked_servers_stay_on_their_accelerators() -> None:
    """a runs on A and is cheaper on B; b the other way round; no card is free."""
    cost = {("m", "A"): 4.0, ("m", "B"): 10.0, ("n", "A"): 10.0, ("n", "B"): 4.0}
    models = [profile(model, on, alpha=alpha) for (model, on), alpha in cost.items()]
    source = document(
        [
            server("a", 900.0, model="n", current=running("A", 2)),
            server("b", 900.0, current=running("B", 2)),
        ],
        [accelerator("A"), accelerator("B")],
        {"A": 2, "B": 2},
        models=models,
        classes=[service_class("gold", models=("m", "n"), itl=50.0)],
        transitionPenalty=0.0,
    )
    loop = running_loop(load_system(source))
    loop.snapshot()
    assert loop.plan.complete
    assert desired(loop.decisions) == {("a", "A"): 2, ("b", "B"): 2}
    source["count"][0]["count"] = 3  # with one free card there is an order of steps
    found = after(running_loop(load_system(source)), 6)
    assert found.keys() == {("a", "B"), ("b", "A")}


def test_rules_do_not_keep_a_server_on_too_few_cards() -> None:
    source = document(
        [server("s", 500.0, maxNumReplicas=2)],
        [accelerator("G", cost=100.0), accelerator("H")],
        {"G": 4, "H": 4},
        models=[profile("m", "G", alpha=2.5), profile("m", "H")],
        classes=[service_class("gold", itl=50.0)],
    )
    loop = Loop(load_system(source), RULES["recommended"])
    assert after(loop, 1) == {("s", "H"): 1}
    loop.now_s += 7200.0
    loop.change({"s": 2000.0}, {})
    found = after(loop, 4)
    (pool,) = loop.plan.allocations["s"]
    assert found == {("s", "G"): pool.num_replicas}


def test_unserved_servers_never_exceed_the_cards() -> None:
    """u may have one replica and needs more: it is unserved for that, and keeps what s leaves."""
    system = fleet(
        server("s", 1500.0, service="p1"),
        server("u", 4000.0, service="p2", maxNumReplicas=1, current=running("H", 2)),
        cards={"H": 4},
    )
    loop = running_loop(system)
    loop.snapshot()
    assert loop.plan.unserved[0].reason == "replica_limit"
    assert desired(loop.decisions) == {("s", "H"): 3, ("u", "H"): 1}


def test_held_replicas_do_not_displace_partial_service() -> None:
    """With the policy, b gets the two cards that a leaves; a's window must not keep them."""
    system = fleet(
        server("a", 2000.0, service="p1"),
        server("b", 1900.0, service="p2"),
        cards={"H": 4},
        saturationPolicy="PriorityExhaustive",
    )
    loop = Loop(system, Rules(scale_down_window_s=3600.0))
    assert after(loop, 1) == {("a", "H"): 4}
    loop.change({"a": 1000.0}, {})
    assert after(loop, 3) == {("a", "H"): 2, ("b", "H"): 2}


def test_missing_servers_keep_desired_not_reported_replicas() -> None:
    loop = Loop(fleet(server("s", 500.0, service="p1"), cards={"H": 8}), Rules(hold_missing_load=True))
    after(loop, 1)
    loop.change({"s": 1500.0}, {})
    loop.snapshot()
    assert desired(loop.decisions) == {("s", "H"): 3}
    loop.now_s += 60.0
    loop.snapshot(missing=frozenset({"s"}))
    assert desired(loop.decisions) == {("s", "H"): 3}


def test_the_scale_down_limit_counts_from_what_was_in_force_then() -> None:
    """After 400 s without a snapshot, 10 replicas were desired 120 s ago: 5 of them may go."""
    from optimizer.stabilisation.rules import StepLimit

    rules = Rules(scale_down_limit=StepLimit(share=0.5, replicas=1, period_s=120.0))
    loop = Loop(fleet(server("s", 9.5 * REPLICA_RPM, service="p1"), cards={"H": 20}), rules)
    assert after(loop, 1) == {("s", "H"): 10}
    loop.change({"s": 60.0}, {})
    loop.now_s += 400.0
    assert after(loop, 1) == {("s", "H"): 5}
    loop.now_s -= 30.0
    assert after(loop, 1) == {("s", "H"): 5}  # 30 s later


# --- orders of steps ----------------------------------------------------------------------------------------


def random_transition(rng: random.Random) -> tuple[list[MoveGoal], dict[str, dict[str, RunningPool]], System]:
    """Return servers that move between two or three types with hardly a card too many."""
    kinds = ["A", "B", "C"][: rng.choice([2, 2, 3])]
    goals, now = [], {}
    for i in range(rng.randint(2, 4)):
        rate = {kind: rng.choice([1.0, 1.0, 2.0]) for kind in kinds}
        old, new = rng.sample(kinds, 2)
        load = float(rng.randint(1, 3))
        have, want = (max(1, round(-(-load // rate[on]))) for on in (old, new))
        goals.append(MoveGoal(f"s{i}", 1, {new: want}, {new: rate[new]}, load))
        now[f"s{i}"] = {old: RunningPool(have, have, rate[old])}
    cards = {}
    for kind in kinds:
        before = sum(pool.replicas for pools in now.values() for on, pool in pools.items() if on == kind)
        after = sum(goal.replicas.get(kind, 0) for goal in goals)
        cards[kind] = max(before, after) + rng.choice([0, 0, 0, 0, 1])
    return goals, now, fleet(*(server(goal.server, service="p1") for goal in goals), cards=cards)


def reachable(goals: list[MoveGoal], now: dict[str, dict[str, RunningPool]], cards: dict[str, int]) -> bool:
    """Return whether single replicas can be started and stopped so that all goals are reached.

    Every replica is ready at once; a server never carries less than it must; exhaustive.
    """
    rates = {
        goal.server: {on: pool.rate_rpm for on, pool in now[goal.server].items()} | dict(goal.rates_rpm)
        for goal in goals
    }
    start = tuple(
        tuple(sorted((on, pool.replicas) for on, pool in now[goal.server].items())) for goal in goals
    )
    wanted = tuple(tuple(sorted(goal.replicas.items())) for goal in goals)
    seen, stack = {start}, [start]
    while stack:
        state = stack.pop()
        if state == wanted:
            return True
        used = {kind: sum(dict(found).get(kind, 0) for found in state) for kind in cards}
        for i, goal in enumerate(goals):
            mine = dict(state[i])
            for kind, change in itertools.product(cards, (1, -1)):
                number = mine.get(kind, 0) + change
                found = {on: n for on, n in {**mine, kind: number}.items() if n}
                carried = sum(n * rates[goal.server].get(on, 0.0) for on, n in found.items())
                if change > 0 and (used[kind] >= cards[kind] or number > goal.replicas.get(kind, 0)):
                    continue
                if change < 0 and (number < 0 or carried < goal.load_rpm):
                    continue
                following = (*state[:i], tuple(sorted(found.items())), *state[i + 1 :])
                if following not in seen:
                    seen.add(following)
                    stack.append(following)
    return False


@pytest.mark.few(1)
@pytest.mark.parametrize("part", range(4))
def test_an_order_of_steps_is_found_if_there_is_one(part: int) -> None:
    found = {True: 0, False: 0}
    for seed in range(part, 400, 4):
        goals, now, system = random_transition(random.Random(seed))
        transition = Transition(goals, now, FreeCards.of(system))
        possible = reachable(goals, now, dict(system.capacity))
        assert (not transition.blocked) == possible, seed
        found[possible] += 1
    assert min(found.values()) > 5


def test_cards_that_have_gone_since_the_plan_are_not_used() -> None:
    """The plan is for four cards; when it is followed, three exist: the lower priority gives one up."""
    system = fleet(server("a", 1000.0, service="p1"), server("b", 1000.0, service="p2"), cards={"H": 4})
    loop = Loop(system, Rules())
    after(loop, 1)
    fewer = fleet(server("a", 1000.0, service="p1"), server("b", 1000.0, service="p2"), cards={"H": 3})
    found = stabilise(loop.plan, fewer, Rules(), loop.decisions, Observation(loop.now_s))
    assert desired(found) == {("a", "H"): 2, ("b", "H"): 1}
