"""Random systems that use several features at once, on the same servers and on different ones.

Contradictions between features are refused when a document is read; the fields drawn here never contradict.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

from builders import Json

Draw = Callable[[random.Random], Any]
ON_SERVERS: Mapping[str, tuple[str, Draw]] = {
    "cache": ("cacheHitRate", lambda rng: rng.choice([0.01, 0.3, 0.99])),
    "surge": ("surge", lambda rng: rng.choice([0.1, 0.5, 1])),
    "availability": ("availabilityTarget", lambda rng: rng.choice([0.9, 0.999, 0.99999])),
    "spares": ("spareReplicas", lambda rng: rng.choice([1, 2])),
    "headroom": ("headroomShare", lambda rng: rng.choice([0.1, 1, 3])),
    "preferred": ("preferred", lambda rng: [rng.choice(["A0", "A1"])]),
    "place": ("place", lambda rng: rng.choice(["eu", "us", "ap"])),
    "external": (
        "external",
        lambda rng: {"inPerMillion": rng.choice([0, 10]), "outPerMillion": 40, "ttft": 60, "itl": 20},
    ),
}
"""Fields of servers by feature."""
IN_QUEUES = ("surge", "availability", "spares", "headroom", "preferred")
"""Features that a queue can have, the same for all its servers."""
OF_SYSTEMS = ("queue", "split", "deadline", "cards", "tiers", "budget", "power")
"""Other features."""
RATES_RPM = (0, 1e-6, 3, 60, 300, 900, 2500, 20_000)
NETWORK_MS = {"eu": {"us": 20}, "us": {"ap": 60}, "ap": {"eu": 150}}


def random_features(seed: int) -> Json:
    """Return a document of two to four features."""
    rng = random.Random(f"features {seed}")
    features = set(rng.sample([*ON_SERVERS, *OF_SYSTEMS], rng.randint(2, 4)))
    if "cards" in features:  # these have no power and no saturation policy
        features.discard("power")
    return _document(rng, features)


def with_features(seed: int, features: set[str]) -> Json:
    """Return a document that can use the given features, and `route` for a route."""
    rng = random.Random(f"{sorted(features)} {seed}")
    found = _document(rng, features - {"route", "nodes"})
    if "nodes" in features:
        _put_in_nodes(found, rng)
    return _with_route(found, rng) if "route" in features else found


def _document(rng: random.Random, features: set[str]) -> Json:
    accelerators = [_accelerator(rng, number, features) for number in range(rng.randint(2, 3))]
    servers = [_server(rng, f"s{number}", features) for number in range(rng.randint(2, 5))]
    if "queue" in features:
        servers += _queue(rng, features)
    if "cards" in features:
        servers += [_on_cards(rng, f"b{number}", features) for number in range(2)]
    classes = [_service_class(name, priority) for name, priority in (("gold", 1), ("tin", 3))]
    found: Json = {
        "accelerators": accelerators,
        "models": [_profile(rng, model, item) for model in ("m0", "m1", "b") for item in accelerators],
        "serviceClasses": classes,
        "servers": servers,
        "count": [{"type": item["type"], "count": rng.choice([0, 1, 3, 10, 50])} for item in accelerators],
        "optimizer": _options(rng, features),
    }
    if "queue" in features:  # these have no saturation policy
        found["optimizer"].pop("saturationPolicy", None)
    return found


def random_with_routes(seed: int) -> Json:
    """Return a document of two to four features; in two of five documents with a route in addition."""
    found, rng = random_features(seed), random.Random(f"route {seed}")
    return _with_route(found, rng) if rng.random() < 0.4 else found


def _with_route(found: Json, rng: random.Random) -> Json:
    found["servers"] += [{"name": f"r{i}", "class": "gold", "model": f"m{i}"} for i in range(2)]
    found["routes"] = [_route(rng)]
    for option in ("saturationPolicy", "maxPower", "headroomShare"):  # these have no routes
        found["optimizer"].pop(option, None)
    return found


def _route(rng: random.Random) -> Json:
    kinds = [
        {"share": 0.6, "inTokens": 100, "outTokens": 50, "loss": 0.01},
        {"share": 0.4, "inTokens": 300, "outTokens": 100, "loss": 0.3},
    ]
    limits = {"maxLoss": rng.choice([0, 0.02, 0.2]), "rerun": rng.random() < 0.5}
    rate = rng.choice([0, 60, 900, 5000])
    return {"name": "rt", "small": "r0", "large": "r1", "arrivalRate": rate, "kinds": kinds} | limits


def _accelerator(rng: random.Random, number: int, features: set[str]) -> Json:
    cost = rng.choice([0, 10, 40, 85.5, 300])
    found: Json = {"name": f"A{number}", "type": f"T{number}", "cost": cost, "memSize": 16}
    if "availability" in features:
        found["availability"] = rng.choice([0.5, 0.9, 0.99, 1])
    if "power" in features:
        found["power"] = {"idle": 40, "full": 350, "midPower": 200, "midUtil": 0.5}
    if "tiers" in features:
        found["tiers"] = [{"units": rng.randint(1, 6), "cost": cost * 0.5, "committed": rng.random() < 0.5}]
    if "place" in features:
        found["place"] = rng.choice(["eu", "us"])
    return found


def _profile(rng: random.Random, model: str, accelerator: Json) -> Json:
    slow, batch = rng.uniform(0.5, 2), rng.choice([1, 8, 32])
    found: Json = {"name": model, "acc": accelerator["name"], "maxBatchSize": batch}
    if model == "b":
        return found | {"memory": rng.choice([2, 4]), "batchParms": {"base": 20 * slow, "slope": 2}}
    decode = {"alpha": 10 * slow, "beta": 0.4 * slow}
    return found | {"decodeParms": decode, "prefillParms": {"gamma": 5 * slow, "delta": 0.01}}


def _put_in_nodes(found: Json, rng: random.Random) -> None:
    """Put the cards of some types in nodes, in place."""
    kinds = [item["type"] for item in found["accelerators"]]
    mine = rng.sample(kinds, rng.randint(1, len(kinds)))
    for item in (item for item in found["accelerators"] if item["type"] in mine):
        item["cost"] = 0
    found["count"] = [item for item in found["count"] if item["type"] not in mine]
    found["nodes"] = [
        {"name": f"{kind}x{cards}", "type": kind, "cards": cards, "cost": rng.choice([20, 100, 400])}
        | ({"maxNodes": rng.choice([1, 3])} if rng.random() < 0.5 else {})
        for kind in mine
        for cards in rng.sample([4, 6, 8], rng.choice([1, 2]))
    ]


def _service_class(name: str, priority: int) -> Json:
    targets: list[Json] = [{"model": model, "slo-itl": 60, "slo-ttft": 1000} for model in ("m0", "m1")]
    targets.append({"model": "b", "latency": [{"percentile": 99, "ms": 400}]})
    return {"name": name, "priority": priority, "modelTargets": targets}


def _load(rng: random.Random) -> Json:
    tokens = {"avgInTokens": rng.choice([1, 200, 2000]), "avgOutTokens": rng.choice([1, 7.3, 200])}
    return {"load": {"arrivalRate": rng.choice(RATES_RPM), **tokens}}


def _drawn(rng: random.Random, features: set[str], among: tuple[str, ...]) -> Json:
    """Return the fields that some of the features give to a server."""
    fields = (ON_SERVERS[each] for each in among if each in features and rng.random() < 0.6)
    return {field: draw(rng) for field, draw in fields}


def _server(rng: random.Random, name: str, features: set[str]) -> Json:
    model = rng.choice(["m0", "m1"])
    found: Json = {"name": name, "class": rng.choice(["gold", "tin"]), "model": model}
    found |= {"currentAlloc": _load(rng)} | _drawn(rng, features, tuple(ON_SERVERS))
    if "deadline" in features and rng.random() < 0.4:
        del found["currentAlloc"]["load"]["arrivalRate"]
        found["deadline"] = {"requests": rng.choice([0.5, 1e5]), "hours": rng.choice([0.01, 8])}
        found.pop("cacheHitRate", None)
    elif "split" in features and "external" not in found and rng.random() < 0.6:
        weight = rng.choice([0.1, 0.5, 1])
        found["rollBack"] = rng.random() < 0.5
        found["split"] = [{"model": model, "weight": weight}]
        found["split"] += [{"model": "m1" if model == "m0" else "m0", "weight": 1 - weight}]
    return found


def _queue(rng: random.Random, features: set[str]) -> list[Json]:
    common = {"model": "m0", "sharedQueue": "q"} | _drawn(rng, features, IN_QUEUES)
    classes = [rng.choice(["gold", "tin"]) for _ in range(rng.randint(2, 3))]
    loads = [{"class": name, "currentAlloc": _load(rng)} for name in classes]
    return [{"name": f"q{number}", **common, **each} for number, each in enumerate(loads)]


def _on_cards(rng: random.Random, name: str, features: set[str]) -> Json:
    found = {"name": name, "class": rng.choice(["gold", "tin"]), "model": "b", "sharedCard": True}
    load = {"load": {"arrivalRate": rng.choice([0, 5, 600, 3000, 60_000])}}
    return found | {"currentAlloc": load} | _drawn(rng, features, ("cache", "place"))


def _options(rng: random.Random, features: set[str]) -> Json:
    found: Json = {"heterogeneous": rng.random() < 0.5, "unlimited": rng.random() < 0.1, "timeLimit": 5}
    if "cards" not in features and rng.random() < 0.2:
        found["saturationPolicy"] = rng.choice(["PriorityExhaustive", "PriorityRoundRobin", "RoundRobin"])
    if "surge" in features:
        found["rollout"] = rng.choice(["all", "one"])
    if "budget" in features:
        found["budget"] = rng.choice([3000, 1e5])
    if "power" in features:
        found["maxPower"] = rng.choice([0, 3000, 20_000])
    if "place" in features:
        found["networkMs"] = NETWORK_MS
    return found
