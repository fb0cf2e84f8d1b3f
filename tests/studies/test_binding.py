"""Binding constraints, against sizing changed documents anew: only what is named lets the rate rise."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

import pytest
from builders import Json, accelerator, document, profile, server, service_class, system
from slow_cases import mostly_slow

from optimizer import System, find_candidates, load_system
from optimizer.studies.explanation.binding import binding_limits

Pair = tuple[str, str]
RISE = 1e-8
SEEDS = range(6)


def a_random_system(seed: int) -> System:
    """Return four servers on three accelerators: laws and queues, chunks, little memory, throughput."""
    rng = random.Random(seed)
    names = ["A0", "A1", "A2"]
    profiles: list[Json] = []
    for name in names:
        shape: Json = {
            "maxBatchSize": rng.choice([2, 4, 8, 16, 64]),
            "atTokens": rng.choice([0, 64, 128]),
            "kvCapacity": rng.choice([None, rng.randint(300, 6000)]),
        }
        if rng.random() < 0.5:
            profiles.append(profile("m", name, alpha=rng.choice([5.0, 10.0]), **shape))
        else:
            law = {"alpha": rng.uniform(2, 9), "beta": rng.uniform(0.005, 0.05), "gamma": 0.0001}
            budget = rng.choice([256, 1024, 8192])
            queue = "reference" if seed % 2 else "continuous"
            law_of = {"perfParms": law, "maxNumTokens": budget, "queueModel": queue}
            profiles.append({"name": "m", "acc": name, **law_of, **shape})
    classes = [
        service_class(
            f"c{i}",
            itl=rng.choice([0, 11.0, 13.5, rng.uniform(6, 30)]),
            ttft=rng.choice([0, rng.uniform(20, 90), rng.uniform(60, 2000)]),
            tps=rng.choice([0, 0, 0, 200]),
        )
        for i in range(4)
    ]
    servers = []
    for i in range(4):
        load = {"arrivalRate": 60.0, "avgInTokens": rng.randint(0, 1500), "avgOutTokens": rng.randint(2, 200)}
        body = server(f"s{i}", service=f"c{i}", current={})
        servers.append(body | {"currentAlloc": {"load": load}})
    return load_system(
        document(servers, [accelerator(name) for name in names], models=profiles, classes=classes)
    )


def rates_of(source: System) -> dict[Pair, tuple[float, int]]:
    """Return the largest rate of every pair, over all batches where they are chosen, and the batch limit."""
    return {
        (str(row["server"]), str(row["accelerator"])): (
            float(str(row["bestRateRpm"])),
            int(str(row["batchCeiling"])),
        )
        for row in find_candidates(source).to_wire()["candidates"]
    }


@cache
def named(seed: int) -> Mapping[Pair, dict[str, float]]:
    """Return what is named for every pair of a random system, with the rise that is said."""
    return limits_of(a_random_system(seed))


def limits_of(source: System) -> dict[Pair, dict[str, float]]:
    found = find_candidates(source)
    limits = binding_limits(found.arrays, found.table, choose_batch=source.options.batch_sizing == "optimal")
    return {
        (found.arrays.server_names[s], found.arrays.accelerator_names[a]): {
            item.limit: item.rate_gain for item in row
        }
        for s, a, row in zip(found.table.server, found.table.accelerator, limits, strict=True)
    }


def with_profile(source: System, pair: Pair, **changes: Any) -> System:
    key = (source.servers[pair[0]].model, pair[1])
    changed = source.profiles[key].model_copy(update=changes)
    return source.with_items(changed)


def alone(source: System, pair: Pair) -> System:
    """Return the system with one server on one accelerator: what a pair takes depends on no other."""
    only = source.servers[pair[0]].model_copy(update={"accelerators": (pair[1],)})
    return replace(source, servers=MappingProxyType({pair[0]: only}))


def relaxed(source: System, pair: Pair, limit: str) -> System:
    """Return the system with one limit of a pair relaxed, as docs/math.md says it."""
    mine = source.servers[pair[0]]
    target = source.targets[mine.service_class, mine.model]
    tokens = int(mine.current.load.in_tokens + mine.current.load.out_tokens)
    match limit:
        case "itl" | "ttft":
            name = f"{limit}_ms"
            return source.with_target(mine.service_class, mine.model, **{name: 1.01 * getattr(target, name)})
        case "throughput":
            return source.with_target(mine.service_class, mine.model, tps=0.0)
        case "memory":
            more = source.profiles[mine.model, pair[1]].kv_capacity_tokens
            return with_profile(source, pair, kv_capacity_tokens=None if more is None else more + tokens)
    larger = rates_of(source)[pair][1] + 1
    source = with_profile(source, pair, max_batch_size=larger, at_tokens=0)
    return source.with_planned({mine.name: mine.model_copy(update={"max_batch_size": 0})})


@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_slow(SEEDS, 3))
def test_relaxing_only_a_binding_limit_raises_the_rate(seed: int) -> None:
    source = a_random_system(seed)
    before = rates_of(source)
    for pair, limits in named(seed).items():
        assert limits, pair
        # A target that is named is met exactly, and none is at stability.
        assert not {"stability", "step"} & limits.keys() or not {"itl", "ttft"} & limits.keys()
        mine = alone(source, pair)
        for limit in ("itl", "ttft", "throughput", "memory", "batch"):
            after = rates_of(relaxed(mine, pair, limit)).get(pair, (0.0, 0))[0]
            rise = after / before[pair][0] - 1
            tie = limits.get(limit) == 0.0  # both at once, and neither alone
            assert (rise > RISE) == (limit in limits and not tie), (pair, limit, limits, rise)
            if limit in limits and not tie:
                assert limits[limit] == pytest.approx(rise, rel=1e-4, abs=1e-9)


@pytest.mark.slow
def test_every_limit_is_met_among_the_random_pairs() -> None:
    seen = Counter(limit for seed in SEEDS for row in named(seed).values() for limit in row)
    assert {"itl", "ttft", "throughput", "stability", "batch", "memory", "step"} <= seen.keys()


def test_two_limits_of_the_batch_at_one_point_are_both_named() -> None:
    """Eight requests by the profile and 8 × 80 tokens of memory: only both together let the rate rise."""
    source = system(
        [server("a")],
        [accelerator("A0")],
        models=[profile("m", "A0", kvCapacity=640)],
        classes=[service_class("gold", ttft=100)],
    )
    assert limits_of(source)["a", "A0"].keys() == {"ttft", "batch", "memory"}
    assert limits_of(source)["a", "A0"]["batch"] == 0.0


def test_a_chosen_batch_binds_only_at_its_limit() -> None:
    source = system(
        [server("a"), server("b", service="tin")],
        [accelerator("A0")],
        models=[profile("m", "A0", maxBatchSize=64)],
        classes=[service_class("gold", itl=12.3), service_class("tin", 2)],
        batchSizing="optimal",
    )
    limits = limits_of(source)
    assert limits["a", "A0"].keys() == {"itl"}
    assert "batch" in limits["b", "A0"]


def test_a_server_without_load_has_no_binding_limit() -> None:
    source = system([server("a", 0.0, replicas=2)], [accelerator("A0")])
    assert limits_of(source) == {("a", "A0"): {}}
