"""A document as independent programs read it: its items by name, and nothing of the planner."""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from builders import Json, accelerator
from plan_search import service_levels, transition_value

from optimizer import Replica, System

Counts = tuple[tuple[str, int], ...]
"""Accelerators with replicas."""


class DocumentCase:
    """Items of a document, by name."""

    def __init__(self, system: System) -> None:
        self.spec: dict[str, Any] = system.to_spec().model_dump(mode="json", by_alias=True)
        self.servers = {item["name"]: item for item in self.spec["servers"]}
        self.accelerators = {item["name"]: item for item in self.spec["accelerators"]}
        self.profiles = {(item["name"], item["acc"]): item for item in self.spec["models"]}
        classes = {item["name"]: item for item in self.spec["serviceClasses"]}
        self.priority = {name: classes[item["class"]]["priority"] for name, item in self.servers.items()}
        self.target = {
            name: next(t for t in classes[item["class"]]["modelTargets"] if t["model"] == item["model"])
            for name, item in self.servers.items()
        }
        self.units = {item["type"]: item["count"] for item in self.spec["count"]}
        self.unlimited = system.options.unlimited
        self.penalty = self.spec["optimizer"]["transitionPenalty"]
        self.load = {n: item["currentAlloc"]["load"]["arrivalRate"] / 60 for n, item in self.servers.items()}
        """Requests per second."""

    def levels(self) -> list[str]:
        ranks = sorted(set(self.priority.values()))
        return [*service_levels(f"priority {rank}" for rank in ranks), "value", "changes"]

    def limits(self) -> dict[str, float]:
        """Return the units of each type; a type is named as its accelerator."""
        return {acc: float("inf") if self.unlimited else self.units.get(acc, 0) for acc in self.accelerators}

    def added(self, unserved: Iterable[str], placed: Mapping[str, Counts]) -> dict[str, float]:
        """Return what servers without service and the replicas of servers add to each level."""
        adds = dict.fromkeys(self.levels(), 0.0)
        for name in unserved:
            adds[f"priority {self.priority[name]}: unserved rate"] += self.load[name] * 60
            adds[f"priority {self.priority[name]}: unserved servers"] += 1
        for name, counts in placed.items():
            now = self.servers[name]["currentAlloc"]
            here, count = now.get("accelerator", ""), now.get("numReplicas", 0)
            old = count * self.accelerators[here]["cost"] if here and count else 0.0
            costs = {acc: n * self.accelerators[acc]["cost"] for acc, n in counts}
            adds["value"] += transition_value(costs, here, old, self.penalty)
            adds["changes"] += counts != (((here, count),) if here and count else ())
        return adds


# --- profiles and random documents -----------------------------------------------------------------------


def law_key(profile: Json) -> tuple[float, ...]:
    """Return the batch limit and the linear law of a profile."""
    return (profile["maxBatchSize"], *profile["decodeParms"].values(), *profile["prefillParms"].values())


def replica_of(key: tuple[float, ...], in_tokens: float, out_tokens: float, **more: Any) -> Replica:
    """Return a replica by its batch limit and law, for requests of a length."""
    batch, alpha, beta, gamma, delta = key
    times = {"decodeParms": {"alpha": alpha, "beta": beta}, "prefillParms": {"gamma": gamma, "delta": delta}}
    return Replica.model_validate(
        {"maxBatch": batch, "inTokens": in_tokens, "outTokens": out_tokens} | times | more
    )


def two_cards(rng: random.Random) -> list[Json]:
    return [accelerator("A", cost=rng.choice([8, 10])), accelerator("B", cost=rng.choice([15, 19]))]


def on_two_cards(rng: random.Random, slower: Mapping[str, float]) -> list[Json]:
    """Return profiles of models, each so many times slower, on both cards."""
    return [
        {
            "name": model,
            "acc": acc,
            "maxBatchSize": rng.choice([4, 8, 16]),
            "decodeParms": {"alpha": alpha * times * rng.uniform(0.8, 1.2), "beta": 0.4},
            "prefillParms": {"gamma": 4.0 * times, "delta": 0.01 * times},
        }
        for model, times in slower.items()
        for acc, alpha in (("A", 12.0), ("B", 6.0))
    ]


def random_classes(
    rng: random.Random, count: int, models: Iterable[str], target: Callable[[], Json]
) -> list[Json]:
    """Return classes of different priorities with a target for each model."""
    return [
        {
            "name": f"c{i}",
            "priority": priority,
            "modelTargets": [{"model": model} | target() for model in models],
        }
        for i, priority in enumerate(rng.sample(range(1, 9), count))
    ]
