"""Horizons of routes and shared cards: against brute force, and by the command line."""

import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from route_oracles import Case, Choice, random_routes
from shared_card_oracles import best_by_enumeration
from slow_cases import mostly_slow

from optimizer import System, load_system, solve
from optimizer.cli.main import main
from optimizer.features.routes.divisions import RouteFlows
from optimizer.features.routes.view import capacities_rps, divisions_within
from optimizer.spec.load_traces import LoadStep
from optimizer.spec.loads import stated_loads
from optimizer.studies.horizon.horizon import plan_horizon
from optimizer.studies.horizon.horizon_document import Horizon
from optimizer.studies.service import service_by_priority

SPEC = Path(__file__).resolve().parent.parent.parent / "specs" / "routes.yaml"
OFFERED = 3


def routed(seed: int) -> System:
    """Return a system with a route that can always be served, and tiers to reserve."""
    made = random_routes(seed, others=0)
    for item in made["servers"]:
        item["currentAlloc"] = {}
        item.pop("maxNumReplicas", None)
    for item in made["accelerators"]:
        item["tiers"] = [{"units": OFFERED, "cost": 0.6 * item["cost"], "committed": True}]
    made["count"] = [{"type": kind, "count": 99} for kind in "AB"]
    return load_system(made).with_options(transition_penalty=0.0, time_limit_s=600.0)


def at_rate(system: System, factor: float) -> System:
    (route,) = system.routes.values()
    rate = route.arrival_rate_rpm * factor
    return system.with_items(route.model_copy(update={"arrival_rate_rpm": rate}))


def total(found: Horizon) -> float:
    return found.policies[0].total_cost + found.policies[0].transition_cost


def used_cards(system: System) -> set[tuple[int, int]]:
    """Return the cards of A and B with which the route of a system can be served, by enumeration."""
    case = Case(system)
    return {(_cards(way, "A"), _cards(way, "B")) for way in case.ways(case.routes[0]) if not way.unserved}


def _cards(way: Choice, kind: str) -> int:
    return sum(n for placed in way.replicas.values() for acc, n in placed if acc == kind)


FACTORS = (0.4, 1.0, 0.7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_slow([0, *range(3, 20)], 1))
def test_a_route_over_three_hours_matches_brute_force(seed: int) -> None:
    system = routed(seed)
    hours = [at_rate(system, factor) for factor in FACTORS]
    found = plan_horizon(
        system, [LoadStep.of(system, 3600.0 * h, each.routes.values()) for h, each in enumerate(hours)]
    )
    prices = [system.accelerators[kind].cost_cents_per_h for kind in "AB"]
    ways = [used_cards(hour) for hour in hours]

    def rented(kept: tuple[int, ...], used: tuple[int, int]) -> float:
        return sum(p * max(n - k, 0) for p, n, k in zip(prices, used, kept, strict=True))

    best = min(
        len(FACTORS) * sum(0.6 * p * k for p, k in zip(prices, kept, strict=True))
        + sum(min(rented(kept, used) for used in mine) for mine in ways)
        for kept in itertools.product(range(OFFERED + 1), repeat=2)
    )
    assert total(found) >= best - 1e-6
    assert total(found) == pytest.approx(best)
    assert found.policies[0].unserved == 0
    lowest = sum(
        min(
            sum(
                0.6 * p * min(n, OFFERED) + p * max(n - OFFERED, 0) for p, n in zip(prices, used, strict=True)
            )
            for used in mine
        )
        for mine in ways
    )
    assert found.bound == pytest.approx(lowest)
    for hour, plan in zip(hours, found.plans, strict=True):
        assert plan.load_rpm == hour.routes["r0"].arrival_rate_rpm
        assert plan.served_rpm == pytest.approx(plan.load_rpm)


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(12))
def test_replicas_of_the_peak_divide_every_smaller_rate(seed: int) -> None:
    system = routed(seed)
    plan = solve(system)
    own = divisions_within(plan, system)["r0"]
    assert own is not None
    assert own.shares == pytest.approx([kind.small_share for kind in plan.routes["r0"].kinds], abs=1e-6)
    small, large = capacities_rps(system.routes["r0"], plan)
    for factor in (1.0, 0.93, 0.5, 0.01):
        hour = at_rate(system, factor)
        division, (route,) = divisions_within(plan, hour)["r0"], Case(hour).routes
        assert division is not None
        shares = np.array(division.shares)
        if not division.routed:
            assert route.load <= large * (1 + 1e-8)
            continue
        assert route.rate @ shares <= small * (1 + 1e-8)
        assert route.large_of(shares).sum() <= large * (1 + 1e-8)
        assert route.loss @ shares <= route.most + 1e-8
        assert (shares >= route.low - 1e-8).all()
        assert (shares <= route.high + 1e-8).all()


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(8))
def test_the_largest_rate_is_where_the_division_ends(seed: int) -> None:
    system = routed(seed)
    capacities = capacities_rps(system.routes["r0"], solve(system))
    most = RouteFlows.of(system.routes["r0"], ("s0", "l0")).most_rps(*capacities)
    low, high = 0.0, 100.0

    def divides(factor: float) -> bool:
        return (
            RouteFlows.of(at_rate(system, factor).routes["r0"], ("s0", "l0")).division(*capacities)
            is not None
        )

    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if divides(middle) else (low, middle)
    assert most * 60 == pytest.approx(system.routes["r0"].arrival_rate_rpm * low, rel=1e-6)


@pytest.mark.slow
def test_a_trace_names_a_route(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "day.csv"
    trace.write_text("time,chat\n0,1200\n3600,6000\n7200,0\n", encoding="utf-8")
    assert main(["horizon", str(SPEC), "--trace", str(trace), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [hour["loadRpm"] for hour in found["plans"]] == [1200, 6000, 0]
    assert [hour["servedRpm"] for hour in found["plans"]] == [1200, 6000, 0]
    peak = next(item for item in found["policies"] if item["name"] == "one plan for the peak")
    alone = solve(load_system(SPEC))
    assert peak["totalCostCents"] == 3 * alone.total_cost_cents_per_h
    (use,), hour = alone.routes.values(), found["plans"][1]
    assert hour["costCentsPerH"] == alone.total_cost_cents_per_h
    assert hour["routes"]["chat"] == {
        "smallRpm": pytest.approx(use.small_rpm),
        "largeRpm": pytest.approx(use.large_rpm),
        "qualityLost": pytest.approx(use.quality_lost),
        "shares": [pytest.approx(kind.small_share) for kind in use.kinds],
    }
    assert found["plans"][2]["servers"] == {"chat-70b": [], "chat-8b": []}


def test_the_requests_of_a_route_count_once() -> None:
    system = load_system(SPEC)
    (row,) = service_by_priority(solve(system), system)
    assert row.load_rpm == row.served_rpm == pytest.approx(6000)
    scarce = system.with_capacity({"A100": 0, "H100": 0, "L40S": 99})
    (row,) = service_by_priority(solve(scarce), scarce)
    assert row.load_rpm == pytest.approx(6000)
    assert row.served_rpm == 0


# --- shared cards ----------------------------------------------------------------------------------------


def sharing(committed: float = 20.0) -> System:
    """Return two models in shares of cards of one type, of which five can be reserved."""
    card = {"name": "T4", "type": "T4", "memSize": 16, "cost": 35}
    tier = {"units": 5, "cost": committed, "committed": True}
    models: list[dict[str, Any]] = [
        {
            "name": name,
            "acc": "T4",
            "maxBatchSize": 8,
            "memory": memory,
            "batchParms": {"base": 10, "slope": 2},
            "shares": [{"share": share, "slowdown": slowdown}],
        }
        for name, memory, share, slowdown in (("a", 4, 0.25, 3.0), ("b", 2, 0.125, 5.0))
    ]
    targets = [{"model": name, "latency": [{"percentile": 95, "ms": 200}]} for name in "ab"]
    servers = [{"name": n, "model": n, "class": "c", "sharedCard": True} for n in "ab"]
    return load_system(
        {
            "accelerators": [card | {"tiers": [tier]}],
            "models": models,
            "serviceClasses": [{"name": "c", "modelTargets": targets}],
            "servers": [item | {"currentAlloc": {"load": {"arrivalRate": 60}}} for item in servers],
            "count": [{"type": "T4", "count": 12}],
            "optimizer": {"transitionPenalty": 0, "timeLimit": 600},
        }
    )


RATES = ((60, 40), (350, 150), (200, 50), (60, 450))


def hours_of(system: System) -> list[System]:
    return [
        system.with_load("a", arrival_rate_rpm=60.0 * a).with_load("b", arrival_rate_rpm=60.0 * b)
        for a, b in RATES
    ]


def without_tiers(system: System) -> System:
    plain = {"T4": system.accelerators["T4"].model_copy(update={"tiers": ()})}
    return system.with_items(*plain.values())


@cache
def cards_needed() -> list[int]:
    """Return the fewest cards of each hour, by enumeration."""
    return [round(best_by_enumeration(hour)[-2] / 35) for hour in hours_of(without_tiers(sharing()))]


@pytest.mark.parametrize("committed", mostly_slow([16.0, 5.0, 20.0, 30.0], 1))
def test_shared_cards_are_reserved_where_it_pays(committed: float) -> None:
    system = sharing(committed)
    hours = hours_of(system)
    found = plan_horizon(
        system, [LoadStep.of(each, 3600.0 * h, stated_loads(each)) for h, each in enumerate(hours)]
    )
    needed = cards_needed()
    costs = [len(RATES) * k * committed + sum(35 * max(n - k, 0) for n in needed) for k in range(5 + 1)]
    assert total(found) == pytest.approx(min(costs))
    assert found.reservations[0].reserved == costs.index(min(costs))
    assert [sum(item.reserved + item.rented for item in hour.use) for hour in found.plans] == needed
    assert found.bound == pytest.approx(sum(min(n, 5) * committed + 35 * max(n - 5, 0) for n in needed))
    assert found.policies[0].unit_hours == sum(needed)
    for hour in found.plans:
        own = sum(pool.num_replicas for pools in hour.servers.values() for pool in pools)
        assert own + sum(use.num_replicas for use in hour.shared_cards.values()) == sum(
            item.reserved + item.rented for item in hour.use
        )
        assert hour.served_rpm == pytest.approx(hour.load_rpm)


@pytest.mark.slow
def test_moves_and_starts_count_replicas_on_shared_cards() -> None:
    """The same plan in every hour moves and starts nothing; twice as much starts what is new."""
    system = sharing().with_options(transition_penalty=1.0)
    flat = plan_horizon(system, [LoadStep.of(system, 3600.0 * h, stated_loads(system)) for h in range(3)])
    assert flat.policies[0].startups == flat.policies[0].transition_cost == 0
    assert flat.plans[0].shared_cards
    many = system.with_load("a", arrival_rate_rpm=60.0 * 700).with_load("b", arrival_rate_rpm=60.0 * 300)
    grown = plan_horizon(
        system, [LoadStep.of(one, t, stated_loads(one)) for t, one in ((0.0, system), (3600.0, many))]
    )
    before, after = (solve(each).on_shared_cards for each in (system, many))
    own = sum(pool.num_replicas for pools in grown.plans[1].servers.values() for pool in pools)
    started = own + sum(
        max(sum(p.num_replicas for p in after.get(n, ())) - sum(p.num_replicas for p in before.get(n, ())), 0)
        for n in "ab"
    )
    assert grown.policies[0].startups == started > 0
