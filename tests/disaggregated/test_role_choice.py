"""Prefill and decode pools in plans: the choice against enumeration, what plans say, refusals, simulation."""

import pytest
from role_oracles import best_bill, random_role_document
from slow_cases import mostly_slow

from optimizer import load_system, solve, verify


@pytest.mark.parametrize("seed", mostly_slow(range(100), 4))
def test_choice_matches_enumeration_of_all_ways(seed: int) -> None:
    source = random_role_document(seed)
    system = load_system(source)
    plan = solve(system)
    assert plan.status == "optimal"
    assert verify(plan, system) == []
    short, value, changes = best_bill(source)
    levels = {level.name: level.value for level in plan.levels}
    service = [
        levels.pop(name, 0.0)
        for priority in (1, 2)
        for name in (f"priority {priority}: unserved rate", f"priority {priority}: unserved servers")
    ]
    assert service == pytest.approx(short)
    assert [*levels.values()] == pytest.approx([value, changes], abs=1e-4)
