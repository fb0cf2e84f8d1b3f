"""Routes to a small and a large model: choice against two oracles, verification, refusals, studies."""

from collections.abc import Iterator
from typing import Any

import pytest
from route_oracles import best_levels, cbc_levels, random_routes

from optimizer import load_system, solve, verify


def slow(values: range) -> Iterator[Any]:
    """Yield parameters of slow tests."""
    return (pytest.param(value, marks=pytest.mark.slow) for value in values)


# --- the choice ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [*range(20), *slow(range(20, 220))])
def test_choice_matches_exhaustive_search_at_every_level(seed: int) -> None:
    mixed = seed % 4 == 0
    made = random_routes(seed, others=0 if mixed else seed % 2)
    system = load_system(made).with_options(heterogeneous=mixed, unlimited=seed % 7 == 6)
    plan = solve(system)
    assert plan.status == "optimal"
    assert verify(plan, system) == []
    reached = {level.name: pytest.approx(level.value, rel=1e-6, abs=1e-6) for level in plan.levels}
    assert reached == best_levels(system)


@pytest.mark.parametrize("seed", [*range(2), *slow(range(2, 50))])
def test_choice_matches_another_formulation_in_cbc(seed: int) -> None:
    pytest.importorskip("pulp")
    system = load_system(random_routes(1000 + seed, routes=3, others=3, kinds=5))
    plan = solve(system)
    assert plan.status == "optimal"
    reached = {level.name: pytest.approx(level.value, rel=1e-6, abs=1e-4) for level in plan.levels}
    assert reached == cbc_levels(system)
