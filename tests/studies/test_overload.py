"""Overload: what a policy and mixed plans would serve is what solving with them serves."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import Json, accelerator, document, server, service_class

from optimizer import Plan, System, explain, load_system, make_report, render_report, solve
from optimizer.cli.main import main
from optimizer.schema import SaturationPolicy
from optimizer.solvers.deadline import Deadline
from optimizer.studies import overload
from optimizer.studies.overload import Overload, find_overload, overload_of_candidates
from optimizer.studies.service import service_by_priority

ONE_REPLICA = 540.0
"""Requests/min that a replica of the default profile carries, a little less."""


def fleet(**options: Any) -> Json:
    """Return chat of priority 1, which needs five slices of 4 H100 of the four there are, and code."""
    return document(
        [server("chat", 5 * ONE_REPLICA - 100), server("code", 500.0, service="tin")],
        [accelerator("4xH100", "H100", 1400.0, multiplicity=4), accelerator("L40S", cost=200.0)],
        {"H100": 16, "L40S": 1},
        classes=[service_class("gold"), service_class("tin", 2)],
        **options,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The fleet as a file."""
    found = tmp_path / "fleet.json"
    found.write_text(json.dumps(fleet()))
    return found


def overload_found(source: Json) -> tuple[System, Plan, Overload | None]:
    system = load_system(source)
    plan = solve(system)
    return system, plan, find_overload(system, plan)


def shares(service: Any) -> dict[int, float]:
    return {item.priority: item.served_rpm / item.load_rpm for item in service}


def test_the_numbers_are_those_of_plans_with_the_options() -> None:
    system, plan, found = overload_found(fleet())
    assert found is not None
    assert shares(found.service) == {1: 0.0, 2: 1.0}
    assert found.cards_left == {"H100": 16}
    assert [item.changes for item in found.options] == [
        {"saturation_policy": "PriorityExhaustive"},
        {"heterogeneous": True},
        {"saturation_policy": "PriorityExhaustive", "heterogeneous": True},
    ][: len(found.options)]
    for item in found.options:
        other = solve(system.with_options(**item.changes))
        assert item.service == service_by_priority(other, system)
        assert item.total_cost_cents_per_h == other.total_cost_cents_per_h
        carried = sum(pool.arrival_rate_rpm for pool in other.allocations["chat"])
        assert shares(item.service or ())[1] == pytest.approx(carried / (5 * ONE_REPLICA - 100))
    assert shares(found.options[0].service or ())[1] == pytest.approx(0.83, abs=0.02)
    assert plan.allocations.keys() == {"code"}


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(document([server("a")], [accelerator("A")], {"A": 2}), id="everything is served"),
        pytest.param(document([server("a", 9000.0)], [accelerator("A")], {"A": 0}), id="no card is left"),
        pytest.param(
            document([server("a", accelerators=[])], [accelerator("A")], {"A": 2}), id="cards do not help"
        ),
        pytest.param(
            document([server("a", 9000.0)], [accelerator("A")], {"A": 2}, saturationPolicy="RoundRobin")
            | {"count": [{"type": "A", "count": 2}, {"type": "B", "count": 5}]},
            id="cards of no use are left",
        ),
    ],
)
def test_where_nothing_helps_nothing_is_said(source: Json) -> None:
    assert overload_found(source)[2] is None


def test_options_that_are_set_are_not_tried_again() -> None:
    _, _, found = overload_found(fleet(saturationPolicy="PriorityExhaustive"))
    assert found is None or [item.changes for item in found.options] == [{"heterogeneous": True}]
    _, _, found = overload_found(fleet(heterogeneous=True))
    assert found is None or [item.changes for item in found.options] == [
        {"saturation_policy": "PriorityExhaustive"}
    ]


def test_no_policy_is_tried_for_routes() -> None:
    """A route is served in full or not at all."""
    root = Path(__file__).parents[2]
    system = load_system(root / "specs" / "routes.yaml").with_capacity({"L40S": 16, "A100": 0, "H100": 1})
    plan = solve(system)
    assert [item.server for item in plan.unserved] == ["chat-70b"]
    assert find_overload(system, plan) is None


@pytest.mark.slow
def test_repaired_plans_are_compared_at_the_same_rates() -> None:
    """Replicas that keep their targets at half of their rate serve half as much of chat."""
    system = load_system(fleet())
    halved = system.with_rate_factors({("chat", "4xH100"): 0.5})
    found = find_overload(system, solve(halved))
    assert found is not None
    policy = {"saturation_policy": "PriorityExhaustive"}
    (item,) = (item for item in found.options if item.changes == policy)
    assert item.service == service_by_priority(solve(halved.with_options(**policy)), system)
    whole = find_overload(system, solve(system))
    assert whole is not None
    assert shares(item.service)[1] < 0.6 * shares(whole.options[0].service)[1]


def test_what_is_not_solved_in_time_has_no_numbers() -> None:
    from optimizer import find_candidates

    system = load_system(fleet())
    found = overload_of_candidates(find_candidates(system), solve(system), Deadline.after(0.0))
    assert found is not None
    assert all(item.service is None and item.total_cost_cents_per_h is None for item in found.options)


@pytest.mark.slow
def test_solve_explain_and_report_say_it_in_numbers(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, found = overload_found(fleet())
    assert found is not None
    percent = f"{shares(found.options[0].service)[1]:.0%}"
    texts = []
    for command in ("solve", "explain", "report"):
        assert main([command, str(path)]) == 0
        texts.append(capsys.readouterr().out)
    for text in texts:
        line = next(line for line in text.splitlines() if "--saturation PriorityExhaustive" in line)
        assert f"priority 1: {percent}" in line
        assert "16 H100" in text
    # A command with a long path is not broken.
    assert max(len(line) for line in texts[0].splitlines() if str(path) not in line) <= 80
    assert explain(load_system(fleet())).overload == found
    report = make_report(load_system(fleet()))
    assert report.overload == found
    assert "What would serve more" in render_report(report, load_system(fleet()), "html")


def test_no_other_options_are_solved_for_other_tables(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overload, "overload_of_candidates", None)  # whoever calls it fails
    for flags in (["--csv"], ["--table", "cards"]):
        assert main(["solve", str(path), *flags]) == 0
    assert "H100" in capsys.readouterr().out
    assert main(["solve", str(path), "--json"]) == 0
    assert capsys.readouterr().out == solve(load_system(fleet())).to_json() + "\n"


# --- the policy as a flag --------------------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.parametrize("policy", ["priorityexhaustive", "PriorityRoundRobin", "roundrobin", "None"])
def test_the_flag_is_the_option_of_the_document(
    policy: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known: tuple[str, ...] = SaturationPolicy.__args__  # type: ignore[attr-defined]
    named = next(name for name in known if name.lower() == policy.lower())
    assert main(["solve", str(path), "--saturation", policy, "--json"]) == 0
    assert capsys.readouterr().out == solve(load_system(fleet(saturationPolicy=named))).to_json() + "\n"


@pytest.mark.slow
def test_wherever_a_command_solves_it_takes_a_policy(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("solve", "verify", "explain", "compare", "report", "plot", "simulate", "replay"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert "--saturation POLICY" in capsys.readouterr().out, command
    plan = tmp_path / "plan.json"
    flag = ["--saturation", "PriorityExhaustive"]
    assert main(["solve", str(path), *flag, "-o", str(plan)]) == 0
    assert main(["verify", str(plan), str(path), *flag]) == 0
    capsys.readouterr()
    assert main(["verify", str(plan), str(path)]) == 4
    assert "solved with --saturation" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["solve", str(path), "--saturation", "Fair"])
    assert "PriorityExhaustive" in capsys.readouterr().err
