"""A factor on all loads, of every command that plans a system, and of its routes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import Json, accelerator, document, server

from optimizer import load_system, solve
from optimizer.cli.main import main

Run = Callable[..., Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A system of one server with 2,000 requests/min."""
    file = tmp_path / "system.json"
    file.write_text(json.dumps(document([server("s", 2000.0)], [accelerator("A")], {"A": 99})))
    return file


def answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def rate(plan: Json) -> float:
    return float(sum(pool["arrivalRateRpm"] for pool in plan["allocations"]["s"]))


def test_plans_are_made_for_the_scaled_load(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = answer(capsys, "solve", path, "--scale", 1.5)
    assert rate(plan) == pytest.approx(3000)
    expected = solve(load_system(path).with_load("s", arrival_rate_rpm=3000.0))
    assert plan["totalCostCentsPerH"] == expected.total_cost_cents_per_h
    (candidate,) = answer(capsys, "candidates", path, "--scale", 1.5)["candidates"]
    assert candidate["numReplicas"] == plan["allocations"]["s"][0]["numReplicas"]
    assert (
        answer(capsys, "explain", path, "--scale", 1.5)["plan"]["totalCostCentsPerH"]
        == plan["totalCostCentsPerH"]
    )
    offered = answer(capsys, "simulate", path, "--scale", 1.5, "--requests", 2000)["offeredRps"]
    assert offered == pytest.approx(3000 / 60)


@pytest.mark.slow
def test_a_report_and_its_check_use_the_scaled_load(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, written = tmp_path / "r.csv", tmp_path / "p.json"
    assert main(["report", str(path), "--scale", "0.5", "--csv", str(page)]) == 0
    header, row = page.read_text().splitlines()
    assert dict(zip(header.split(","), row.split(","), strict=True))["cost [cents/h]"] == "20.0"
    assert main(["solve", str(path), "--scale", "0.5", "-o", str(written)]) == 0
    assert main(["verify", str(written), str(path), "--scale", "0.5"]) == 0
    assert main(["verify", str(written), str(path)]) != 0
    capsys.readouterr()


def test_a_file_of_loads_is_scaled_too(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loads = tmp_path / "loads.csv"
    loads.write_text("server,arrivalRate\ns,600\n")
    assert rate(answer(capsys, "solve", path, "--load", loads, "--scale", 2)) == pytest.approx(1200)


@pytest.mark.parametrize("name", ["plan", "trace"])
def test_a_plan_or_a_trace_states_its_own_load(
    name: str, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    assert main(["simulate", str(path), "--scale", "2", f"--{name}", str(other)]) == 2
    assert f"--scale: --{name} states the load; remove one of the two" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["-1", "nan", "1e9"])
def test_wrong_factors_are_refused(wrong: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["solve", str(path), f"--scale={wrong}"])
    assert "--scale" in capsys.readouterr().err
