"""Plans leave cards for roll-outs as brute force does, and false figures of roll-outs are found."""

import random
from typing import Any

import pytest
from builders import accelerator, document, server, service_class
from robust_oracles import random_robust_system
from small_fleets import rolling

from optimizer import System, explain, find_candidates, load_system, solve, verify
from optimizer.studies.explanation.repair import find_repair

MODES = ("all", "one")


@pytest.mark.parametrize(("mode", "needed"), [(None, 6), ("one", 8), ("all", 10)])
@pytest.mark.parametrize("exact", [False, True])
def test_cards_suffice_for_the_roll_out(mode: str | None, needed: int, *, exact: bool) -> None:
    options = {"rollout": mode} if mode else {}
    plans = [solve(rolling(cards, milpSolver=exact, **options)) for cards in (needed - 1, needed)]
    assert [len(plan.unserved) for plan in plans] == [1, 0]
    assert plans[1].total_cost_cents_per_h == 6 * accelerator("A")["cost"]
    extra = {name: (use.replicas, use.cards) for name, use in plans[1].rollouts.items()}
    assert extra == (dict.fromkeys("ab", (2, {"A": 2})) if mode else {})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", ["PriorityExhaustive", "RoundRobin"])
def test_partial_service_keeps_the_cards_of_roll_outs(mode: str, policy: str) -> None:
    system = rolling(7, rollout=mode, saturationPolicy=policy)
    plan = solve(system)
    assert verify(plan, system) == []
    assert [item.server for item in plan.unserved] == ["b"]
    assert plan.unserved[0].served_fraction == 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_shared_queue_rolls_out_as_one_server(mode: str) -> None:
    """Its three classes of plans: none of its servers, one, or both are served; each is verified."""
    queue: dict[str, Any] = {"sharedQueue": "q", "surge": 0.5}
    servers = [server("a", 1500, **queue), server("b", 900, service="silver", **queue)]
    classes = [service_class("gold", 1, itl=40), service_class("silver", 2, itl=40)]
    unserved = []
    for cards in (2, 3, 5, 9):
        body = document(servers, [accelerator("A")], {"A": cards}, classes=classes, rollout=mode)
        plan = solve(system := load_system(body))
        assert verify(plan, system) == []
        unserved.append([item.server for item in plan.unserved])
    assert (unserved[0], unserved[-1]) == (["a", "b"], [])


# --- reasons and repairs ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "cards", "detail"),
    [
        ("all", 7, "3 replicas on A take 5 cards of A during a roll-out; 2 of 7 are left, 3 are missing"),
        ("all", 9, "3 replicas on A take 5 cards of A during a roll-out; 4 of 9 are left, 1 is missing"),
        ("one", 7, "3 replicas on A take 3 cards of A during a roll-out; 2 of 7 are left, 1 is missing"),
    ],
)
def test_a_roll_out_that_does_not_fit_says_so_and_is_repaired(mode: str, cards: int, detail: str) -> None:
    system = rolling(cards, rollout=mode)
    found = explain(system)
    assert [(item.reason, item.detail) for item in found.plan.unserved] == [("capacity", detail)]
    missing = {"all": 10, "one": 8}[mode] - cards
    assert found.repair is not None
    assert found.repair.beyond_units == ()
    assert found.repair.summary == f"+{missing} A"
    assert found.repair.cheapest is not None
    assert (found.repair.cheapest.added, found.repair.cheapest.proved) == ({"A": missing}, True)
    more = found.types[0].one_more
    assert more is not None
    assert more.serves == ("more" if missing == 1 else "same")


def test_a_card_that_only_a_roll_out_uses_is_worth_a_server() -> None:
    """Ten cards carry both servers while they roll out, although six are used."""
    found = explain(rolling(10, rollout="all"))
    fewer, price = found.types[0].one_fewer, found.types[0].shadow_price_cents_per_h
    assert fewer is not None
    assert (fewer.serves, price, found.limits) == ("less", 0.0, ())


def grown(system: System, added: dict[str, int]) -> System:
    types = {item.type for item in system.accelerators.values()} | system.capacity.keys()
    return system.with_capacity({kind: system.capacity.get(kind, 0) + added.get(kind, 0) for kind in types})


ROLLING = (
    ("one",),
    ("all",),
    ("one", "spares"),
    ("all", "headroom"),
    ("all", "external"),
    ("one", "availability"),
)


def repair_faults(seed: int) -> list[str]:
    """Return the repairs of a random scarce system that do not serve, or that fewer cards replace."""
    rng, wanted = random.Random(f"repair {seed}"), ROLLING[seed % len(ROLLING)]
    source = random_robust_system(seed, wanted, mixed=seed % 4 > 1)
    for item in source["count"]:
        item["count"] = rng.choice([0, 1, 2, 3, 4, 6])
    source["optimizer"] |= {"unlimited": False, "saturationPolicy": rng.choice(["None", "RoundRobin"])}
    system = load_system(source)
    plan = solve(system)
    repair = find_repair(find_candidates(system), plan)
    if repair is None:
        return []
    beyond = {item.server for item in repair.beyond_units}

    no_reserve = beyond | {item.server for item in repair.beyond_reserves}

    def lacking(added: dict[str, int]) -> set[str]:
        plan = solve(grown(system, added))
        return {item.server for item in plan.unserved} - beyond | set(plan.lacks_reserve) - no_reserve

    ample = dict.fromkeys({item.type for item in system.accelerators.values()}, 5000)
    unserved = {item.server for item in solve(grown(system, ample)).unserved}
    found = [] if unserved == beyond else [f"{unserved} cannot be served, not {beyond}"]
    repairs = [item for item in (repair.cheapest, repair.fewest, *repair.of_one_type) if item is not None]
    found += [f"{item.added} leaves {lacking(item.added)}" for item in repairs if lacking(item.added)]
    for item in repair.of_one_type if not beyond else ():
        for kind, count in item.added.items():
            found += [] if lacking({kind: count - 1}) else [f"fewer than {count} {kind} suffice"]
    return [f"{seed}: {line}" for line in found]


@pytest.mark.slow
def test_repairs_of_roll_outs_serve_when_solved_again() -> None:
    assert [line for seed in range(6) for line in repair_faults(seed)] == []


@pytest.mark.slow
def test_hundreds_of_repairs_of_roll_outs_serve() -> None:
    assert [line for seed in range(300) for line in repair_faults(seed)] == []


def test_unlimited_cards_are_not_limited_in_roll_outs() -> None:
    system = rolling(1, rollout="all", unlimited=True)
    plan = solve(system)
    assert plan.complete
    assert verify(plan, system) == []


def test_a_plan_without_the_cards_of_its_roll_out_is_found() -> None:
    plan = solve(rolling(6))
    lines = verify(plan, rolling(6, rollout="all"))
    assert any("10 cards of A during a roll-out are used; 6 are available" in line for line in lines)
