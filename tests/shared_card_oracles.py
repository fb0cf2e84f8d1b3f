"""Random systems with shared cards, and their plans by enumeration of the units of every pattern."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from plan_search import (
    Way,
    joined,
    rounded,
    service_levels,
    transition_value,
    within,
)

from optimizer.candidates import find_candidates
from optimizer.spec.system import System, load_system

TOLERANCE = 2e-9
SLICES = ((1, 1), (2, 2), (4, 3), (4, 4))


def random_document(
    rng: np.random.Generator, servers: int, *, cards: int, turns: bool = False
) -> dict[str, Any]:
    """Return a system of small models in shares of a card, in slices or in time, and one of whole cards."""
    types = ["S", "B"][: int(rng.integers(1, 3))]
    accelerators: list[dict[str, Any]] = [
        {
            "name": kind,
            "type": kind,
            "memSize": 16.0 if kind == "S" else 40.0,
            "cost": float(rng.integers(20, 60)),
        }
        for kind in types
    ]
    accelerators[-1]["cost"] *= len(types)
    sliced = bool(len(types) > 1 and rng.random() < 0.6)
    if sliced:
        accelerators += [
            {
                "name": f"B-{i}",
                "type": "B",
                "memSize": 5.0 * memory,
                "slice": {"card": "B", "memory": memory, "compute": compute},
            }
            for i, (memory, compute) in enumerate(SLICES)
            if rng.random() < 0.6
        ]
    models: list[dict[str, Any]] = []
    targets, listed = [], []
    for i in range(servers):
        base, slope, memory = rng.uniform(5, 40), rng.uniform(0.5, 5), float(rng.choice([2.0, 3.5, 4.0, 6.0]))
        shares = [
            {"share": share, "slowdown": float(round(share ** -rng.uniform(0.6, 1.0), 2))}
            for share in (0.25, 0.5)
            if rng.random() < 0.6
        ]
        in_time = turns and rng.random() < 0.7
        plain = i == servers - 1
        for item in accelerators:
            part = item.get("slice")
            speed = 1.0 if item["type"] == "S" else 0.6
            speed *= 7 / part["compute"] * 0.7 if part else 1.0
            models.append(
                {
                    "name": f"m{i}",
                    "acc": item["name"],
                    "maxBatchSize": 8,
                    "batchParms": {"base": round(base * speed, 3), "slope": round(slope * speed, 3)},
                    **({} if plain else {"memory": memory}),
                    **({"shares": shares} if shares and not part and not plain and not in_time else {}),
                }
            )
        models = [m for m in models if not (plain and m["name"] == f"m{i}" and "-" in m["acc"])]
        targets.append(
            {"model": f"m{i}", "latency": [{"percentile": 95, "ms": float(rng.integers(250, 900))}]}
        )
        able = shares or sliced or in_time or (turns and not shares)
        rate = float(rng.uniform(0.2, 2.0)) * 60 * 8000 / (base + 8 * slope) * 0.8
        current = (
            {"accelerator": types[0], "numReplicas": int(rng.integers(1, 3))} if rng.random() < 0.3 else {}
        )
        listed.append(
            {
                "name": f"s{i}",
                "class": f"c{int(rng.integers(1, 3))}",
                "model": f"m{i}",
                **({"sharedCard": True} if able and not plain else {}),
                **({} if turns else {"batchTrigger": "collect"}),  # takes no turns
                "currentAlloc": {**current, "load": {"arrivalRate": round(rate, 2)}},
            }
        )
    return {
        "accelerators": accelerators,
        "models": models,
        "serviceClasses": [
            {"name": f"c{priority}", "priority": priority, "modelTargets": targets} for priority in (1, 2)
        ],
        "servers": listed,
        "count": [{"type": kind, "count": int(rng.integers(1, cards + 1))} for kind in types],
        "optimizer": {"heterogeneous": bool(rng.random() < 0.3), "timeLimit": 60},
    }


def random_system(seed: int, servers: int, *, cards: int, turns: bool = False) -> System:
    return load_system(random_document(np.random.default_rng(seed), servers, cards=cards, turns=turns))


# --- levels by plain arithmetic ------------------------------------------------------------------------


class Choices:
    """What servers can have, by plain arithmetic on candidates."""

    def __init__(self, system: System) -> None:
        self.system, self.candidates = system, find_candidates(system)
        arrays = self.candidates.arrays
        self.servers = list(system.servers.values())
        self.loads = arrays.servers.load_rps.tolist()
        self.priority = arrays.servers.priority.tolist()
        self.penalty = system.options.transition_penalty
        self.kinds = [*system.capacity]
        self.cards = [system.capacity[kind] for kind in self.kinds]

    def kind_of(self, accelerator: int) -> int:
        name = self.candidates.arrays.accelerator_names[accelerator]
        return self.kinds.index(self.system.accelerators[name].type)

    def price(self, accelerator: int) -> float:
        name = self.candidates.arrays.accelerator_names[accelerator]
        return self.system.accelerators[name].cost_cents_per_h

    def own(self, s: int) -> Iterator[dict[int, int]]:
        """Yield the replicas by accelerator with which a server is served on its own cards."""
        table = self.candidates.table
        rows = np.flatnonzero(table.server == s).tolist()
        if not self.system.options.heterogeneous:
            yield from ({int(table.accelerator[c]): int(table.num_replicas[c])} for c in rows)
            return
        for counts in itertools.product(*(range(int(table.num_replicas[c]) + 1) for c in rows)):
            rate = sum(n * float(table.max_rate_rps[c]) for n, c in zip(counts, rows, strict=True))
            if rate >= self.loads[s] * (1 - TOLERANCE) and sum(counts):
                yield {int(table.accelerator[c]): n for n, c in zip(counts, rows, strict=True) if n}

    def value(self, s: int, pools: dict[int, int] | None) -> tuple[float, int]:
        """Return what pools of a server add to value and changes; None: it is on shared cards."""
        names, now = self.candidates.arrays.accelerator_names, self.servers[s].current
        here = names.index(now.accelerator) if now.accelerator else -1
        old = self.price(here) * now.num_replicas if here >= 0 else 0.0
        if pools is None:
            return -old + self.penalty * old, 1
        same = pools == ({here: now.num_replicas} if here >= 0 else {})
        if same and not self.system.options.heterogeneous:
            return 0.0, 0
        cost = {str(a): n * self.price(a) for a, n in pools.items()}
        return transition_value(cost, str(here), old, self.penalty), 0 if same else 1

    def adds(self, s: int, pools: dict[int, int] | None) -> dict[str, float]:
        """Return what pools of a server add to each level; {}: not served, None: on shared cards."""
        adds = dict.fromkeys(self.levels(), 0.0)
        if pools == {}:
            adds[f"priority {self.priority[s]}: unserved rate"] = self.loads[s] * 60
            adds[f"priority {self.priority[s]}: unserved servers"] = 1.0
        adds["value"], adds["changes"] = self.value(s, pools)
        return adds

    def levels(self) -> list[str]:
        return [*service_levels(f"priority {p}" for p in sorted(set(self.priority))), "value", "changes"]

    def way(self, s: int, pools: dict[int, int] | None) -> Way:
        """Return the cards by type that pools use, and what they add to each level."""
        used = [0] * len(self.kinds)
        for a, n in (pools or {}).items():
            used[self.kind_of(a)] += n
        return rounded(used), rounded(self.adds(s, pools).values())


def best_by_enumeration(system: System) -> tuple[float, ...]:
    """Return the levels of the best plan: every number of units of every pattern, every choice of servers."""
    choices = Choices(system)
    shared = choices.candidates.shared
    assert shared is not None
    servers = range(len(choices.servers))
    alone = [[choices.way(s, pools) for pools in (*choices.own(s), {})] for s in servers]
    shared_way = [choices.way(s, None) for s in servers]
    cheapest: dict[tuple[frozenset[int], tuple[int, ...]], float] = {}
    for units in _units(choices, shared.rates_rps):
        carried = shared.rates_rps @ np.array(units, np.float64) if units else np.zeros(0)
        able = {
            int(s)
            for s, rate, load in zip(shared.servers, carried, shared.load_rps, strict=True)
            if rate >= load * (1 - TOLERANCE)
        }
        left, cost = list(choices.cards), 0.0
        for pattern, count in zip(shared.patterns, units, strict=True):
            left[choices.kind_of(pattern.accelerator)] -= count
            cost += count * choices.price(pattern.accelerator)
        key = frozenset(able), tuple(left)
        cheapest[key] = min(cost, cheapest.get(key, np.inf))
    found = []
    for (served, remaining), cost in cheapest.items():
        groups = [[*alone[s], *([shared_way[s]] if s in served else [])] for s in servers]
        sizes = len(remaining), len(choices.levels())
        best = min(joined(groups, sizes, within(remaining)).values())
        extra = rounded([cost * (1 + choices.penalty)])[0]
        found.append((*best[:-2], best[-2] + extra, best[-1]))
    return tuple(map(float, min(found)))


def _units(choices: Choices, rates: np.ndarray) -> Iterator[tuple[int, ...]]:
    """Yield all numbers of units of patterns that the cards allow, and of which none is useless."""
    shared = choices.candidates.shared
    assert shared is not None
    kinds = [choices.kind_of(pattern.accelerator) for pattern in shared.patterns]
    most = [
        int(np.ceil((shared.load_rps[rates[:, p] > 0] / rates[rates[:, p] > 0, p]).max(initial=0) - 1e-9))
        for p in range(len(kinds))
    ]

    def below(p: int, left: list[int]) -> Iterator[tuple[int, ...]]:
        if p == len(kinds):
            yield ()
            return
        for count in range(min(left[kinds[p]], most[p]) + 1):
            rest = list(left)
            rest[kinds[p]] -= count
            for others in below(p + 1, rest):
                yield (count, *others)

    yield from below(0, list(choices.cards))
