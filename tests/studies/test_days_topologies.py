"""Sampled days of routes, shared cards and rented services, against independent arithmetic."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import accelerator, document, server
from route_oracles import Case, random_routes
from slow_cases import seeds
from test_horizon_topologies import at_rate, sharing, without_tiers

from optimizer import System, load_system, scale_loads, solve
from optimizer.arrays import FloatArray
from optimizer.cli.main import main
from optimizer.jobs.sweeping import SweepOptions, sweep_system
from optimizer.spec.load_traces import LoadStep
from optimizer.studies.sweep.days import lognormal_days, trace_days
from optimizer.studies.sweep.sweep_document import SampledDays

SPEC = Path(__file__).resolve().parent.parent.parent / "specs" / "routes.yaml"


def sampled(system: System, samples: int, load_cv: float) -> tuple[SampledDays, FloatArray]:
    """Return the answer, and the loads of the days."""
    found = sweep_system(system, SweepOptions(samples=samples, load_cv=load_cv, seed=3)).days
    assert found is not None
    return found, lognormal_days(system, samples, load_cv, 3)


def small_route(seed: int) -> System:
    """Return a system with a route of few cards and a server beside it."""
    made = random_routes(seed, others=1)
    for item in made["servers"]:
        item.pop("maxNumReplicas", None)
        item["currentAlloc"] = {k: v for k, v in item["currentAlloc"].items() if k == "load"}
    made["count"] = [{"type": kind, "count": 60} for kind in "AB"]
    return load_system(made)


def divides(day: System, plan: Any) -> bool:
    """Return whether the replicas of a plan divide the requests of a day, by linear programs in SciPy."""
    case = Case(day)
    (route,) = case.routes
    placed = {
        name: tuple((pool.accelerator, pool.num_replicas) for pool in plan.allocations[name])
        for name in (route.small, route.large)
    }
    large = case.capacity(route.large, placed[route.large])
    if not plan.routes["r0"].routed:
        return bool(route.load <= large * (1 + 1e-8))
    return route.least_small(large) <= case.capacity(route.small, placed[route.small]) * (1 + 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 7))
def test_days_of_a_route_are_safe_where_it_can_be_divided(seed: int) -> None:
    system = small_route(seed)
    found, days = sampled(system, 16, 0.4)
    assert days.shape == (16, 2)  # the other server, then the route
    rate = system.routes["r0"].arrival_rate_rpm
    checked = 0
    for fleet in found.fleets:
        assert fleet.load_factor is not None
        plan = solve(scale_loads(system, fleet.load_factor))
        (pool,) = plan.allocations["x0"]
        safe = [
            bool(load <= pool.max_arrival_rate_rpm * (1 + 1e-8))
            and divides(at_rate(system, each / rate), plan)
            for load, each in days.tolist()
        ]
        assert fleet.safe_days_share == np.mean(safe)
        assert fleet.total_cost_cents_per_h == pytest.approx(plan.total_cost_cents_per_h)
        checked += 0 < sum(safe) < len(safe)
    assert checked


@pytest.mark.slow
def test_days_planned_anew_scale_the_route() -> None:
    system = load_system(SPEC)
    found, days = sampled(system, 4, 0.1)
    assert days.shape == (4, 1)
    costs = sorted(solve(at_rate(system, rate / 6000)).total_cost_cents_per_h for (rate,) in days.tolist())
    shown = [fleet.replanned_cents_per_h for fleet in found.fleets]
    assert shown == [costs[1], costs[2], costs[2], *costs[3:] * 4]


def test_a_trace_gives_the_peak_of_a_route() -> None:
    system = small_route(0)

    def step(hour: float, rate: float | None = None, other: float | None = None) -> LoadStep:
        route = system.routes["r0"].model_copy(update={"arrival_rate_rpm": rate})
        servers = (
            {} if other is None else {"x0": system.with_load("x0", arrival_rate_rpm=other).servers["x0"]}
        )
        return LoadStep.of(system, hour * 3600, [*servers.values(), *([] if rate is None else [route])])

    days = trace_days(system, [step(0, 5, 7), step(9, 3, 9), step(24, 8)], 50, 1)
    own = system.servers["x0"].current.load.arrival_rate_rpm
    assert {tuple(row) for row in days.tolist()} == {(9.0, 5.0), (own, 8.0)}


@pytest.mark.slow
def test_sweep_samples_days_of_a_trace_that_names_a_route(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "days.csv"
    trace.write_text("time,chat\n0,3000\n86400,6000\n172800,4000\n", encoding="utf-8")
    assert main(["sweep", str(SPEC), "--samples", "12", "--trace", str(trace), "--json"]) == 0
    days = json.loads(capsys.readouterr().out)["days"]
    assert days["daysInFull"] == 1
    largest = solve(load_system(SPEC)).total_cost_cents_per_h
    assert days["fleets"][-1]["totalCostCentsPerH"] <= largest
    assert days["fleets"][-1]["safeDaysShare"] == 1


@pytest.mark.slow
def test_days_of_shared_cards_are_safe_where_rates_are_carried() -> None:
    system = without_tiers(sharing())
    system = system.with_load("a", arrival_rate_rpm=3600).with_load("b", arrival_rate_rpm=2400)
    found, days = sampled(system, 8, 0.5)
    shared = 0
    for fleet in found.fleets:
        if fleet.load_factor is None:
            continue
        plan = solve(scale_loads(system, fleet.load_factor))
        shared += len(plan.on_shared_cards) == 2
        most = [sum(item.max_arrival_rate_rpm for item in plan.pools_of(name)) for name in "ab"]
        assert fleet.safe_days_share == (days <= np.array(most) * (1 + 1e-9)).all(axis=1).mean()
        for day in days[(days <= np.array(most)).all(axis=1)][:3].tolist():
            alone = system.with_load("a", arrival_rate_rpm=day[0]).with_load("b", arrival_rate_rpm=day[1])
            assert solve(alone).total_cost_cents_per_h <= plan.total_cost_cents_per_h + 1e-9
    assert shared


def test_a_rented_server_is_safe_on_every_day() -> None:
    rents = {"inPerMillion": 0.1, "outPerMillion": 0.1, "ttft": 1, "itl": 1}
    made = document([server("a", 60, external=rents)], [accelerator("A", cost=1e6)], {"A": 1})
    assert solve(load_system(made)).rented
    found, _ = sampled(load_system(made), 5, 0.3)
    assert [fleet.safe_days_share for fleet in found.fleets] == [1.0] * len(found.fleets)
