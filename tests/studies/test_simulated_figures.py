"""Distributions and percentiles as pictures: the closed form's own figures, and those of a simulation."""

from pathlib import Path

import numpy as np
import pytest
from panels import curve, curves, points

from optimizer import Figure, System, load_system, make_figure, solve
from optimizer.jobs.simulating import SimulateOptions, simulate_plan
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_target_far_beyond_a_distribution_does_not_squash_it(chat: System) -> None:
    relaxed = chat.with_load(SERVER, arrival_rate_rpm=60.0)
    assert curves(make_figure(relaxed, "distribution")).guides == ()


def test_the_load_of_the_plan_is_marked(chat: System) -> None:
    (planned,) = solve(chat).allocations[SERVER]
    load = planned.arrival_rate_rpm / planned.num_replicas
    marks = {item.name.split()[0]: item.value for item in curves(make_figure(chat, "latency"), 1).guides}
    assert marks["load"] == pytest.approx(load)
    assert marks["largest"] * planned.num_replicas == pytest.approx(planned.max_arrival_rate_rpm)
    assert marks["target"] == 1000.0


@pytest.mark.slow
def test_curves_show_the_percentile_that_a_target_is_about(chat: System) -> None:
    (planned,) = solve(chat).allocations[SERVER]
    known = {figure.measure: figure.value for figure in planned.targets}
    for i, label in enumerate(("p95 ITL", "p95 TTFT")):
        latency = curves(make_figure(chat, "latency"), i)
        shown = {one.name: points(one) for one in latency.series}
        assert list(shown) == ["p50", "mean", "p95", "p99"]
        load = planned.arrival_rate_rpm / planned.num_replicas
        x, y = zip(*shown[label[:3]], strict=True)
        assert np.interp(load, x, y) == pytest.approx(known[label], rel=0.05)
        batch = curves(make_figure(chat, "batch"), i + 1)
        assert batch.y_label == f"{label} [ms]"
        (target,) = [item.value for item in batch.guides if item.axis == "y"]
        assert max(y for _, y in points(batch.series[0])) <= target * (1 + 1e-6)
