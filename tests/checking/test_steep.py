"""Servers whose cost explodes near a target's limit are named, and no others.

Each finding is compared with a second sizing of the document itself with targets that are 5 % looser.
"""

import copy
import random
from pathlib import Path

import pytest
from builders import Json, accelerator, document, server
from commands import Run

from optimizer import find_candidates, load_system, solve
from optimizer.checking.checks import warnings_of
from optimizer.checking.sizes import STEEP

FLEETS = 500
IN_DEFAULT = 8
"""Fleets that the default tests try; each has three servers with targets near what is attainable."""


def fleet(rng: random.Random, percentile: float | None) -> Json:
    """Return three servers of own models on two accelerators, with a small load and very loose targets."""
    names = ["m0", "m1", "m2"]
    models = [
        {
            "name": name, "acc": acc, "maxBatchSize": rng.choice([8, 32, 64]),
            "perfParms": {
                "alpha": rng.uniform(5, 20), "beta": rng.uniform(0.01, 0.5), "gamma": rng.uniform(1e-5, 1e-3)
            },
            "queueModel": "reference" if percentile is None else "continuous",
        }
        for name in names
        for acc in ("A", "B")
    ]  # fmt: skip
    target = {} if percentile is None else {"percentile": percentile}
    classes = [
        {"name": name, "modelTargets": [{"model": name, "slo-ttft": 1e9, "slo-itl": 1e9} | target]}
        for name in names
    ]
    servers = [server(name, "1e-6/min", service=name) | {"model": name} for name in names]
    for each in servers:
        load = {"avgInTokens": rng.choice([16, 300, 4000]), "avgOutTokens": rng.choice([16, 128, 500])}
        each["currentAlloc"]["load"] |= load
    cards = [accelerator("A", cost=100.0), accelerator("B", cost=rng.uniform(50, 300))]
    return document(servers, cards, models=models, classes=classes)


def near_limits(source: Json, rng: random.Random) -> Json:
    """Return the fleet with loads, and with targets 0.05 % to 100 % above the latency of an idle replica."""
    found = copy.deepcopy(source)
    plan = solve(load_system(source))
    for entry, item in zip(found["serviceClasses"], found["servers"], strict=True):
        (pool,) = plan.allocations[entry["name"]]
        values = {"ttft": pool.ttft_ms, "itl": pool.itl_ms}
        values |= {figure.measure.split()[-1].lower(): figure.value for figure in pool.targets}
        metric = rng.choice(["ttft", "itl"])
        margin = 10 ** rng.uniform(-3.3, 0)
        entry["modelTargets"][0][f"slo-{metric}"] = values[metric] * (1 + margin)
        item["currentAlloc"]["load"]["arrivalRate"] = f"{10 ** rng.uniform(0, 2.5):g}/s"
    return found


def replicas(source: Json) -> dict[tuple[str, str], tuple[int, float]]:
    """Return the number of replicas and the cost of every candidate."""
    candidates = find_candidates(load_system(source))
    names, table = candidates.arrays, candidates.table
    return {
        (names.server_names[s], names.accelerator_names[a]): (int(n), float(cost))
        for (s, a), n, cost in zip(table.pairs(), table.num_replicas, table.cost_cents_per_h, strict=True)
    }


def looser(source: Json) -> Json:
    found = copy.deepcopy(source)
    for entry in found["serviceClasses"]:
        for target in entry["modelTargets"]:
            target |= {key: value * 1.05 for key, value in target.items() if key.startswith("slo-")}
    return found


def check_fleet(seed: int) -> int:
    """Compare the findings for a random fleet with a second sizing; return their number."""
    rng = random.Random(seed)
    source = near_limits(fleet(rng, rng.choice([None, 90.0, 95.0, 99.0])), rng)
    now, then, expected = replicas(source), replicas(looser(source)), set[str]()
    for name in {name for name, _ in now}:
        cheapest = min((cost, n, key) for key, (n, cost) in now.items() if key[0] == name)
        if cheapest[1] > 5 * then[cheapest[2]][0]:
            expected.add(name)
    warnings = warnings_of(find_candidates(load_system(source)))
    found = {warning.path.partition(".")[2]: warning.message for warning in warnings if warning.code == STEEP}
    assert set(found) == expected, seed
    for name, text in found.items():
        cheapest = min((cost, n, key) for key, (n, cost) in now.items() if key[0] == name)
        _, n, key = cheapest
        assert f"it needs {n:,} replicas of {key[1]}" in text
        assert f"{then[key][0]:,} replica" in text
    return len(expected)


@pytest.mark.slow
def test_findings_are_those_of_a_second_sizing() -> None:
    counts = [check_fleet(seed) for seed in range(IN_DEFAULT)]
    assert 2 < sum(counts) < 2 * IN_DEFAULT


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_findings_of_500_fleets_are_those_of_a_second_sizing(part: int) -> None:
    counts = [check_fleet(seed) for seed in range(IN_DEFAULT + part, FLEETS, 8)]
    assert sum(counts) > 10


def test_low_utilisation_alone_is_no_sign() -> None:
    models = [{"name": "m", "acc": "A", "maxBatchSize": 32, "perfParms": {"alpha": 10, "beta": 0.02}}]
    classes = [{"name": "gold", "modelTargets": [{"model": "m", "slo-itl": 1e6}]}]
    idle = server("s", "1/s", replicas=200)
    source = document([idle], [accelerator("A", cost=100.0)], models=models, classes=classes)
    assert warnings_of(find_candidates(load_system(source))) == ()


INIT = (
    "--model", "llama-3.1-70b", "--accelerator", "H200::3.90USD/h", "--accelerator", "H100:24:2.10USD/h",
    "--rate", "agents=1/s", "--percentile", "95", "--target-ttft", "2s",
)  # fmt: skip


@pytest.mark.slow
def test_check_solve_and_the_report_name_an_absurd_plan(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    assert run("init", path, *INIT).status == 0
    said = (
        "it needs 211 replicas of 8xH200, because an idle one already takes >99% of the target p95 TTFT "
        "2,000 ms; with 2,100 ms 25 replicas would do, for 780.00 USD/h instead of 6,583.20 USD/h"
    )
    assert f"servers[0]: {said}" in run("check", path).err
    solved = run("solve", path, "--json")
    assert f"servers.agents-llama-3.1-70b: {said}" in solved.err
    assert said in solved.json["warnings"][0]["message"]
    report = run("report", path, "--brief").out
    assert said.replace(">", "&gt;") in report.partition("## Risks")[2].partition("##")[0]
    assert "more H100" not in report
