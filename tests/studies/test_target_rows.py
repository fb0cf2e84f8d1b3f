"""Rows of servers with their targets, what decides, unserved load, and costs as an interval."""

from pathlib import Path

import pytest
from builders import accelerator, document, profile, server, service_class

from optimizer import load_system, scale_loads, solve
from optimizer.plan import Plan
from optimizer.queueing.measures import TargetMeasure
from optimizer.render.answer_text import cost_interval_text, measure_first_text, shortage_text
from optimizer.render.money import Money
from optimizer.render.report_memo import key_figures
from optimizer.spec.system import System
from optimizer.studies.deciding import deciding_limits
from optimizer.studies.estimates import MIDDLE, price_of_estimates
from optimizer.studies.overview import describe
from optimizer.studies.service import service_by_priority
from optimizer.studies.shortage import find_shortage
from optimizer.studies.target_rows import TargetShare, server_rows

SPECS = Path(__file__).resolve().parents[2] / "specs"


def planned(name: str, factor: float = 1.0) -> tuple[System, Plan]:
    system = load_system(SPECS / name)
    system = system if factor == 1 else scale_loads(system, factor)
    return system, solve(system)


@pytest.fixture(scope="module")
def gpus() -> tuple[System, Plan]:
    return planned("gpus.yaml")


@pytest.fixture(scope="module")
def overloaded() -> tuple[System, Plan]:
    return planned("gpus.yaml", 2.5)


def test_rows_state_targets_of_every_server_by_priority(gpus: tuple[System, Plan]) -> None:
    system, plan = gpus
    rows = server_rows(system, plan)
    assert [row.server for row in rows] == sorted(
        system.servers, key=lambda name: (system.priority(system.servers[name]), name)
    )
    assert sum(row.cost_cents_per_h or 0.0 for row in rows) == pytest.approx(plan.total_cost_cents_per_h)
    for row in rows:
        (pool,) = plan.allocations[row.server]
        target = system.target_of(system.servers[row.server])
        assert target is not None
        assert row.place == f"{pool.num_replicas} × {pool.accelerator}"
        assert [(item.name, item.value, item.limit) for item in row.targets] == [
            ("ITL", pool.itl_ms, target.itl_ms), ("TTFT", pool.ttft_ms, target.ttft_ms),
        ]  # fmt: skip
        assert row.capacity_share == pytest.approx(pool.arrival_rate_rpm / pool.max_arrival_rate_rpm)
        assert row.tightest == max(row.targets, key=lambda item: item.value / item.limit)


@pytest.mark.parametrize(
    ("value", "percent", "state"),
    [(47.2, "94%, met", "ok"), (47.4, "95%, met", "tight"), (49.99, "100%, met", "tight"),
     (50.0, "100%, met", "tight"), (50.00001, "100%, met", "tight"), (50.1, "101%, missed", "missed")],
)  # fmt: skip
def test_a_state_follows_from_the_share_shown(value: float, percent: str, state: str) -> None:
    share = TargetShare("itl", "ITL", value, 50.0, "ms", ",.1f")
    assert (share.verdict, share.state, share.text) == (percent, state, f"{value:.1f} of 50 ms")
    assert share.verdict.startswith(f"{share.percent}, ")


def test_unserved_servers_are_rows(overloaded: tuple[System, Plan]) -> None:
    system, plan = overloaded
    rows = {row.server: row for row in server_rows(system, plan)}
    assert rows.keys() == system.servers.keys()
    assert {name for name, row in rows.items() if not row.in_full} == {u.server for u in plan.unserved}
    unserved = rows["batch-qwen3-32b"]
    assert (unserved.place, unserved.state, unserved.served_text) == (
        "not served", "missed", "0 of 20 requests/s",
    )  # fmt: skip


def test_members_of_a_queue_follow_it() -> None:
    system, plan = planned("shared-queue.yaml")
    rows = server_rows(system, plan)
    assert [(row.server, row.is_queue) for row in rows] == [
        ("chat", True), ("premium", False), ("standard", False), ("free", False),
    ]  # fmt: skip
    assert [[target.name for target in row.targets] for row in rows[1:]] == [["ITL", "TTFT"]] * 3
    assert (rows[0].cost_cents_per_h, rows[1].cost_cents_per_h) == (plan.total_cost_cents_per_h, None)


# --- what decides ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_deciding_limits_follow_from_the_maximum_rate(gpus: tuple[System, Plan]) -> None:
    system, plan = gpus
    found = {name: decider for (name, _), decider in deciding_limits(system, plan).items()}
    assert found["chat-gpt-oss-120b"] == "one replica"
    assert found["chat-llama-3.1-8b"] == found["agents-qwen3-32b"] == TargetMeasure("itl")
    assert found["batch-llama-3.1-8b"] == "throughput"
    for name, decider in found.items():  # a looser target raises the maximum rate exactly if it decides
        if decider == TargetMeasure("itl"):
            assert _maximum_rpm(system, plan, name, 1.1) > 1.01 * _maximum_rpm(system, plan, name, 1.0)
        if decider == "throughput":
            assert _maximum_rpm(system, plan, name, 100.0) < 1.06 * _maximum_rpm(system, plan, name, 1.0)


def _maximum_rpm(system: System, plan: Plan, name: str, factor: float) -> float:
    """Return the maximum rate of a replica on the planned accelerator, with scaled targets."""
    one, (pool,) = system.servers[name], plan.allocations[name]
    target = system.target_of(one)
    assert target is not None
    looser = system.with_target(
        one.service_class, one.model, itl_ms=target.itl_ms * factor, ttft_ms=target.ttft_ms * factor
    )
    alone = looser.alone({name: one.model_copy(update={"accelerators": (pool.accelerator,)})}, unlimited=True)
    (found,) = solve(alone).allocations[name]
    return found.max_arrival_rate_rpm / found.num_replicas


def test_memory_decides_if_it_limits_a_saturated_batch() -> None:
    small = profile("m", "A") | {"kvCapacity": 300}
    classes = [service_class("gold", itl=1e5, ttft=1e6)]
    system = load_system(document([server("s", 3000.0)], [accelerator("A")], models=[small], classes=classes))
    assert set(deciding_limits(system, solve(system)).values()) == {"memory"}


# --- servers of the input --------------------------------------------------------------------------------


def test_versions_count_as_one_server() -> None:
    system, plan = planned("versions.yaml")
    assert plan.service_text == "all 2 servers served in full"
    assert len(server_rows(system, plan)) == 3  # both versions have a row


# --- unserved load and costs -----------------------------------------------------------------------------


@pytest.mark.slow
def test_shortage_counts_servers_and_requests_separately(overloaded: tuple[System, Plan]) -> None:
    system, plan = overloaded
    found = find_shortage(system, plan)
    assert found is not None
    assert found.way_out is not None
    load = {name: one.current.load.arrival_rate_rpm / 60 for name, one in system.servers.items()}
    unserved = sum(load[item.server] * (1 - item.served_fraction) for item in plan.unserved)
    assert (found.servers, found.of_servers) == (len(plan.unserved), 10)
    assert (found.unserved_rps, found.load_rps) == pytest.approx((unserved, sum(load.values())))
    service, overview = service_by_priority(plan, system), describe(system, plan)
    tiles = {tile.name: tile for tile in key_figures(overview, server_rows(system, plan), service)}
    served = f"{sum(load.values()) - unserved:.1f}"
    assert tiles["served in full"].note == f"{served} of 248.8 requests/s"
    assert shortage_text(found, Money.of(plan), 2.5) == (
        f"Not served: {248.8 - float(served):.1f} of 248.8 requests/s (5 servers) at 2.5 times the stated "
        "load. Serve all: +16 H100 +28 H200, 263.20 USD/h in total."
    )
    counts = {use.type: (use.limit or 0) + found.way_out.added.get(use.type, 0) for use in plan.capacity}
    enough = solve(system.with_capacity(counts))
    assert enough.complete
    assert enough.total_cost_cents_per_h == pytest.approx(found.way_out.cost_cents_per_h)


def test_a_complete_plan_has_no_shortage(gpus: tuple[System, Plan]) -> None:
    assert find_shortage(*gpus) is None


@pytest.mark.slow
def test_costs_are_an_interval_with_what_to_measure_first(gpus: tuple[System, Plan]) -> None:
    system, plan = gpus
    price = price_of_estimates(system, plan)
    assert cost_interval_text(plan, price) == (
        "129.20 USD/h, 72.80 if token times are typical (the middle of their estimates)"
    )
    assert price is not None
    typical = solve(system, estimates=MIDDLE)
    assert measure_first_text(plan, price) == (
        "Measure first: agents-llama-3.1-70b (saves 24.20 USD/h if its measured times are typical)"
    )
    for gain in price.measure_first:
        assert 0 < gain.saving_cents_per_h <= plan.total_cost_cents_per_h - typical.total_cost_cents_per_h


@pytest.mark.slow
def test_saving_of_the_only_estimated_server_is_the_difference(gpus: tuple[System, Plan]) -> None:
    name, spec = "agents-llama-3.1-70b", gpus[0].to_spec()
    servers = tuple(one for one in spec.servers if one.name == name)
    alone = gpus[0].with_spec(spec.model_copy(update={"servers": servers}))
    plan = solve(alone)
    price = price_of_estimates(alone, plan)
    assert price is not None
    (gain,) = price.measure_first
    typical = solve(alone, estimates=MIDDLE)
    difference = plan.total_cost_cents_per_h - typical.total_cost_cents_per_h
    assert gain.server == name
    assert gain.saving_cents_per_h == pytest.approx(difference)


def test_no_saving_is_stated_if_the_plans_serve_different_loads(overloaded: tuple[System, Plan]) -> None:
    system, plan = overloaded
    price = price_of_estimates(system, plan)
    assert price is not None
    assert price.measure_first == ()
    assert cost_interval_text(plan, price) == (
        "185.60 USD/h; 170.40 USD/h if token times are typical (the middle of their estimates), with all "
        "10 servers served in full"
    )
    late = price.model_copy(update={"middle": None})
    assert cost_interval_text(plan, late) == "185.60 USD/h (typical: not computed in time)"
