"""Small system documents: by hand, piece by piece, and at random from a seed.

A piece is a plain dictionary in wire format. Everything that a test does not name is chosen so that it does
not matter: one replica of the default profile carries several hundred requests a minute, so that
`min_replicas` alone decides how many replicas a server takes.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from optimizer import Plan, SpecError, System, load_system

Json = dict[str, Any]

GONE = "Z9"
"""An accelerator that a server may run on though no catalogue has it."""
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 131072,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "tie_word_embeddings": False,
}  # fmt: skip
"""The configuration of Llama-3.1-8B."""


def without_hash(plan: Plan) -> Plan:
    """Return a plan without the hash of its document, to compare plans of different documents."""
    return plan.model_copy(update={"document_hash": ""})


def accelerator(name: str, kind: str = "", cost: float = 10.0, multiplicity: int = 1) -> Json:
    """Return an accelerator, of a type of its own unless told."""
    return {"name": name, "type": kind or name, "cost": cost, "multiplicity": multiplicity}


def profile(model: str, acc: str, *, count: int = 1, alpha: float = 10.0, **more: Any) -> Json:
    """Return a profile under the linear law; a replica carries about 540 requests of 64 tokens a minute."""
    times = {"decodeParms": {"alpha": alpha, "beta": 0.5}, "prefillParms": {"gamma": 5.0, "delta": 0.01}}
    return {"name": model, "acc": acc, "accCount": count, "maxBatchSize": 8} | times | more


def service_class(name: str, priority: int = 1, models: Sequence[str] = ("m",), **targets: float) -> Json:
    """Return a class with the same targets (``itl``, ``ttft``, ``tps``) for all its models."""
    wanted = {f"slo-{key}": value for key, value in targets.items()}
    return {
        "name": name,
        "priority": priority,
        "modelTargets": [{"model": model} | wanted for model in models],
    }


def server(
    name: str,
    rate: float | str = 60.0,
    *,
    replicas: int = 0,
    current: Json | None = None,
    service: str = "gold",
    **more: Any,
) -> Json:
    """Return a server of model ``m`` that takes `replicas` replicas."""
    load = {"arrivalRate": rate, "avgInTokens": 16, "avgOutTokens": 64}
    body = {"name": name, "class": service, "model": "m", "minNumReplicas": replicas}
    return body | {"currentAlloc": (current or {}) | {"load": load}} | more


def running(acc: str, replicas: int, cost: float = 0.0) -> Json:
    """Return a current allocation; without a cost it is left to be recomputed."""
    return {"accelerator": acc, "numReplicas": replicas, "cost": cost}


def document(
    servers: Sequence[Json],
    accelerators: Sequence[Json],
    units: Mapping[str, int] | None = None,
    *,
    classes: Sequence[Json] | None = None,
    models: Sequence[Json] | None = None,
    **options: Any,
) -> Json:
    """Return a system with a profile of ``m`` on every accelerator; no `units` means unlimited."""
    return {
        "accelerators": list(accelerators),
        "models": [profile("m", item["name"]) for item in accelerators] if models is None else list(models),
        "serviceClasses": [service_class("gold")] if classes is None else list(classes),
        "servers": list(servers),
        "count": [{"type": kind, "count": count} for kind, count in (units or {}).items()],
        "optimizer": {"unlimited": units is None} | options,
    }


def system(*args: Any, **options: Any) -> System:
    return load_system(document(*args, **options))


def refusal(action: Callable[[], object]) -> str:
    """Return the line with which wrong input is refused."""
    with pytest.raises(SpecError) as caught:
        action()
    text = str(caught.value)
    assert "\n" not in text
    return text


def shuffled(source: Mapping[str, Any], rng: random.Random) -> Json:
    """Return a document with the items of every section, their keys and their lists in another order."""

    def mixed(value: Any) -> Any:
        if isinstance(value, Mapping):
            pairs = [(key, mixed(item)) for key, item in value.items()]
            rng.shuffle(pairs)
            return dict(pairs)
        if isinstance(value, list):
            items = [mixed(item) for item in value]
            rng.shuffle(items)
            return items
        return value

    answer: Json = mixed(source)
    return answer


# --- random systems --------------------------------------------------------------------------------------


def random_document(rng: random.Random) -> Json:
    """Return a small tight system: up to 4 servers, 3 accelerators of up to 3 types, limited.

    Costs are multiples of 0.25 cents/h, penalties of 0.05 and rates of 0.125 requests/min: sums that differ
    at all differ by at least 0.0125, so that no tolerance of a solver can hide which is the smaller.
    """
    kinds = [f"T{i}" for i in range(rng.choice([1, 2, 3, 3]))]
    names = [f"A{i}" for i in range(rng.choice([1, 2, 3, 3, 3]))]
    models = ["m", "n"][: rng.randint(1, 2)]
    classes = [_random_class(rng, f"class{i}", models) for i in range(rng.randint(1, 3))]
    accelerators = [
        accelerator(name, rng.choice(kinds), rng.choice([8, 10, 10, 12.25, 20]), rng.choice([1, 1, 2, 4]))
        for name in names
    ]
    profiles = [
        _random_profile(rng, model, name)
        for model in models
        for name in names
        if rng.random() < 0.9 or name == names[0]
    ]
    return {
        "accelerators": accelerators,
        "models": profiles,
        "serviceClasses": classes,
        "servers": [
            _random_server(rng, f"s{i}", rng.choice(classes)["name"], rng.choice(models), names)
            for i in range(rng.choice([1, 2, 3, 4, 4]))
        ],
        "count": _random_units(rng, kinds),
        "optimizer": {"milpSolver": True, "transitionPenalty": rng.choice([0.1, 0.1, 0.0, 0.05, 0.5, 2.0])},
    }


def _random_class(rng: random.Random, name: str, models: Sequence[str]) -> Json:
    targets = []
    for model in models:
        if rng.random() < 0.95:
            # 128 tokens/s over 64 tokens is 120 requests/min
            tps = rng.choice([0, 0, 0, 0, 128, 512])
            itl, ttft = rng.choice([0, 11, 15, 30]), rng.choice([0, 0, 25, 300])
            targets.append({"model": model, "slo-itl": itl, "slo-ttft": ttft, "slo-tps": tps})
    return {"name": name, "priority": rng.choice([1, 1, 2, 100]), "modelTargets": targets}


def _random_profile(rng: random.Random, model: str, acc: str) -> Json:
    return profile(
        model,
        acc,
        count=rng.choice([1, 1, 1, 2, 3]),
        alpha=rng.choice([5.0, 10.0, 20.0]),
        maxBatchSize=rng.choice([1, 4, 8, 8]),
        atTokens=rng.choice([0, 64, 128]),
    )


def _random_server(
    rng: random.Random, name: str, service: str, model: str, accelerators: Sequence[str]
) -> Json:
    least = rng.choice([0, 0, 0, 1, 2])
    rate = 0.0 if rng.random() < 0.15 else rng.choice([60.0, 120.0, rng.randint(1, 4800) / 8])
    more: Json = {"service": service, "model": model}
    if rng.random() < 0.2:
        more["maxNumReplicas"] = max(least, rng.randint(1, 4))
    if rng.random() < 0.15:
        more["accelerators"] = rng.sample(accelerators, rng.randint(1, len(accelerators)))
    current = _random_current(rng, accelerators)
    if current.get("accelerator") != GONE:
        more["keepAccelerator"] = rng.random() < 0.25
    return server(name, rate, replicas=least, current=current, **more)


def _random_current(rng: random.Random, accelerators: Sequence[str]) -> Json:
    kind = rng.random()
    if kind < 0.35:
        return {}
    if kind < 0.42:
        return running(GONE, rng.randint(1, 3), rng.randint(1, 200) / 4)
    cost = 0.0 if rng.random() < 0.5 else rng.randint(1, 200) / 4
    return running(rng.choice(accelerators), rng.choice([1, 1, 1, 2, 3]), cost)


def _random_units(rng: random.Random, kinds: Sequence[str]) -> list[Json]:
    most = rng.choice([4, 8, 12, 16, 400])
    return [{"type": kind, "count": rng.randint(0, most)} for kind in kinds if rng.random() < 0.95]
