"""Plans of split servers: the same systems without splits, and random systems.

Documents are spelled out by plain arithmetic, so that what knows nothing of versions can search them.
"""

import copy
import random

from builders import Json, profile, random_document, running
from mixed_oracles import random_mixed_document

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
