"""Pictures of batch servers: what they show is what plans and the queue model say."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from panels import curve

from optimizer import System, load_system, solve
from optimizer.kinds.batch_servers.rows import BatchRow
from optimizer.studies.figures.figure_document import Figure
from optimizer.studies.figures.making import FIGURES, make_figure

SPECS = Path(__file__).parents[2] / "specs"


@cache
def system(window_ms: float = 10.0, rate_rps: float = 400.0) -> System:
    return load_system(
        {
            "accelerators": [{"name": "T4", "type": "T4", "cost": 40}],
            "models": [
                {"name": "b", "acc": "T4", "maxBatchSize": 5, "batchParms": {"base": 37.5, "slope": 2.5}}
            ],
            "serviceClasses": [
                {"name": "c", "modelTargets": [{"model": "b", "latency": [{"percentile": 99, "ms": 200}]}]}
            ],
            "servers": [
                {
                    "name": "s",
                    "class": "c",
                    "model": "b",
                    "batchTimeout": window_ms,
                    "currentAlloc": {"load": {"arrivalRate": rate_rps * 60}},
                }
            ],
            "optimizer": {"unlimited": True},
        }
    )


@cache
def batches() -> Figure:
    return make_figure(system(), "batch")


def test_latency_at_the_given_settings_matches_the_plan() -> None:
    (pool,) = solve(system()).allocations["s"]
    assert curve(batches(), 0)[5.0] == pytest.approx(pool.ttft_ms)
    assert f"with {pool.num_replicas} replicas" in batches().note


def test_latency_at_every_batch_limit_is_that_of_the_queue_model() -> None:
    (pool,) = solve(system()).allocations["s"]
    latencies, rejected = curve(batches(), 0), curve(batches(), 1)
    assert list(latencies) == [
        4.0,
        5.0,
    ]  # smaller batches do not carry the load: 3 take 66.7 of 80 requests/s
    for limit, latency_ms in latencies.items():
        row: dict[str, Any] = {
            "RPS": 400 / pool.num_replicas,
            "maxBatchSize": int(limit),
            "window": 10,
            "batchParms": {"base": 37.5, "slope": 2.5},
        }
        found = BatchRow.model_validate(row).analyze().model_dump()
        assert latency_ms == pytest.approx(found["mean_ms"])
        assert rejected[limit] == pytest.approx(100 * found["rejected"])


def test_rejected_and_latency_are_those_of_the_queue_model() -> None:
    figure = make_figure(load_system(SPECS / "queue-servers"), "latency", server="express")
    rejected, mean, p99 = (curve(figure, *which) for which in ((0,), (1, "mean"), (1, "p99")))
    rate = min(rejected, key=lambda rate: abs(rate - 3.0))
    row = {
        "RPS": rate,
        "batchParms": {"base": 1},
        "maxBatchSize": 4,
        "maxQueueSize": 8,
        "trigger": "clock",
        "window": 1000,
    }
    found = BatchRow.model_validate(row).analyze().model_dump()
    assert rejected[rate] == pytest.approx(100 * found["rejected"])
    assert mean[rate] == pytest.approx(found["mean_ms"])
    assert p99[rate] == pytest.approx(found["p99_ms"], rel=1e-3)
    assert max(rejected) > 4  # what it can answer: a queue with a limit takes more
    assert "room for 8 waiting" in figure.note


def test_without_a_queue_limit_only_latency_is_shown() -> None:
    figure = make_figure(system(), "latency")
    assert len(figure.panels) == 1


@pytest.mark.few(6)
@pytest.mark.parametrize("kind", FIGURES)
def test_no_picture_of_batch_servers_has_times_of_tokens(kind: str) -> None:
    text = make_figure(system(), kind).to_json()
    assert not any(word in text for word in ("TTFT", "ITL", "nter-token", "irst token", "→ 0"))
    assert "Nothing to show" not in text


def test_distribution_matches_queue_model_and_simulation() -> None:
    figure = make_figure(system(), "distribution")
    exact, simulated = (curve(figure, 0, name) for name in ("closed form", "simulated"))
    (pool,) = solve(system()).allocations["s"]
    p99_ms = min(exact, key=lambda ms: abs(ms - pool.targets[0].value))
    assert exact[p99_ms] == pytest.approx(99, abs=1)
    median_ms = min(simulated, key=lambda ms: abs(simulated[ms] - 50))
    assert exact[min(exact, key=lambda ms: abs(ms - median_ms))] == pytest.approx(50, abs=4)


def test_an_idle_batch_server_has_nothing_to_show() -> None:
    figure = make_figure(system(rate_rps=0.0), "batch")
    assert "idle" in figure.note
