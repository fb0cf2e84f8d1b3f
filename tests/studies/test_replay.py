"""Loads over time through planning and stabilisation: noise changes nothing, steps are followed at once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import accelerator, document, server, service_class
from slow_cases import mostly_slow

from optimizer import load_system, solve
from optimizer.cli.main import main
from optimizer.errors import SpecError
from optimizer.jobs.replaying import ReplayOptions, replay_loads
from optimizer.spec.load_traces import read_load_trace
from optimizer.spec.system import System
from optimizer.stabilisation.rules import RECOMMENDED, Rules
from optimizer.studies.replay.replay import replay
from optimizer.studies.replay.replay_document import Replay
from optimizer.studies.replay.replay_figure import replay_figure


def fleet(mean_rpm: float) -> System:
    """Return a fleet of one server that needs about five replicas at a mean load."""
    source = document(
        [server("s", mean_rpm)], [accelerator("A"), accelerator("B", cost=11.0)], {"A": 99, "B": 99}
    )
    source["models"] = [
        {"name": "m", "acc": acc, "maxBatchSize": 4, "atTokens": 64,
         "decodeParms": {"alpha": alpha * 150 / mean_rpm, "beta": 1.0},
         "prefillParms": {"gamma": 5.0, "delta": 0.01}}
        for acc, alpha in (("A", 130.0), ("B", 127.0))
    ]  # fmt: skip
    source["serviceClasses"] = [service_class("gold", itl=1e6)]
    return load_system(source)


def trace(path: Path, load: Callable[[int], float], minutes: int) -> Path:
    lines = [f"{60 * i},s,{load(i)}" for i in range(minutes + 1)]
    path.write_text("\n".join(["time,server,arrivalRate", *lines]), encoding="utf-8")
    return path


def replayed(system: System, loads: Path, **given: Any) -> Replay:
    return replay_loads(system, ReplayOptions(loads=loads, **given))


@pytest.mark.slow
@pytest.mark.parametrize("mean_rpm", mostly_slow([20.0, 200.0], 1))
def test_noise_changes_nothing_and_costs_little(tmp_path: Path, mean_rpm: float) -> None:
    """Poisson counts per minute, six hours, seed 18: fewer than one change an hour, at most 5 % dearer."""
    chance, system = np.random.default_rng(18), fleet(mean_rpm)
    (pool,) = solve(system).allocations["s"]
    assert 4 <= pool.num_replicas <= 9
    loads = trace(tmp_path / "loads.csv", lambda _: float(chance.poisson(mean_rpm)), 360)
    ruled, mean = replay(system, read_load_trace(system, loads), {"ruled": RECOMMENDED}, 180.0).variants
    assert ruled.changes_per_h < 1
    assert ruled.cost <= 1.05 * mean.cost
    assert ruled.missed <= 1.1 * mean.missed + 0.01 * mean.offered
    hour = trace(tmp_path / "hour.csv", lambda _: float(chance.poisson(mean_rpm)), 60)
    followed, _ = replay(system, read_load_trace(system, hour), {"followed": Rules()}, 180.0).variants
    assert followed.changes_per_h > 5


@pytest.mark.slow
@pytest.mark.parametrize(("before", "step"), mostly_slow([(20.0, 60.0), (200.0, 400.0)], 1))
def test_a_step_is_followed_at_once(tmp_path: Path, before: float, step: float) -> None:
    chance, system = np.random.default_rng(3), fleet(before)
    loads = trace(tmp_path / "loads.csv", lambda i: float(chance.poisson(before if i < 60 else step)), 64)
    every, ruled, _ = replayed(system, loads).variants
    first = next(i for i, point in enumerate(every.points) if point.time_s >= 3600)
    assert ruled.points[first].desired > ruled.points[first - 1].desired
    assert ruled.points[first].desired >= every.points[first].desired


@pytest.mark.slow
def test_requests_missed_during_startup_are_counted(tmp_path: Path) -> None:
    system = fleet(20.0)
    loads = trace(tmp_path / "loads.csv", lambda i: 20.0 if i < 10 else 80.0, 30)
    late, soon = (replayed(system, loads, startup=startup_s).variants[0] for startup_s in (300.0, 0.0))
    takes = late.points[0].capacity_rpm
    assert late.offered == soon.offered == 9 * 20.0 + 21 * 80.0
    assert soon.missed == pytest.approx(80.0 - takes)  # the minute in which nobody knows yet
    assert late.missed == pytest.approx(6 * (80.0 - takes))
    assert late.cost == soon.cost
    assert late.changes == soon.changes == 1
    assert late.points[12].ready < late.points[12].desired


def test_the_mean_load_is_that_over_the_time(tmp_path: Path) -> None:
    """3,000 requests/min for a minute and 50 for 59 minutes are 99.2 on average, and not 1,525."""
    system = load_system(document([server("s")], [accelerator("A")], {"A": 99}))
    path = tmp_path / "loads.csv"
    path.write_text("time,s\n0,0\n60,3000\n3600,50\n")
    mean = replayed(system, path).variants[-1]
    assert mean.name == "one plan for the mean load"
    (pool,) = solve(system.with_load("s", arrival_rate_rpm=(3000 + 59 * 50) / 60)).allocations["s"]
    assert {point.desired for point in mean.points} == {pool.num_replicas} == {1}


@pytest.mark.slow
def test_each_rule_is_shown_alone(tmp_path: Path) -> None:
    loads = trace(tmp_path / "loads.csv", lambda i: 20.0 + 10 * (i % 2), 10)
    found = replayed(fleet(20.0), loads, each=True)
    names = [item.name for item in found.variants]
    assert names[0] == "every plan"
    assert names[1] == "scaleDownWindow"
    assert names[-2:] == ["recommended rules", "one plan for the mean load"]
    assert found.variants[1].changes < found.variants[0].changes


def test_a_server_that_is_not_reported_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "loads.csv"
    path.write_text("time,s\n2026-01-01T00:00:00,20\n2026-01-01T00:01:00,\n2026-01-01T00:02:00,22\n")
    steps = read_load_trace(fleet(20.0), path)
    assert [step.time_s - steps[0].time_s for step in steps] == [0, 60, 120]
    assert [[item.name for item in step.items] for step in steps] == [["s"], [], ["s"]]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the header must name the column 'time'"),
        ("time,x\n1,2\n", ":1: unknown column 'x'"),
        ("time,s,s\n1,2,3\n", "column 's' occurs twice"),
        ("time,s\n1,2\n", "at least two times"),
        ("time,s\n1,2\nx,3\n", ":3: time: 'x' is neither"),
        ("time,s\n1,2\nnan,3\n", ":3: time: 'nan' is not finite"),
        ("time,s\n1,2\n2\n", ":3: 1 field, the header has 2"),
        ("time,s\n1,2\n2,-1\n", ":3: arrivalRate: must be at least 0"),
        ("time,server,arrivalRate\n1,t,2\n", ":2: server 't' does not exist"),
        ("time,server,arrivalRate\n1,s,2\n1,s,3\n", ":3: server 's' occurs twice at this time"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "loads.csv"
    path.write_text(text)
    with pytest.raises(SpecError, match=problem) as caught:
        read_load_trace(fleet(20.0), path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.slow
def test_the_command_shows_a_table_json_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loads = trace(tmp_path / "loads.csv", lambda i: 60.0 + 30 * (i % 2), 10)
    system = tmp_path / "fleet.json"
    system.write_text(json.dumps(document([server("s")], [accelerator("A")], {"A": 9})))
    rules = tmp_path / "rules.yaml"
    rules.write_text("scaleDownWindow: 300")
    picture = tmp_path / "replay.svg"
    given = ["replay", str(loads), str(system), "--rules", str(rules)]
    assert main([*given, "-o", str(picture)]) == 0
    shown = capsys.readouterr().out
    assert "every plan" in shown
    assert "the rules" in shown
    assert b"Replicas desired" in picture.read_bytes() or picture.read_bytes().startswith(b"<?xml")
    assert main([*given, "--json"]) == 0
    found = Replay.model_validate_json(capsys.readouterr().out)
    assert [item.name for item in found.variants] == ["every plan", "the rules", "one plan for the mean load"]
    assert len(replay_figure(found).panels) == 3
    assert main([*given, "-o", "x.txt"]) == 2
    assert "must end in one of" in capsys.readouterr().err


def test_the_flags_of_solving_count_in_a_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three replicas of about 540 requests/min each are wanted of two cards."""
    loads = trace(tmp_path / "loads.csv", lambda _: 1500.0, 3)
    system = tmp_path / "fleet.json"
    system.write_text(json.dumps(document([server("s", 1500.0)], [accelerator("A")], {"A": 2})))
    for flags, replicas in (([], 0), (["--saturation", "PriorityExhaustive"], 2), (["--unlimited"], 3)):
        assert main(["replay", str(loads), str(system), "--json", *flags]) == 0
        every = Replay.model_validate_json(capsys.readouterr().out).variants[0]
        assert {point.planned for point in every.points} == {replicas}
