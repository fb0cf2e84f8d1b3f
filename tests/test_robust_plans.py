"""Plans with reserves, prices and limits are those of brute force, and false ones are found."""

import itertools
import json
from typing import Any

import pytest
from builders import accelerator, document, server, service_class
from robust_oracles import OPTIONS, best_levels, random_robust_system

from optimizer import SpecError, find_candidates, load_system, solve, verify
from optimizer.plan import Plan
from optimizer.plan.proof import check_proof, prove
from optimizer.solvers.branch_and_price.solve import solve_patterns
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.problem import Level, build_problem

SINGLES = [(option,) for option in OPTIONS]
PAIRS: list[tuple[str, ...]] = list(itertools.combinations(OPTIONS, 2))


def faults(seed: int, wanted: tuple[str, ...], *, mixed: bool) -> list[str]:
    """Return what is wrong with the plans of a random system, by brute force, proof and verification."""
    system = load_system(random_robust_system(seed, wanted, mixed=mixed))
    best, found = best_levels(system), []

    def compare(what: str, levels: Any) -> None:
        reached = {level.name: level.value for level in levels}
        if [*reached] != [*best]:
            found.append(f"{what}: levels {[*reached]}, not {[*best]}")
            return
        for name, value in best.items():
            if abs(reached[name] - float(value)) > 1e-6 * max(1.0, abs(float(value))):
                found.append(f"{what}: {name} is {reached[name]}, the best is {float(value)}")

    plan, candidates = solve(system), find_candidates(system)
    compare("plan", plan.levels)
    found += [] if plan.status == "optimal" else [plan.status]
    found += verify(plan, system)
    levels: tuple[Level, ...] = solve_patterns(build_problem(candidates)).levels
    compare("patterns", levels)
    found += check_proof(plan, system, prove(plan, candidates, Deadline.after(5.0)))[0]
    greedy = system.with_options(milp_solver=False, saturation_policy="RoundRobin")
    found += verify(solve(greedy), greedy)
    return [f"{seed} {wanted} mixed={mixed}: {line}" for line in found]


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("wanted", SINGLES, ids="-".join)
def test_plans_with_an_option_are_those_of_brute_force(wanted: tuple[str, ...], *, mixed: bool) -> None:
    assert [line for seed in range(2) for line in faults(seed, wanted, mixed=mixed)] == []


@pytest.mark.parametrize("wanted", PAIRS, ids="-".join)
def test_plans_with_two_options_are_those_of_brute_force(wanted: tuple[str, ...]) -> None:
    number = PAIRS.index(wanted)
    assert faults(number % 30, wanted, mixed=number % 2 > 0) == []


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [*SINGLES, *PAIRS], ids="-".join)
def test_hundreds_of_plans_are_those_of_brute_force(wanted: tuple[str, ...]) -> None:
    """300 systems for each option and each pair of options."""
    assert [
        line for seed in range(150) for mixed in (False, True) for line in faults(seed, wanted, mixed=mixed)
    ] == []


# --- a false plan is found -------------------------------------------------------------------------------

POWER = {"idle": 100, "full": 700, "midPower": 500, "midUtil": 0.5}


def everything() -> Any:
    """Return a system that uses every option, with a server that rents and one without its reserve."""
    cards = [
        accelerator("A")
        | {"power": POWER, "availability": 0.98, "tiers": [{"units": 4, "cost": 5, "committed": True}]},
        accelerator("B", cost=31, multiplicity=2) | {"power": POWER},
    ]
    external = {"inPerMillion": 1.0, "outPerMillion": 1.0, "ttft": 20.0, "itl": 9.0}
    servers = [
        server("grows", 1500, headroomShare=0.5, preferred=["B"]),
        server("fails", 1500, spareReplicas=1, availabilityTarget=0.99),
        server("rents", 1500, service="silver", external=external),
    ]
    classes = [service_class("gold", 1, itl=40), service_class("silver", 2, itl=40)]
    return load_system(document(servers, cards, {"A": 8, "B": 4}, classes=classes, budget=900, maxPower=9000))


FALSE = {
    "a reserve that is not there": ("reserves", "fails", "hasReserve", False),
    "the headroom wanted": ("reserves", "grows", "headroomWanted", 0.25),
    "the spare replicas": ("reserves", "fails", "spareReplicas", 2),
    "the availability": ("reserves", "fails", "availabilityTarget", 0.5),
    "the cost of a reserve": ("reserves", "fails", "cost", 1.0),
    "the server of a reserve": ("reserves", "fails", "server", "rents"),
    "accelerators in tiers": ("tiers", "A", "used", 1),
    "the cost of tiers": ("tiers", "A", "cost", 1.0),
    "the difference of tiers": ("tiers", "A", "difference", 1.0),
    "the accelerator of tiers": ("tiers", "A", "accelerator", "B"),
    "the rent": ("rented", "rents", "cost", 1.0),
    "the rent of a million tokens": ("rented", "rents", "costPerMillion", 2.0),
    "the rented load": ("rented", "rents", "arrivalRate", 1.0),
    "rented token times": ("rented", "rents", "itlAverage", 1.0),
    "rented first tokens": ("rented", "rents", "ttftAverage", 1.0),
    "who rents": ("rented", "rents", "server", "grows"),
    "the budget that is used": ("limits", "budget", "used", 1.0),
    "the budget": ("limits", "budget", "amount", 1.0),
    "the power that is used": ("limits", "power", "used", 1.0),
    "the power": ("limits", "power", "amount", 1.0),
}
"""A section, the first value of an item, a field of it and a false value."""


@pytest.mark.parametrize("lie", FALSE)
def test_a_false_field_is_found(lie: str) -> None:
    system, (section, of, field, value) = everything(), FALSE[lie]
    plan = json.loads(solve(system).to_json())
    (item,) = [item for item in plan[section] if of in item.values()]
    assert item[field] != value
    item[field] = value
    assert verify(Plan.model_validate(plan), system) != []


@pytest.mark.parametrize("name", ["notRented", "reserves", "tiers", "rented"])
def test_a_missing_section_is_found(name: str) -> None:
    plan = json.loads(solve(everything()).to_json())
    plan[name] = ["grows"] if name == "notRented" else []
    assert verify(Plan.model_validate(plan), everything()) != []


def test_levels_of_reserves_and_preferences_are_checked() -> None:
    system = everything()
    for place, level in enumerate(solve(system).levels):
        plan = json.loads(solve(system).to_json())
        plan["levels"][place]["value"] = level.value + 1
        assert any(level.name in line for line in verify(Plan.model_validate(plan), system)), level.name


# --- what is refused -------------------------------------------------------------------------------------


def refused(**options: Any) -> str:
    cards = [accelerator("A") | {"tiers": [{"units": 4, "cost": 5, "committed": True}]}]
    with pytest.raises(SpecError) as caught:
        load_system(document([server("a")], cards, {"A": 4}, **options))
    return str(caught.value)


def test_a_budget_below_the_commitments_is_refused() -> None:
    assert refused(budget=19) == (
        "optimizer.budget: 19 cents/h do not pay for the commitments of 20 cents/h; raise the budget or take "
        "committed tiers out"
    )


def test_a_limit_on_power_needs_the_power_of_accelerators() -> None:
    assert refused(maxPower=100) == (
        "optimizer.maxPower: the power of A is not known; give it power.idle and power.full"
    )


def test_prices_that_fall_from_tier_to_tier_are_refused() -> None:
    cards = [accelerator("A") | {"tiers": [{"units": 4, "cost": 11}]}]
    with pytest.raises(SpecError, match="prices must not fall from tier to tier"):
        load_system(document([server("a")], cards, {"A": 4}))


def test_a_preferred_accelerator_has_to_exist() -> None:
    with pytest.raises(SpecError, match=r"servers\[0\].preferred\[0\]: accelerator 'Z' does not exist"):
        load_system(document([server("a", preferred=["Z"])], [accelerator("A")], {"A": 4}))
