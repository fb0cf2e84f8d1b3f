"""Generates realistic random systems of any size from a seed.

Token times follow from hardware limits: a decode step is bound by reading the weights and KV caches from
memory, a prefill by arithmetic. The catalogue has accelerators of 1, 2, 4 or 8 cards of each type, models of
3 to 180 billion parameters, and classes whose targets loosen with their priority. Numbers of cards are set
between the demand of an unlimited plan and a demand spread evenly over the accelerator types.
"""

from typing import Any

import numpy as np

from optimizer.candidates import find_candidates
from optimizer.errors import SpecError
from optimizer.quantities import counted
from optimizer.spec.system import System, load_system

_MULTIPLES = (1, 2, 4, 8)
_SLICES = (1, 2, 4, 8)
"""Possible numbers of accelerators per replica."""
_BYTES_PER_PARAM = 2
_WEIGHTS_SHARE = 0.8
"""Maximum share of GPU memory for weights; KV caches need the rest."""
_SHAPES = ((128, 256), (256, 512), (512, 128), (1024, 256), (1024, 1024), (2048, 512), (4096, 256))
"""Pairs of input and output length of requests [tokens]."""


def generate_system(servers: int, accelerators: int, types: int, seed: int, tightness: float = 1.0) -> System:
    """Generate a system; see `generate_document`.

    Raises:
        SpecError: an argument is out of range.
    """
    return load_system(generate_document(servers, accelerators, types, seed, tightness))


def generate_document(
    servers: int, accelerators: int, types: int, seed: int, tightness: float = 1.0
) -> dict[str, Any]:
    """Generate a system as a document of plain values.

    Args:
        servers: number of servers, each one model in one service class.
        accelerators: number of accelerators in the catalogue.
        types: number of accelerator types, at most `accelerators`.
        seed: random seed.
        tightness: demand for cards over existing cards, roughly; 2 provides half of the demand.

    Raises:
        SpecError: an argument is out of range.
    """
    if servers < 1 or accelerators < 1 or not 1 <= types <= accelerators:
        raise SpecError(
            f"generate: {counted(servers, 'server')}, {counted(accelerators, 'accelerator')} of "
            f"{counted(types, 'type')}; "
            "each must be at least 1, and types must not exceed accelerators"
        )
    if not 0 < tightness < float("inf"):
        raise SpecError(f"generate: tightness must be more than 0, not {tightness:g}")
    if seed < 0:
        raise SpecError(f"generate: seed must be at least 0, not {seed}")
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    catalogue = _accelerators(rng, accelerators, types)
    models = _models(rng, max(1, round(servers**0.5)), _most_params(catalogue))
    count = -(-servers // len(models))
    classes = _classes(rng, count, models)
    document: dict[str, Any] = {
        "accelerators": [
            {key: item[key] for key in ("name", "type", "multiplicity", "memSize", "memBW", "power", "cost")}
            for item in catalogue
        ],
        "models": [profile for model in models for item in catalogue if (profile := _profile(model, item))],
        "serviceClasses": classes,
        "servers": _servers(rng, servers, classes, models),
        "count": [],
        "optimizer": {"unlimited": False, "milpSolver": True},
    }
    document["count"] = _capacities(load_system(document), tightness)
    return document


def _accelerators(rng: np.random.Generator, count: int, types: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for t in range(types):
        bandwidth = round(float(rng.uniform(300, 5000)))
        compute = bandwidth * float(rng.uniform(0.08, 0.16))
        memory = int(rng.choice([24, 48, 64, 80, 96, 128, 192]))
        power = round(75 + bandwidth / 8)
        price = round(2 + bandwidth / 60 * float(rng.uniform(0.9, 1.1)), 2)
        items += [
            {
                "name": f"T{t:02d}" if m == 1 else f"{m}xT{t:02d}",
                "type": f"T{t:02d}",
                "multiplicity": m,
                "memSize": memory * m,
                "memBW": bandwidth * m,
                "power": {
                    "idle": power * m // 4,
                    "full": power * m,
                    "midPower": power * m * 4 // 5,
                    "midUtil": 0.6,
                },
                "cost": round(price * m, 2),
                "compute": compute * m**0.95,
                "stream": bandwidth * m**0.9,
            }
            for m in _MULTIPLES[: -(-(count - t) // types)]
        ]
    while len(items) < count:  # more accelerators than types × card numbers: add newer generations of a type
        source = items[len(items) % (types * len(_MULTIPLES))]
        faster = float(rng.uniform(0.8, 1.2))
        generation = len(items) // (types * len(_MULTIPLES)) + 1
        items.append(
            source
            | {
                "name": f"{source['name']}-g{generation}",
                "cost": round(source["cost"] * faster, 2),
                "compute": source["compute"] * faster,
                "stream": source["stream"] * faster,
            }
        )
    return items[:count]


def _most_params(catalogue: list[dict[str, Any]]) -> float:
    """Return the largest model size that fits on any accelerator in the catalogue [billion parameters]."""
    most_memory_gb: float = max(item["memSize"] for item in catalogue)
    return max(_SLICES) * most_memory_gb * _WEIGHTS_SHARE / _BYTES_PER_PARAM


def _models(rng: np.random.Generator, count: int, most_params: float) -> list[dict[str, Any]]:
    sizes = np.exp(rng.uniform(np.log(3), np.log(180), count))
    return [
        {"name": f"model-{i:03d}", "params": min(float(size), most_params)} for i, size in enumerate(sizes)
    ]


def _profile(model: dict[str, Any], accelerator: dict[str, Any]) -> dict[str, Any] | None:
    """Return the profile of a model on the fewest accelerators that hold it; None if eight are too few."""
    weights_gb = _BYTES_PER_PARAM * model["params"]
    slices = next((n for n in _SLICES if n * accelerator["memSize"] * _WEIGHTS_SHARE >= weights_gb), None)
    if slices is None:
        return None
    stream, compute = accelerator["stream"] * slices**0.9, accelerator["compute"] * slices**0.95
    free_gb = slices * accelerator["memSize"] * 0.9 - weights_gb
    batch = int(np.clip(free_gb / (0.2 * model["params"] ** 0.6), 1, 128))
    alpha = weights_gb / stream * 1000
    return {
        "name": model["name"],
        "acc": accelerator["name"],
        "accCount": slices,
        "maxBatchSize": batch,
        "atTokens": 512,
        "decodeParms": {"alpha": round(alpha + 2, 4), "beta": round(0.02 + alpha * 0.02, 5)},
        "prefillParms": {"gamma": round(2 * alpha, 4), "delta": round(2 * model["params"] / compute / 8, 6)},
    }


def _classes(rng: np.random.Generator, count: int, models: list[dict[str, Any]]) -> list[dict[str, Any]]:
    classes = []
    for c in range(count):
        priority = 1 + c % 4
        targets = [
            {
                "model": model["name"],
                "slo-itl": round(float(rng.uniform(20, 40)) * priority * max(1.0, model["params"] / 30), 1),
                "slo-ttft": round(
                    float(rng.uniform(400, 1000)) * priority * max(1.0, model["params"] / 30), 1
                ),
            }
            for model in models
        ]
        classes.append({"name": f"class-{c:03d}", "priority": priority, "modelTargets": targets})
    return classes


def _servers(
    rng: np.random.Generator, count: int, classes: list[dict[str, Any]], models: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    servers = []
    for i in range(count):
        service, model = classes[i // len(models)]["name"], models[i % len(models)]["name"]
        shape = _SHAPES[int(rng.integers(len(_SHAPES)))]
        rate = round(float(np.exp(rng.uniform(np.log(10), np.log(600)))), 1)
        load = {"arrivalRate": rate, "avgInTokens": shape[0], "avgOutTokens": shape[1]}
        servers.append(
            {"name": f"{service}/{model}", "class": service, "model": model, "currentAlloc": {"load": load}}
        )
    return servers


def _capacities(system: System, tightness: float) -> list[dict[str, Any]]:
    """Set capacities halfway between the cheapest candidates' demand and an even spread over the types."""
    candidates = find_candidates(system)
    table = candidates.table
    order = np.lexsort((table.cost_cents_per_h, table.server))
    cheapest = order[np.unique(table.server[order], return_index=True)[1]]
    types = len(candidates.arrays.type_names)
    alone = np.bincount(table.type[cheapest], table.units[cheapest], minlength=types)
    best = np.lexsort((table.units, table.type, table.server))
    pair = table.server * types + table.type
    least = best[np.unique(pair[best], return_index=True)[1]]
    choices = np.bincount(table.server[least], minlength=len(candidates.arrays.server_names))
    spread = np.bincount(
        table.type[least], table.units[least] / choices[table.server[least]], minlength=types
    )
    units = np.ceil((alone + spread) / 2 / tightness)
    return [
        {"type": name, "count": int(n)} for name, n in zip(candidates.arrays.type_names, units, strict=True)
    ]
