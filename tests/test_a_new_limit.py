"""A limit that is one file and an entry in a table: every solver, check and study takes it as it is.

The tree is copied, `tests/rack_slots.py` becomes a file of `optimizer/limits`, and the rest runs in a process
of its own.
"""

from pathlib import Path
from typing import Any

import pytest
from copied_tree import answers_in, copy_tree

LIMITS = "optimizer/limits"
EDITS = {
    "from optimizer.limits.cards import Cards\n": (
        "from optimizer.limits import rack_slots\nfrom optimizer.limits.cards import Cards\n"
    ),
    "(Cards(),": "(Cards(), rack_slots.RackSlots(),",
    "class LimitOptions(": "class LimitOptions(rack_slots.RackSlotOption, ",
}
"""What is edited in the table of limits."""


def answered(copy: Path, systems: int) -> dict[str, Any]:
    """Return what a copy of the tree answers that knows the limit, with so many random systems."""
    copy_tree(copy, {"rack_slots.py": f"{LIMITS}/rack_slots.py"}, {f"{LIMITS}/table.py": EDITS})
    return answers_in(copy, "rack_slot_answers.py", [str(systems)])


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return answered(tmp_path_factory.mktemp("copy"), 4)


def replicas_of(plan: dict[str, Any]) -> dict[str, dict[str, int]]:
    return {
        name: {pool["accelerator"]: pool["numReplicas"] for pool in pools}
        for name, pools in plan["allocations"].items()
    }


@pytest.mark.slow
def test_a_plan_keeps_the_limit_by_priority_and_shows_its_use(answers: dict[str, Any]) -> None:
    """A replica carries about 540 requests a minute: three replicas each, in a slot each on either."""
    assert replicas_of(answers["plan"]) == {"a": {"A": 3}, "b": {"A": 3}}
    (use,) = answers["plan"]["limits"]
    assert use == {"limit": "rack slots", "item": "all racks", "unit": "slot", "amount": 8.0, "used": 6.0}
    (item,) = answers["plan"]["unserved"]
    assert (item["server"], item["reason"]) == ("c", "capacity")
    assert item["detail"] == "3 replicas on A take 3 slots of all racks; 2 of 8 are left"
    assert answers["ample"]["complete"]


@pytest.mark.parametrize("kind", ["mixed", "unlimited", "greedy"])
def test_every_solver_keeps_to_it_and_no_option_lifts_it(kind: str, answers: dict[str, Any]) -> None:
    assert [item["server"] for item in answers[kind]["unserved"]] == ["c"]
    assert answers[kind]["limits"][0]["used"] == 6.0


def test_what_is_left_of_it_is_given_out_by_the_policy(answers: dict[str, Any]) -> None:
    assert replicas_of(answers["partial"])["c"] == {"A": 2}
    assert answers["partial"]["limits"][0]["used"] == 8.0


def test_every_false_field_is_named(answers: dict[str, Any]) -> None:
    assert set(answers["lies"]) == {"limit", "item", "amount", "used"}
    assert all(any(line.startswith("limits.0.") for line in lines) for lines in answers["lies"].values())


def test_steps_are_explained_but_cards_do_not_repair(answers: dict[str, Any]) -> None:
    (found,) = answers["explanation"]["limits"]
    assert (found["limit"], found["amount"], found["used"], found["left"]) == ("rack slots", 8.0, 6.0, 2.0)
    assert [change["server"] for change in found["oneMore"]["service"]] == ["c"]
    assert found["step"] == 3.0  # what c needs, and what b gives up
    assert [change["server"] for change in found["oneFewer"]["service"]] == ["b"]
    assert answers["explanation"]["repair"]["cheapest"] is None


def test_ranges_of_its_amount_are_exact_and_it_has_a_cost(answers: dict[str, Any]) -> None:
    ranges, each = answers["swept"]
    assert ranges == each == [3] * 3 + [2] * 3 + [1] * 3 + [0] * 4
    (wish,) = answers["explanation"]["wishes"]
    assert wish["option"] == "rackSlots"
    assert [change["server"] for change in wish["without"]["service"]] == ["c"]


def test_it_is_shown_in_tables(answers: dict[str, Any]) -> None:
    for table in (answers["tables"], answers["explained"]):
        (line,) = [line for line in table.splitlines() if line.lstrip().startswith("rack slots")]
        assert "all racks" in line
        assert "slot" in line.split()


def test_exact_plans_match_brute_force_and_greedy_is_feasible(answers: dict[str, Any]) -> None:
    assert answers["faults"] == []


@pytest.mark.slow
def test_three_hundred_exact_plans_are_those_of_brute_force(tmp_path: Path) -> None:
    assert answered(tmp_path, 300)["faults"] == []
