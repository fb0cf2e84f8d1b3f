"""Sweeps: exact ranges of integers, limits that bind, files of finished points, sampled days."""

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import accelerator, random_document, server, service_class
from builders import system as made
from pydantic import ValidationError
from slow_cases import seeds

from optimizer import SpecError, System, load_system, solve
from optimizer.candidates import SizingMemo
from optimizer.jobs.requests import RequestError
from optimizer.jobs.sweeping import SweepOptions, sweep_system
from optimizer.render.sweep_sections import sweep_sections
from optimizer.spec.load_traces import LoadStep
from optimizer.studies.sweep import points as points_module
from optimizer.studies.sweep.days import lognormal_days, trace_days
from optimizer.studies.sweep.parameters import read_variations
from optimizer.studies.sweep.sweep_document import Sweep, SweepBinding, SweepPoint
from optimizer.studies.sweep.sweep_figure import sweep_figure

ONE_REPLICA = 540.0
"""Requests/min that a replica of the default profile carries, a little less."""
CHAT, CODE = 3 * ONE_REPLICA - 50, 2 * ONE_REPLICA - 50
"""Loads of the servers of `two_types` [requests/min]."""


def two_types(**options: object) -> System:
    """Return chat of priority 1, which needs 3 replicas, and code of priority 2, which needs 2."""
    return made(
        [server("chat", CHAT), server("code", CODE, service="tin")],
        [accelerator("L4", cost=10.0), accelerator("H100", cost=30.0)],
        {"L4": 3, "H100": 1},
        classes=[service_class("gold"), service_class("tin", 2)],
        **options,
    )


def swept(system: System, *vary: str, **more: object) -> Sweep:
    return sweep_system(system, SweepOptions(vary=vary, **more))


# --- variations ------------------------------------------------------------------------------------------


def test_ranges_lists_and_single_numbers_are_read() -> None:
    system = two_types()
    assert read_variations(system, ["load=0.5..2/4"])[0].values == (0.5, 1.0, 1.5, 2.0)
    assert len(read_variations(system, ["load:chat=0..1"])[0].values) == 21
    assert read_variations(system, ["headroomShare=35%, 0"])[0].values == (0.0, 0.35)
    assert read_variations(system, ["headroomShare=0%..50%/3"])[0].values == (0.0, 0.25, 0.5)
    assert read_variations(system, ["count:L4=8, 2"])[0].values == (2.0, 8.0)
    every, grid = (
        read_variations(system, ["count:L4=0..64"])[0],
        read_variations(system, ["count:L4=0..64", "cost:H100=1"]),
    )
    assert every.every
    assert every.values == (0.0, 64.0)
    assert grid[0].values == tuple(range(0, 65, 8))
    assert read_variations(system, ["transitionPenalty=0..1/2"])[0].values == (0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("load", "not a variation; write load=0.5..3"),
        ("laod=1..2", "did you mean 'load'"),
        ("count=1..2", "name an item, count:H100"),
        ("count:A100=1..2", "item of count: 'A100' does not exist"),
        ("load=2..1", "the first number must be below the last"),
        ("load=1..2/1", "at least 2 points, not 1"),
        ("load=1..2/20000", "20,000 points, at most 10,000"),
        ("load=a,b", "not a list or range of numbers"),
        ("load=1e999", "not a finite number"),
        ("load=1..inf", "inf is not a finite number"),
        ("cost:L4=1USD/h", "the system's prices are in cents/h"),
        ("maxPower=1..2kg", "not a list or range of numbers"),
        ("count:L4=0.5", "0.5 is not an integer"),
        ("gap=0..1", "parameter: 'gap' does not exist"),
        ("load=1 load=2", "vary load: given twice"),
        ("load=1..2/200 cost:L4=1..2/200", "40,000 combinations of values, at most 10,000"),
    ],
)
def test_a_wrong_variation_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        read_variations(two_types(), text.split())


def test_values_have_units_and_costs_the_currency() -> None:
    types = [accelerator(kind) | {"cost": "2 USD/h", "power": {"full": 9}} for kind in ("H100", "L4")]
    system = made([server("chat")], types, {"L4": 3}, maxPower=9000)
    texts = ["cost:L4=1USD/h..2USD/h/3", "maxPower=5 kW,900 W", "load=50%,150%"]
    found = read_variations(system, texts)
    assert [item.values for item in found] == [(100, 150, 200), (900, 5000), (0.5, 1.5)]
    with pytest.raises(SpecError, match=r"'2EUR/h': the system's prices are in USD/h"):
        read_variations(system, ["cost:L4=2EUR/h"])
    sweep = swept(system, *texts[:2])
    section = next(part for part in sweep_sections(sweep) if part.name == "points")
    assert (section.columns[0].name, section.columns[0].unit) == ("cost:L4", "USD/h")
    assert {row[0] for row in section.rows} == {"1", "1.5", "2"}
    figure = sweep_figure(sweep)
    assert figure.panels[0].columns == ("1", "1.5", "2")  # type: ignore[union-attr]
    assert "cost:L4 [USD/h] across, maxPower [W] down" in figure.panels[0].title


@pytest.mark.parametrize("value", ["count:L4=-1", "load=-1", "cost:L4=-2"])
def test_a_value_out_of_range_is_refused_with_its_field(value: str) -> None:
    with pytest.raises(SpecError, match=r"(count|load|cost)"):
        swept(two_types(), value)


# --- points ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_points_are_the_plans_of_the_changed_systems() -> None:
    system = two_types(transitionPenalty=0)
    found = swept(system, "load=0.5,1,2", "count:H100=0,4", "cost:L4=10,50")
    assert [point.values for point in found.points][:3] == [(0.5, 0, 10), (0.5, 0, 50), (0.5, 4, 10)]
    for point in found.points:
        factor, units, cost = point.values
        document = json.loads(system.to_spec().model_dump_json(by_alias=True))
        for item in document["servers"]:
            item["currentAlloc"]["load"]["arrivalRate"] *= factor
        document["accelerators"][1]["cost"] = cost
        document["count"][0]["count"] = int(units)
        plan = solve(load_system(document))
        assert point.total_cost_cents_per_h == plan.total_cost_cents_per_h
        assert point.levels == tuple(level.value for level in plan.levels)
        assert point.unserved == len(plan.unserved)


def every_integer(system: System, kind: str, last: int) -> list[tuple[float, float, tuple[float, ...]]]:
    """Return the ranges of equal levels and shares, by planning each integer."""
    ranges: list[list[object]] = []
    for point in swept(system, f"count:{kind}={','.join(map(str, range(last + 1)))}").points:
        levels = tuple(round(level, 6) for level in point.levels)
        if ranges and ranges[-1][2:] == [levels, point.served]:
            ranges[-1][1] = point.values[0]
        else:
            ranges.append([point.values[0], point.values[0], levels, point.served])
    return [tuple(each[:3]) for each in ranges]  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["None", "RoundRobin"])
@pytest.mark.parametrize("seed", seeds(1, 11))
def test_ranges_of_integers_are_those_of_planning_each(seed: int, policy: str) -> None:
    system = load_system(random_document(random.Random(seed)))
    system = system.with_options(unlimited=False, milp_solver=True, saturation_policy=policy)
    kind = min(item.type for item in system.accelerators.values())
    found = swept(system, f"count:{kind}=0..12")
    ranges = [
        (point.values[0], point.until, tuple(round(x, 6) for x in point.levels)) for point in found.points
    ]
    assert ranges == every_integer(system, kind, 12)
    assert found.exact


@pytest.mark.slow
def test_breakpoints_of_a_small_fleet_are_where_a_replica_fits() -> None:
    found = swept(two_types(transitionPenalty=0), "count:L4=0..1000000")
    # chat needs 3 L4 and code 2; the one H100 alone serves neither
    assert [(point.values[0], point.until, point.unserved) for point in found.points] == [
        (0, 1, 2), (2, 2, 1), (3, 4, 1), (5, 1_000_000, 0),
    ]  # fmt: skip


# --- what binds ------------------------------------------------------------------------------------------


def test_binding_limits_are_those_that_block_better_candidates() -> None:
    (point,) = swept(two_types(), "count:L4=3").points
    assert point.binds == (
        SweepBinding(limit="cards", item="H100", unserved=1, dearer=0),
        SweepBinding(limit="cards", item="L4", unserved=1, dearer=0),
    )
    (point,) = swept(two_types(), "count:L4=5").points
    assert point.binds == ()
    rich = two_types().with_capacity({"H100": 9, "L4": 4})
    (point,) = swept(rich, "load=1").points
    assert point.unserved == 0
    assert point.binds == (SweepBinding(limit="cards", item="L4", unserved=0, dearer=1),)


@pytest.mark.slow
def test_relaxing_what_does_not_bind_changes_nothing() -> None:
    for seed in range(12):
        system = load_system(random_document(random.Random(seed)))
        system = system.with_options(unlimited=False, milp_solver=True, heterogeneous=False)
        plan = solve(system)
        (point,) = swept(system, "load=1").points
        bound = {item.item for item in point.binds}
        free = {kind: units + 5 for kind, units in system.capacity.items() if kind not in bound}
        if not bound:
            relaxed = solve(system.with_capacity(free))
            assert [x.value for x in relaxed.levels] == pytest.approx([x.value for x in plan.levels])


def test_a_server_without_candidates_is_counted_apart() -> None:
    system = made(
        [server("chat")], [accelerator("L4")], {"L4": 9}, classes=[service_class("gold", itl=0.001)]
    )
    (point,) = swept(system, "load=1").points
    assert point.binds == (SweepBinding(limit="candidates", item="", unserved=1, dearer=0),)


# --- stopped and resumed ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_resumed_sweep_plans_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system, file = two_types(), tmp_path / "points.jsonl"
    whole = swept(system, "load=0.5..2/20").to_json()
    swept(system, "load=0.5..2/20", resume=file)
    lines = file.read_text("utf-8").splitlines(keepends=True)
    assert len(lines) == 21
    file.write_text("".join(lines[:12]) + lines[12][:30], "utf-8")  # killed while it wrote
    planned: list[tuple[float, ...]] = []
    real = points_module.plan_point

    def counted(system: System, values: tuple[float, ...], memo: SizingMemo) -> SweepPoint:
        planned.append(values)
        return real(system, values, memo)

    monkeypatch.setattr(points_module, "plan_point", counted)
    assert swept(system, "load=0.5..2/20", resume=file).to_json() == whole
    assert len(planned) == 9
    planned.clear()
    assert swept(system, "load=0.5..2/20", resume=file).to_json() == whole
    assert planned == []


def test_files_of_other_systems_and_other_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "points.jsonl"
    swept(two_types(), "load=1", resume=file)
    with pytest.raises(SpecError, match="holds plans of another system or version"):
        swept(two_types(gap=0.5), "load=1", resume=file)
    for text in ("some notes\n", '["key", 1]\n', "[1, 2]\n[3]\n"):
        file.write_text(text, "utf-8")
        with pytest.raises(SpecError, match="not a file of finished points"):
            swept(two_types(), "load=1", resume=file)
        assert file.read_text("utf-8") == text
    with pytest.raises(SpecError, match="cannot be"):
        swept(two_types(), "load=1", resume=tmp_path)


@pytest.mark.slow
def test_progress_is_told_up_to_the_last_point() -> None:
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    sweep_system(two_types(), SweepOptions(vary=("load=0.5..2/20",)), tell)
    assert told == [(8, 20), (16, 20), (20, 20)]


# --- days ------------------------------------------------------------------------------------------------


def one_server() -> System:
    return made([server("chat", 1000.0)], [accelerator("L4", cost=10.0)], transitionPenalty=0)


def test_lognormal_days_have_mean_one_and_the_variation() -> None:
    loads = lognormal_days(two_types(), 40_000, 0.3, 5) / np.array([CHAT, CODE])
    # n = 40,000: standard errors are 0.0015 of the mean and about 0.0015 of the CV
    assert loads.mean(axis=0) == pytest.approx([1, 1], abs=0.006)
    assert loads.std(axis=0) == pytest.approx([0.3, 0.3], abs=0.008)
    assert np.corrcoef(np.log(loads).T)[0, 1] == pytest.approx(0, abs=0.02)
    assert (lognormal_days(two_types(), 9, 0.3, 5) == lognormal_days(two_types(), 9, 0.3, 5)).all()
    assert (lognormal_days(two_types(), 9, 0.0, 5)[0] == [CHAT, CODE]).all()


@pytest.mark.slow
def test_the_cost_of_safety_of_one_server_counts_days() -> None:
    system = one_server()
    found = swept(system, samples=150, load_cv=0.5, seed=3).days
    assert found is not None
    loads = lognormal_days(system, 150, 0.5, 3)[:, 0]
    rate = solve(system).allocations["chat"][0]
    each = rate.max_arrival_rate_rpm / rate.num_replicas
    for fleet in found.fleets:
        replicas = next(
            k for k in range(1, 99) if (loads <= k * each * (1 + 1e-9)).mean() >= fleet.days_share
        )
        assert fleet.total_cost_cents_per_h == 10 * replicas
        assert fleet.safe_days_share == fleet.safe_server_days_share
        assert fleet.safe_days_share == (loads <= replicas * each * (1 + 1e-9)).mean()
        needed = np.sort(np.ceil(loads / each))
        assert fleet.replanned_cents_per_h == 10 * needed[math.ceil(fleet.days_share * 150) - 1]
    assert found.days_in_full_share == 1.0


@pytest.mark.slow
def test_a_fleet_beyond_the_cards_is_not_offered_as_safe() -> None:
    system = two_types(transitionPenalty=0).with_capacity({"L4": 5})
    found = swept(system, samples=100, load_cv=0.4).days
    assert found is not None
    missing = [fleet for fleet in found.fleets if fleet.total_cost_cents_per_h is None]
    assert missing
    assert all(fleet.days_share > found.most_safe_days_share for fleet in missing)
    assert found.days_in_full_share < 1


def test_a_trace_gives_each_servers_peak_of_the_same_day() -> None:
    system = two_types()

    def step(hour: float, **rates: float) -> LoadStep:
        servers = {
            name: system.with_load(name, arrival_rate_rpm=rate).servers[name] for name, rate in rates.items()
        }
        return LoadStep.of(system, hour * 3600, servers.values())

    steps = [step(0, chat=1, code=5), step(9, chat=3, code=4), step(24, chat=7), step(30, chat=6)]
    loads = trace_days(system, steps, 50, 1)
    assert {tuple(row) for row in loads.tolist()} == {(3.0, 5.0), (7.0, CODE)}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({}, "vary: nothing to vary"),
        ({"vary": ("load=1",), "load_cv": 0.3}, "load_cv: is for sampled days"),
        ({"samples": 9}, "give either load_cv or trace"),
        ({"samples": 9, "load_cv": 1, "trace": "x.csv"}, "give either load_cv or trace"),
        ({"samples": 0}, "samples.*than or equal to"),
        ({"samples": 10_001}, "samples.*than or equal to"),
        ({"load_cv": -1}, "load_cv.*than or equal to"),
        ({"load_cv": 11}, "load_cv.*than or equal to"),
    ],
)
def test_contradicting_requests_are_refused(request_: dict[str, Any], message: str) -> None:
    with pytest.raises((RequestError, ValidationError), match=f"(?s){message}"):
        sweep_system(two_types(), SweepOptions(**request_))


# --- figures ---------------------------------------------------------------------------------------------


def test_figures_show_every_range_and_every_combination() -> None:
    system = two_types(transitionPenalty=0)
    line = sweep_figure(swept(system, "count:L4=0..9"))
    assert line.panels[0].series[0].x[:4] == (0, 1, 2, 3)  # type: ignore[union-attr]
    assert len({len(panel.series[0].x) for panel in line.panels}) == 1  # type: ignore[union-attr]
    grid = sweep_figure(swept(system, "load=1,2", "count:L4=3,5,9"))
    assert [len(row) for row in grid.panels[0].cells] == [2, 2, 2]  # type: ignore[union-attr]
    assert grid.panels[0].cells[1][0].text == "50"  # type: ignore[union-attr]
    assert sweep_figure(swept(system, "load=1", "count:L4=3", "cost:L4=1")).panels == ()
    days = sweep_figure(swept(one_server(), samples=20, load_cv=0.3))
    assert [series.name for series in days.panels[0].series] == ["one fleet", "replanned every day"]  # type: ignore[union-attr]


def test_only_accelerator_types_have_colours_in_a_sweep() -> None:
    """Other limits share one colour, and dashes tell them apart."""
    line = sweep_figure(swept(two_types(transitionPenalty=0, budget=20), "load=1,2"))
    types = {series.name: series.type for series in line.panels[-1].series}  # type: ignore[union-attr]
    assert types["budget"] == ""
