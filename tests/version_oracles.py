"""Plans of split servers: the same systems without splits, random systems, and a formulation for CBC.

Documents are spelled out by plain arithmetic, so that what knows nothing of versions can search them.
"""

import copy
import math
import random
from typing import Any

import pulp
from builders import Json, accelerator, document, profile, random_document, running, server, service_class
from document_case import law_key, replica_of
from mixed_oracles import random_mixed_document
from plan_search import minimised, without_announcements

from optimizer import LatencyTargets, size_replicas

WEIGHTS = ([0.9, 0.1], [0.75, 0.25], [0.5, 0.5], [1.0, 0.0], [0.125, 0.875], [0.5, 0.25, 0.25])


def spelled_out(source: Json) -> Json:
    """Return a document in which each version is a server with a class, a load and a headroom of its own."""
    plain: Json = copy.deepcopy(source)
    classes = {item["name"]: item for item in plain["serviceClasses"]}
    plain["servers"] = []
    for item in source["servers"]:
        shares = item.get("split")
        if not shares:
            plain["servers"].append(item)
            continue
        rest = {key: value for key, value in item.items() if key not in {"split", "rollBack", "cacheHitRate"}}
        missed = 1 - item.get("cacheHitRate", 0.0)
        given = [item, classes[item["class"]], source.get("optimizer", {})]
        grow = next((x["headroomShare"] for x in given if x.get("headroomShare") is not None), 0.0)
        for share in shares:
            name, main = f"{item['name']} ({share['model']})", share["model"] == item["model"]
            here = copy.deepcopy(item["currentAlloc"]) if main else dict(share.get("currentAlloc", {}))
            here["load"] = dict(item["currentAlloc"]["load"])
            here["load"]["arrivalRate"] *= share["weight"] * missed
            cv = here["load"].get("arrivalCV", 1.0)
            here["load"]["arrivalCV"] = (1 + share["weight"] * missed * (cv**2 - 1)) ** 0.5
            one = rest | {"name": name, "model": share["model"], "class": f"class of {name}"}
            one["currentAlloc"] = here
            if main and item.get("rollBack"):
                one["headroomShare"] = (1 + grow) / share["weight"] - 1
            plain["servers"].append(one)
            plain["serviceClasses"].append(
                _own_class(classes[item["class"]], one["class"], item, share, missed)
            )
    return plain


def _own_class(known: Json, name: str, item: Json, share: Json, missed: float) -> Json:
    """Return a class with the targets of the requests that replicas of a version see."""
    targets = {target["model"]: target for target in known.get("modelTargets", ())}
    mine = targets.get(share["model"], targets.get(item["model"]))
    if mine is None:
        return known | {"name": name, "modelTargets": []}
    scaled = {"model": share["model"], "slo-tps": mine.get("slo-tps", 0) * share["weight"] * missed}
    return known | {"name": name, "modelTargets": [mine | scaled]}


def random_splits(seed: int, *, mixed: bool) -> Json:
    """Return a small tight system in which most servers are split."""
    rng = random.Random(f"versions {seed} {mixed}")
    source = random_mixed_document(seed) if mixed else random_document(rng)
    names = [item["name"] for item in source["accelerators"]]
    for name in names:  # a model without targets, which are then those of the server's own
        if rng.random() < 0.9 or name == names[0]:
            source["models"].append(profile("o", name, alpha=rng.choice([6.0, 12.0]), maxBatchSize=4))
    known = sorted({item["name"] for item in source["models"]})
    for item in source["servers"][:3]:
        if rng.random() < 0.8:
            _split(item, known, names, rng)
    source["servers"] = source["servers"][:3]
    for kind in source["count"]:
        kind["count"] += rng.choice([0, 2, 6])
    source["optimizer"] |= {"heterogeneous": mixed, "unlimited": rng.random() < 0.15}
    return source


def _split(item: Json, models: list[str], accelerators: list[str], rng: random.Random) -> None:
    weights = rng.choice([some for some in WEIGHTS if len(some) <= len(models)])
    others = rng.sample([model for model in models if model != item["model"]], len(weights) - 1)
    item["split"] = [
        {"model": model, "weight": weight}
        for model, weight in zip([item["model"], *others], weights, strict=True)
    ]
    item.pop("maxNumReplicas", None)
    for share in item["split"][1:]:
        if rng.random() < 0.4:
            share["currentAlloc"] = running(rng.choice(accelerators), rng.randint(1, 2), rng.choice([0, 7.5]))
    item["rollBack"] = rng.random() < 0.5
    if rng.random() < 0.3:
        item["cacheHitRate"] = rng.choice([0.25, 0.5])
    if rng.random() < 0.3:
        item["headroomShare"] = rng.choice([0.0, 0.25])
    if rng.random() < 0.2:
        item["spareReplicas"] = 1
    rng.shuffle(item["split"])


STEP = 0.1
"""Minimum difference between two values of a level of a larger system."""


# --- larger systems for CBC ------------------------------------------------------------------------------


def random_larger_splits(seed: int) -> Json:
    """Return a tight system of 12 servers on four accelerators, nearly all of them split; nothing runs."""
    rng = random.Random(f"larger versions {seed}")
    cards = [accelerator(name, cost=cost) for name, cost in (("A", 10), ("B", 17.5), ("C", 26), ("D", 41))]
    models = [
        profile(model, card["name"], alpha=alpha * rng.choice([0.8, 1.0, 1.3]), count=rng.choice([1, 1, 2]))
        for model in ("m", "n", "o")
        for card, alpha in zip(cards, (16.0, 10.0, 7.0, 4.5), strict=True)
        if rng.random() < 0.85
    ]
    classes = [
        service_class(f"c{p}", p, models=["m", "n"], ttft=rng.choice([60, 200]), itl=rng.choice([18, 30]))
        for p in (1, 2, 3)
    ]
    servers = []
    for i in range(12):
        item = server(
            f"s{i}", rng.randint(100, 4000), service=f"c{rng.randint(1, 3)}", model=rng.choice("mn")
        )
        if rng.random() < 0.85:
            weights = rng.choice([[0.9, 0.1], [0.7, 0.3], [0.5, 0.5], [0.6, 0.3, 0.1]])
            others = rng.sample([model for model in "mno" if model != item["model"]], len(weights) - 1)
            pairs = zip([item["model"], *others], weights, strict=True)
            item |= {"split": [{"model": model, "weight": weight} for model, weight in pairs]}
            item["rollBack"] = rng.random() < 0.5
        servers.append(item)
    units = {card["name"]: rng.randint(3, 16) for card in cards}
    return document(servers, cards, units, classes=classes, models=models, transitionPenalty=0.0)


@without_announcements()
def cbc_levels(source: Json) -> dict[str, float]:
    """Return the best levels of a system that nothing runs of, from integer numbers of replicas in CBC."""
    model, parts = pulp.LpProblem("versions", pulp.LpMinimize), _parts(source)
    cost = {item["name"]: item["cost"] for item in source["accelerators"]}
    sums: dict[str, list[Any]] = {}
    for p in sorted({part["priority"] for part in parts}):
        sums |= {f"priority {p}: unserved {what}": [] for what in ("rate", "servers")}
    for p in sorted({part["priority"] for part in parts if part["whole"] > part["load"]}):
        sums[f"reserve of priority {p}: load without it"] = []
    sums |= {"value": [], "changes": []}
    cards: dict[str, list[Any]] = {name: [] for name in cost}
    for i, part in enumerate(parts):
        served = pulp.LpVariable(f"served_{i}", cat="Binary")
        back = pulp.LpVariable(f"back_{i}", cat="Binary")
        carried, used = [], []
        for name, (rate, units) in part["rates"].items():
            on = pulp.LpVariable(f"on_{i}_{name}", cat="Binary")
            most = math.ceil(part["whole"] / rate)
            replicas = pulp.LpVariable(f"n_{i}_{name}", 0, most, cat="Integer")
            model += replicas <= most * on
            carried.append(rate * replicas)
            used.append(on)
            cards[name].append(units * replicas)
            sums["value"].append(cost[name] * units * replicas)
        model += pulp.lpSum(used) == served
        model += pulp.lpSum(carried) >= part["load"] * served * (1 - 1e-9)
        model += pulp.lpSum(carried) >= part["whole"] * back * (1 - 1e-9)
        model += back <= served
        sums[f"priority {part['priority']}: unserved rate"].append(part["load"] * (1 - served))
        sums[f"priority {part['priority']}: unserved servers"].append(1 - served)
        if part["whole"] > part["load"]:
            level = f"reserve of priority {part['priority']}: load without it"
            sums[level].append(part["load"] * (served - back))
        sums["changes"].append(served)
    for item in source["count"]:
        model += pulp.lpSum(cards[item["type"]]) <= item["count"]
    objectives = {name: pulp.lpSum(terms) for name, terms in sums.items()}
    return minimised(model, objectives, lambda _, __: STEP / 5, limit_s=60)


def _parts(source: Json) -> list[Json]:
    """Return versions with their load, the load to be ready for, and rates of a replica [requests/min]."""
    priority = {item["name"]: item["priority"] for item in source["serviceClasses"]}
    targets = {
        (item["name"], target["model"]): target
        for item in source["serviceClasses"]
        for target in item["modelTargets"]
    }
    parts = []
    for item in source["servers"]:
        load = item["currentAlloc"]["load"]
        for share in item.get("split") or [{"model": item["model"], "weight": 1.0}]:
            mine = targets.get((item["class"], share["model"])) or targets[item["class"], item["model"]]
            rate = load["arrivalRate"] * share["weight"]
            takes_all = item.get("rollBack") and share["model"] == item["model"]
            parts.append(
                {
                    "priority": priority[item["class"]],
                    "load": rate,
                    "whole": load["arrivalRate"] if takes_all else rate,
                    "rates": _rates(source["models"], share["model"], load, mine),
                }
            )
    return parts


def _rates(models: list[Json], model: str, load: Json, target: Json) -> dict[str, tuple[float, int]]:
    mine = [item for item in models if item["name"] == model]
    shape = load["avgInTokens"], load["avgOutTokens"]
    replicas = [replica_of(law_key(item), *shape) for item in mine]
    wanted = LatencyTargets.model_validate({"ttft": target["slo-ttft"], "itl": target["slo-itl"]})
    found = size_replicas(replicas, [wanted] * len(replicas))
    return {
        item["acc"]: (sizing.max_rate_rps * 60, item["accCount"])
        for item, sizing in zip(mine, found, strict=True)
        if not isinstance(sizing, Exception)
    }
