"""Mixed plans: against exhaustive search, the known answers, and what must hold of every pool."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from builders import accelerator, profile, running, server, service_class
from builders import system as build
from mixed_oracles import Demand, demands, mixed_brute_force, random_mixed_document
from oracles import find_target, linear_replica, plain
from slow_cases import mostly_slow

from optimizer import Plan, System, find_candidates, load_system, solve, verify
from optimizer.generate import generate_system
from optimizer.milp.highs import HighsSession
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.exact import solve_exactly
from optimizer.solvers.levels import is_better
from optimizer.solvers.problem import build_problem
from optimizer.solvers.solution import Status

SEEDS = range(30)
UNITS = ("limited", "unlimited")


@cache
def random_system(seed: int) -> System:
    return load_system(random_mixed_document(seed))


def scaled(system: System, divisor: int) -> System:
    """Return a system with its capacities divided, in whole units."""
    return system.with_capacity({kind: count // divisor for kind, count in system.capacity.items()})


# --- against exhaustive search -----------------------------------------------------------------------------


def assert_equal_to_brute_force(system: System) -> Plan:
    """Values of the random systems differ by at least 0.0125, or not at all; see `random_document`."""
    best, plan = mixed_brute_force(system), solve(system)
    assert [level.name for level in plan.levels] == list(best)
    for level in plan.levels:
        assert level.value == pytest.approx(float(best[level.name]), rel=0, abs=1e-6), level.name
        assert level.bound == pytest.approx(level.value, rel=0, abs=1e-6), level.name
        assert level.gap == pytest.approx(0, abs=1e-12), level.name
    assert plan.status == "optimal"
    assert verify(plan, system) == []
    assert wrong_pools(plan, system) == []
    return plan


@pytest.mark.few(2)
@pytest.mark.parametrize(("seed", "units"), mostly_slow(product(range(500), UNITS), 20))
def test_a_mixed_plan_equals_exhaustive_search_at_every_level(seed: int, units: str) -> None:
    assert_equal_to_brute_force(random_system(seed).with_options(unlimited=units == "unlimited"))


@pytest.mark.slow
def test_random_systems_contain_every_difficulty_of_mixing() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        system = random_system(seed)
        if not any(demand.columns for demand in demands(system).values()):
            seen["no column at all"] += 1
            continue
        plan, single = solve(system), solve(system, heterogeneous=False)
        asked = demands(system)
        seen["several pools"] += any(len(pools) > 1 for pools in plan.allocations.values())
        seen["served only as a mixture"] += len(plan.unserved) < len(single.unserved)
        seen["someone is left out"] += not plan.complete
        seen["several priorities"] += len({demand.priority for demand in asked.values()}) > 1
        for name, demand in asked.items():
            pools = plan.allocations.get(name, ())
            count = sum(pool.num_replicas for pool in pools)
            here = [pool for pool in pools if pool.accelerator in demand.now]
            seen["at the least replicas"] += bool(pools) and count == demand.least
            seen["at the most replicas"] += count == demand.most
            seen["stays and adds a pool"] += bool(here) and len(pools) > 1
            seen["stays with other replicas"] += (
                bool(here) and here[0].num_replicas not in demand.now.values()
            )
            seen["stays as it is"] += bool(here) and {*demand.now.values()} == {count}
            seen["moves"] += bool(pools) and bool(demand.now) and not here
    expected = {  # counted on the 30 systems; a generator that gets tamer falls below
        "several pools": 3,
        "served only as a mixture": 2,
        "someone is left out": 15,
        "several priorities": 7,
        "at the least replicas": 10,
        "at the most replicas": 8,
        "stays with other replicas": 8,
        "stays as it is": 2,
        "moves": 8,
    }
    assert {name: seen[name] for name, least in expected.items() if seen[name] < least} == {}


# --- accelerators that cost nothing ------------------------------------------------------------------------


def free_system(seed: int) -> System:
    """Return a random system some of whose accelerators cost nothing."""
    document, rng = random_mixed_document(seed), random.Random(seed)
    for card in document["accelerators"]:
        card["cost"] = 0 if rng.random() < 0.6 else card["cost"]
    return load_system(document)


FREE = [*range(10), 42, 48, 56, 57, 69, 80, 122, 130, 132, 149]
MORE_FREE = [range(hundred, hundred + 100) for hundred in range(0, 1200, 100)]


@pytest.mark.few(1)
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("seeds", mostly_slow([*((seed,) for seed in FREE), *MORE_FREE], 20), ids=str)
def test_mixed_plans_on_free_accelerators_match_brute_force(seeds: Sequence[int], units: str) -> None:
    for seed in seeds:
        assert_equal_to_brute_force(free_system(seed).with_options(unlimited=units == "unlimited"))


@pytest.mark.parametrize("unlimited", [False, True])
def test_a_server_keeps_surplus_replicas_that_cost_nothing(*, unlimited: bool) -> None:
    source = build(
        [server("b", 60.0, current=running("A", 2, 0.0))],
        [accelerator("A", cost=0.0)],
        {"A": 2},
        models=[profile("m", "A", maxBatchSize=1)],
        heterogeneous=True,
        unlimited=unlimited,
    )
    plan = solve(source)
    assert pools_of(plan, "b") == {"A": 2}  # one is enough
    assert (plan.objective, plan.changes, plan.levels[-1].value) == (0.0, (), 0.0)


# --- worked by hand ----------------------------------------------------------------------------------------

# With a batch of one a request of 16 + 64 tokens takes 5 + 0.01 * 16 ms of prefill and 63 steps of 10 + 0.5
# ms, 666.66 ms in all: a replica carries 0.999 * 60,000 / 666.66 = 89.91 requests a minute.


def two_kinds(servers: list[dict[str, object]], units: dict[str, int] | None, **options: object) -> System:
    """Return a system of A (10 cents/h) and B (25 cents/h); a replica of either carries 89.91 a minute."""
    return build(
        servers,
        [accelerator("A", cost=10.0), accelerator("B", cost=25.0)],
        units,
        models=[profile("m", "A", maxBatchSize=1), profile("m", "B", maxBatchSize=1)],
        heterogeneous=True,
        **options,
    )


def pools_of(plan: Plan, name: str) -> dict[str, int]:
    return {pool.accelerator: pool.num_replicas for pool in plan.allocations.get(name, ())}


def test_a_server_too_large_for_any_accelerator_is_mixed() -> None:
    system = two_kinds([server("a", 240.0)], {"A": 2, "B": 2})
    assert not solve(system, heterogeneous=False).complete
    plan = solve(system)
    assert pools_of(plan, "a") == {"A": 2, "B": 1}
    assert plan.total_cost_cents_per_h == 45.0  # 2 x 10 + 25


def test_the_value_of_pools_of_a_server_that_partly_stays() -> None:
    now = running("A", 2, 20.0)
    plan = solve(two_kinds([server("a", 240.0, current=now)], {"A": 2, "B": 2}))
    assert pools_of(plan, "a") == {"A": 2, "B": 1}
    # Costs 45 - 20, and 0.1 of the 25 that are spent on another accelerator (math.md, section 7).
    assert plan.objective == pytest.approx(27.5)
    assert [change.server for change in plan.changes] == ["a"]
    assert plan.levels[-1].value == 1


def test_equal_mixtures_prefer_an_unchanged_server() -> None:
    now = running("B", 2, 50.0)
    plan = solve(
        build(
            [server("a", 120.0, current=now)],
            [accelerator("A", cost=25.0), accelerator("B", cost=25.0)],
            {"A": 9, "B": 9},
            models=[profile("m", "A", maxBatchSize=1), profile("m", "B", maxBatchSize=1)],
            heterogeneous=True,
            transitionPenalty=0.0,
        )
    )
    assert pools_of(plan, "a") == {"B": 2}
    assert plan.levels[-1].value == 0


@pytest.mark.parametrize("units", [{"A": 5}, None])
def test_a_server_without_any_column_is_unserved_in_a_mixed_plan(units: dict[str, int] | None) -> None:
    classes = [service_class("gold", itl=1.0)]  # a token takes 10.5 ms at batch one
    plan = solve(build([server("a", 60.0)], [accelerator("A")], units, classes=classes, heterogeneous=True))
    assert [(item.server, item.reason) for item in plan.unserved] == [("a", "slo_unattainable")]
    assert plan.status == "optimal"


# --- known answers ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "total_cost"),
    [("small", 37_929.0), ("large", 23_410.5)],  # shared/reference/README.md, "Known answers"
)
def test_the_sample_systems_have_their_known_mixed_answers(name: str, total_cost: float, specs: Path) -> None:
    system = load_system(specs / name).with_options(heterogeneous=True, time_limit_s=300.0)
    plan = solve(system)
    assert plan.total_cost_cents_per_h == pytest.approx(total_cost, abs=1e-6)
    assert plan.objective == pytest.approx(1.1 * total_cost, abs=1e-6)  # nothing runs yet: all is started
    assert (plan.status, plan.complete, plan.gap) == ("optimal", True, 0.0)
    assert [level.gap for level in plan.levels] == [0.0] * len(plan.levels)
    assert wrong_pools(plan, system) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_mixed_plans_of_random_fleets_are_no_worse_than_single(seed: int) -> None:
    system = generate_system(servers=10, accelerators=8, types=4, seed=seed)
    for unlimited in (True, False):
        system = system.with_options(unlimited=unlimited, gap=1e-4)
        mixed, single = solve(system, heterogeneous=True), solve(system)
        assert service_of(mixed) <= service_of(single)
        if service_of(mixed) == service_of(single):
            assert mixed.objective <= single.objective + 1e-4 * abs(single.objective)
        assert wrong_pools(mixed, system) == []


def service_of(plan: Plan) -> list[float]:
    return [round(level.value, 6) for level in plan.levels if level.name.startswith("priority")]


# --- scarce and stopped early ------------------------------------------------------------------------------


class NoTimeForParts(Deadline):
    """A deadline of which every part has passed, so that the mixed plan gets no time."""

    __slots__ = ()

    def share(self, part: float) -> Deadline:
        del part
        return Deadline(0.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_single_plan_replaces_a_worse_mixed_one_without_proof(seed: int) -> None:
    system = generate_system(60, 12, 4, seed, 1.6)
    problem = build_problem(find_candidates(system.with_options(heterogeneous=True)))
    plain_deadline, without_parts = Deadline.after(600), NoTimeForParts.after(600)
    single = replace(problem, options=system.options)
    best = solve_exactly(single, HighsSession, plain_deadline, with_patterns=True).replicas
    found = solve_exactly(problem, HighsSession, without_parts, with_patterns=True)
    assert found.status is Status.feasible
    assert not is_better(problem, best, found.replicas)


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(["small", "large"], 1))
def test_a_quarter_of_capacity_is_solved_in_time_with_all_gaps(name: str, specs: Path) -> None:
    system = scaled(load_system(specs / name), 4).with_options(
        heterogeneous=True, time_limit_s=3.0, saturation_policy="None"
    )
    begin = time.process_time()
    plan = solve(system)
    assert time.process_time() - begin < 20.0  # the limit on two cores, and sizing, however busy the machine
    assert plan.status in {"optimal", "feasible"}
    assert not plan.complete
    for level in plan.levels:
        assert level.gap is not None, level.name
        assert level.bound is not None, level.name
        assert level.bound <= level.value, level.name
        assert 0 <= level.gap <= 1, level.name  # how small depends on the machine: docs/performance.md
    assert verify(plan, system) == []
    assert wrong_pools(plan, system) == []


# --- what holds of every pool ------------------------------------------------------------------------------


def wrong_pools(plan: Plan, system: System) -> list[str]:
    """Say what is wrong with the pools of a plan without partial service, from the system's document alone.

    Every pool meets its targets at its share; all pools of a server run at the same fraction of their own
    largest rate; together they carry the load; no more units are used than exist.
    """
    spec, asked = plain(system), demands(system)
    documents = {item["name"]: item for item in spec["servers"]}
    perfs = {(item["name"], item["acc"]): item for item in spec["models"]}
    wrong, used = [], Counter[str]()
    for name, pools in plan.allocations.items():
        demand, document = asked[name], documents[name]
        wrong += [f"{name}: {text}" for text in _wrong_split(plan, demand)]
        for pool in pools:
            column = next(column for column in demand.columns if column.accelerator == pool.accelerator)
            used[column.kind] += pool.num_replicas * column.units
            perf = perfs[document["model"], pool.accelerator]
            if not perf["decodeParms"] or not demand.load_rpm:
                continue
            rate_rps = pool.arrival_rate_rpm / 60 / pool.num_replicas
            seen = linear_replica(document, perf, pool.max_batch, rate_rps)
            target = find_target(spec, document)
            for key, said, limit in (
                ("itlMs", pool.itl_ms, target["slo-itl"]),
                ("ttftMs", pool.ttft_ms, target["slo-ttft"]),
            ):
                if said != pytest.approx(seen[key], rel=1e-6, abs=1e-6):
                    wrong.append(f"{name} on {pool.accelerator}: {key} is {seen[key]}, not {said}")
                if limit and seen[key] > limit * (1 + 1e-5):
                    wrong.append(f"{name} on {pool.accelerator}: {key} is {seen[key]}, target {limit}")
    if not system.options.unlimited:
        wrong += [f"{kind}: {n} units" for kind, n in used.items() if n > system.capacity.get(kind, 0)]
    return wrong + [
        f"{item.type}: used {item.used}" for item in plan.capacity if item.used != used[item.type]
    ]


def _wrong_split(plan: Plan, demand: Demand) -> list[str]:
    wrong = []
    pools = plan.allocations[demand.name]
    fractions = [pool.arrival_rate_rpm / pool.max_arrival_rate_rpm for pool in pools]
    if fractions and max(fractions) > min(fractions) * (1 + 1e-9):
        wrong.append(f"pools at {fractions} of their own largest rates")
    if fractions and max(fractions) > 1 + 1e-9:
        wrong.append(f"pools above their largest rates: {fractions}")
    carried = sum(pool.arrival_rate_rpm for pool in pools)
    if carried != pytest.approx(float(demand.load_rpm), rel=1e-9):
        wrong.append(f"carries {carried} of {float(demand.load_rpm)}")
    count = sum(pool.num_replicas for pool in pools)
    if pools and not demand.least <= count <= demand.most:
        wrong.append(f"{count} replicas, {demand.least} to {demand.most} are asked for")
    if len({pool.accelerator for pool in pools}) < len(pools):
        wrong.append("two pools on one accelerator")
    return wrong
