"""Caches of results: the same as a smaller load with other percentiles, by simulation, and false plans."""

import json
import random

import numpy as np
import pytest
import yaml
from builders import Json, accelerator, document, server
from doc_pages import ROOT
from random_fleets import random_fleet_document
from slow_cases import seeds
from small_fleets import cached

from optimizer import SpecError, load_system, solve, verify
from optimizer.features.caches.streams import target_of_misses
from optimizer.features.caches.uses import CacheUse
from optimizer.kinds.simulated import open_load
from optimizer.kinds.table import kind_of_profile
from optimizer.plan import Plan
from optimizer.queueing.measures import TargetMeasure
from optimizer.render.plan_sections import plan_sections
from optimizer.schema import ModelTarget
from optimizer.simulation.replicas import Effort, run_replica
from optimizer.studies.simulation.plans import simulate_pools


def without_caches(source: Json) -> Json:
    """Return a document with the loads and targets that replicas see, each server in a class of its own."""
    system = load_system(source)
    plain: Json = json.loads(json.dumps(source))
    plain["serviceClasses"] = []
    for item in plain["servers"]:
        hits = item.pop("cacheHitRate", 0.0)
        stated = system.servers[item["name"]].current.load
        load = item["currentAlloc"]["load"]
        load["arrivalRate"] = stated.arrival_rate_rpm * (1 - hits)
        load["arrivalCV"] = (1 + (1 - hits) * (stated.arrival_cv**2 - 1)) ** 0.5
        known = next(c for c in source["serviceClasses"] if c["name"] == item.get("class", "Free"))
        targets = [_of_misses(target, hits) for target in known.get("modelTargets", [])]
        item["class"] = f"{known['name']} of {item['name']}"
        plain["serviceClasses"].append(known | {"name": item["class"], "modelTargets": targets})
    return plain


def _of_misses(target: Json, hits: float) -> Json:
    """Return a target of all requests as one of the misses, in plain arithmetic on documents."""
    seen: Json = {key: value for key, value in target.items() if key != "latency"}
    if "slo-tps" in seen:
        seen["slo-tps"] *= 1 - hits
    for key, whole in (("percentile", 100), ("goodputShare", 1)):
        if seen.get(key) is not None and hits:
            seen[key] = whole - (whole - seen[key]) / (1 - hits)
            if seen[key] <= 0:
                seen = {"model": target["model"]} | {k: seen[k] for k in ("slo-tps", "maxLoss") if k in seen}
    limits = [dict(limit) for limit in target.get("latency", [])]
    for limit in limits:
        if limit.get("percentile") is not None and hits:
            limit["percentile"] = 100 - (100 - limit["percentile"]) / (1 - hits)
    seen["latency"] = [limit for limit in limits if (limit.get("percentile") or 1) > 0]
    return seen if seen["latency"] else {key: value for key, value in seen.items() if key != "latency"}


def cached_fleet(seed: int) -> Json:
    source, rng = random_fleet_document(seed), random.Random(f"caches {seed}")
    for item in source["servers"]:
        item["cacheHitRate"] = rng.choice([0, 0.25, 0.3, 0.5, 0.9])
    return source


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2, 18))
def test_a_cache_is_a_smaller_load_with_other_percentiles(seed: int) -> None:
    source = cached_fleet(seed)
    system, plain = load_system(source), load_system(without_caches(source))
    for mixed in (False, True):
        plan = solve(system.with_options(heterogeneous=mixed))
        other = solve(plain.with_options(heterogeneous=mixed))
        shown, expected = (json.loads(one.to_json()) for one in (plan, other))
        assert [item["server"] for item in shown.pop("caches", [])] == [
            name for name, item in system.servers.items() if item.cache_hit_rate
        ]
        for pools in (*shown["allocations"].values(), *expected["allocations"].values()):
            for pool in pools:
                del pool["class"]  # the smaller load has a class of its own
        for key in ("allocations", "levels", "totalCostCentsPerH", "capacity", "complete"):
            assert shown[key] == expected[key], key
        assert [item["servedFraction"] for item in shown["unserved"]] == [
            item["servedFraction"] for item in expected["unserved"]
        ]
        assert verify(plan, system.with_options(heterogeneous=mixed)) == []


@pytest.mark.parametrize(
    ("percentile", "hits", "seen"),
    [(99, 0.3, 98.571428571), (99, 0.5, 98), (50, 0.3, 28.571428571), (50, 0.5, None), (50, 0.7, None)],
)
def test_percentiles_of_all_are_percentiles_of_the_misses(
    percentile: float, hits: float, seen: float | None
) -> None:
    """The figures of a language service: p99 and p50 at hit rates of 30 and 50 %."""
    target = ModelTarget.model_validate(
        {"model": "m", "slo-ttft": 100, "percentile": percentile,
         "latency": [{"percentile": percentile, "ms": 500}, {"ms": 200}]}
    )  # fmt: skip
    found = target_of_misses(target, hits)
    assert found.percentile == (None if seen is None else pytest.approx(seen))
    assert found.ttft_ms == (0 if seen is None else 100)
    limits = [limit.percentile for limit in found.latency]
    assert limits == ([None] if seen is None else [pytest.approx(seen), None])


@pytest.mark.parametrize(
    ("share", "hits", "limited"), [(0.9, 0.5, True), (0.9, 0.9, False), (0.5, 0.75, False)]
)
def test_goodput_counts_hits(share: float, hits: float, *, limited: bool) -> None:
    target = ModelTarget.model_validate({"model": "m", "slo-ttft": 100, "goodputShare": share})
    found = dict(target_of_misses(target, hits).latency_targets())
    assert found == ({TargetMeasure("missed", hit_rate=hits): 1 - share} if limited else {})


def test_a_goodput_share_is_shown_as_its_user_stated_it() -> None:
    """Plan and simulation count the hits: 35 % of the requests are within the targets at any load."""
    system = cached(0.35, 600, percentile=None, goodputShare=0.95)
    plan = solve(system)
    assert verify(plan, system) == []
    (pool,) = plan.allocations["a"]
    (figure,) = pool.other_targets
    assert figure.limit == pytest.approx(0.05)
    assert figure.text.endswith("% within (95 %)")
    (found,) = simulate_pools(system, plan, Effort(2_000, 1)).pools
    (check,) = (item for item in found.targets if "beyond" in item.target)
    assert check.limit == pytest.approx(0.05)
    assert check.simulated.value == pytest.approx(0.65 * (1 - found.within_all.value))


def test_percentiles_of_hits_and_misses_are_those_of_all() -> None:
    """Answers of the cache count as 0 ms beside simulated misses; the percentile of all is by sorting."""
    system = cached(rate=600)
    owner = system.servers["a"]
    (pool,) = solve(system).allocations["a"]
    item = system.profiles["m", "A"]
    replica = kind_of_profile(item).replica(owner, item, pool.max_batch, pool)
    runs = run_replica(open_load(owner.current.load, 360 / 60), replica, Effort(seed=7))
    misses = np.concatenate([run.ttft_ms for run in runs])
    every = np.concatenate([np.zeros(round(len(misses) * 0.4 / 0.6)), misses])
    (found,) = simulate_pools(system, solve(system), Effort()).pools
    (target,) = [target for target in found.targets if "TTFT" in target.target]
    assert target.simulated.value == pytest.approx(np.quantile(every, 0.95), rel=0.05)


def test_studies_count_what_replicas_see() -> None:
    system = cached(rate=600)
    plan = solve(system)
    (pool,) = plan.allocations["a"]
    assert pool.arrival_rate_rpm == pytest.approx(360)
    assert plan.caches == (CacheUse(server="a", hit_rate=0.4, hits_rpm=240, misses_rpm=360),)
    assert simulate_pools(system, plan, Effort()).holds
    again = load_system(system.to_spec().model_dump(by_alias=True))
    assert again.servers == system.servers


@pytest.mark.parametrize("share", [1, -0.1])
def test_a_hit_rate_is_a_share_below_one(share: float) -> None:
    with pytest.raises(SpecError, match=r"^servers\[0\].cacheHitRate: must be "):
        load_system(document([server("a", cacheHitRate=share)], [accelerator("A")], {"A": 4}))


@pytest.mark.slow
def test_a_plan_for_another_cache_is_found() -> None:
    """A plan for other hits is found, and so is one that only states the right ones."""
    plan = json.loads(solve(cached()).to_json())
    assert verify(solve(cached(0.5)), cached()) != []
    fooled = json.loads(solve(cached(0.5)).to_json()) | {"caches": plan["caches"]}
    assert any("its share is" in line for line in verify(Plan.model_validate(fooled), cached()))


def test_an_unserved_server_beside_a_queue_counts_its_misses() -> None:
    made = yaml.safe_load((ROOT / "specs" / "shared-queue.yaml").read_text("utf-8"))
    made["models"].append(made["models"][1] | {"name": "other"})
    made["serviceClasses"][0]["modelTargets"].append({"model": "other", "slo-ttft": 500, "slo-itl": 60})
    load = {"arrivalRate": 600, "avgInTokens": 300, "avgOutTokens": 200}
    cached = {"name": "cached", "class": "premium", "model": "other", "cacheHitRate": 0.5}
    made["servers"].append(cached | {"currentAlloc": {"load": load}})
    plan = solve(load_system(made | {"count": []}))
    assert plan.levels[0].value == 120 + 600 / 2


def test_percentiles_are_named_as_the_user_stated_them() -> None:
    system = cached(0.35, 600, percentile=50)
    plan = solve(system)
    (figure,) = plan.allocations["a"][0].other_targets
    assert figure.measure == "p50 of all requests' TTFT"
    assert figure.text.startswith("p50 of all requests' TTFT ")
    assert figure.text.endswith(" ms (150 ms)")
    text = " ".join(part for section in plan_sections(plan, system) for part in map(str, section.rows))
    assert "p50 " in text
    assert "p23" not in text
    assert verify(plan, system) == []
    (check,) = simulate_pools(system, plan, Effort(2_000, 1)).pools[0].targets[:1]
    assert check.target == figure.measure
    assert check.predicted == figure.value


def test_a_rejection_names_the_percentile_of_all_requests() -> None:
    system = cached(0.35, 600, percentile=50, **{"slo-ttft": 1e-3})
    (missing,) = solve(system).unserved
    assert "best p50 of all requests' TTFT at batch 1 is" in missing.detail
