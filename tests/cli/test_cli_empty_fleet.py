"""A fleet whose last server has left: every command answers, and says that there is nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import accelerator, document

from optimizer import load_plan, load_system, solve, verify
from optimizer.cli.main import main
from optimizer.studies.figures.kinds import PLAN_KINDS

Json = dict[str, Any]
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


@pytest.mark.parametrize(
    "words",
    [
        ["solve"],
        ["solve", "--require-complete"],
        ["solve", "--limited"],
        ["solve", "--unlimited"],
        ["check"],
        ["candidates"],
        ["compare"],
        ["explain"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("as_json", [False, True])
def test_every_command_answers(
    path: Path, words: list[str], capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    command, *flags = words
    assert main([command, str(path), *flags, *(["--json"] if as_json else [])]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out
    assert not as_json or json.loads(shown.out)


def test_what_is_said_is_that_there_are_no_servers(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, said in (
        ("solve", "0 of 0 servers served in full"),
        ("check", "0 servers"),
        ("compare", "there are no servers"),
        ("explain", "0 of 0 servers served in full"),
    ):
        assert main([command, str(path)]) == 0
        assert said in capsys.readouterr().out


def test_files_are_written_and_read_back(path: Path, tmp_path: Path) -> None:
    system = load_system(path)
    for suffix in ("yaml", "json"):
        copy = tmp_path / f"copy.{suffix}"
        assert main(["convert", str(path), "-o", str(copy)]) == 0
        assert load_system(copy) == system
    plan = tmp_path / "plan.json"
    assert main(["solve", str(path), "-o", str(plan)]) == 0
    assert load_plan(plan) == solve(system)
    page, text, table = tmp_path / "page.html", tmp_path / "page.md", tmp_path / "page.csv"
    files = ["-o", str(page), "--markdown", str(text), "--csv", str(table)]
    assert main(["report", str(path), *files]) == 0
    assert "0 of 0" in text.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", PLAN_KINDS)
def test_every_picture_of_a_plan_is_drawn_or_refused_in_one_line(
    path: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "picture.svg"
    status = main(["plot", kind, str(path), "-o", str(file)])
    said = capsys.readouterr().err
    assert (status, said.count("\n"), file.exists()) in {(0, 0, True), (2, 1, False)}
