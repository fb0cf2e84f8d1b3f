"""Plans from files: what was written is read back, and what contradicts itself is refused with its path."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import Json, accelerator, document, server

from optimizer import Plan, SpecError, System, load_plan, load_system, solve
from optimizer.plan import load_system_or_plan


@pytest.fixture(scope="module")
def plan() -> Plan:
    source = document([server("a", replicas=2), server("b", replicas=9)], [accelerator("A")], {"A": 2})
    return solve(load_system(source))


def test_a_plan_that_was_written_is_read_back(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.txt"
    path.write_text(plan.to_json(), encoding="utf-8")
    assert load_plan(path) == plan
    assert load_system_or_plan(path) == plan


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda p: p.pop("status"), "status: missing"),
        (lambda p: p.update(colour=1), "colour: unknown key"),
        (
            lambda p: p["allocations"]["a"][0].update(costCentsPerH="1"),
            r"allocations\.a\[0\]\.costCentsPerH: must be a number",
        ),
        (
            lambda p: p["allocations"]["a"][0].update(costCentsPerH=-1),
            r"allocations\.a\[0\]\.costCentsPerH: must be at least 0",
        ),
        (
            lambda p: p["allocations"]["a"][0].update(numReplicas=0),
            r"allocations\.a\[0\]\.numReplicas: must be at least 1, not 0",
        ),
        (
            lambda p: p["allocations"]["a"][0].update(arrivalRateRpm=-2),
            r"allocations\.a\[0\]\.arrivalRateRpm: must be at least 0 and at most 1e\+30, not -2",
        ),
        (
            lambda p: p["allocations"]["a"][0].update(waitMs=1e300),
            r"allocations\.a\[0\]\.waitMs: must be at least 0 and at most 1e\+30, not 1e\+300",
        ),
        (
            lambda p: p.update(totalCostCentsPerH=7),
            "totalCostCentsPerH: 7 differs from the cost of the allocations, 20",
        ),
    ],
)
def test_a_plan_that_cannot_be_is_refused(
    plan: Plan, spoil: Callable[[Json], None], message: str, tmp_path: Path
) -> None:
    value = json.loads(plan.to_json())
    spoil(value)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    for read in (load_plan, load_system_or_plan):
        with pytest.raises(SpecError, match=f"plan.json: {message}"):
            read(path)


def test_systems_are_told_from_plans_in_every_form(tmp_path: Path) -> None:
    source = document([server("a")], [accelerator("A")])
    text = json.dumps(source)
    for name in ("system.json", "system.yaml", "system"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "all.json").write_text(text, encoding="utf-8")
    (tmp_path / "plain").write_text("{}\n", encoding="utf-8")
    for name in ("system.json", "system.yaml", "system", "folder"):
        found = load_system_or_plan(tmp_path / name)
        assert isinstance(found, System)
        assert found == load_system(tmp_path / name)
    with pytest.raises(SpecError, match="plain: expected a document with sections"):
        load_system_or_plan(tmp_path / "plain")
    with pytest.raises(SpecError, match="no such file"):
        load_system_or_plan(tmp_path / "nothing")


@pytest.mark.parametrize("text", ["{", "[]", '{"allocations": 1, "allocations": 2}'])
def test_text_that_is_neither_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=r"x\.json"):
        load_system_or_plan(path)


def test_plans_of_older_versions_are_refused_in_one_sentence(plan: Plan, tmp_path: Path) -> None:
    """Amounts of older plans have no units in their names: `totalCost` was in cents."""
    value = json.loads(plan.to_json())
    value["totalCost"] = value.pop("totalCostCentsPerH")
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    for read in (load_plan, load_system_or_plan):
        with pytest.raises(
            SpecError, match=r"plan\.json: this plan was written by an older inferplan; plan again"
        ):
            read(path)
