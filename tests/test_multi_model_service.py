"""The multi-model service of the samples: versions, updates, shared cards, pictures, and its simulation."""

import csv
import io
from functools import cache

import pytest
from multi_model_page import SPEC, document, planned

from optimizer import Plan, load_system, solve, verify
from optimizer.cli.main import main
from optimizer.simulation.replicas import Effort
from optimizer.studies.figures.plans import PlannedSystem, assignment_panels
from optimizer.studies.overview import describe
from optimizer.studies.simulation.plans import simulate_pools
from optimizer.studies.simulation.simulation_document import Simulation

SEEDS = (1, 2, 3)


def plan() -> Plan:
    return planned()[1]


@cache
def simulated(seed: int) -> Simulation:
    system, found = planned()
    return simulate_pools(system, found, Effort(requests=20_000, seed=seed))


@pytest.mark.slow
def test_updates_versions_shared_cards_and_offline_work() -> None:
    found, used = plan(), {item.type: item.used for item in plan().capacity}
    (embed,) = found.allocations["embed"]
    assert (embed.num_replicas, found.rollouts["embed"].cards) == (4, {"T4": 4})
    assert (used["T4"], used["T4"] + 4) == (12, 16)
    whole = planned("without cards for updates")[1]
    (cards,) = [item for item in whole.capacity if item.type == "T4"]
    assert (cards.used + 4, cards.limit) == (19, 18)
    (second,) = found.allocations["chat (chat-2)"]
    assert (second.num_replicas, second.accelerator, second.cost_cents_per_h) == (4, "A10G", 404)
    assert found.versions["chat"].extra_cost_cents_per_h == pytest.approx(14)
    (instead,) = solve(planned()[0].with_capacity({"A10G": 0})).allocations["chat (chat-2)"]
    assert (instead.num_replicas, instead.accelerator, instead.cost_cents_per_h) == (2, "H100", 780)
    (done,) = found.deadlines
    assert (f"{done.finishes_h:.1f}", done.in_time) == ("5.6", True)


def test_a_split_rounds_each_version_up() -> None:
    """8 T4s can serve 728 requests/s; 90 % of them need 7.2 T4s and 10 % need 0.8."""
    given = document()
    given["models"] += [item | {"name": "next"} for item in given["models"] if item["name"] == "sentiment"]
    server = {
        "name": "s",
        "class": "Online",
        "model": "sentiment",
        "accelerators": ["T4"],
        "batchTimeout": 10,
    }
    load = {"currentAlloc": {"load": {"arrivalRate": "728/s"}}}
    split = {"split": [{"model": "sentiment", "weight": 0.9}, {"model": "next", "weight": 0.1}]}
    found = []
    for versions in ({}, split):
        given["servers"] = [server | load | versions]
        pools = solve(load_system(given), unlimited=True).allocations
        found.append([pool.num_replicas for name in sorted(pools) for pool in pools[name]])
    assert found == [[8], [1, 8]]  # "s (next)" is first


def test_pictures_and_types_count_shared_cards() -> None:
    system, found = planned()
    overview = describe(system, found)
    assert sum(row.cost_cents_per_h for row in overview.types) == found.total_cost_cents_per_h
    (t4s,) = [row for row in overview.types if row.type == "T4"]
    assert (t4s.used, t4s.replicas) == (12, 4 + 4 + 3 + 2)
    shown = PlannedSystem(system, overview)
    (assignment,) = assignment_panels(shown)
    texts = {cell.text for row in assignment.cells for cell in row}
    assert {"3 × H100", "1 × T4, shared"} <= texts


@pytest.mark.slow
def test_a_comparison_has_latencies_on_shared_cards(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(SPEC), "--table", "targets", "--csv"]) == 0
    rows = {row["server"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    for name, (pool,) in planned()[1].on_shared_cards.items():
        assert rows[name]["p95 ITL limited [ms]"] == rows[name]["p95 TTFT limited [ms]"] == ""
        tightest = max(pool.targets, key=lambda target: target.value / target.limit)
        assert float(rows[name]["end-to-end latency limited [ms]"]) == tightest.value


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_no_target_is_missed_in_simulation(seed: int) -> None:
    """Ten percent are allowed; none of the targets is missed at all."""
    found = simulated(seed)
    assert len(found.pools) == 8
    assert [pool.server for pool in found.pools if pool.verdict != "held"] == []


def test_the_plan_is_proved_and_verified() -> None:
    system, found = planned()
    assert (found.status, found.complete, verify(found, system)) == ("optimal", True, [])
