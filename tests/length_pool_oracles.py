"""Pools by length by enumeration: random systems, and all partitions of shapes with all their pools.

A pool is spelled out as a server of its own by plain arithmetic and sized by code that knows no pools by
length. What the choice costs is then added up for every partition, and for every set of served servers.
"""

import copy
import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator

from builders import Json

from optimizer import load_system
from optimizer.candidates import Candidates, find_candidates

LAWS = {
    "A": {"alpha": 7.3, "beta": 0.021, "gamma": 4.6e-5},
    "B": {"alpha": 11.0, "beta": 0.05, "gamma": 9e-5},
}
Bill = tuple[tuple[float, ...], float, float]
"""Unserved rate and servers by priority, transition cost [cents/h], and changes."""


def random_length_document(seed: int) -> Json:
    """Return two or three servers with shapes of their own on scarce cards of two types."""
    rng = random.Random(f"lengths {seed}")
    mixed = seed % 3 == 2
    count = 2 if mixed else rng.choice([2, 3])
    servers = [_server(rng, f"s{i}", mixed=mixed) for i in range(count)]
    costs = {"A": rng.choice([400.0, 90.0, 0.0]), "B": rng.choice([150.0, 100.0])}
    return {
        "accelerators": [{"name": name, "type": name, "cost": cost} for name, cost in costs.items()],
        "count": [{"type": name, "count": rng.choice([2, 5, 12, 30])} for name in costs],
        "models": [
            {"name": "m", "acc": name, "maxBatchSize": 64, "kvCapacity": 450_000, "perfParms": law}
            for name, law in LAWS.items()
        ],
        "serviceClasses": [_class(rng, name, priority) for name, priority in (("gold", 1), ("tin", 2))],
        "servers": servers,
        "optimizer": {
            "heterogeneous": mixed,
            "transitionPenalty": rng.choice([0.0, 0.1, 1.0]),
            "unlimited": rng.random() < 0.2,
        },
    }


def _server(rng: random.Random, name: str, *, mixed: bool) -> Json:
    lengths = sorted(rng.sample([200, 600, 2000, 6000, 12_000, 25_000], rng.randint(2, 3 if mixed else 4)))
    weights = [rng.choice([1, 2, 5]) / length**0.5 for length in lengths]
    shapes = [
        {"name": f"x{i}", "share": weight / sum(weights), "avgInTokens": length,
         "avgOutTokens": rng.choice([50, 200]), "inTokensCV": rng.choice([0, 0.5])}
        for i, (length, weight) in enumerate(zip(lengths, weights, strict=True))
    ]  # fmt: skip
    rng.shuffle(shapes)
    load = {"arrivalRate": rng.choice([60.0, 300.0, 900.0]) * (0.5 if mixed else 1), "shapes": shapes}
    if rng.random() < 0.3:
        load["arrivalCV"] = 1.5
    current: Json = {"load": load}
    if rng.random() < 0.4:
        current |= {"accelerator": rng.choice("AB"), "numReplicas": rng.randint(1, 4), "cost": 0}
    elif rng.random() < 0.5:
        mine = [f"x{i}" for i in range(rng.randint(1, len(shapes)))]
        current["pools"] = [
            {"accelerator": rng.choice("AB"), "numReplicas": rng.randint(1, 3), "shapes": mine}
        ]
    wish = rng.choice(["allowed", "allowed", "allowed", "required"])
    return {
        "name": name,
        "class": rng.choice(["gold", "tin"]),
        "model": "m",
        "poolsByLength": wish,
        "currentAlloc": current,
    }


def _class(rng: random.Random, name: str, priority: int) -> Json:
    target: Json = {"model": "m", "percentile": 95, "slo-itl": rng.choice([30, 60])}
    if rng.random() < 0.3:
        target["slo-ttft"] = rng.choice([800, 3000])
    else:
        limits = [150, 300, 900, 3000]
        target["shapes"] = {
            f"x{i}": {"slo-ttft": limit * rng.choice([1, 2])} for i, limit in enumerate(limits)
        }
    return {"name": name, "priority": priority, "modelTargets": [target]}


def with_two_features(seed: int) -> Json:
    """Return such a document in which all servers also use two other features."""
    rng, found = random.Random(f"length features {seed}"), random_length_document(seed)
    features = {*rng.sample(["nodes", "tiers", "budget", "power", "preferred", "cache", "place", "keep"], 2)}
    for item in found["accelerators"]:
        item["power"] = {"idle": 40, "full": 350, "midPower": 200, "midUtil": 0.5}
        if "place" in features:
            item["place"] = "eu" if item["name"] == "A" else "us"
        if "tiers" in features and "nodes" not in features:
            item["tiers"] = [{"units": 2, "cost": item["cost"] / 2}]
    if "nodes" in features:
        found["accelerators"][0]["cost"] = 0
        found["count"] = found["count"][1:]
        found["nodes"] = [{"name": "n", "type": "A", "cards": 4, "cost": 900, "maxNodes": rng.choice([1, 2])}]
    options = {
        "budget": ("budget", 1500),
        "power": ("maxPower", 2000),
        "place": ("networkMs", {"eu": {"us": 20}}),
    }
    found["optimizer"] |= dict(value for name, value in options.items() if name in features)
    fields = {
        "preferred": {"preferred": ["B"]},
        "cache": {"cacheHitRate": 0.3},
        "place": {"place": "eu"},
        "keep": {"keepAccelerator": True},
    }
    for item in found["servers"]:
        for name in features & fields.keys():
            item.update(fields[name])
    return found


def intervals(item: Json) -> list[tuple[str, ...]]:
    """Return the names of the shapes of every possible pool of a server."""
    names = [one["name"] for one in sorted(item["currentAlloc"]["load"]["shapes"], key=_length)]
    return [tuple(names[i:j]) for i in range(len(names)) for j in range(i + 1, len(names) + 1)]


def _length(shape: Json) -> float:
    return float(shape["avgInTokens"])


def spelled_out(source: Json) -> Json:
    """Return a document in which every possible pool is a server with its own load."""
    plain = copy.deepcopy(source)
    plain["servers"] = []
    for item in source["servers"]:
        load = item["currentAlloc"]["load"]
        for names in intervals(item):
            mine = [one for one in load["shapes"] if one["name"] in names]
            share = math.fsum(one["share"] for one in mine)
            thinned = load | {
                "arrivalRate": load["arrivalRate"] * share,
                "arrivalCV": (1 + share * (load.get("arrivalCV", 1.0) ** 2 - 1)) ** 0.5,
                "shapes": [one | {"share": one["share"] / share} for one in mine],
            }
            plain["servers"].append(
                {"name": "|".join((item["name"], *names)), "class": item["class"], "model": "m",
                 "currentAlloc": {"load": thinned}}
            )  # fmt: skip
    return plain


def best_bill(source: Json) -> Bill:
    """Return the best levels of all partitions and all sets of served servers, by enumeration."""
    candidates = find_candidates(load_system(spelled_out(source)))
    unlimited = source["optimizer"]["unlimited"]
    cards = {item["type"]: math.inf if unlimited else item["count"] for item in source["count"]}
    found: dict[tuple[tuple[float, ...], tuple[int, int]], tuple[float, float]] = {
        ((0.0,) * 4, (0, 0)): (0.0, 0.0)
    }
    for item in source["servers"]:
        grown: dict[tuple[tuple[float, ...], tuple[int, int]], tuple[float, float]] = {}
        for (short, used), (cost, changes) in found.items():
            for missing, more, (value, changed) in _ways(source, item, candidates):
                now = used[0] + more[0], used[1] + more[1]
                if now[0] > cards["A"] or now[1] > cards["B"]:
                    continue
                key = tuple(a + b for a, b in zip(short, missing, strict=True)), now
                bill = cost + value, changes + changed
                grown[key] = min(grown.get(key, (math.inf, 0.0)), bill)
        found = grown
    least = min(short for short, _ in found)
    value, changes = min(bill for (short, _), bill in found.items() if short == least)
    return least, value, changes


def _ways(
    source: Json, item: Json, candidates: Candidates
) -> list[tuple[tuple[float, ...], tuple[int, int], tuple[float, float]]]:
    """Return service missed, cards used, value and changes of every way to serve a server, or not to."""
    priority = {one["name"]: one["priority"] for one in source["serviceClasses"]}[item["class"]]
    rate = item["currentAlloc"]["load"]["arrivalRate"]
    missed = [0.0] * 4
    missed[2 * (priority - 1) : 2 * priority] = rate, 1.0
    running = _running(source, item)
    every = intervals(item)
    options = {names: _pools(source, item, names, candidates) for names in every}
    left = [_bill(source, running.get(names), {}) for names in every]
    none = sum(value for value, _ in left), sum(changed for _, changed in left)
    ways = {(tuple(missed), (0, 0)): none}
    names = max(every, key=len)
    for cuts in _partitions(names):
        if item["poolsByLength"] == "required" and len(cuts) == 1:
            continue
        for pools in itertools.product(*(options[group] for group in cuts)):
            placed = dict(zip(cuts, pools, strict=True))
            bills = [_bill(source, running.get(group), placed.get(group, {})) for group in every]
            used = Counter[str]()
            for pool in pools:
                used.update(pool)
            key = (0.0,) * 4, (used["A"], used["B"])
            bill = sum(value for value, _ in bills), sum(changed for _, changed in bills)
            ways[key] = min(ways.get(key, (math.inf, 0.0)), bill)
    return [(short, used, bill) for (short, used), bill in ways.items()]


def _partitions(names: tuple[str, ...]) -> Iterator[list[tuple[str, ...]]]:
    for count in range(len(names)):
        for cuts in itertools.combinations(range(1, len(names)), count):
            ends = (0, *cuts, len(names))
            yield [names[a:b] for a, b in itertools.pairwise(ends)]


def _running(source: Json, item: Json) -> dict[tuple[str, ...], tuple[str, int, float]]:
    """Return accelerator, replicas and cost of the current pool of a possible pool, by its shapes."""
    current, every = item["currentAlloc"], intervals(item)
    price = {one["name"]: one["cost"] for one in source["accelerators"]}
    if "accelerator" in current:
        mine, pool = max(every, key=len), current
    elif "pools" in current:
        (pool,) = current["pools"]
        mine = next(names for names in every if {*names} == {*pool["shapes"]})
    else:
        return {}
    where, count = pool["accelerator"], pool["numReplicas"]
    return {mine: (where, count, price[where] * count)}


def _bill(source: Json, now: tuple[str, int, float] | None, pool: dict[str, int]) -> tuple[float, float]:
    """Return the transition cost and the change of a possible pool with the given replicas."""
    price = {one["name"]: one["cost"] for one in source["accelerators"]}
    penalty = source["optimizer"]["transitionPenalty"]
    cost = sum(price[name] * count for name, count in pool.items())
    where, count, old = now or ("", 0, 0.0)
    elsewhere = sum(price[name] * number for name, number in pool.items() if name != where)
    value = cost - old + penalty * (elsewhere + (0.0 if where in pool else old))
    return value, float(pool != ({where: count} if where else {}))


def _pools(source: Json, item: Json, names: tuple[str, ...], candidates: Candidates) -> list[dict[str, int]]:
    """Return all useful replicas of a possible pool, by accelerator."""
    table, arrays = candidates.table, candidates.arrays
    server = arrays.server_names.index("|".join((item["name"], *names)))
    rows = [c for c in range(len(table)) if table.server[c] == server]
    rate = {arrays.accelerator_names[table.accelerator[c]]: float(table.max_rate_rps[c]) for c in rows}
    if not rows:
        return []
    load = float(table.load_rps[rows[0]])

    def enough(pool: dict[str, int]) -> bool:
        return sum(rate[name] * count for name, count in pool.items()) >= load * (1 - 1e-9)

    most = {name: math.ceil(load / each * (1 - 1e-9)) for name, each in rate.items()}
    where, count, _ = _running(source, item).get(names, ("", 0, 0.0))
    if where in most:
        most[where] = max(most[where], count)
    single = [{name: number} for name in most for number in range(1, most[name] + 1)]
    pools = single
    if source["optimizer"]["heterogeneous"] and len(most) > 1:
        pools = single + [{"A": a, "B": b} for a in range(1, most["A"] + 1) for b in range(1, most["B"] + 1)]
    return [pool for pool in pools if enough(pool)]
