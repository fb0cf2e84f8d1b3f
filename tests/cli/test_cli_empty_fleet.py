"""A fleet whose last server has left: every command answers, and says that there is nothing."""

import json
from pathlib import Path

import pytest
from builders import Json, accelerator, document
from commands import Run

from optimizer import load_plan, load_system, solve, verify
from optimizer.studies.figures.making import PLAN_FIGURES

SOURCES: list[Json] = [{"servers": []}, document([], [accelerator("A"), accelerator("B")], {"A": 3})]


@pytest.fixture(params=SOURCES, ids=["nothing at all", "units alone"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / "system.json"
    file.write_text(json.dumps(request.param), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"unlimited": True},
        {"unlimited": False},
        {"milp_solver": False},
        {"heterogeneous": True},
        {"batch_sizing": "optimal"},
        {"saturation_policy": "RoundRobin", "milp_solver": False},
        {"saturation_policy": "PriorityExhaustive"},
        {"saturation_policy": "RoundRobin", "delayed_best_effort": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("source", SOURCES, ids=["nothing at all", "units alone"])
def test_its_plan_is_empty_optimal_and_true(source: Json, options: Json) -> None:
    system = load_system(source).with_options(**options)
    plan = solve(system)
    assert (plan.allocations, plan.unserved, plan.changes) == ({}, (), ())
    assert (plan.total_cost_cents_per_h, plan.complete) == (0, True)
    assert all(row.used == 0 for row in plan.capacity)
    assert verify(plan, system) == []


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["solve"], "0 servers served in full"),
        (["solve", "--require-complete"], "0 servers"),
        (["solve", "--limited"], "0 servers"),
        (["solve", "--unlimited"], "0 servers"),
        (["check"], "0 servers"),
        (["candidates"], ""),
        (["compare"], "there are no servers"),
        (["explain"], "0 servers served in full"),
    ],
)
def test_every_command_answers(run: Run, path: Path, words: list[str], said: str) -> None:
    command, *flags = words
    shown = run(command, path, *flags)
    assert (shown.status, shown.err) == (0, "")
    assert shown.out
    assert said in shown.out
    assert run(command, path, *flags, "--json").json


def test_files_are_written_and_read_back(run: Run, path: Path, tmp_path: Path) -> None:
    system = load_system(path)
    for suffix in ("yaml", "json"):
        copy = tmp_path / f"copy.{suffix}"
        assert run("convert", path, "-o", copy).status == 0
        assert load_system(copy) == system
    assert run("solve", path, "-o", tmp_path / "plan.json").status == 0
    assert load_plan(tmp_path / "plan.json") == solve(system)
    page, text, table = tmp_path / "page.html", tmp_path / "page.md", tmp_path / "page.csv"
    assert run("report", path, "-o", page, "--markdown", text, "--csv", table).status == 0
    assert "0 of 0" in text.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", PLAN_FIGURES)
def test_every_picture_of_a_plan_is_drawn_or_refused_in_one_line(
    run: Run, path: Path, tmp_path: Path, kind: str
) -> None:
    answer = run("plot", kind, path, "-o", tmp_path / "picture.svg")
    drawn = (tmp_path / "picture.svg").exists()
    assert (answer.status, answer.err.count("\n"), drawn) in {(0, 0, True), (2, 1, False)}
