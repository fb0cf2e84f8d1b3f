"""Prefill and decode pools by enumeration: random systems, and all ways to serve every server."""

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
from builders import Json

from optimizer import load_system
from optimizer.candidates import Candidates, find_candidates
from optimizer.features.disaggregation.parts import RoleTable

LAWS = {
    "A": {"alpha": 6.83, "beta": 0.0224, "gamma": 4.36e-5, "promptAttention": 1.04e-6, "weightRead": 4.3},
    "B": {"alpha": 9.0, "beta": 0.06, "gamma": 6e-5, "promptAttention": 2e-6, "weightRead": 6.0},
}
LAW = {
    "alpha": 6.83, "beta": 0.0224, "gamma": 4.36e-5, "perSequence": 0.0189, "promptAttention": 1.04e-6,
    "weightRead": 4.3,
}  # fmt: skip
SHARES = ("0.05", "0.2", "0.4")
MOST = 300
"""Number of replicas of a mixed pool up to which unlimited cards are enumerated."""
Bill = tuple[tuple[float, ...], float, float]
"""Unserved rate and servers by priority, transition cost [cents/h], and changes."""
Way = tuple[dict[str, int], float, float]
"""Cards by type, transition cost [cents/h], and changes."""


def document(wish: str | None = "allowed", itl_ms: float = 12, cards: int = 60, **server: Any) -> Json:
    """Return a server with prompts of 4,000 tokens on one type of cards."""
    load = {"arrivalRate": "20/s", "avgInTokens": 4000, "avgOutTokens": 250, "inTokensCV": 0}
    item = {"name": "s", "class": "c", "model": "m", "currentAlloc": {"load": load}, **server}
    target = {"model": "m", "slo-itl": itl_ms, "slo-ttft": 2000}
    return {
        "accelerators": [{"name": "H100", "type": "H100", "cost": 300}],
        "count": [{"type": "H100", "count": cards}],
        "models": [
            {"name": "m", "acc": "H100", "maxBatchSize": 256, "kvCapacity": 450_000, "perfParms": LAW,
             "kvBytesPerToken": 131_072}
        ],
        "serviceClasses": [{"name": "c", "priority": 1, "modelTargets": [target]}],
        "servers": [item | ({} if wish is None else {"disaggregation": wish})],
        "optimizer": {"handover": {"fixedMs": 20}},
    }  # fmt: skip


def random_running_document(seed: int) -> Json:
    """Return a random document in which some servers run prefill and decode replicas now."""
    source, rng = random_role_document(seed), random.Random(f"running {seed}")
    for server in source["servers"]:
        if "disaggregation" not in server or rng.random() < 0.2:
            continue
        current = server["currentAlloc"]
        pools = [
            {"accelerator": rng.choice("AB"), "numReplicas": rng.randint(1, 4), "role": role}
            for role in ("prefill", "decode")
            if rng.random() < 0.8
        ]
        if "accelerator" in current:
            pools.append({"accelerator": current["accelerator"], "numReplicas": current["numReplicas"]})
        server["currentAlloc"] = {"load": current["load"], "pools": pools}
    return source


def random_role_document(seed: int) -> Json:
    """Return two or three servers on scarce cards of two types, with and without a link between them."""
    rng = random.Random(f"roles {seed}")
    mixed = seed % 3 == 2
    costs = {"A": rng.choice([400.0, 300.0]), "B": rng.choice([150.0, 100.0, 0.0])}
    links = rng.choice([{}, {}, {"A": {"B": 0}}, {"B": {"A": 0}}, {"A": {"A": 0}, "B": {"B": 0}}])
    accelerators = [
        {"name": name, "type": name, "cost": cost, "linkBandwidth": rng.choice([10, 50])}
        | ({"links": links[name]} if name in links else {})
        for name, cost in costs.items()
    ]
    return {
        "accelerators": accelerators,
        "count": [{"type": name, "count": rng.choice([2, 4, 8, 30])} for name in costs],
        "models": [
            {"name": "m", "acc": name, "maxBatchSize": 128, "kvCapacity": 450_000, "perfParms": law,
             "kvBytesPerToken": 131_072}
            for name, law in LAWS.items()
        ],
        "serviceClasses": [_class(rng, name, priority) for name, priority in (("gold", 1), ("tin", 2))],
        "servers": [_server(rng, f"s{i}") for i in range(2 if mixed else rng.choice([2, 3]))],
        "optimizer": {
            "heterogeneous": mixed,
            "transitionPenalty": rng.choice([0.0, 0.1, 1.0]),
            "unlimited": rng.random() < 0.2,
            "handover": {"fixedMs": rng.choice([0, 20]), "layerwise": rng.random() < 0.5},
        },
    }  # fmt: skip


def _server(rng: random.Random, name: str) -> Json:
    load = {
        "arrivalRate": rng.choice([120.0, 400.0, 900.0]),
        "avgInTokens": rng.choice([500, 2000, 6000]),
        "avgOutTokens": rng.choice([100, 250]),
        "inTokensCV": 0.0,
        "outTokensCV": rng.choice([0, 0.5]),
    }
    current: Json = {"load": load}
    if rng.random() < 0.4:
        current |= {"accelerator": rng.choice("AB"), "numReplicas": rng.randint(1, 4), "cost": 0}
    wish = rng.choice(["allowed", "allowed", "allowed", "required", None])
    server = {"name": name, "class": rng.choice(["gold", "tin"]), "model": "m", "currentAlloc": current}
    return server | ({} if wish is None else {"disaggregation": wish})


def _class(rng: random.Random, name: str, priority: int) -> Json:
    statistic = {} if rng.random() < 0.3 else {"percentile": 95}
    limits = {"slo-itl": rng.choice([9.0, 12.0, 30.0]), "slo-ttft": rng.choice([400, 1000, 3000])}
    return {"name": name, "priority": priority, "modelTargets": [{"model": "m", **statistic, **limits}]}


def best_bill(source: Json) -> Bill:
    """Return the best levels of all ways to serve all servers, by enumeration."""
    with patch.object(RoleTable, "needed", lambda _, server, __: np.ones(len(server), np.bool_)):
        candidates = find_candidates(load_system(source).with_all_pools())
    unlimited = source["optimizer"]["unlimited"]
    cards = {item["type"]: math.inf if unlimited else item["count"] for item in source["count"]}
    found: dict[tuple[tuple[float, ...], tuple[int, int]], tuple[float, float]] = {
        ((0.0,) * 4, (0, 0)): (0.0, 0.0)
    }
    for item in source["servers"]:
        priority = {one["name"]: one["priority"] for one in source["serviceClasses"]}[item["class"]]
        missed = [0.0] * 4
        missed[2 * (priority - 1) : 2 * priority] = item["currentAlloc"]["load"]["arrivalRate"], 1.0
        ways: list[tuple[tuple[float, ...], Way]] = [
            ((0.0,) * 4, way) for way in _ways(source, item, candidates)
        ]
        ways.append((tuple(missed), ({}, *_bills(source, item, {}))))
        grown: dict[tuple[tuple[float, ...], tuple[int, int]], tuple[float, float]] = {}
        for (short, used), (cost, changes) in found.items():
            for missing, (more, value, changed) in ways:
                now = used[0] + more.get("A", 0), used[1] + more.get("B", 0)
                if now[0] > cards["A"] or now[1] > cards["B"]:
                    continue
                key = tuple(a + b for a, b in zip(short, missing, strict=True)), now
                grown[key] = min(grown.get(key, (math.inf, 0.0)), (cost + value, changes + changed))
        found = grown
    least = min(short for short, _ in found)
    value, changes = min(bill for (short, _), bill in found.items() if short == least)
    return least, value, changes


def _ways(source: Json, item: Json, candidates: Candidates) -> Iterator[Way]:
    """Yield all useful ways to serve a server: replicas that do both, or two pools with a link."""
    wish = item.get("disaggregation")
    if wish != "required":
        for pool in _pools(source, item, candidates):
            yield pool, *_bills(source, item, {"": pool})
    links = {one["name"]: one.get("links", {}) for one in source["accelerators"]}
    for share in SHARES if wish else ():
        pools = (_least(candidates, f"{item['name']} ({role} {share})") for role in ("prefill", "decode"))
        for (first, count), (second, more) in itertools.product(*(each.items() for each in pools)):
            if links[first].get(second) == 0:
                continue
            used = {first: count} if first != second else {first: count + more}
            used |= {second: more} if first != second else {}
            both = {"prefill": {first: count}, "decode": {second: more}}
            yield used, *_bills(source, item, both)


def _rates(candidates: Candidates, server: str) -> tuple[dict[str, float], float]:
    """Return the largest rate of a replica by accelerator, and the load."""
    table, arrays = candidates.table, candidates.arrays
    rows = [c for c in range(len(table)) if arrays.server_names[table.server[c]] == server]
    rates = {arrays.accelerator_names[table.accelerator[c]]: float(table.max_rate_rps[c]) for c in rows}
    return rates, float(table.load_rps[rows[0]]) if rows else 0.0


def _least(candidates: Candidates, server: str) -> dict[str, int]:
    rates, load = _rates(candidates, server)
    return {name: math.ceil(load / rate * (1 - 1e-9)) for name, rate in rates.items()}


def _bills(source: Json, item: Json, pools: dict[str, dict[str, int]]) -> tuple[float, float]:
    """Return the transition cost and the changes of a server with the given replicas of each role."""
    bills = [_bill(source, item, role, pools.get(role, {})) for role in ("", "prefill", "decode")]
    return sum(value for value, _ in bills), sum(changes for _, changes in bills)


def _running(item: Json, role: str) -> tuple[str, int]:
    """Return the accelerator and the number of the replicas of a role that run now; "" for both roles."""
    now = item["currentAlloc"]
    for pool in now.get("pools", [now]):
        if pool.get("role", "") == role and "accelerator" in pool:
            return pool["accelerator"], pool["numReplicas"]
    return "", 0


def _bill(source: Json, item: Json, role: str, pool: dict[str, int]) -> tuple[float, float]:
    """Return the transition cost and the change of the replicas of one role."""
    price = {one["name"]: one["cost"] for one in source["accelerators"]}
    penalty, (where, count) = source["optimizer"]["transitionPenalty"], _running(item, role)
    old = price[where] * count if where else 0.0
    cost = sum(price[name] * number for name, number in pool.items())
    elsewhere = sum(price[name] * number for name, number in pool.items() if name != where)
    value = cost - old + penalty * (elsewhere + (0.0 if where in pool else old))
    return value, float(pool != ({where: count} if where else {}))


def _pools(source: Json, item: Json, candidates: Candidates) -> list[dict[str, int]]:
    """Return all useful replicas of a server that do both, by accelerator (mixed plans: any number)."""
    rates, load = _rates(candidates, item["name"])
    most = {name: math.ceil(load / rate * (1 - 1e-9)) for name, rate in rates.items()}
    if not source["optimizer"]["heterogeneous"]:
        return [{name: number} for name, number in most.items()]
    where, count = _running(item, "")
    if where in most:
        most[where] = max(most[where], count)
    alone = [{name: number} for name, number in most.items()]
    # Rates can be so small that a pool would need millions of replicas.
    cards = {
        one["type"]: MOST if source["optimizer"]["unlimited"] else one["count"] for one in source["count"]
    }
    most = {name: min(number, cards[name]) for name, number in most.items()}
    pools = alone + [{name: number} for name in most for number in range(1, most[name] + 1)]
    if len(most) > 1:
        pools += [{"A": a, "B": b} for a in range(1, most["A"] + 1) for b in range(1, most["B"] + 1)]
    return [
        pool
        for pool in pools
        if sum(rates[name] * number for name, number in pool.items()) >= load * (1 - 1e-9)
    ]
