"""A memo of sizings: the same bytes with it and without, whatever was asked before, and bounded."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

import numpy as np
import pytest
from builders import Json, accelerator, document, profile, random_document, server, service_class
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer import Candidates, SizingMemo, System, find_candidates, load_system, solve
from optimizer.generate import generate_document, generate_system
from optimizer.studies.load_changes import scale_loads, vary_loads


def bytes_of(candidates: Candidates) -> list[bytes]:
    """Return every array of some candidates, of both tables and the verdicts."""
    parts = candidates.table, candidates.over_limit, candidates.verdicts
    arrays = [getattr(part, field.name) for part in parts for field in fields(part)]
    return [array.tobytes() for array in arrays]


# --- the same bytes --------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[System, random.Random], System]] = {
    "another load": lambda system, rng: scale_loads(system, rng.uniform(0.2, 5.0)),
    "other lengths": lambda system, rng: vary_loads(system, np.random.default_rng(rng.randrange(2**32))),
    "no load": lambda system, _: scale_loads(system, 0.0),
    "another loss": lambda system, rng: system.with_options(max_loss=rng.choice([1e-4, 1e-2, "none"])),
    "chosen batches": lambda system, _: system.with_options(batch_sizing="optimal"),
    "one server": lambda system, rng: replace(
        system, servers=dict([rng.choice(list(system.servers.items()))])
    ),
}


@pytest.mark.slow
@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**32),
    max_rows=st.sampled_from([1, 3, 10, 1000]),
    changes=st.lists(st.sampled_from(sorted(CHANGES)), min_size=3, max_size=8),
)
def test_a_memo_does_not_change_candidates(seed: int, max_rows: int, changes: list[str]) -> None:
    rng, memo = random.Random(seed), SizingMemo(max_rows)
    first = [load_system(random_document(rng)), load_system(generate_document(4, 5, 2, seed % 1000))]
    for change in changes:
        system = CHANGES[change](rng.choice(first), rng)
        assert bytes_of(find_candidates(system, memo)) == bytes_of(find_candidates(system))
        assert len(memo) <= max_rows


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"heterogeneous": True}, {"milp_solver": False}], ids=str)
def test_plans_are_the_same_bytes_with_a_memo(options: Json) -> None:
    memo, rng = SizingMemo(), np.random.default_rng(5)
    for seed in (1, 2, 1):
        system = vary_loads(generate_system(12, 6, 3, seed), rng).with_options(**options)
        for scale in (1.0, 0.9):
            changed = scale_loads(system, scale)
            assert solve(changed, memo=memo).to_json() == solve(changed).to_json()


def test_chunk_steps_are_remembered_with_the_rest() -> None:
    """Prompts in several chunks: rows for which lower loads are looked at as well."""
    times = {
        "perfParms": {"alpha": 8.0, "beta": 0.02, "gamma": 1e-4},
        "maxNumTokens": 2048,
        "queueModel": "reference",
    }
    models = [
        {"name": "m", "acc": name, "accCount": 1, "maxBatchSize": batch} | times
        for name, batch in (("A", 16), ("B", 8))
    ]
    load = {"arrivalRate": 30.0, "avgInTokens": 6000, "avgOutTokens": 2}
    body = server("s", currentAlloc={"load": load})
    classes = [service_class("gold", ttft=4000.0, itl=120.0)]
    system = load_system(
        document([body], [accelerator("A"), accelerator("B")], classes=classes, models=models)
    )
    memo, found = SizingMemo(), find_candidates(system)
    assert not found.table.meets_targets_below_max_rate.all()
    for scale in (1.0, 0.5, 2.0):
        changed = scale_loads(system, scale)
        assert bytes_of(find_candidates(changed, memo)) == bytes_of(find_candidates(changed))


@pytest.mark.slow
def test_threads_share_a_memo() -> None:
    system, memo = generate_system(20, 10, 4, 3), SizingMemo(90)
    scaled = [scale_loads(system, 0.5 + i / 10) for i in range(12)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: find_candidates(one, memo), scaled))
    assert [bytes_of(one) for one in found] == [bytes_of(find_candidates(one)) for one in scaled]
    assert len(memo) == 90


# --- what is remembered ----------------------------------------------------------------------------------


def linear(**changed: Json) -> Json:
    """Return a system of one server and one accelerator under the linear law."""
    names = ("server", "load", "target", "profile", "optimizer")
    parts: Json = {name: changed.get(name, {}) for name in names}
    load = {"arrivalRate": 60.0, "avgInTokens": 16, "avgOutTokens": 64} | parts["load"]
    more: Json = {"currentAlloc": {"load": load}, "maxQueueSize": 40} | parts["server"]
    targets: Json = {"itl": 30.0, "ttft": 500.0} | parts["target"]
    found = document(
        [server("s", **more)],
        [accelerator("A")],
        classes=[service_class("gold", **targets)],
        models=[profile("m", "A") | parts["profile"]],
    )
    found["optimizer"] |= parts["optimizer"]
    return found


def iteration(**changed: Json) -> Json:
    """Return the same under the iteration law."""
    times = {"perfParms": {"alpha": 8.0, "beta": 0.02, "gamma": 1e-4}, "maxNumTokens": 2048}
    both = times | changed.pop("profile", {})
    return linear(**changed | {"profile": both | {"decodeParms": None, "prefillParms": None}})


MATTERS: dict[str, Json] = {
    "prompt": {"load": {"avgInTokens": 17}},
    "answer": {"load": {"avgOutTokens": 65}},
    "ITL": {"target": {"itl": 31.0}},
    "TTFT": {"target": {"ttft": 501.0}},
    "no TTFT": {"target": {"ttft": 0.0}},
    "throughput": {"target": {"tps": 10.0}},
    "loss": {"optimizer": {"maxLoss": 0.05}},
    "batch": {"profile": {"maxBatchSize": 7}},
    "queue": {"server": {"maxQueueSize": 41}},
}
LAWS: dict[str, Json] = {
    "α": {"decodeParms": {"alpha": 10.1, "beta": 0.5}},
    "β": {"decodeParms": {"alpha": 10.0, "beta": 0.51}},
    "γ": {"prefillParms": {"gamma": 5.1, "delta": 0.01}},
    "δ": {"prefillParms": {"gamma": 5.0, "delta": 0.011}},
}
ITERATIONS: dict[str, Json] = {
    "α": {"perfParms": {"alpha": 8.1, "beta": 0.02, "gamma": 1e-4}},
    "β": {"perfParms": {"alpha": 8.0, "beta": 0.021, "gamma": 1e-4}},
    "γ": {"perfParms": {"alpha": 8.0, "beta": 0.02, "gamma": 1.1e-4}},
    "budget": {"maxNumTokens": 1024},
}
LOADS: dict[str, Json] = {
    "rate": {"load": {"arrivalRate": 61.0}},
    "replicas": {"server": {"minNumReplicas": 3}},
    "what runs": {"server": {"currentAlloc": {"accelerator": "A", "numReplicas": 2}}},
    "units": {"profile": {"accCount": 2}},
}


@pytest.mark.few(8)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (linear(), iteration()),
        *((base(), base(**change)) for base in (linear, iteration) for change in MATTERS.values()),
        *((linear(), linear(profile=law)) for law in LAWS.values()),
        *((iteration(), iteration(profile=law)) for law in ITERATIONS.values()),
    ],
)
def test_what_sizing_depends_on_is_sized_anew(first: Json, second: Json) -> None:
    memo, changed = SizingMemo(), load_system(second)
    before = find_candidates(load_system(first), memo)
    assert len(before.table) == len(memo) == 1
    assert bytes_of(find_candidates(changed, memo)) == bytes_of(find_candidates(changed))
    assert len(memo) == 2


@pytest.mark.parametrize("changed", LOADS)
def test_what_sizing_does_not_depend_on_is_not_sized_anew(changed: str) -> None:
    memo = SizingMemo()
    load = {"arrivalRate": 60.0, "avgInTokens": 16, "avgOutTokens": 64}
    parts: Json = {key: dict(value) for key, value in LOADS[changed].items()}
    if "currentAlloc" in parts.get("server", {}):
        parts["server"]["currentAlloc"] |= {"load": load}
    for body in (linear(), linear(**parts)):
        system = load_system(body)
        assert bytes_of(find_candidates(system, memo)) == bytes_of(find_candidates(system))
    assert len(memo) == 1


def test_of_too_many_rows_the_least_recently_used_is_dropped() -> None:
    memo = SizingMemo(2)
    first, second, third = (load_system(linear(target={"itl": itl})) for itl in (30.0, 31.0, 32.0))
    for system in (first, second, first, third):
        find_candidates(system, memo)
    assert (len(memo), memo.rows_sized) == (2, 3)
    find_candidates(first, memo)
    find_candidates(third, memo)
    assert memo.rows_sized == 3
    find_candidates(second, memo)
    assert memo.rows_sized == 4
