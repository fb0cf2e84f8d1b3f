"""Routes in a replay, against a second computation: plans step by step, divisions and replicas by hand."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from builders import Json, accelerator, profile, service_class
from slow_cases import mostly_slow

from optimizer import Plan, System, load_system, solve
from optimizer.cli.main import main
from optimizer.features.routes.replayed import RoutedLoad, routed_loads
from optimizer.jobs.replaying import ReplayOptions, replay_loads
from optimizer.schema import Route
from optimizer.spec.load_traces import LoadStep
from optimizer.stabilisation.rules import RECOMMENDED, Rules
from optimizer.studies.replay.replay import FOLLOWED, MEAN, replay
from optimizer.studies.replay.replay_document import Replay

STEP_S = 60.0
KINDS: list[Json] = [
    {"share": 0.6, "inTokens": 16, "outTokens": 64, "loss": 0.01, "miss": 0.1, "wrong": 0.05},
    {"share": 0.4, "inTokens": 16, "outTokens": 64, "loss": 0.2, "miss": 0.05, "wrong": 0.1},
]


def fleet(rate_rpm: float = 1000.0, *, rerun: bool = True, cards: int = 99, **route: object) -> System:
    """Return a route to a cheap small and a dear large model, each on one accelerator."""
    idle: Json = {"currentAlloc": {"load": {}}}
    made = {
        "accelerators": [accelerator("A"), accelerator("B", cost=70)],
        "models": [profile("s", "A"), profile("l", "B", alpha=30.0)],
        "serviceClasses": [service_class("gold", models=("s", "l"), itl=60, ttft=2000)],
        "servers": [
            {"name": "small", "class": "gold", "model": "s", **idle},
            {"name": "large", "class": "gold", "model": "l", **idle},
        ],
        "routes": [
            {"name": "r", "small": "small", "large": "large", "arrivalRate": rate_rpm, "rerun": rerun,
             "maxLoss": 0.05, "kinds": KINDS, **route}
        ],
        "count": [{"type": "A", "count": cards}, {"type": "B", "count": cards}],
    }  # fmt: skip
    return load_system(made)


def trace(system: System, rates_rpm: Sequence[float]) -> list[LoadStep]:
    route = system.routes["r"]
    reported = [route.model_copy(update={"arrival_rate_rpm": rate}) for rate in rates_rpm]
    return [LoadStep.of(system, STEP_S * i, [each]) for i, each in enumerate(reported)]


def planned(system: System, rate_rpm: float) -> Plan:
    route = system.routes["r"].model_copy(update={"arrival_rate_rpm": rate_rpm})
    return solve(system.with_items(route))


def by_hand(route: Route, shares: Sequence[float], rate_rpm: float, *, routed: bool) -> np.ndarray:
    """Return the requests of a route by way: to the large model alone, to the small one alone, to both."""
    ways = np.zeros(3)
    for kind, small in zip(route.kinds, shares, strict=True):
        meant = (small - kind.wrong) / (1 - kind.miss - kind.wrong)
        both = (1 - meant) * kind.wrong if routed and route.rerun else 0.0
        ways += rate_rpm * kind.share * np.array([1 - small, small - both, both])
    return ways


def missed_by_hand(ways: np.ndarray, takes_small: float, takes_large: float) -> tuple[float, float]:
    """Return the requests missed at each model: those at the small one first, in proportion."""
    direct, small, both = ways
    kept = min(1.0, takes_small / (small + both)) if small + both else 1.0
    return (small + both) * (1 - kept), max(0.0, direct + both * kept - takes_large)


def second_replay(
    system: System, rates_rpm: Sequence[float], startup_s: float, fixed: Plan | None = None
) -> tuple[float, float, float]:
    """Return missed requests at both models, and the cost, of a fleet that follows every plan."""
    ready: dict[str, list[float]] = {"small": [], "large": []}
    missed, cost = np.zeros(2), 0.0
    for i, (rate, following) in enumerate(pairwise(rates_rpm)):
        now, plan = STEP_S * i, fixed or planned(system, rate)
        most = {}
        for name, times in ready.items():
            pools = plan.allocations[name]
            wanted = sum(pool.num_replicas for pool in pools)
            times.extend([now if i == 0 else now + startup_s] * (wanted - len(times)))
            del times[wanted:]
            most[name] = pools[0].max_arrival_rate_rpm / wanted if pools else 0.0
            cost += sum(pool.cost_cents_per_h for pool in pools) * STEP_S / 3600
        use = plan.routes["r"]
        shares = [kind.small_share for kind in use.kinds]
        ways = by_hand(system.routes["r"], shares, following, routed=use.routed)
        for second in range(60):
            at = now + second + 0.5
            takes = {name: most[name] * sum(time <= at for time in times) for name, times in ready.items()}
            missed += np.array(missed_by_hand(ways, takes["small"], takes["large"])) / 60
    return missed[0], missed[1], cost


@pytest.mark.slow
@pytest.mark.parametrize("rerun", mostly_slow(["again", ""], 1))
@pytest.mark.parametrize("startup_s", [0.0, 90.0])
def test_replay_matches_a_second_computation(startup_s: float, rerun: str) -> None:
    system = fleet(rerun=bool(rerun))
    rates = [900, 1000, 2600, 2600, 700, 1500, 4000, 4000, 4000, 0, 0, 1200, 1300]
    followed, constant = replay(system, trace(system, rates), {FOLLOWED: Rules()}, startup_s).variants
    mean = planned(system, sum(rates[1:]) / (len(rates) - 1))
    for variant, fixed in ((followed, None), (constant, mean)):
        small, large, cost = second_replay(system, rates, startup_s, fixed)
        (route,), rows = variant.routes, {row.server: row for row in variant.servers}
        assert rows["small"].missed == pytest.approx(small)
        assert rows["large"].missed == pytest.approx(large)
        assert variant.missed == route.missed == pytest.approx(small + large)
        assert variant.cost == pytest.approx(cost)
        assert variant.offered == route.offered == pytest.approx(sum(rates[1:]))
        assert rows["small"].offered + rows["large"].offered == pytest.approx(route.offered + route.rerun)
        assert (route.rerun > 0) is bool(rerun)
        assert 0 < route.quality_lost <= 0.05
    assert followed.missed > 0
    assert constant.name == MEAN
    assert [point.load_rpm for point in followed.points] == pytest.approx(rates[1:])


@pytest.mark.parametrize("seed", range(5))
def test_no_request_is_missed_twice(seed: int) -> None:
    rng = np.random.default_rng(seed)
    direct, small, both = (int(n) for n in rng.integers(0, 400, 3))
    load = RoutedLoad("r", "s", "l", direct + small + both, small + both, direct + both, 0.0)
    takes = {"s": float(rng.integers(0, small + both + 1)), "l": float(rng.integers(0, direct + both + 1))}
    # One by one: the small model takes every request in turn, mixed evenly, and then the large one.
    order = rng.permutation([False] * small + [True] * both)
    runs = [int(order[rng.permutation(len(order))[: int(takes["s"])]].sum()) for _ in range(400)]
    missed_small = small + both - takes["s"]
    missed_large = np.mean([max(0.0, direct + again - takes["l"]) for again in runs])
    missed = load.missed_rpm(takes)
    assert missed["s"] == pytest.approx(missed_small)
    assert missed["l"] == pytest.approx(missed_large, abs=3)  # sampling error of 400 orders
    assert sum(missed.values()) <= load.offered_rpm


def test_an_unserved_route_misses_every_request_once() -> None:
    system = fleet(cards=1)
    steps = trace(system, [900.0, 900.0, 30.0, 30.0])
    (followed, _) = replay(system, steps, {FOLLOWED: Rules()}, 0.0).variants
    (route,) = followed.routes
    assert planned(system, 900.0).unserved
    assert planned(system, 30.0).complete
    assert route.missed == pytest.approx(900.0 + 30.0)  # in the first and in the second minute
    assert followed.offered == pytest.approx(960.0)


@pytest.mark.slow
def test_rates_of_routes_are_denoised_once() -> None:
    system = fleet()
    rng = np.random.default_rng(7)
    steps = trace(system, rng.poisson(890, 60).astype(float).tolist())
    every, ruled, _ = replay(system, steps, {FOLLOWED: Rules(), "ruled": RECOMMENDED}, 120.0).variants
    assert every.changes > 10
    assert ruled.changes <= 2
    assert ruled.missed <= every.missed + 0.005 * every.offered


def test_an_unreported_route_keeps_its_rate_and_replicas() -> None:
    system = fleet()
    steps = trace(system, [1000.0, 3000.0, 3000.0, 3000.0])
    gone = [LoadStep.of(system, step.time_s, []) if 0 < i < 3 else step for i, step in enumerate(steps)]
    rules = Rules(hold_missing_load=True)
    (followed, held, _) = replay(system, gone, {FOLLOWED: Rules(), "held": rules}, 0.0).variants
    assert [point.load_rpm for point in followed.points] == [1000.0, 1000.0, 3000.0]
    assert followed.changes == 0
    assert held.cost == followed.cost


def test_the_division_is_that_of_the_plan() -> None:
    system = fleet()
    plan = planned(system, 1000.0)
    (load,) = routed_loads(system, plan, trace(system, [2000.0])[0])
    assert load.small_rpm == pytest.approx(2 * plan.routes["r"].small_rpm)
    assert load.large_rpm == pytest.approx(2 * plan.routes["r"].large_rpm)
    assert load.rerun_rpm == pytest.approx(2 * plan.routes["r"].rerun_rpm)


@pytest.mark.slow
def test_the_command_replays_routes(specs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loads = tmp_path / "loads.csv"
    loads.write_text("time,chat\n0,6000\n60,6500\n120,5000\n", encoding="utf-8")
    assert main(["replay", str(loads), str(specs / "routes.yaml")]) == 0
    assert "Routes" in capsys.readouterr().out
    assert main(["replay", str(loads), str(specs / "routes.yaml"), "--json"]) == 0
    shown = Replay.model_validate_json(capsys.readouterr().out)
    assert shown == replay_loads(load_system(specs / "routes.yaml"), ReplayOptions(loads=loads))
    assert shown.variants[0].routes[0].offered == 11_500
