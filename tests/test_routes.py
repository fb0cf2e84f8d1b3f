"""Routes to a small and a large model: choice against an oracle, verification, refusals, studies."""

import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from builders import Json, accelerator, document, profile, service_class
from feature_fleets import random_with_routes
from route_oracles import best_levels, random_routes
from scipy.optimize import linprog
from slow_cases import mostly_slow, seeds

from optimizer import (
    AnalysisError,
    LatencyTargets,
    Plan,
    Replica,
    ReplicaSizing,
    SpecError,
    System,
    compare,
    explain,
    load_system,
    size_replicas,
    solve,
    verify,
)
from optimizer.candidates import find_candidates
from optimizer.features.routes.divisions import COMFORTABLE, RouteFlows
from optimizer.features.routes.streams import largest_mean
from optimizer.plan.proof import prove
from optimizer.schema import Route
from optimizer.simulation.replicas import Effort
from optimizer.solvers.deadline import Deadline
from optimizer.studies.load_changes import scale_loads, vary_loads
from optimizer.studies.simulation.plans import simulate_pools
from optimizer.studies.sweep.checkpoint import Checkpoint
from optimizer.studies.sweep.parameters import read_variations
from optimizer.studies.sweep.sweep import sweep

# --- the choice ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2, 218))
def test_choice_matches_exhaustive_search_at_every_level(seed: int) -> None:
    mixed = seed % 4 == 0
    made = random_routes(seed, others=0 if mixed else seed % 2)
    system = load_system(made).with_options(heterogeneous=mixed, unlimited=seed % 7 == 6)
    assert is_the_best(system).status == "optimal"


def is_the_best(system: System) -> Plan:
    plan = solve(system)
    assert verify(plan, system) == []
    reached = {level.name: pytest.approx(level.value, rel=1e-6, abs=1e-6) for level in plan.levels}
    assert reached == best_levels(system)
    return plan


@pytest.mark.slow
@pytest.mark.parametrize("seed", [141, 204, *mostly_slow(range(220, 320), 0)])
def test_choice_of_free_accelerators_matches_exhaustive_search(seed: int) -> None:
    """Many plans are equal in value then, and differ in changes and in whether the router is on."""
    made = random_routes(seed, others=seed % 2)
    for item in made["accelerators"]:
        item["cost"] = 0
    is_the_best(load_system(made).with_options(heterogeneous=seed % 4 == 0))


@pytest.mark.parametrize("seed", [7, *mostly_slow(range(320, 420), 0)])
def test_a_router_that_sends_all_to_the_large_model_is_off(seed: int) -> None:
    """With tiers, a plan may be as cheap with a router that is in use for nothing."""
    made = random_routes(seed, others=0)
    for item in made["accelerators"]:
        item["tiers"] = [{"units": 3, "cost": 0.6 * item["cost"], "committed": True}]
    made["count"] = [{"type": kind, "count": 99} for kind in "AB"]
    system = load_system(made)
    plan = solve(system)
    assert verify(plan, system) == []
    (use,) = plan.routes.values()
    assert use.routed == (use.served and use.large_rpm < use.arrival_rate_rpm * (1 - 1e-8))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 49))
def test_choice_of_several_routes_matches_exhaustive_search(seed: int) -> None:
    system = load_system(random_routes(1000 + seed, routes=3, others=3, kinds=5))
    assert is_the_best(system).status == "optimal"


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(6))
def test_shares_lose_the_least_quality_within_comfort(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(10):
        route = _random_arrays(rng)
        small, large = (float(x) for x in rng.uniform(0.1, 1.2, 2) * route.load_rps)
        found = route.division(small, large)
        least = _least_loss(route, small * COMFORTABLE, large * COMFORTABLE)
        if route.load_rps <= COMFORTABLE * large:
            assert found is not None
            assert not found.routed
        elif least is not None and least <= route.max_loss:
            assert found is not None
            assert found.routed
            assert float(route.quality @ found.shares) == pytest.approx(least, abs=1e-8)
        elif found is None:
            full = _least_loss(route, small, large)
            assert full is None or full > route.max_loss - 1e-8


def _random_arrays(rng: np.random.Generator) -> RouteFlows:
    count = int(rng.integers(1, 5))
    lower = rng.choice([0.0, 0.1], count)
    again = lower / (1 - lower) * rng.integers(0, 2)
    return RouteFlows(
        name="r",
        small=0,
        large=1,
        rate_rps=rng.uniform(1, 5, count),
        lower=lower,
        upper=rng.choice([0.8, 1.0], count),
        quality=rng.uniform(0, 0.1, count) * rng.integers(0, 2, count),
        large_base=1 + again,
        large_slope=-1 - again,
        max_loss=float(rng.choice([0.0, 0.02, 0.1])),
    )


def _least_loss(route: RouteFlows, small_rps: float, large_rps: float) -> float | None:
    """Return the least quality lost within two capacities, by SciPy; None if nothing fits."""
    found = linprog(
        route.quality,
        A_ub=np.array([route.rate_rps, route.rate_rps * route.large_slope]),
        b_ub=np.array([small_rps, large_rps - float(route.rate_rps @ route.large_base)]),
        bounds=list(zip(route.lower, route.upper, strict=True)),
    )
    return None if found.status or found.fun is None else float(found.fun)


def test_a_server_is_sized_for_the_most_demanding_mix() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        count = int(rng.integers(1, 6))
        values, least = rng.uniform(1, 9, count), rng.uniform(0, 1, count) * rng.integers(0, 2, count)
        most = least + rng.uniform(0.01, 1, count)
        corners = [np.array(each) for each in itertools.product(*zip(least, most, strict=True))]
        best = max(float(w @ values / w.sum()) for w in corners if w.sum() > 0)
        assert largest_mean(values.tolist(), least.tolist(), most.tolist()) == pytest.approx(best)


def test_longer_requests_never_raise_the_largest_rate() -> None:
    """So replicas that are sized for the longest mean lengths keep their targets at any division."""
    rng = np.random.default_rng(7)
    rows, targets, lengths = [], [], [(i, o) for i in (32, 200, 1000) for o in (2, 16, 100, 400)]
    for _ in range(40):
        parms = {
            "decodeParms": {"alpha": rng.uniform(1, 40), "beta": rng.uniform(0, 2)},
            "prefillParms": {"gamma": rng.uniform(0, 20), "delta": rng.uniform(0, 0.2)},
        }
        batch, ttft, itl = int(rng.integers(1, 128)), rng.choice([0, 200, 3000]), rng.choice([0, 20, 60, 200])
        rows += [{"maxBatch": batch, "inTokens": i, "outTokens": o, **parms} for i, o in lengths]
        targets += [LatencyTargets(ttft_ms=float(ttft), itl_ms=float(itl))] * len(lengths)
    sized = size_replicas([Replica.model_validate(row) for row in rows], targets)
    rates = np.array([_rate(each) for each in sized]).reshape(-1, 3, 4)
    assert (np.diff(rates, axis=1) <= 1e-6 * rates[:, :-1]).all()
    assert (np.diff(rates, axis=2) <= 1e-6 * rates[:, :, :-1]).all()


def _rate(found: ReplicaSizing | AnalysisError) -> float:
    return found.max_rate_rps if isinstance(found, ReplicaSizing) else 0.0


# --- what routing saves ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate_rps", "limit", "percent"),
    [(1, 0.005, 0.0), (10, 0.005, 65.0), (100, 0.005, 65.4), (100, 0.02, 69.8), (100, 0, 0.0)],
)
def test_savings_in_whole_replicas(rate_rps: float, limit: float, percent: float) -> None:
    """Replicas of 222 tokens/s at $24/h and of 1,667 tokens/s at $12/h; requests of 200 tokens."""
    kinds = [
        {"share": 0.7, "inTokens": 150, "outTokens": 50, "loss": 0.005},
        {"share": 0.3, "inTokens": 150, "outTokens": 50, "loss": 0.3},
    ]
    route = {"name": "r", "small": "s", "large": "l", "arrivalRate": 60 * rate_rps, "maxLoss": limit}
    source = document(
        [{"name": "s", "class": "c", "model": "small"}, {"name": "l", "class": "c", "model": "large"}],
        [accelerator("4xA100", cost=2400), accelerator("A100", cost=1200)],
        classes=[service_class("c", models=["small", "large"], itl=1000, ttft=100_000)],
        models=[profile("large", "4xA100", alpha=1.0), profile("small", "A100", alpha=1.0)],
    )
    system = load_system(source | {"routes": [route | {"kinds": kinds}]})
    wanted = {("l", "4xA100"): 222 / 200, ("s", "A100"): 1667 / 200}
    candidates = find_candidates(system)
    names = candidates.arrays.server_names, candidates.arrays.accelerator_names
    rates = {
        (names[0][s], names[1][a]): float(rate)
        for s, a, rate in zip(
            candidates.table.server, candidates.table.accelerator, candidates.table.max_rate_rps, strict=True
        )
    }
    plan = solve(system.with_rate_factors({pair: rate / rates[pair] for pair, rate in wanted.items()}))
    assert round(100 * (plan.routes["r"].saving or 0.0), 1) == percent


# --- verification ------------------------------------------------------------------------------------------

SPEC = Path(__file__).parent.parent / "specs" / "routes.yaml"


@cache
def sample() -> tuple[System, Plan]:
    system = load_system(SPEC)
    return system, solve(system)


def test_a_route_that_the_system_lacks_is_found() -> None:
    system, plan = sample()
    (use,) = plan.routes.values()
    both = plan.model_copy(update={"routes": {"chat": use, "other": use}})
    assert verify(both, system) == ["other: no route of the system"]


def test_a_router_that_routes_nothing_is_found() -> None:
    system = load_system(random_with_routes(17))
    plan = json.loads(solve(system).to_json())
    plan["routes"]["rt"]["routed"] = True
    assert verify(Plan.model_validate(plan), system) == ["routes.rt.routed is false, the plan says true"]


def test_too_few_replicas_for_a_route_are_found() -> None:
    system, plan = sample()
    document = json.loads(plan.to_json())
    (pool,) = document["allocations"]["chat-8b"]
    pool |= {"numReplicas": 4, "maxArrivalRateRpm": pool["maxArrivalRateRpm"] * 0.8}
    found = verify(Plan.model_validate(document), system)
    assert any("chat-8b: carries at most 3,515.63 of 4,099.65 requests/min" in line for line in found), found


# --- what is refused ---------------------------------------------------------------------------------------


def edited(**changes: Any) -> Json:
    """Return the sample document with changes of its route, by field, or of its servers, s and l."""
    document: Json = yaml.safe_load(SPEC.read_text(encoding="utf-8"))
    for name, value in changes.items():
        if name in ("small", "large", "maxLoss", "kinds", "arrivalRate"):
            document["routes"][0][name] = value
        elif name == "routes":
            document["routes"] += value
        elif name == "optimizer":
            document["optimizer"] = value
        else:
            place = {"s": 0, "l": 1}[name]
            document["servers"][place] |= value
    return document


OTHER = {"name": "other", "small": "chat-8b", "large": "x", "arrivalRate": 1}
ONE = {"share": 1, "inTokens": 1, "outTokens": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"small": "chat-9b"}, r"routes\[0\].small: server 'chat-9b' does not exist; did you mean 'chat-8b'"),
        ({"kinds": []}, r"routes\[0\].kinds: the number of items must be at least 1, not 0"),
        ({"maxLoss": 1.5}, r"routes\[0\].maxLoss"),
        ({"routes": [OTHER | {"name": "chat", "kinds": [ONE]}]}, r"routes\[1\]: 'chat' occurs twice"),
        (
            {"l": {"external": {"inPerMillion": 1, "outPerMillion": 1, "ttft": 1, "itl": 1}}},
            r"servers\[1\].external: the servers of a route run on replicas; remove it, or route 'chat'",
        ),
    ],
)
def test_contradictions_of_routes_are_errors(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load_system(edited(**changes))


def test_the_load_of_a_routed_server_is_that_of_its_route() -> None:
    with pytest.raises(SpecError, match=r"servers\.chat-8b\.load: it is the load of route 'chat'"):
        load_system(SPEC).with_load("chat-8b", arrival_rate_rpm=3)


def test_models_of_more_columns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.solvers.exact.GAP_FREE_COLUMNS", 3)
    with pytest.raises(
        SpecError, match=r"routes: too large: 5 choices .*; a plan with routes can have at most 3"
    ):
        solve(load_system(SPEC))


# --- plans -------------------------------------------------------------------------------------------------


def test_a_document_survives_a_round_trip() -> None:
    system, plan = sample()
    again = load_system(system.to_spec().model_dump(mode="json", by_alias=True))
    assert again == system
    assert solve(again).to_json() == plan.to_json()


def test_any_backend_finds_the_same_cost() -> None:
    pytest.importorskip("pulp")
    system, plan = sample()
    assert solve(system, backend="CBC").total_cost_cents_per_h == plan.total_cost_cents_per_h


def test_a_written_model_names_the_variables_of_routes(tmp_path: Path) -> None:
    solve(load_system(SPEC), write_model_to=tmp_path / "model.lp")
    legend = (tmp_path / "model.lp.legend.csv").read_text(encoding="utf-8")
    for line in ("on_0,the router of chat is in use", "phi_0_1,share of kind 2 of chat at the small model"):
        assert line in legend
    assert "phi_0_1" in (tmp_path / "model.lp").read_text(encoding="utf-8")


def test_an_unserved_route_leaves_its_large_server_unserved() -> None:
    system = load_system(SPEC).with_capacity({"A100": 1, "H100": 1, "L40S": 1})
    plan = solve(system)
    assert [item.server for item in plan.unserved] == ["chat-70b"]
    assert plan.allocations == {"chat-8b": ()}
    assert plan.routes["chat"].state == "not served"
    assert plan.levels[0].value == pytest.approx(6000)
    assert verify(plan, system) == []


@pytest.mark.parametrize(
    ("changes", "empty", "saving"),
    [
        ({"arrivalRate": 0}, ("chat-70b", "chat-8b"), None),
        ({"kinds": [{"share": 1, "inTokens": 300, "outTokens": 150}]}, ("chat-70b",), None),
        ({"arrivalRate": 30}, ("chat-8b",), 0.0),  # the router saves nothing and is off
    ],
)
def test_servers_that_no_request_needs_are_empty(
    changes: Json, empty: tuple[str, ...], saving: float | None
) -> None:
    system = load_system(edited(**changes))
    plan = solve(system)
    assert plan.complete
    assert verify(plan, system) == []
    assert tuple(sorted(name for name, pools in plan.allocations.items() if not pools)) == empty
    use = plan.routes["chat"]
    if saving is not None:
        assert (use.state, use.saving, use.large_rpm) == ("off", saving, use.arrival_rate_rpm)
    elif use.arrival_rate_rpm:
        assert use.kinds[0].small_share == 1


def test_a_server_with_a_pool_added_counts_as_changed() -> None:
    """A mixed model keeps a server only if no other column of it is used, routed or not."""
    for on, replicas in (("2xH100", 2), ("2xH100", 5), ("4xA100", 2)):
        running = {"accelerator": on, "numReplicas": replicas}
        document = edited(l={"currentAlloc": running}, optimizer={"heterogeneous": True})
        document["count"][2]["count"] = 2 * replicas
        system = load_system(document)
        plan = solve(system)
        assert verify(plan, system) == []
        assert plan.status == "optimal"
        assert [pool.num_replicas for pool in plan.allocations["chat-70b"] if pool.accelerator != on]


def test_running_replicas_stay_where_moving_costs_more() -> None:
    system, plan = sample()
    applied = plan.applied_to(system)
    again = solve(applied)
    assert again.changes == ()
    assert again.routes == plan.routes
    assert verify(again, applied) == []


# --- studies -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_explain_prices_the_limit_on_quality() -> None:
    system, plan = sample()
    found = {item.other: item.effect.cost_change_cents_per_h for item in explain(system).losses}
    for other, change in found.items():
        route = system.routes["chat"].model_copy(update={"max_loss": other})
        relaxed = solve(system.with_items(route))
        assert relaxed.total_cost_cents_per_h - plan.total_cost_cents_per_h == pytest.approx(change)
    assert list(found) == [0.0, 0.04, 1.0]
    assert found[0.0] > 0 > found[0.04] >= found[1.0]


def test_simulated_servers_keep_their_targets_at_routed_loads() -> None:
    system, plan = sample()
    study = simulate_pools(system, plan, Effort(requests=8000))
    rates = {pool.server: pool.rate_rps * pool.num_replicas * 60 for pool in study.pools}
    use = plan.routes["chat"]
    assert rates == {
        "chat-8b": pytest.approx(use.small_rpm),
        "chat-70b": pytest.approx(use.large_rpm),
    }
    assert all(check.verdict != "missed" for pool in study.pools for check in pool.targets)


def test_compare_shows_routed_loads() -> None:
    system, plan = sample()
    rows = {row.server: row for row in compare(system).servers}
    assert rows["chat-8b"].first is not None
    assert rows["chat-8b"].first.arrival_rate_rpm == pytest.approx(plan.routes["chat"].small_rpm)


def test_scaled_loads_scale_routes() -> None:
    system, _ = sample()
    assert scale_loads(system, 0.5).routes["chat"].arrival_rate_rpm == 3000
    assert scale_loads(system, 0.5).servers["chat-70b"].current.load.arrival_rate_rpm == 3000
    varied = vary_loads(system, np.random.default_rng(3)).routes["chat"].arrival_rate_rpm
    assert 3000 <= varied <= 9000
    assert varied != 6000


def test_sweeps_vary_the_limit_on_quality() -> None:
    system = load_system(SPEC)
    found = sweep(system, read_variations(system, ["maxLoss:chat=0,0.02,1"]), Checkpoint())
    costs = [point.total_cost_cents_per_h for point in found.points]
    assert costs == sorted(costs, reverse=True)
    assert costs[1] == sample()[1].total_cost_cents_per_h


def test_sweeps_vary_the_rate_of_a_route() -> None:
    system = load_system(SPEC)
    found = sweep(system, read_variations(system, ["load:chat=0.5,1"]), Checkpoint())
    (route,) = system.routes.values()
    half = system.with_items(route.model_copy(update={"arrival_rate_rpm": 3000.0}))
    costs = [point.total_cost_cents_per_h for point in found.points]
    assert costs == [solve(half).total_cost_cents_per_h, sample()[1].total_cost_cents_per_h]
    with pytest.raises(SpecError, match="'chat-8b' does not exist"):
        read_variations(system, ["load:chat-8b=1,2"])


@pytest.mark.slow
def test_explain_repairs_an_unserved_route_with_its_router() -> None:
    system = load_system(SPEC).with_capacity({"A100": 8, "H100": 8, "L40S": 2})
    found = explain(system)
    assert found.repair is not None
    assert found.repair.fewest is not None
    added = found.repair.fewest.added
    enough = system.with_capacity({name: system.capacity[name] + more for name, more in added.items()})
    assert solve(enough).complete
    (kind,) = added
    fewer = enough.with_capacity({kind: enough.capacity[kind] - 1})
    assert not solve(fewer).complete
    assert found.repair.fewest.total_cost_cents_per_h == solve(enough).total_cost_cents_per_h


def test_multipliers_of_patterns_prove_nothing_of_routes() -> None:
    system, plan = sample()
    assert prove(plan, find_candidates(system), Deadline.after(5)).levels == ()


@pytest.mark.parametrize("rate_rpm", [1e-9, 1e-11])
def test_routes_with_hardly_any_requests_are_planned(rate_rpm: float) -> None:
    """Capacities over such loads are coefficients of a model that the solver refused."""
    made = random_routes(241)
    made["routes"][0]["arrivalRate"] = rate_rpm
    assert solve(load_system(made)).routes["r0"].served


def test_a_small_server_without_replicas_gets_no_share() -> None:
    """The linear program left it a share of 1e-7, above all tolerances, of a tiny load."""
    lengths = {"outTokens": 64, "inTokens": 128}
    route = Route.model_validate(
        {"name": "r", "small": "s", "large": "l", "arrivalRate": 5e-7, "maxLoss": 0.5, "rerun": True}
        | {
            "kinds": [
                {"share": 0.375, "loss": 0.05, "miss": 0.3} | lengths,
                {"share": 0.625, "miss": 0.1, "inTokens": 64, "outTokens": 32},
            ]
        }
    )
    for large_rps in (1.0, 3.0):
        division = RouteFlows.of(route, ("s", "l")).division(0.0, large_rps)
        assert division is not None
        assert division.shares == (0.0, 0.0)


def test_a_router_that_can_not_be_used_lengthens_no_mix(specs: Path) -> None:
    """The router's errors alone lose 0.27 %, so below that limit the large model gets the mean mix."""
    source = load_system(specs / "routes.yaml")
    route = source.routes["chat"]
    costs = {}
    for limit in (0.0, 0.0026, 0.0028):
        system = source.with_items(route.model_copy(update={"max_loss": limit}))
        plan = solve(system)
        assert verify(plan, system) == []
        costs[limit] = plan.total_cost_cents_per_h, plan.routes["chat"].routed
    all_large = plan.routes["chat"].all_large_cents_per_h
    assert costs[0.0] == costs[0.0026] == (all_large, False) == (12_600.0, False)
    assert costs[0.0028][1]
