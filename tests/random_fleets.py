"""Random mixed fleets of every kind a document can hold, with odd loads: for what must hold of all of them.

`random_document` and `random_mixed_document` have nice numbers, so that levels can be compared digit by
digit. Here loads are tiny, huge or recurring decimals, some in other units, and policies, solvers,
percentiles and batch servers vary.
"""

import random
from collections.abc import Callable
from typing import Any

from builders import Json, random_document
from mixed_oracles import random_mixed_document

BATCHED = "v"
"""The model that answers without tokens."""
_RATES: tuple[Callable[[random.Random], float | str], ...] = (
    lambda _: 0.0,
    lambda rng: 10 ** rng.uniform(-13, -2),
    lambda rng: rng.uniform(0.01, 1),
    lambda rng: rng.uniform(1, 300),
    *[lambda rng: rng.uniform(80, 300)] * 5,
    lambda rng: 10 ** rng.uniform(2, 5),
    lambda rng: f"{rng.randint(1, 20_000)}/h",
    lambda rng: f"{rng.uniform(0.001, 5):.4g} req/s",
    lambda _: 60.0,
)
"""Loads: none, tiny, small, one to three replicas, huge; as requests/min or with a unit; a common one."""


def random_fleet_document(seed: int) -> Json:
    """Return a small fleet, mostly with mixed plans, mostly too large for its cards."""
    rng = random.Random(f"fleet {seed}")
    source = random_mixed_document(seed) if rng.random() < 0.7 else random_document(rng)
    for server in source["servers"]:
        server["currentAlloc"]["load"] |= {
            "arrivalRate": rng.choice(_RATES)(rng),
            "avgOutTokens": rng.choice([64, 64, 64, 64, 1, 7.3, 1000]),
        }
    if rng.random() < 0.2:
        _add_batch_server(source, rng)
    _vary_targets(source, rng)
    for card in source["accelerators"]:
        card["cost"] *= rng.choice([0, 1, 1, 1, 1000])
    kinds = sorted({card["type"] for card in source["accelerators"]})
    source["count"] = [{"type": kind, "count": rng.choice([0, 1, 1, 2, 2, 3, 4, 6])} for kind in kinds]
    source["optimizer"] |= _options(rng)
    return source


def _vary_targets(source: Json, rng: random.Random) -> None:
    """Draw priorities and targets anew; where profiles are fitted ones, also percentiles and goodput."""
    fitted = rng.random() < 0.4
    for profile in source["models"]:
        if "decodeParms" in profile:
            profile["maxBatchSize"] = rng.choice([1, 1, 1, 2, 8, 256])
            if fitted:
                del profile["decodeParms"], profile["prefillParms"]
                profile["perfParms"] = {"alpha": rng.uniform(5, 20), "beta": 0.05, "gamma": 1e-5}
    for service in source["serviceClasses"]:
        service["priority"] = rng.choice([1, 1, 2, 3, 100])
        service["modelTargets"] = [
            each if each["model"] == BATCHED else _target(each, rng, fitted=fitted)
            for each in service["modelTargets"]
        ]


def _target(target: Json, rng: random.Random, *, fitted: bool) -> Json:
    """Return a target on means, at a percentile, or by a share of the requests; or none but throughput."""
    if rng.random() < 0.3:
        return {"model": target["model"], "slo-tps": target["slo-tps"]}
    latencies = {"slo-itl": target["slo-itl"] * 2, "slo-ttft": target["slo-ttft"] * 3}
    kinds: list[Json] = [{}]
    if fitted:
        kinds.append({"percentile": rng.choice([50, 95, 99])})
    if fitted and any(latencies.values()):
        kinds.append({"goodputShare": 0.9})
    return {"model": target["model"]} | latencies | rng.choice(kinds)


def _add_batch_server(source: Json, rng: random.Random) -> None:
    times = {"base": rng.uniform(1, 50), "slope": rng.uniform(0.1, 5)}
    source["models"] += [
        {"name": BATCHED, "acc": card["name"], "maxBatchSize": rng.choice([1, 5, 16]), "batchParms": times}
        for card in source["accelerators"]
    ]
    service = rng.choice(source["serviceClasses"])
    service["modelTargets"].append(
        {"model": BATCHED, "latency": [{"percentile": rng.choice([50, 99]), "ms": rng.choice([100, 1000])}]}
    )
    load = {"arrivalRate": rng.choice(_RATES)(rng)}
    source["servers"].append(
        {"name": "v0", "class": service["name"], "model": BATCHED, "currentAlloc": {"load": load}}
    )


def _options(rng: random.Random) -> dict[str, Any]:
    return {
        "heterogeneous": rng.random() < 0.8,
        "unlimited": rng.random() < 0.1,
        "milpSolver": rng.random() < 0.9,
        "saturationPolicy": rng.choice(
            ["None", "None", "PriorityExhaustive", "PriorityRoundRobin", "RoundRobin"]
        ),
        "delayedBestEffort": rng.random() < 0.3,
        "batchSizing": rng.choice(["profile", "profile", "optimal"]),
        "gap": rng.choice([None, None, None, 0.0, 0.01]),
        "timeLimit": 600,  # on a machine that is busy with other work, too
    }
