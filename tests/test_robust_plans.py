"""Plans with reserves, prices and limits are those of brute force, and false ones are found."""

import itertools
import random
from typing import Any

import pulp
import pytest
from builders import Json, accelerator, document, profile, refusal, server, service_class
from mixed_oracles import demands
from plan_faults import plan_faults
from plan_search import without_announcements
from robust_oracles import (
    _ADD,
    OPTIONS,
    _level_names,
    _shared,
    _ways,
    best_levels,
    random_robust_system,
    wishes,
)
from slow_cases import mostly_slow, seeds

from optimizer import (
    Replica,
    SpecError,
    System,
    analyze_replicas,
    load_system,
    solve,
    verify,
)
from optimizer.generate import generate_system
from optimizer.plan import Plan
from optimizer.render.plan_sections import plan_sections

Wanted = tuple[str, ...]
SINGLES: list[Wanted] = [(option,) for option in (*OPTIONS, "deadline")]
PAIRS: list[Wanted] = list(itertools.combinations(OPTIONS, 2))
OFFLINE: list[Wanted] = [("deadline", option) for option in OPTIONS]
MODES = ("all", "one")
BESIDES: tuple[Wanted, ...] = (
    (), ("spares",), ("availability",), ("headroom",), ("budget",), ("deadline",), ("cache",), ("external",),
    ("tiers",), ("power",),
)  # fmt: skip
ROLLING: list[Wanted] = [(mode, *other) for mode in MODES for other in BESIDES]
DRAWN = [(n % 30, wanted, n % 2 > 0) for n, wanted in enumerate(PAIRS)]
CASES: list[tuple[int, Wanted, bool]] = [
    *DRAWN[::3],
    *((seed, wanted, seed > 0) for wanted in SINGLES for seed in range(2)),
    *((n, wanted, n % 2 > 0) for n, wanted in enumerate(OFFLINE, 1)),
    *((n % 10, wanted, n % 2 > 0) for n, wanted in enumerate(ROLLING)),
    (11, ("spares", "preferred"), False),  # spares beyond the least replicas
    (20, ("budget", "tiers"), False),  # a budget that no first step uses
    (26, ("external",), True),  # a rented service beside the first accelerator of the next server
    (33, ("budget", "tiers"), False),  # the greedy heuristic divided an amount without end
    (36, ("availability", "external"), True),  # a server that rents for its reserve makes room, greedily
    (44, ("tiers",), True),  # nothing is limited, so that there is nothing to share out
    (59, ("preferred", "budget"), True),  # a bound that differs by rounding
]
"""Seed, options, and whether plans are mixed; the last ones once were wrong."""
MORE: list[tuple[int, Wanted, bool]] = [
    *DRAWN[1::3],
    *DRAWN[2::3],
    *((seed, wanted, seed == 0) for wanted in SINGLES for seed in range(2)),
    *((n, wanted, n % 2 == 0) for n, wanted in enumerate(OFFLINE, 1)),
    *((seed, (mode,), mixed) for mode in MODES for seed in (1, 2) for mixed in (False, True)),
]
MANY: list[tuple[Wanted, int]] = [
    *((wanted, 150) for wanted in (*SINGLES, *PAIRS)),
    *((wanted, 20) for wanted in OFFLINE),
    *((wanted, 10) for wanted in ROLLING),
]
"""Options, and the number of seeds, each for single and for mixed plans."""


def faults(seed: int, wanted: Wanted, *, mixed: bool) -> list[str]:
    system = load_system(random_robust_system(seed, wanted, mixed=mixed))
    return [f"{seed} {wanted} mixed={mixed}: {line}" for line in plan_faults(system, best_levels(system))]


@pytest.mark.few(1)
@pytest.mark.parametrize(("seed", "wanted", "mixed"), mostly_slow([*CASES, *MORE], 30))
def test_plans_are_those_of_brute_force(seed: int, wanted: Wanted, *, mixed: bool) -> None:
    assert faults(seed, wanted, mixed=mixed) == []


@pytest.mark.slow
@pytest.mark.parametrize(("wanted", "seeds"), MANY)
def test_thousands_of_plans_are_those_of_brute_force(wanted: Wanted, seeds: int) -> None:
    found = (faults(seed, wanted, mixed=mixed) for seed in range(seeds) for mixed in (False, True))
    assert [*itertools.chain(*found)] == []


# --- partial service ------------------------------------------------------------------------------------

SATURATION = ("PriorityExhaustive", "PriorityRoundRobin", "RoundRobin")
ONE_POOL: tuple[tuple[str, ...], ...] = (
    ("spares",), ("availability",), ("one",), ("all",), ("spares", "one"), ("availability", "all"),
    ("spares", "availability"), ("spares", "headroom"), ("spares", "external"), ("availability", "tiers"),
)  # fmt: skip


@pytest.mark.few(3)
@pytest.mark.parametrize("reserve", [{"spareReplicas": 1}, {"availabilityTarget": 0.99}])
@pytest.mark.parametrize("policy", ["None", *SATURATION])
def test_pools_serve_where_one_pool_could_have_the_reserve(policy: str, reserve: dict[str, Any]) -> None:
    """Of four needed replicas and a spare one, three fit on B and one on A."""
    cards = [accelerator("A"), accelerator("B", cost=11)]
    source = document([server("a", 2100, **reserve)], cards, {"A": 1, "B": 3}, heterogeneous=True)
    source["optimizer"]["saturationPolicy"] = policy
    system = load_system(source)
    plan = solve(system)
    assert verify(plan, system) == []
    assert plan.complete
    assert [(pool.accelerator, pool.num_replicas) for pool in plan.allocations["a"]] == [("A", 1), ("B", 3)]
    assert [item.has_reserve for item in plan.reserves] == [False]


def scarce_faults(seed: int) -> list[str]:
    """Return what is wrong with the plan of a random mixed system with few cards and a saturation policy."""
    wanted, rng = ONE_POOL[seed % len(ONE_POOL)], random.Random(f"scarce {seed}")
    source = random_robust_system(seed, wanted, mixed=True)
    for item in source["count"]:
        item["count"] = rng.choice([0, 1, 2, 3, 4, 5, 6, 8])
    source["optimizer"] |= {"unlimited": False, "saturationPolicy": rng.choice(SATURATION)}
    source["optimizer"]["delayedBestEffort"] = rng.random() < 0.3
    system = load_system(source)
    return [f"{seed}: {line}" for line in verify(solve(system), system)]


@pytest.mark.slow
def test_partial_service_of_mixed_plans_is_verified() -> None:
    assert [line for seed in range(40) for line in scarce_faults(seed)] == []


@pytest.mark.slow
def test_partial_service_of_2000_mixed_plans_is_verified() -> None:
    assert [line for seed in range(2000) for line in scarce_faults(seed)] == []


# --- what is refused -------------------------------------------------------------------------------------


COMMITTED = [{"units": 4, "cost": 5, "committed": True}]
SERVICE = {"inPerMillion": 10, "outPerMillion": 40, "ttft": 600, "itl": 20}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"preferred": ["Z"]}, "servers[0].preferred[0]: accelerator 'Z' does not exist"),
        *(({"external": SERVICE | {key: None}}, f"servers[0].external.{key}: missing") for key in SERVICE),
    ],
)
def test_contradictions_are_refused(fields: Json, message: str) -> None:
    source = document([server("a", **fields)], [accelerator("A")], {"A": 4})
    assert refusal(lambda: load_system(source)).startswith(message)


@pytest.mark.parametrize("milp", [False, True])
def test_only_greedy_says_that_it_counts_list_prices(*, milp: bool) -> None:
    cards = [accelerator("A") | {"tiers": COMMITTED}]
    system = load_system(document([server("a")], cards, {"A": 4}, budget=100, milpSolver=milp))
    notes = [note for part in plan_sections(solve(system), system) for note in part.notes]
    assert any("budget at list prices" in note for note in notes) != milp


def test_all_prices_are_in_one_currency() -> None:
    """Tiers and a budget name the currency of a document as costs do, and no other."""
    cards = [accelerator("A") | {"cost": 1000, "tiers": [{"units": 4, "cost": "5 EUR/h"}]}]
    assert load_system(document([server("a")], cards, {"A": 4})).currency == "EUR"
    assert (
        load_system(document([server("a")], [accelerator("A")], {"A": 4}, budget="90 GBP/h")).currency
        == "GBP"
    )
    with pytest.raises(SpecError, match=r"optimizer\.budget: a price in GBP; .* one in EUR at"):
        load_system(document([server("a")], cards, {"A": 4}, budget="90 GBP/h"))
    cards[0]["cost"] = "10 USD/h"
    with pytest.raises(SpecError, match=r"accelerators\[0\]\.tiers\[0\]\.cost: a price in EUR"):
        load_system(document([server("a")], cards, {"A": 4}))


def test_the_availability_of_many_replicas_is_verified() -> None:
    """The binomial coefficients of two thousand replicas are larger than any floating-point number."""
    cards = [accelerator("A") | {"availability": 0.5}]
    system = load_system(document([server("a", 600_000, availabilityTarget=0.99)], cards))
    plan = solve(system)
    assert plan.allocations["a"][0].num_replicas > 2000
    assert verify(plan, system) == []


# --- reserves by their meaning ---------------------------------------------------------------------------


def analysed(rate_rpm: float, replicas: int) -> bool:
    """Return whether replicas of the default profile that share a load answer a token in 13.5 ms."""
    shape = {"inTokens": 16, "outTokens": 64, "maxBatch": 8}
    times = {key: profile("m", "A")[key] for key in ("decodeParms", "prefillParms")}
    replica = Replica.model_validate(shape | times)
    return analyze_replicas([replica], [rate_rpm / 60 / replicas])[0].itl_ms <= 13.5 * (1 + 1e-6)


@pytest.mark.parametrize("rate", [300, 900, 1500, 2400])
@pytest.mark.parametrize("spares", [1, 2, 3])
def test_targets_hold_without_spares_and_with_headroom(rate: float, spares: int) -> None:
    system = load_system(
        document(
            [server("a", rate, spareReplicas=spares, headroomShare=0.25)],
            [accelerator("A")],
            classes=[service_class("gold", itl=13.5)],
        )
    )
    (pool,) = solve(system).allocations["a"]
    for load in (rate, 1.25 * rate):
        assert all(analysed(load, pool.num_replicas - gone) for gone in range(spares + 1))
    fewer = pool.num_replicas - spares - 1
    assert fewer == 0 or not analysed(1.25 * rate, fewer)


@pytest.mark.parametrize(("there", "replicas"), [(0.98, 6), (0.99, 5), (0.995, 5), (0.999, 5)])
def test_replicas_for_an_availability(there: float, replicas: int) -> None:
    """Of four that a load needs, 99.9 % of the time: the table of required replicas, row k = 4."""
    cards = [accelerator("A") | {"availability": there}]
    system = load_system(document([server("a", 2000, availabilityTarget=0.999)], cards))
    assert solve(load_system(document([server("a", 2000)], cards))).allocations["a"][0].num_replicas == 4
    assert solve(system).allocations["a"][0].num_replicas == replicas


def test_a_replica_on_several_accelerators_needs_all_of_them() -> None:
    cards = [accelerator("A") | {"availability": 0.9}]
    for count in (1, 2):
        source = document(
            [server("a", 500, availabilityTarget=0.85)], cards, models=[profile("m", "A", count=count)]
        )
        assert (
            solve(load_system(source)).allocations["a"][0].num_replicas == count
        )  # 0.9 and 1 - (1 - 0.81)^2


def test_an_idle_server_has_no_reserve() -> None:
    system = load_system(document([server("a", 0, replicas=1, spareReplicas=2)], [accelerator("A")]))
    plan = solve(system)
    assert (plan.allocations["a"][0].num_replicas, plan.reserves) == (1, ())


def test_no_reserve_exceeds_the_most_replicas() -> None:
    system = load_system(document([server("a", 500, spareReplicas=2, maxNumReplicas=2)], [accelerator("A")]))
    plan = solve(system)
    assert plan.allocations["a"][0].num_replicas == 1
    assert [item.has_reserve for item in plan.reserves] == [False]


@pytest.mark.parametrize("law", ["decodeParms", "perfParms"])
def test_safety_lengthens_times_of_measured_profiles(law: str) -> None:
    """With an error of 20 % a plan is that of a profile whose times are all 20 % longer."""
    errors = {"ttft": 0.1, "itl": 0.2, "ttftMedian": 0.1, "itlMedian": 0.1, "runs": 3}
    domain = {key: [1, 1000] for key in ("inTokens", "outTokens", "rate", "concurrency")}
    provenance = {"source": "x", "runs": 3, "domain": domain, "errors": errors}

    def placed(factor: float, **options: Any) -> Any:
        item = profile("m", "A")
        if law == "perfParms":
            del item["decodeParms"], item["prefillParms"]
            item["perfParms"] = {"alpha": 10 * factor, "beta": 0.01 * factor, "gamma": 0.001 * factor}
        else:
            item["decodeParms"] = {key: factor * value for key, value in item["decodeParms"].items()}
            item["prefillParms"] = {key: factor * value for key, value in item["prefillParms"].items()}
        cards, classes = [accelerator("A")], [service_class("gold", itl=20)]
        source = document(
            [server("a", 2000)], cards, classes=classes, models=[item | {"provenance": provenance}], **options
        )
        system = load_system(source)
        plan = solve(system)
        assert verify(plan, system) == []
        (pool,) = plan.allocations["a"]
        return pool.num_replicas, pool.max_arrival_rate_rpm

    cautious, slower, measured = placed(1.0, safety="profile"), placed(1.2), placed(1.0)
    assert cautious == pytest.approx(slower)
    assert cautious[1] / cautious[0] < measured[1] / measured[0]


# --- a second formulation in another solver --------------------------------------------------------------


def second_formulation(system: System) -> tuple[Any, dict[str, Any]]:
    """Write single plans with binaries by way and a variable by price step; return it and its levels."""
    asked, wanted = demands(system), wishes(system)
    names, shared = _level_names(asked, wanted), _shared(system, asked)
    model = pulp.LpProblem("second", pulp.LpMinimize)
    sums: dict[str, list[Any]] = {name: [] for name in names}
    used: dict[str, list[Any]] = {one.name: [] for one in shared}
    for s, demand in enumerate(asked.values()):
        own: list[Any] = []
        for amounts, levels in _ways(system, demand, wanted[demand.name], names, shared):
            x = pulp.LpVariable(f"x_{s}_{len(own)}", cat="Binary")
            own.append(x)
            for name, value in zip(names, levels, strict=True):
                sums[name].append(float(value) * x)
            for one, amount in zip(shared, amounts, strict=True):
                used[one.name].append(float(amount) * x)
        model += pulp.lpSum(own) == 1
    extra = _price_steps(system, model, used)
    for one in shared:
        if one.most is not None:
            more = pulp.lpSum(extra) if one.name == "budget" else 0
            model += pulp.lpSum(used[one.name]) + more <= float(one.most) * (1 + 1e-9)
    sums["value"] += extra
    return model, {name: pulp.lpSum(terms) for name, terms in sums.items()}


def _price_steps(system: System, model: Any, used: dict[str, list[Any]]) -> list[Any]:
    """Return what tiers change of the cost, with a variable for the accelerators in each."""
    extra: list[Any] = []
    for name, card in system.accelerators.items():
        covered = []
        for i, tier in enumerate(card.tiers):
            covered.append(pulp.LpVariable(f"t_{name.replace('-', '_')}_{i}", 0, tier.units))
            price = 0.0 if tier.committed else float(tier.cost_cents_per_h)
            extra.append((price - float(card.cost_cents_per_h)) * covered[-1])
            extra += [float(tier.units * tier.cost_cents_per_h)] * tier.committed
        if covered:
            model += pulp.lpSum(covered) <= pulp.lpSum(used[f"accelerator {name}"])
    return extra


def large_system(seed: int, servers: int, accelerators: int, options: tuple[str, ...] = OPTIONS) -> System:
    """Return a scarce system that uses every option, or some, written from a generated fleet."""
    system = generate_system(servers=servers, accelerators=accelerators, types=4, seed=seed, tightness=1.2)
    source = system.to_spec().model_dump(mode="json", by_alias=True, exclude_none=True)
    rng = random.Random(f"large {seed}")
    for option in options:
        if option not in {"budget", "power"}:
            _ADD[option](source, rng)
    source["optimizer"]["unlimited"] = False
    cost = solve(system).total_cost_cents_per_h
    source["optimizer"] |= {
        "budget": rng.choice([0.8, 1.2, 2.0]) * cost + 1e4 * (rng.random() < 0.3),
        "gap": 0.0,
    }
    return load_system(source)


def rolling_fleet(seed: int, servers: int) -> System:
    """Return a scarce fleet that rolls out, with two of the other options."""
    first, others = seed // 2, ("spares", "availability", "headroom", "budget", "deadline", "cache")
    two = others[first % 6], others[(first + 1 + first // 6 % 5) % 6]
    return large_system(seed, servers, 6, (*two, MODES[seed % 2]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 2))
def test_a_few_servers_are_those_of_a_second_formulation(seed: int) -> None:
    compare_with_second(large_system(seed, 12, 6))
    if seed < 2:
        compare_with_second(rolling_fleet(seed, 10))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("options", [OPTIONS, ("deadline", "headroom", "preferred", "tiers"), MODES])
def test_fifty_servers_match_a_second_formulation(seed: int, options: Wanted) -> None:
    made = rolling_fleet(seed, 16) if options == MODES else large_system(seed, 50, 10, options)
    compare_with_second(made)


CBC_S = 60
"""Time that CBC has for a level [s]: for one value in a few systems it needs more than an hour."""


def compare_with_second(system: System) -> None:
    """Hold every level of a plan to the second formulation, with the levels before as its limits.

    Where CBC proves a level, it is the plan's. Where it runs out of time, it has found nothing better than
    the plan, and the plan's value remains a limit that the later levels meet.
    """
    plan = solve(system, time_limit_s=120.0)
    assert verify(plan, system) == []
    with without_announcements():
        _compare_levels(plan, *second_formulation(system))


def _compare_levels(plan: Plan, model: Any, objectives: dict[str, Any]) -> None:
    assert [*objectives] == [level.name for level in plan.levels]
    for level in plan.levels:
        objective = objectives[level.name]
        model.setObjective(objective)
        solver = pulp.PULP_CBC_CMD(msg=False, gapRel=0, timeLimit=CBC_S)
        assert pulp.LpStatus[model.solve(solver)] == "Optimal", level.name
        found = float(pulp.value(objective) or 0.0)
        if model.sol_status == pulp.LpSolutionOptimal:
            assert level.value == pytest.approx(found, rel=1e-6, abs=1e-3), level.name
        else:
            assert level.value <= found + max(1e-6 * abs(found), 1e-3), level.name
        whole = level.name == "changes" or level.name.endswith("servers")
        model += objective <= level.value + (0.5 if whole else max(1e-6 * abs(level.value), 1e-3))


def test_servers_that_are_not_served_lack_their_reserve() -> None:
    """A replica carries 540 requests/min: 'a' needs 1 and a spare, 'b' 3 and a spare, on 3 cards."""
    servers = [server("a", 500, spareReplicas=1), server("b", 1500, spareReplicas=1)]
    system = load_system(document(servers, [accelerator("A")], {"A": 3}))
    plan = solve(system)
    assert (plan.unserved[0].server, plan.lacks_reserve) == ("a", ("a", "b"))
    assert plan.reserve_text == "2 servers lack their reserves: a, b"
    false = plan.reserves[0].model_copy(update={"has_reserve": True})
    lines = verify(plan.model_copy(update={"reserves": (false, plan.reserves[1])}), system)
    assert "reserves.0.hasReserve is false, the plan says true" in lines
