"""Tables, reports and rows of batch servers: no figure stands under a heading of tokens."""

from functools import cache
from typing import Any

import pytest
from shown_text import csv_rows, page_of, text_of

from optimizer import (
    Comparison,
    Plan,
    System,
    compare,
    find_candidates,
    load_system,
    make_report,
    render_report,
    solve,
)
from optimizer.render.comparison_sections import comparison_sections
from optimizer.render.plan_sections import candidate_sections, plan_sections
from optimizer.render.simulation_sections import simulation_csv, simulation_sections
from optimizer.simulation.replicas import Effort
from optimizer.studies.simulation.plans import simulate_pools
from optimizer.studies.simulation.simulation_document import Simulation

TOKENS = ("ITL", "TTFT", "itlAverage", "ttftAverage", "avgOutTokens")


@cache
def fleet(*, mixed: bool = False, rate_rps: float = 400.0) -> System:
    """Return a batch server with four targets, alone or beside a chat."""
    limits = [{"percentile": 50, "ms": 100}, {"percentile": 99, "ms": 500}, {"ms": 200}]
    models: list[dict[str, Any]] = [
        {"name": "b", "acc": "T4", "maxBatchSize": 5, "batchParms": {"base": 37.5, "slope": 2.5}}
    ]
    targets: list[dict[str, Any]] = [{"model": "b", "latency": limits, "maxRejected": 0.01}]
    load = {"load": {"arrivalRate": rate_rps * 60}}
    batches = {"name": "batches", "class": "c", "model": "b", "currentAlloc": load}
    servers: list[dict[str, Any]] = [batches | {"batchTimeout": 10, "maxQueueSize": 12}]
    if mixed:
        models.append({"name": "m", "acc": "T4", "maxBatchSize": 8, "decodeParms": {"alpha": 20, "beta": 1}})
        targets.append({"model": "m", "slo-itl": 40, "slo-ttft": 900})
        load = {"load": {"arrivalRate": 60, "avgInTokens": 20, "avgOutTokens": 10}}
        servers.append({"name": "chat", "class": "c", "model": "m", "currentAlloc": load})
    return load_system(
        {
            "accelerators": [{"name": "T4", "type": "T4", "cost": 40}],
            "models": models,
            "serviceClasses": [{"name": "c", "modelTargets": targets}],
            "servers": servers,
            "count": [{"type": "T4", "count": 9}],
        }
    )


@cache
def plan(*, mixed: bool = False) -> Plan:
    return solve(fleet(mixed=mixed))


@cache
def simulated(*, mixed: bool = False) -> Simulation:
    return simulate_pools(fleet(mixed=mixed), plan(mixed=mixed), Effort(requests=2000))


@cache
def changed(*, mixed: bool = False) -> Comparison:
    """Return the plan beside that of half the load."""
    return compare(fleet(mixed=mixed), fleet(mixed=mixed, rate_rps=200.0))


def rows_of(tables: Any, table: str | None = None) -> dict[str, dict[str, str]]:
    return {row["server"]: row for row in csv_rows(text_of(tables, as_csv=True, table=table))}


def test_a_fleet_with_tokens_and_without_is_planned() -> None:
    # Percentiles that batch servers have targets on are none that the queue of the chat must know.
    assert plan(mixed=True).complete
    assert plan(mixed=True).allocations["batches"] == plan().allocations["batches"]


def test_batch_server_plans_show_no_token_times() -> None:
    tables = plan_sections(plan(), fleet())
    (pool,) = plan().allocations["batches"]
    row, *others = csv_rows(text_of(tables, as_csv=True))
    assert not any(heading.removeprefix("mean ").startswith(TOKENS) for heading in row)
    figures = {figure.measure: figure.value for figure in pool.targets}
    assert float(row["mean latency [ms]"]) == pool.ttft_ms
    values = {line["statistic"]: float(line["value [ms]"]) for line in (row, *others)}
    assert values["p50"] == figures["p50 end-to-end latency"]
    assert values["p99"] == figures["p99 end-to-end latency"]
    assert (row["window [ms]"], row["trigger"], row["batch limit [requests]"]) == ("10.0", "oldest", "5")
    assert float(row["mean batch [requests]"]) == pool.mean_batch
    assert (float(row["busy [share]"]), float(row["rejected [share]"])) == (pool.busy, pool.loss)
    assert not any(line["cost [cents/h]"] for line in others)
    shown = text_of(tables)
    assert f"{figures['p99 end-to-end latency']:.0f} (500)" in shown
    assert f"{pool.ttft_ms:.0f} (200)" in shown


def test_mixed_plans_show_metrics_of_both_kinds() -> None:
    rows = rows_of(plan_sections(plan(mixed=True), fleet(mixed=True)))
    for heading, value in rows["batches"].items():
        assert not value or not heading.removeprefix("mean ").startswith(TOKENS)
    for heading, value in rows["chat"].items():
        assert not value or not heading.startswith(("mean latency", "window", "trigger", "busy"))
    assert rows["chat"]["mean TTFT [ms]"]
    assert rows["batches"]["statistic"] in {"mean", "p50", "p99"}


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [False, True])
def test_tables_fit_eighty_columns(monkeypatch: pytest.MonkeyPatch, *, mixed: bool) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for tables in (
        plan_sections(plan(mixed=mixed), fleet(mixed=mixed)),
        candidate_sections(find_candidates(fleet(mixed=mixed))),
        comparison_sections(changed(mixed=mixed)),
        simulation_sections(simulated(mixed=mixed)),
    ):
        text = text_of(tables, wide=False)
        assert max(map(len, text.splitlines())) <= 80
        assert ("TTFT" in text) == mixed
        assert "latency" in text


def test_an_idle_batch_server_has_no_columns_of_tokens() -> None:
    idle = fleet(rate_rps=0.0)
    row = rows_of(plan_sections(solve(idle), idle))["batches"]
    assert row["accelerator"] == "idle"
    assert not any(heading.startswith(TOKENS) for heading in row)


def test_candidates_show_the_mean_and_comparisons_targets() -> None:
    (pool,) = plan().allocations["batches"]
    rows = rows_of(candidate_sections(find_candidates(fleet(mixed=True))))
    assert float(rows["batches"]["latency [ms]"]) == pytest.approx(pool.ttft_ms)
    assert not rows["batches"]["TTFT [ms]"]
    assert not rows["chat"]["latency [ms]"]
    found = changed(mixed=True)
    targets, side = rows_of(comparison_sections(found), "targets"), found.first.label
    (pool,) = found.first.plan.allocations["batches"]
    assert [float(targets["batches"][f"p50 latency {side} [ms]"])] == [
        item.value_ms for item in pool.targets if item.statistic == "p50"
    ]
    assert not targets["batches"][f"ITL {side} [ms]"]
    assert not targets["chat"][f"p50 latency {side} [ms]"]
    assert targets["chat"][f"ITL {side} [ms]"]


def test_simulated_batch_servers_have_one_latency() -> None:
    rows = rows_of(simulation_sections(simulated(mixed=True)))
    assert not rows["batches"]["TTFT simulated [ms]"]
    latency = "p50 latency simulated [ms]"  # its tightest target
    assert rows["batches"][latency]
    assert not rows["chat"][latency]
    alone = rows_of(simulation_sections(simulated()))["batches"]
    assert not any(heading.startswith(TOKENS) for heading in alone)
    found = {row["server"]: row for row in csv_rows(simulation_csv(simulated(mixed=True)))}
    assert not found["batches"]["predictedTTFT"]
    assert not found["batches"]["meanTTFT"]
    assert found["batches"]["predictedE2E"]
    assert found["chat"]["meanTTFT"]


def test_a_report_shows_targets_of_both_kinds() -> None:
    system = fleet(mixed=True)
    page = render_report(make_report(system, effort=Effort(requests=2000)), system, "markdown")
    servers = page.split("## Servers\n")[1].split("## ")[0]
    of_batches = next(line for line in servers.splitlines() if line.startswith("| batches"))
    assert "p99 latency" in of_batches
    assert "TTFT" not in of_batches
    simulated = page.split("## Pools\n")[1].split("## ")[0]
    assert "| TTFT simulated [ms] |" in simulated
    assert " latency simulated [ms] |" in simulated


@pytest.mark.slow
def test_the_rows_of_a_report_leave_out_what_has_no_tokens() -> None:
    alone, both = (
        {row["server"]: row for row in csv_rows(page_of(system, "csv"))}
        for system in (fleet(), fleet(mixed=True))
    )
    assert not {"mean ITL [ms]", "mean TTFT [ms]"} & alone["batches"].keys()
    (pool,) = plan().allocations["batches"]
    assert float(alone["batches"]["mean latency [ms]"]) == pool.ttft_ms
    assert alone["batches"]["trigger"] == "oldest"
    assert not both["batches"]["mean TTFT [ms]"]
    assert not both["chat"]["mean latency [ms]"]
    assert both["chat"]["mean TTFT [ms]"]
