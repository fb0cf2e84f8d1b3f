"""Fleets of workloads of several kinds at random, with what runs now, limits and options."""

import random
from collections.abc import Sequence

from builders import Json

from recorder.kinds import CARDS, KINDS, Workload

CLASSES = (("gold", 1, 1.0), ("silver", 2, 1.5), ("bronze", 3, 3.0))
"""Name, priority and slack of the targets."""


def mixed_fleet(
    seed: str, kinds: Sequence[str], servers: int, units: tuple[int, int] | None, **options: object
) -> Json:
    """Return a fleet whose models are of some kinds in turn, two servers a model.

    Args:
        seed: the same seed gives the same fleet.
        kinds: names of kinds.
        servers: number of servers.
        units: least and most units of each type; None means unlimited.
        options: of the ``optimizer`` section.
    """
    rng = random.Random(seed)
    cards = [CARDS[i] for i in sorted(rng.sample(range(len(CARDS)), rng.randint(2, len(CARDS))))]
    workloads: dict[str, Workload] = {}
    for i in range(-(-servers // 2)):
        found = KINDS[kinds[i % len(kinds)]](rng)
        workloads.setdefault(found.model or f"{kinds[i % len(kinds)]}-{i}", found)
    models = [
        {"name": model, "acc": card[0]} | workload.profile(card[6])
        for model, workload in workloads.items()
        for card in cards
        if card is cards[0] or rng.random() < 0.9
    ]
    names = list(workloads)
    types = sorted({card[1] for card in cards})
    return {
        "accelerators": [_accelerator(card) for card in cards],
        "models": models,
        "serviceClasses": [
            {
                "name": name,
                "priority": priority,
                "modelTargets": [
                    {"model": model} | _loosened(workload.target, slack)
                    for model, workload in workloads.items()
                ],
            }
            for name, priority, slack in CLASSES
        ],
        "servers": [
            _server(rng, f"s{i:02d}", names[i // 2 % len(names)], workloads, [card[0] for card in cards])
            for i in range(servers)
        ],
        "count": [{"type": kind, "count": rng.randint(*units)} for kind in types] if units else [],
        "optimizer": {"unlimited": units is None} | options,
    }


def _accelerator(card: tuple[str, str, int, int, int, float, float]) -> Json:
    name, kind, multiplicity, memory, bandwidth, cost, _ = card
    power = {"idle": 60 * multiplicity, "full": 350 * multiplicity, "midPower": 280 * multiplicity}
    return {
        "name": name, "type": kind, "multiplicity": multiplicity, "memSize": memory, "memBW": bandwidth,
        "cost": cost, "power": power | {"midUtil": 0.6},
    }  # fmt: skip


def _loosened(target: Json, slack: float) -> Json:
    """Return targets with the latencies times a slack."""
    loose = {
        name: round(value * slack, 3) if name in {"slo-itl", "slo-ttft", "slo-e2e"} else value
        for name, value in target.items()
    }
    if "latency" in target:
        loose["latency"] = [item | {"ms": round(item["ms"] * slack, 3)} for item in target["latency"]]
    return loose


def _server(
    rng: random.Random, name: str, model: str, workloads: dict[str, Workload], accelerators: Sequence[str]
) -> Json:
    body = workloads[model].server()
    current: Json = {"load": body.pop("load")}
    if rng.random() < 0.4:
        current |= {"accelerator": rng.choice(accelerators), "numReplicas": rng.randint(1, 4)}
        body["keepAccelerator"] = rng.random() < 0.2
    if rng.random() < 0.08:
        current["load"]["arrivalRate"] = 0.0
    if rng.random() < 0.2:
        body["minNumReplicas"] = rng.randint(1, 3)
    if rng.random() < 0.15:
        body["maxNumReplicas"] = rng.randint(3, 8)
    if rng.random() < 0.15 and not body.get("keepAccelerator"):
        body["accelerators"] = sorted(rng.sample(accelerators, rng.randint(1, len(accelerators))))
    service = CLASSES[rng.randrange(len(CLASSES))][0]
    return {"name": name, "class": service, "model": model, "currentAlloc": current} | body
