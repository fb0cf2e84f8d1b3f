"""Distributions and percentiles as pictures: the closed form's own figures, and those of a simulation."""

from pathlib import Path

import numpy as np
import pytest
from panels import curve, curves, points

from optimizer import Figure, System, load_system, make_figure, solve
from optimizer.jobs.simulating import SimulateOptions, simulate_plan
from optimizer.kinds.replicas import Replica, analyze_replicas
from optimizer.studies.simulation.simulation_document import SimulatedPool

SPECS = Path(__file__).parents[2] / "specs"
SERVER = "Chat-chat_8b"


@pytest.fixture(scope="module")
def chat() -> System:
    return load_system(SPECS / "chat.yaml")


@pytest.fixture(scope="module")
def pool(chat: System) -> SimulatedPool:
    (found,) = simulate_plan(chat, SimulateOptions()).pools
    return found


def series(figure: Figure, name: str, i: int = 0) -> dict[float, float]:
    """Return the latencies of a curve by the share of requests [%]."""
    return {round(y, 6): x for x, y in curve(figure, i, name).items()}


def test_distribution_matches_closed_form_and_simulation(chat: System, pool: SimulatedPool) -> None:
    figure = make_figure(chat, "distribution")
    assert len(figure.panels) == 3
    for i, latency in enumerate((pool.ttft, pool.itl, pool.e2e)):
        assert latency is not None
        assert latency.predicted_percentiles is not None
        assert series(figure, "simulated", i)[95] == pytest.approx(latency.p95.value, rel=1e-12)
        assert series(figure, "simulated", i)[50] == pytest.approx(latency.p50.value, rel=1e-12)
        assert series(figure, "closed form", i)[99] == pytest.approx(latency.predicted_percentiles.p99_ms)
    assert [(item.name, item.axis) for item in curves(figure).guides] == [
        ("target 1,000 ms, p95", "x"),
        ("95 %", "y"),
    ]


def test_without_percentiles_the_distribution_is_simulated_only() -> None:
    figure = make_figure(load_system(SPECS / "small"), "distribution", server="Premium-llama_13b")
    assert [one.name for one in curves(figure).series] == ["simulated"]
    assert "the queue model 'reference' computes means only" in figure.note


def test_percentiles_over_loads_are_those_of_a_replica_at_each(chat: System) -> None:
    figure = make_figure(chat, "percentiles", accelerator="A100")
    server = chat.servers[SERVER]
    profile = chat.profiles[server.model, "A100"]
    shown = {one.name: points(one) for one in curves(figure, 2).series}
    assert list(shown) == ["mean, simulated", "p95, simulated", "mean", "p50", "p95", "p99"]
    replica = Replica.model_validate({
        "maxBatch": 128, "inTokens": 512, "outTokens": 256, "arrivalCV": 1.5, "queueModel": "continuous",
        "kvCapacity": 400000, "perfParms": profile.model_dump(by_alias=True)["perfParms"],
    })  # fmt: skip
    for i in (0, 30, 59):
        rpm, p95_ms = shown["p95"][i]
        (found,) = analyze_replicas([replica], [rpm / 60])
        assert found.e2e_percentiles is not None
        assert p95_ms == pytest.approx(found.e2e_percentiles.p95_ms, rel=1e-9)
        assert shown["mean"][i][1] == pytest.approx(found.response_ms, rel=1e-9)
    assert len(shown["p95, simulated"]) == 8
    for rpm, p95_ms in shown["p95, simulated"][:-1]:
        (found,) = analyze_replicas([replica], [rpm / 60])
        assert found.e2e_percentiles is not None
        assert p95_ms == pytest.approx(found.e2e_percentiles.p95_ms, rel=0.25)


def test_a_target_far_beyond_a_distribution_does_not_squash_it(chat: System) -> None:
    relaxed = chat.with_load(SERVER, arrival_rate_rpm=60.0)
    assert curves(make_figure(relaxed, "distribution")).guides == ()


def test_the_load_of_the_plan_is_marked(chat: System) -> None:
    (planned,) = solve(chat).allocations[SERVER]
    load = planned.arrival_rate_rpm / planned.num_replicas
    marks = {item.name.split()[0]: item.value for item in curves(make_figure(chat, "percentiles")).guides}
    assert marks["load"] == pytest.approx(load)
    assert marks["largest"] * planned.num_replicas == pytest.approx(planned.max_arrival_rate_rpm)
    assert marks["target"] == 1000.0


def test_curves_show_the_percentile_that_a_target_is_about(chat: System) -> None:
    (planned,) = solve(chat).allocations[SERVER]
    known = {figure.measure: figure.value for figure in planned.targets}
    for i, label in enumerate(("p95 ITL", "p95 TTFT")):
        latency = curves(make_figure(chat, "latency"), i)
        assert latency.y_label == f"{label} [ms]"
        load = planned.arrival_rate_rpm / planned.num_replicas
        x, y = zip(*points(latency.series[0]), strict=True)
        assert np.interp(load, x, y) == pytest.approx(known[label], rel=0.05)
        batch = curves(make_figure(chat, "batch"), i + 1)
        assert batch.y_label == f"{label} [ms]"
        (target,) = [item.value for item in batch.guides if item.axis == "y"]
        assert max(y for _, y in points(batch.series[0])) <= target * (1 + 1e-6)
        pareto = curves(make_figure(chat, "pareto"), i)
        (chosen,) = [one for one in pareto.series if one.style == "chosen"]
        assert chosen.y == (known[label],)
