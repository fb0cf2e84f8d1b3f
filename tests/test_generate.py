"""Generated systems: the same from the same seed, of the size asked for, and worth solving."""

from typing import Any

import pytest

from optimizer import SpecError, System, find_candidates, solve, verify
from optimizer.generate import generate_document, generate_system


def models_of(system: System) -> set[str]:
    return {model for model, _ in system.profiles}


def test_the_same_seed_gives_the_same_system() -> None:
    assert generate_system(7, 5, 2, seed=3) == generate_system(7, 5, 2, seed=3)


@pytest.mark.parametrize(
    ("servers", "accelerators", "types"),
    [(1, 1, 1), (2, 1, 1), (10, 4, 4), (17, 9, 2), (30, 50, 3), (5, 40, 1)],
)
def test_the_sizes_are_as_asked(servers: int, accelerators: int, types: int) -> None:
    system = generate_system(servers, accelerators, types, seed=1)
    assert len(system.servers) == servers
    assert len(system.accelerators) == accelerators
    assert len({item.type for item in system.accelerators.values()}) == types
    assert set(system.capacity) <= {item.type for item in system.accelerators.values()}


def test_tighter_systems_have_fewer_units_and_are_else_the_same() -> None:
    loose, tight = generate_system(20, 6, 3, seed=5), generate_system(20, 6, 3, seed=5, tightness=2)
    assert loose.servers == tight.servers
    assert loose.profiles == tight.profiles
    # each type is ceil(units / tightness): half, but for rounding
    assert sum(tight.capacity.values()) <= sum(loose.capacity.values()) / 2 + len(loose.capacity)


@pytest.mark.parametrize("seed", range(3))
def test_a_generated_system_can_be_solved_and_its_plan_holds(seed: int) -> None:
    system = generate_system(12, 6, 3, seed=seed, tightness=1.3)
    plan = solve(system)
    assert verify(plan, system) == []
    assert set(plan.allocations) | {item.server for item in plan.unserved} == set(system.servers)
    assert any(plan.allocations.values())


def test_most_pairs_of_a_generated_system_are_candidates() -> None:
    found = find_candidates(generate_system(20, 8, 4, seed=0))
    assert len(found.table) > 20 * 8 / 4


@pytest.mark.parametrize(
    "arguments",
    [
        {"servers": 0},
        {"servers": -1},
        {"accelerators": 0},
        {"types": 0},
        {"types": 6},
        {"tightness": 0},
        {"tightness": -1},
        {"tightness": float("nan")},
        {"tightness": float("inf")},
        {"seed": -1},
    ],
)
def test_an_argument_out_of_range_is_refused(arguments: dict[str, Any]) -> None:
    sound: dict[str, Any] = {"servers": 3, "accelerators": 5, "types": 2, "seed": 0}
    with pytest.raises(SpecError, match=r"^generate: "):
        generate_system(**sound | arguments)


@pytest.mark.parametrize(
    ("servers", "accelerators", "types", "seed"),
    [(3, 3, 3, 322), (2, 2, 1, 353), (3, 1, 1, 630662), (1, 1, 1, 583936)],
)
def test_every_model_fits_on_an_accelerator(servers: int, accelerators: int, types: int, seed: int) -> None:
    system = generate_system(servers, accelerators, types, seed)  # of these seeds a model was too large
    assert {server.model for server in system.servers.values()} <= models_of(system)
    assert len(find_candidates(system).verdicts.reason) == servers


def test_what_a_seed_gives_stays_as_it_was() -> None:
    document = generate_document(5, 2, 2, seed=7)
    alphas = [profile["decodeParms"]["alpha"] for profile in document["models"]]
    assert alphas == [17.3564, 56.2304, 15.9101, 51.1229]  # before models were made to fit
    assert [item["count"] for item in document["count"]] == [9, 13]
