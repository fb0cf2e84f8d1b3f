"""Reserves never cost service, a policy serves no less than none, and one more card costs no full service.

Random systems are solved twice: with and without reserves, with and without a policy, with and without one
card more. What the plan gives beyond service is compared with enumeration.
"""

import random
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from builders import Json, accelerator, document, profile, server, service_class
from coupled_fleets import random_coupled
from feature_fleets import random_features
from plan_faults import differences
from random_fleets import random_fleet_document
from robust_oracles import best_levels, random_robust_system
from slow_cases import mostly_slow

from optimizer import (
    Plan,
    SizingMemo,
    SpecError,
    System,
    find_candidates,
    load_system,
    solve,
    verify,
)
from optimizer.candidates.pairs import arrays_of
from optimizer.plan import make_plan
from optimizer.solvers.levels import levels_of
from optimizer.solvers.problem import build_problem
from optimizer.solvers.solution import Solution, Status
from optimizer.spec.loads import with_loads
from optimizer.studies.overload import find_overload
from optimizer.units import SECONDS_PER_MINUTE

DATA = Path(__file__).parents[1] / "data" / "reserves"
POLICIES = ("PriorityExhaustive", "PriorityRoundRobin", "RoundRobin")
RESERVES = ("headroomShare", "spareReplicas", "availabilityTarget")
OPTIONS = ("headroom", "spares", "availability", "preferred", "budget", "power", "tiers", "external")
ROUNDING_RPM = 2e-3
"""Loads are compared in steps of 0.001 requests/min."""


# --- service ---------------------------------------------------------------------------------------------


def served_rpm(plan: Plan, system: System, *, in_full: bool = False) -> dict[int, float]:
    """Return the served load of each priority [requests/min], or only that of servers served in full."""
    members = arrays_of(system).servers.members
    loads = (members.load_rps * SECONDS_PER_MINUTE).tolist()
    fractions = {item.server: item.served_fraction for item in plan.unserved}
    served = dict.fromkeys(sorted(members.priority.tolist()), 0.0)
    for name, load, priority in zip(members.names, loads, members.priority.tolist(), strict=True):
        share = fractions.get(name, 1.0)
        served[priority] += load * (share == 1.0 if in_full else share)
    return served


def more(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    """Return how much more one service is at the highest priority that differs; 0 if none does."""
    differences = (one[priority] - other[priority] for priority in one)
    return next((x for x in differences if abs(x) > ROUNDING_RPM + 1e-6 * max(one.values())), 0.0)


def without_reserves(source: Json) -> Json:
    """Return a document without headroom, spares and availability targets."""
    found = deepcopy(source)
    for part in (found["optimizer"], *found["serviceClasses"], *found["servers"]):
        for field in RESERVES:
            part.pop(field, None)
    return found


def broken_promises(source: Json) -> list[str]:
    """Return the promises of docs/policies.md that the plans of a document break."""
    system, bare, memo = load_system(source), load_system(without_reserves(source)), SizingMemo()
    plan, other = solve(system, memo=memo), solve(bare, memo=memo)
    if "feasible" in (plan.status, other.status):
        return []  # nothing is promised if the time limit stops a solve
    service, found = served_rpm(plan, system), []
    if more(service, served_rpm(other, bare)):
        found.append(f"without reserves {served_rpm(other, bare)} are served, not {service}")
    if not system.options.milp_solver:
        return found
    options = system.options
    if options.saturation_policy != "None":
        none = served_rpm(solve(system.with_options(saturation_policy="None"), memo=memo), system)
        if more(none, service) > 0:
            found.append(f"without a policy {none} are served, not {service}")
    kind = min(card.type for card in system.accelerators.values())
    units = {**system.capacity, kind: system.capacity.get(kind, 0) + 1}
    larger = solve(system.with_capacity(units), memo=memo)
    before, after = (served_rpm(each, system, in_full=True) for each in (plan, larger))
    if options.saturation_policy != "None" and not options.delayed_best_effort and plan.unserved:
        first = min(item.priority for item in plan.unserved)
        before = {priority: load for priority, load in before.items() if priority <= first}
    if more(before, after) > 0 and not _counts_servers(plan, larger):
        found.append(f"with one {kind} more {after} are served in full, not {before}")
    return found


def _counts_servers(plan: Plan, larger: Plan) -> bool:
    """Return whether the larger plan serves more servers at the first level that differs."""
    pairs = zip(plan.levels, larger.levels, strict=True)
    name = next((one.name for one, other in pairs if one.value - other.value > ROUNDING_RPM), "")
    return name.endswith("servers")


# --- random systems --------------------------------------------------------------------------------------


def random_source(seed: int) -> Json:
    """Return a small document with scarce cards and reserves; any feature, policy and solver."""
    rng = random.Random(f"reserves {seed}")
    match seed % 8:
        case 0:
            source = random_fleet_document(seed)
        case 1:
            source = random_coupled(seed)
        case 2 | 3 | 4:
            source = random_features(seed)
        case _:
            source = random_robust_system(seed, tuple(rng.sample(OPTIONS, 3)), mixed=rng.random() < 0.6)
    routed = {route[end] for route in source.get("routes", ()) for end in ("small", "large")}
    common: dict[str, Json] = {}
    for item in source["servers"]:
        if item.get("sharedQueue"):
            item.update(common.setdefault(item["sharedQueue"], _reserve(rng)))
        elif not item.get("sharedCard") and item["name"] not in routed:
            item.update(_reserve(rng))
    for card in source["accelerators"]:
        card.setdefault("availability", rng.choice([0.9, 0.97, 1.0]))
    coupled = routed or any(item.get("sharedCard") for item in source["servers"])
    source["optimizer"] |= {
        "gap": 0.0,
        "timeLimit": 60,
        "unlimited": False,
        "milpSolver": bool(coupled) or rng.random() < 0.9,
        "heterogeneous": rng.random() < 0.5,
        "saturationPolicy": "None" if coupled else rng.choice(["None", *POLICIES]),
        "delayedBestEffort": not coupled and rng.random() < 0.4,
    }
    return source


def _reserve(rng: random.Random) -> Json:
    """Return the reserve of a server: none, or one to three kinds."""
    found: Json = {}
    if rng.random() < 0.5:
        found["spareReplicas"] = rng.choice([1, 1, 2])
    if rng.random() < 0.3:
        found["headroomShare"] = rng.choice([0.1, 0.25, 0.5, 1.0])
    if rng.random() < 0.2:
        found["availabilityTarget"] = rng.choice([0.9, 0.99])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("part", mostly_slow(range(300), 1))
def test_reserves_policies_and_cards_keep_their_promises(part: int) -> None:
    """20 random systems, and 3,000 in the slow tests."""
    broken = []
    for seed in range(10 * part, 10 * (part + 1)):
        try:
            broken += [f"{seed}: {line}" for line in broken_promises(random_source(seed))]
        except SpecError:
            continue  # two features that contradict each other
    assert broken == []


def test_a_greedy_plan_holds() -> None:
    assert broken_promises(random_source(2811)) == []


# --- enumeration -----------------------------------------------------------------------------------------


def enumerated_faults(seed: int) -> list[str]:
    """Return levels of a plan with partial service that are not the best ones by enumeration."""
    rng = random.Random(f"enumerated {seed}")
    source = random_robust_system(seed, tuple(rng.sample(OPTIONS, 2)), mixed=seed % 2 > 0)
    for item in source["servers"]:
        item.update(_reserve(rng))
    for item in source["count"]:
        item["count"] = rng.choice([0, 1, 2, 3, 4, 5, 6, 8])
    options = {"saturationPolicy": rng.choice(POLICIES), "delayedBestEffort": rng.random() < 0.4}
    source["optimizer"] |= options | {"unlimited": False}
    system = load_system(source)
    plan = solve(system)
    service, rest = ([x for x in plan.levels if ("unserved" in x.name) == which] for which in (True, False))
    short = next((i for i, level in enumerate(service) if level.value > 0), len(service))
    settled = service if system.options.delayed_best_effort else service[: short - short % 2 + 2]
    best, given = best_levels(system), best_levels(system, plan)
    found: list[str] = [] if plan.status == "optimal" else [plan.status]
    found += differences("service", settled, {level.name: best[level.name] for level in settled})
    found += differences("given the service", rest, {level.name: given[level.name] for level in rest})
    return [f"{seed}: {line}" for line in found]


@pytest.mark.slow
@pytest.mark.parametrize("part", mostly_slow(range(40), 1))
def test_levels_are_those_of_enumeration(part: int) -> None:
    """Service in full down to the first priority that lacks some; reserves and value at that service."""
    found = [line for seed in range(10 * part, 10 * (part + 1)) for line in enumerated_faults(seed)]
    assert found == []


# --- cases -----------------------------------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("policy", ["None", *POLICIES])
@pytest.mark.parametrize("cards", [2, 3])
def test_a_spare_waits_until_all_load_is_served(cards: int, policy: str, *, delayed: bool) -> None:
    """Server one wants a spare, two needs three or more replicas, and three one."""
    system = load_system(DATA / "minimal.yaml").with_capacity({"G": cards})
    plan = solve(system.with_options(saturation_policy=policy, delayed_best_effort=delayed))
    pools = [plan.allocations.get(name, ()) for name in ("one", "two", "three")]
    replicas = [sum(pool.num_replicas for pool in mine) for mine in pools]
    if policy == "None":
        assert replicas == [cards - 1, 0, 1]
    else:
        assert replicas == ([1, cards - 2, 1] if delayed else [1, cards - 1, 0])


@pytest.mark.slow
@pytest.mark.parametrize("cards", mostly_slow([16, 20, 24, 32], 2))
def test_a_growing_load_is_served_before_reserves(cards: int) -> None:
    system = with_loads(load_system(DATA / "stock.yaml"), DATA / "next-year.csv")
    system = system.with_capacity({**system.capacity, "H100": cards})
    plan = solve(system)
    no_spares = (item.model_copy(update={"spare_replicas": 0}) for item in system.spec.servers)
    bare = system.with_items(*no_spares).with_options(headroom_share=0.0)
    assert served_rpm(plan, system) == pytest.approx(served_rpm(solve(bare), system))
    in_full = 5 - len(plan.unserved)
    assert in_full == {16: 2, 20: 4}.get(cards, 5)
    assert round(served_rpm(plan, system)[2] / 2520, 2) == {16: 0.36, 20: 0.43}.get(cards, 1.0)


@pytest.mark.few(5)
@pytest.mark.parametrize("priorities", [(1, 2, 3), (1, 1, 2)])
@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_full_service_makes_room_for_lower_priorities(
    policy: str, priorities: tuple[int, int, int], *, delayed: bool
) -> None:
    """A runs on X, or on Y for more money, and C on X alone; no card is left for B."""
    cards = [accelerator("X"), accelerator("Y", cost=20), accelerator("Z", cost=5, multiplicity=8)]
    models = [profile("a", "X"), profile("a", "Y"), profile("b", "Z"), profile("c", "X")]
    classes = [service_class(name, p, models=(name,)) for name, p in zip("abc", priorities, strict=True)]
    servers = [server(name, 100, service=name) | {"model": name} for name in "abc"]
    units = {"X": 1, "Y": 1, "Z": 4}
    source = document(servers, cards, units, classes=classes, models=models, saturationPolicy=policy)
    plan = solve(load_system(source).with_options(delayed_best_effort=delayed))
    placed = {name: pools[0].accelerator for name, pools in plan.allocations.items() if pools}
    assert placed == {"a": "Y", "c": "X"}


def slow_and_fast(cards: int, policy: str) -> System:
    """Return A, which needs twelve cards, and B, which needs three, of one priority."""
    models = [profile("slow", "H", alpha=200.9), profile("fast", "H", alpha=40.0)]
    servers = [server("a", 420) | {"model": "slow"}, server("b", 390) | {"model": "fast"}]
    classes = [service_class("gold", models=("slow", "fast"))]
    source = document(servers, [accelerator("H")], {"H": cards}, classes=classes, models=models)
    return load_system(source).with_options(saturation_policy=policy)


@pytest.mark.few(1)
@pytest.mark.parametrize("policy", POLICIES)
def test_one_more_card_can_lower_partial_service(policy: str) -> None:
    """Full service comes first, as docs/policies.md says."""
    served = [served_rpm(solve(slow_and_fast(n, policy)), slow_and_fast(n, policy))[1] for n in (11, 12)]
    assert [round(each) for each in served] == [687, 420]


@pytest.mark.few(2)
@pytest.mark.parametrize("cards", range(9, 16))
def test_the_load_that_full_service_costs_is_stated(cards: int) -> None:
    """The most that the cards can carry, over all divisions between A and B."""
    system = slow_and_fast(cards, "PriorityExhaustive")
    plan, (slow, fast) = solve(system), find_candidates(system).table.max_rate_rps * SECONDS_PER_MINUTE
    most = max(min(n * slow, 420) + min((cards - n) * fast, 390) for n in range(cards + 1))
    served, found = served_rpm(plan, system)[1], find_overload(system, plan)
    if most - served <= 0.81:
        assert found is None or found.in_part is None
    else:
        assert found is not None
        assert found.in_part is not None
        assert (found.in_part.served_rpm, found.in_part.possible_rpm) == pytest.approx((served, most))


# --- verification ----------------------------------------------------------------------------------------


def plan_of(system: System, replicas: Mapping[str, int]) -> Plan:
    """Return a plan, called optimal, with given replicas of each server on its only accelerator."""
    candidates = find_candidates(system)
    problem = build_problem(candidates)
    found = np.zeros(len(problem.table), np.int64)
    for name, count in replicas.items():
        mine = problem.table.server == candidates.arrays.server_names.index(name)
        sized = mine & (problem.table.num_replicas == count)
        found[np.flatnonzero(sized if sized.any() else mine)[-1]] = count
    levels = levels_of(problem, found, proved=True)
    return make_plan(candidates, problem, Solution(found, Status.optimal, "milp", levels))


@pytest.mark.parametrize(
    ("policy", "replicas", "fault"),
    [
        ("None", {"one": 2}, "three: cards of reserves could serve it in full"),
        ("PriorityExhaustive", {"one": 2}, "two: cards of reserves could serve more of it"),
        ("RoundRobin", {"one": 2}, "two: cards of reserves could serve more of it"),
    ],
)
def test_a_plan_that_gives_up_load_for_a_reserve_is_refused(
    policy: str, replicas: Mapping[str, int], fault: str
) -> None:
    system = load_system(DATA / "minimal.yaml").with_capacity({"G": 2})
    system = system.with_options(saturation_policy=policy)
    found = verify(plan_of(system, replicas), system)
    assert any(line.startswith(fault) for line in found)
