"""Servers that share cards in shares, in slices and in time: patterns, plans, verification, simulation."""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import builders
import numpy as np
import pytest
from builders import Json, accelerator
from shared_card_oracles import best_by_enumeration, random_system
from slow_cases import seeds

from optimizer import Plan, SpecError, load_system, solve, verify
from optimizer.candidates import find_candidates
from optimizer.features.shared_cards import offers as card_candidates
from optimizer.features.shared_cards.patterns import Occupant, maximal
from optimizer.features.shared_cards.turns import Turn, largest_rates_rps
from optimizer.features.shared_cards.uses import SharedPool
from optimizer.features.shared_cards.view import missed_targets
from optimizer.jobs.simulating import SimulateOptions, simulate_plan
from optimizer.pipeline import solve_in_full
from optimizer.queueing.bulk.time_sharing import fills
from optimizer.queueing.sizing import SizedRows
from optimizer.render.manifests import deployment_patch, variants
from optimizer.simulation.batches import BatchServer
from optimizer.spec.system import System


def model(name: str, acc: str = "T4", memory: float = 4.0, base: float = 10.0, **more: Any) -> Json:
    times = {"batchParms": {"base": base, "slope": 2.0}}
    return {"name": name, "acc": acc, "maxBatchSize": 8, "memory": memory, **times, **more}


def sharing(name: str, rate_rps: float, **more: Any) -> Json:
    load = {"load": {"arrivalRate": 60 * rate_rps}}
    return {"name": name, "model": name, "class": "c", "sharedCard": True, "currentAlloc": load} | more


def document(
    models: list[Json], servers: list[Json], cards: int = 8, limit_ms: float = 200.0, **options: Any
) -> Json:
    names = sorted({one["name"] for one in models})
    targets = [{"model": name, "latency": [{"percentile": 95, "ms": limit_ms}]} for name in names]
    classes = [{"name": "c", "priority": 1, "modelTargets": targets}]
    card = accelerator("T4", cost=35) | {"memSize": 16}
    return builders.document(servers, [card], {"T4": cards}, classes=classes, models=models, **options)


QUARTER = [{"share": 0.25, "slowdown": 3.0}]
EIGHTH = [{"share": 0.125, "slowdown": 5.0}]


# --- patterns ------------------------------------------------------------------------------------------


def occupant(server: int, memory: float, share: float) -> Occupant:
    return Occupant(server, server, "shares", 8, 1.0, (memory, share))


def test_two_of_four_gb_and_four_of_two_gb_fill_sixteen_gb() -> None:
    """The example of the note: a T4 of 16 GB takes 2 a + 4 b."""
    occupants = [occupant(0, 4.0, 0.2), occupant(1, 2.0, 0.15)]
    assert (2, 4) in (maximal(occupants, (16.0, 1.0), 100) or [])


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(40))
def test_maximal_patterns_match_the_product_of_all_counts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    occupants = [
        occupant(s, float(rng.integers(1, 9)), float(rng.integers(1, 9)) / 8)
        for s in range(rng.integers(1, 5))
    ]
    limits = np.array([16.0, 1.0])
    uses = np.array([one.uses for one in occupants])
    counts = np.array(list(product(range(17), repeat=len(occupants))))
    fits = [tuple(n) for n in counts[(counts @ uses <= limits + 1e-9).all(axis=1)].tolist()]
    known = set(fits)
    full = {n for n in fits if all((*n[:i], n[i] + 1, *n[i + 1 :]) not in known for i in range(len(n)))}
    found = maximal(occupants, (16.0, 1.0), 10_000)
    assert found is not None
    assert set(found) == full
    assert len(found) == len(full)


def test_too_many_patterns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert maximal([occupant(s, 0.1, 0.01 + s / 100) for s in range(4)], (16.0, 1.0), 1000) is None
    monkeypatch.setattr(card_candidates, "MAX_PATTERNS", 2)
    models = [model(name, memory=1.0, shares=QUARTER) for name in "ab"]
    text = document(models, [sharing(name, 10) for name in "ab"])
    with pytest.raises(
        SpecError, match=r"accelerators\.T4: more than 2 ways to share a card in shares; give fewer"
    ):
        solve(load_system(text))


# --- plans ---------------------------------------------------------------------------------------------


def in_shares() -> System:
    """Return two servers in shares: one card takes both, and each would take a whole one."""
    models = [model("a", shares=QUARTER), model("b", memory=2.0, shares=EIGHTH)]
    return load_system(document(models, [sharing("a", 60), sharing("b", 40)]))


def in_time(**more: Any) -> System:
    models = [model("a"), model("b", memory=2.0, base=15.0), model("c", memory=9.0)]
    return load_system(document(models, [sharing(name, 30, **more) for name in "abc"]))


def test_servers_in_shares_take_one_card_for_two() -> None:
    plan = solve(in_shares())
    (use,) = plan.shared_cards
    assert (use.name, use.mode, use.num_cards, plan.total_cost_cents_per_h) == (
        "shared-a-b",
        "shares",
        1,
        35.0,
    )
    assert sum(item.per_card * (item.share or 0) for item in use.servers) <= 1
    assert sum(item.per_card * item.memory_gb for item in use.servers) <= 16
    assert {item.server: item.whole_cost_cents_per_h for item in use.servers} == {"a": 35.0, "b": 35.0}
    assert plan.allocations == {"a": (), "b": ()}
    assert plan.complete


def test_a_share_is_a_replica_with_longer_times() -> None:
    """Its largest rate is that of a server whose batches take so much longer."""
    found = find_candidates(in_shares()).shared
    assert found is not None
    (rate,) = {s.rate_rps for one in found.patterns for s, _ in one.occupants if s.uses == (4.0, 0.25)}
    slow = model("a", base=30.0)
    slow["batchParms"]["slope"] = 6.0
    alone = load_system(document([slow], [sharing("a", 60, sharedCard=False)]))
    assert rate == pytest.approx(find_candidates(alone).table.max_rate_rps[0], rel=1e-9)


@pytest.mark.slow
def test_batch_servers_without_shares_take_turns() -> None:
    plan = solve(in_time())
    modes = {use.name: use.mode for use in plan.shared_cards}
    assert modes == {"shared-a-b-c": "time"}
    (use,) = plan.shared_cards
    assert max(item.utilization for item in use.servers) < 1


def three_in_turns() -> System:
    servers = [sharing(name, 10.0) for name in "abc"]
    return load_system(document([model(name) for name in "abc"], servers, limit_ms=400.0))


@pytest.mark.slow
def test_rates_close_to_saturation_meet_their_targets() -> None:
    """The mean delays of turns converge slowly there, so that the sized rate missed a target by 5e-5."""
    shared = find_candidates(three_in_turns()).shared
    assert shared is not None
    patterns = [one for one in shared.patterns if one.mode == "time"]
    assert len(patterns) == 4
    assert [line for one in patterns for line in missed_targets(shared, one)] == []


@pytest.mark.slow
def test_verification_sizes_only_what_a_plan_states(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, sized = list[int](), list[int]()
    system = three_in_turns()
    plan = solve(system)
    assert [(use.mode, len(use.servers)) for use in plan.shared_cards] == [("time", 3)]
    largest, rows_of = largest_rates_rps, SizedRows.of

    def counted(turns: list[Turn], mix: np.ndarray) -> np.ndarray | None:
        measured.append(len(turns))
        return largest(turns, mix)

    def of(replicas: Any, targets: Any) -> SizedRows:
        sized.append(targets.limits.shape[1])
        return rows_of(replicas, targets)

    monkeypatch.setattr(card_candidates, "largest_rates_rps", counted)
    monkeypatch.setattr(SizedRows, "of", of)
    assert verify(plan, system) == []
    assert measured == [3]
    assert sum(sized) == 3
    measured.clear()
    find_candidates(system)
    assert measured == [2, 2, 2, 3]


def test_memory_keeps_servers_from_one_card() -> None:
    models = [model("a", memory=9.0), model("b", memory=9.0)]
    plan = solve(load_system(document(models, [sharing("a", 20), sharing("b", 20)])))
    assert plan.shared_cards == ()
    assert plan.total_cost_cents_per_h == 70.0


def test_unstable_turns_are_not_planned() -> None:
    """The servers use a card to 78 %, but a cycle of turns brings more than a batch (eq. 206)."""
    models = [model("a", base=20.0), model("b", base=37.5)]
    models[0]["batchParms"]["slope"], models[1]["batchParms"]["slope"], models[1]["maxBatchSize"] = (
        0.1,
        2.5,
        5,
    )
    servers = [BatchServer(8, 0.0, 20.0, 0.1), BatchServer(5, 0.0, 37.5, 2.5)]
    rates = np.array([0.26, 0.01])
    busy = [rate * one.spacing_ms / one.size for rate, one in zip(rates, servers, strict=True)]
    assert sum(busy) < 0.8
    assert fills(servers, rates).max() > 1
    plan = solve(load_system(document(models, [sharing("a", 260), sharing("b", 10)], limit_ms=5000.0)))
    assert plan.total_cost_cents_per_h == 70.0
    for use in plan.shared_cards:
        assert all(item.utilization <= 0.999 for item in use.servers)


def test_slices_of_a_card_are_bounded_in_memory_and_compute() -> None:
    """Seven slices of one compute unit fit, and no eighth; alone they cannot be rented."""
    text = document([model("a", "A30", memory=4.0)], [sharing("a", 300)], cards=0)
    text["accelerators"] = [
        {"name": "A", "type": "A", "memSize": 40, "cost": 100},
        {"name": "1g", "type": "A", "memSize": 5, "slice": {"card": "A", "memory": 1, "compute": 1}},
    ]
    text["models"] = [model("a", "1g", base=40.0)]
    text["count"] = [{"type": "A", "count": 4}]
    plan = solve(load_system(text))
    (use,) = plan.shared_cards
    assert (use.mode, use.servers[0].per_card, use.servers[0].accelerator) == ("slices", 7, "1g")
    assert plan.total_cost_cents_per_h == 100.0 * use.num_cards


def test_scarce_cards_go_to_the_higher_priority() -> None:
    text = document(
        [model("a", shares=QUARTER), model("b", shares=QUARTER)],
        [sharing("a", 100), sharing("b", 700)],
        cards=1,
    )
    text["serviceClasses"].append({**text["serviceClasses"][0], "name": "d", "priority": 2})
    text["servers"][0]["class"] = "d"
    plan = solve(load_system(text))
    assert [item.server for item in plan.unserved] == ["b", "a"][: len(plan.unserved)] or plan.unserved
    assert verify(plan, load_system(text)) == []


def test_starts_use_shared_cards_only_with_their_units() -> None:
    """The greedy start uses a candidate that another of the same type dominates, so the model lacks it."""
    cards = [accelerator("one", "T", cost=210), accelerator("two", "T", cost=420) | {"memSize": 48}]
    models = [
        model("m", name, memory, base, maxBatchSize=256)
        for name, memory, base in (("one", 0.0, 26.4), ("two", 4.0, 13.2))
    ]
    classes = [{"name": "c", "modelTargets": [{"model": "m", "latency": [{"percentile": 99, "ms": 200}]}]}]
    servers = [sharing("m", 20_000 / 60)]
    plan = solve(load_system(builders.document(servers, cards, {"T": 8}, classes=classes, models=models)))
    assert plan.complete
    assert plan.total_cost_cents_per_h == 420


def test_documents_without_shared_cards_have_no_patterns() -> None:
    text = document([model("a", shares=QUARTER)], [sharing("a", 60, sharedCard=False)])
    assert find_candidates(load_system(text)).shared is None
    assert "sharedCards" not in json.loads(solve(load_system(text)).to_json())


# --- what is refused -----------------------------------------------------------------------------------


# --- against other computations ------------------------------------------------------------------------


def _as_good(plan: Plan, best: tuple[float, ...]) -> bool:
    reached = tuple(level.value for level in plan.levels)
    return plan.status == "optimal" and reached == pytest.approx(best, rel=1e-6, abs=1e-6)


# The enumeration of systems 17 and 20 takes ten seconds and more.
@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2, 160))
def test_random_plans_match_the_enumeration_of_all_units(seed: int) -> None:
    system = random_system(seed, 3, cards=2)
    if find_candidates(system).shared is not None:
        assert _as_good(solve_in_full(system).plan, best_by_enumeration(system))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 240))
def test_random_plans_in_turns_match_the_enumeration(seed: int) -> None:
    system = random_system(seed, 3, cards=2, turns=True)
    if find_candidates(system).shared is not None:
        assert _as_good(solve_in_full(system).plan, best_by_enumeration(system))


def _shared_pools(plan: Plan) -> Iterator[SharedPool]:
    for use in plan.shared_cards:
        yield from use.servers


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300, 310))
def test_simulated_fleets_keep_their_targets(seed: int) -> None:
    """No target of a server on shared cards is missed by more than 10 % (20,000 requests, seed 1)."""
    system = random_system(seed, 4, cards=3, turns=bool(seed % 2))
    plan = solve(system)
    found = simulate_plan(system, SimulateOptions(), plan)
    names = {item.server for item in _shared_pools(plan)}
    for pool in found.pools:
        if pool.server in names:
            assert pool.overload is None
            for target in pool.targets:
                assert target.simulated.value <= target.limit * 1.1, (pool.server, target)


def test_a_card_in_turns_is_simulated_as_a_card() -> None:
    """The latencies of the model are within 15 % of the simulation: its error is up to 10 % in most cases."""
    system = in_time()
    plan = solve(system)
    found = simulate_plan(system, SimulateOptions(), plan)
    assert {pool.server for pool in found.pools} == {"a", "b", "c"}
    for pool in found.pools:
        assert pool.ttft is not None
        assert pool.ttft.mean.value == pytest.approx(pool.ttft.predicted_mean, rel=0.15)


# --- manifests -----------------------------------------------------------------------------------------


def test_a_pattern_is_one_deployment_with_its_replicas() -> None:
    plan = solve(in_shares())
    (use,) = plan.shared_cards
    (variant,) = variants(plan)
    assert (variant.name, variant.replicas) == ("shared-a-b-t4", use.num_cards)
    patch = deployment_patch(variant, "serving", "vllm")
    containers = patch["spec"]["template"]["spec"]["containers"]
    assert len(containers) == sum(item.per_card for item in use.servers)
    assert containers[0] == {
        "name": "a",
        "env": [
            {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "25"},
            {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=4000M"},
        ],
    }
    assert len({one["name"] for one in containers}) == len(containers)
