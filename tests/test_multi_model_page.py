"""The page about the multi-model service says what the program says, and what simple arithmetic says."""

import csv
import io
import itertools
from functools import cache
from math import ceil

import pytest
from doc_pages import one_line, read_page
from multi_model_page import (
    RATE_RPS,
    SPEC,
    TARGETS,
    document,
    fleet,
    gpus,
    planned,
    share,
    sized,
    steady,
    t4,
)

from optimizer import Plan, load_system, solve, verify
from optimizer.cli.main import main
from optimizer.simulation.replicas import Effort
from optimizer.studies.figures.plans import PlannedSystem, assignment_panels, servers_panels
from optimizer.studies.overview import describe
from optimizer.studies.simulation.plans import simulate_pools
from optimizer.studies.simulation.simulation_document import Simulation

TEXT = one_line(read_page("scenarios/multi-model-service.md"))
SEEDS = (1, 2, 3)


def plan() -> Plan:
    return planned()[1]


@cache
def simulated(seed: int) -> Simulation:
    system, found = planned()
    return simulate_pools(system, found, Effort(requests=20_000, seed=seed))


def test_the_document_is_the_service_of_the_page() -> None:
    loads = {
        server["name"]: server.get("currentAlloc", {}).get("load", {}).get("arrivalRate")
        for server in document()["servers"]
    }
    for name, rate in loads.items():
        shown = "offline" if rate is None else rate.removesuffix("/s")
        assert f"| {name} | {shown} |" in TEXT or name in {"moderation", "language-id"}
    assert (loads["moderation"], loads["language-id"]) == ("40/s", "20/s")
    rates = [float(rate.removesuffix("/s")) for rate in loads.values() if rate]
    assert sum(rates) == RATE_RPS
    cards = {card["name"]: card["cost"] for card in document()["accelerators"]}
    assert cards == {"T4": "$0.53/h", "L4": "$0.80/h", "A10G": "$1.01/h", "H100": "$3.90/h"}


def test_the_first_of_a_batch_waits_for_the_entire_window() -> None:
    """Five requests arrive 2.5 ms apart: 60 ms is the latency of the first, 55 ms the mean."""
    service = t4().queues()
    assert [float(service.base_ms[0] + n * service.slope_ms[0]) for n in (1, 5)] == [40, 50]
    latencies = [50 + 10 - arrival for arrival in (0, 2.5, 5, 7.5, 10)]
    assert (latencies[0], sum(latencies) / 5) == (60, 55)
    assert "answered after 60 ms. The mean of the five is 55 ms" in TEXT


def test_the_largest_rates_of_one_gpu() -> None:
    """Rates and GPUs of the printed system: 91.1/s, 94.8/s, 84.0/s, 20.4/s; 11 GPUs, 49 without batches."""
    rates = [sized(targets).offered_rps for targets in (TARGETS, TARGETS[1:], ((99, 200),))]
    assert [round(rate, 1) for rate in rates] == [91.1, 94.8, 84.0]
    at_most, over = (steady(rate) for rate in (91.13, 91.14))
    assert at_most.quantile_ms(0.5) <= 100 < over.quantile_ms(0.5)
    one = sized(max_batch=1, window_ms=0).offered_rps
    assert (round(one, 1), ceil(RATE_RPS / one), ceil(RATE_RPS / rates[0])) == (20.4, 49, 11)
    assert (t4().queues().full_rate_rps[0], t4(1).queues().full_rate_rps[0]) == (100, 25)
    assert "need 10 T4s for 1,000/s, and single requests 40; the targets require 11 and 49" in TEXT
    assert [steady(80).quantile_ms(q) for q in (0.5, 0.99)] == pytest.approx([80, 172], abs=0.5)
    assert "carry 160 and 320 requests/s at 80 each, with a p50 of 80 ms and a p99 of 172 ms" in TEXT
    means = [f"{steady(rate, window).mean_ms:.1f}" for rate in (20, 60) for window in (0, 10)]
    assert means == ["54.5", "58.0", "70.0", "70.1"]


def test_hits_of_a_cache_take_the_fast_requests() -> None:
    """Of 1,000 requests with 30 % hits, 10 of 700 misses exceed the p99, and 200 are faster than the p50."""
    assert [round(100 * part, 2) for part in (1 - 10 / 700, 200 / 700)] == [98.57, 28.57]
    assert "the p98.57 of the misses, and their p50 is the p28.57 of the misses" in TEXT
    shown = [[gpus(size, hits) for hits in (0, 0.3, 0.5)] for size in (5, 8, 16)]
    assert shown == [[11, 8, 6], [8, 6, 4], [6, 4, 3]]
    of_misses, of_all = (sized(max_batch=16, hits=hits).offered_rps for hits in (0, 0.3))
    assert (round(of_misses), round(of_all), ceil(700 / of_misses)) == (167, 189, 5)


def test_the_cost_of_a_request() -> None:
    cents_per_h = plan().total_cost_cents_per_h
    assert f"cost {cents_per_h / 100:.2f} USD/h" in TEXT
    per_million = cents_per_h / 100 / (RATE_RPS * 3600) * 1e6
    assert f"{per_million:.2f} USD per million requests" in TEXT


def test_the_fleets_that_are_utilised_and_available() -> None:
    for availability, most, others in ((0.99, 22, (15, 16, 17)), (0.995, 15, (8,))):
        good = [needed for needed in range(1, 200) if share(needed, availability) > 0.8]
        assert good == [*others, *range(most, 200)]
    assert (fleet(11, 0.99), f"{share(11, 0.99):.0%}", fleet(22, 0.99)) == (13, "77%", 25)
    assert sum(0.99**n * 0.01 ** (3 - n) * (3 if n == 2 else 1) for n in (2, 3)) >= 0.999  # 2 of 3
    assert 0.99**2 < 0.999
    shares = [steady(rate).busy for rate in (30, 40)]
    assert shares[0] < 0.8 < shares[1]


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


def test_what_fits_in_the_memory_of_a_t4() -> None:
    fits = {(a, b) for a, b in itertools.product(range(9), repeat=2) if 2 * a + 4 * b <= 16}
    full = {(a, b) for a, b in fits if not {(a + 1, b), (a, b + 1)} & fits}
    assert full == {(0, 4), (2, 3), (4, 2), (6, 1), (8, 0)}
    memory = {model["name"]: model.get("memory") for model in document()["models"]}
    assert (memory["sentiment"], memory["embed"]) == ("2 GB", "4 GB")


def test_pictures_and_types_count_shared_cards() -> None:
    system, found = planned()
    overview = describe(system, found)
    assert sum(row.cost_cents_per_h for row in overview.types) == found.total_cost_cents_per_h
    (t4s,) = [row for row in overview.types if row.type == "T4"]
    assert (t4s.used, t4s.replicas) == (12, 4 + 4 + 3 + 2)
    shown = PlannedSystem(system, overview)
    (assignment,), (servers,) = assignment_panels(shown), servers_panels(shown)
    texts = {cell.text for row in assignment.cells for cell in row}
    assert {"3 × H100", "1 × T4, shared"} <= texts
    assert [bar.values[2] for bar in servers.bars if bar.group in {"moderation", "language-id"}] == [1, 1]


def test_a_comparison_has_latencies_on_shared_cards(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(SPEC), "--table", "figures", "--csv"]) == 0
    rows = {row["server"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    for name, (pool,) in planned()[1].on_shared_cards.items():
        assert rows[name]["ITL limited [ms]"] == rows[name]["TTFT limited [ms]"] == ""
        assert float(rows[name]["latency limited [ms]"]) == pool.ttft_ms


@pytest.mark.parametrize("seed", SEEDS)
def test_no_target_is_missed_in_simulation(seed: int) -> None:
    """Ten percent are allowed; none of the targets is missed at all."""
    found = simulated(seed)
    assert len(found.pools) == 8
    assert [pool.server for pool in found.pools if pool.verdict != "held"] == []


def test_the_plan_is_proved_and_verified() -> None:
    system, found = planned()
    assert (found.status, found.complete, verify(found, system)) == ("optimal", True, [])
