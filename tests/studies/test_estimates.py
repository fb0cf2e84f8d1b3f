"""The plan with the middle of the estimates, next to the plan with their slow end."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import Json, accelerator, document, server, service_class

from optimizer import load_system, make_report, solve
from optimizer.cli.main import main
from optimizer.render.pages import render_report
from optimizer.render.plan_sections import estimates_section
from optimizer.spec.system import System
from optimizer.studies import estimates
from optimizer.studies.estimates import price_of_estimates


def source(**options: Any) -> Json:
    """A 70B model on 4 x H100, with the interval of its estimate."""
    cards = accelerator("4xH100", "H100", 1400.0, 4)
    cards["memSize"] = 320
    found = document(
        [server("chat", 1200.0, service="chat", model="llama-3.1-70b")], [cards], {"H100": 200},
        models=[{"name": "llama-3.1-70b", "acc": "4xH100", "perfParms": "estimate"}],
        classes=[service_class("chat", models=["llama-3.1-70b"], itl=40.0, ttft=1000.0)], **options,
    )  # fmt: skip
    found["servers"][0]["currentAlloc"]["load"] |= {"avgInTokens": 1000, "avgOutTokens": 300}
    return found


def size(system: System) -> tuple[int, float, int]:
    plan = solve(system)
    cards = sum(use.used for use in plan.capacity)
    return cards, plan.total_cost_cents_per_h, len(system.streams) - len(plan.unserved)


@pytest.mark.slow
def test_the_middle_is_that_of_a_plan_of_its_own() -> None:
    system = load_system(source())
    found = price_of_estimates(system, solve(system))
    assert found is not None
    assert found.middle is not None
    for side, end in ((found.upper, "upper"), (found.middle, "middle")):
        expected = size(system.with_options(estimates=end))
        assert (side.cards, side.total_cost_cents_per_h, side.served_in_full) == expected
    assert found.middle.cards < found.upper.cards


def test_a_scarce_fleet_serves_more_with_the_middle() -> None:
    system = load_system(source() | {"count": [{"type": "H100", "count": 24}]})
    found = price_of_estimates(system, solve(system))
    assert found is not None
    assert found.middle is not None
    assert (found.upper.served_in_full, found.middle.served_in_full, found.servers) == (0, 1, 1)


@pytest.mark.parametrize("end", ["middle", "lower"])
def test_other_ends_and_measured_times_have_no_price(end: str) -> None:
    system = load_system(source(estimates=end))
    assert price_of_estimates(system, solve(system)) is None
    measured = load_system(document([server("s")], [accelerator("A")]))
    assert price_of_estimates(measured, solve(measured)) is None


def test_an_interrupted_solve_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    system = load_system(source())
    plan = solve(system)
    stopped = plan.model_copy(update={"status": "feasible"})
    monkeypatch.setattr(estimates, "solve", lambda *_, **__: stopped)
    found = price_of_estimates(system, plan)
    assert found is not None
    assert found.middle is None
    assert estimates_section(found, plan).notes == ["Typical: not computed in time."]


@pytest.mark.slow
def test_solve_and_the_report_show_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "system.json"
    path.write_text(json.dumps(source()))
    system = load_system(path)
    slow, middle = (size(system.with_options(estimates=end)) for end in ("upper", "middle"))
    assert main(["solve", str(path), "--table", "estimates", "--csv"]) == 0
    rows = [line.split(",") for line in capsys.readouterr().out.splitlines()[1:]]
    assert [(int(row[2]), float(row[3])) for row in rows] == [slow[:2], middle[:2]]
    assert main(["solve", str(path)]) == 0
    assert "if token times are typical (the middle of their estimates)" in " ".join(
        capsys.readouterr().out.split()
    )
    report = make_report(system)
    assert report.estimates is not None
    assert report.estimates.middle is not None
    assert report.estimates.middle.cards == middle[0]
    assert "the middle of their intervals" in render_report(report, system, "html")
    assert main(["solve", str(path), "--estimates", "middle"]) == 0
    assert "if token times are typical" not in capsys.readouterr().out
