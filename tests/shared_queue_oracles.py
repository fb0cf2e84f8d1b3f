"""Plans with shared queues by exhaustive search, and random systems for it.

Reads a system as its plain document. Waiting times are those of one class, from `analyze_replicas`, divided
among the classes by the formula for exponential work; replicas, units, values and levels are worked out here.
"""

import itertools
import random
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from builders import Json, accelerator, running
from document_case import DocumentCase

from optimizer import Replica, System, analyze_replicas

MAX_REPLICAS = 80
LENGTHS = (64, 128)


class Way(NamedTuple):
    """One way to serve a planned server: members, an accelerator and replicas; or nothing."""

    members: tuple[str, ...]
    accelerator: str
    replicas: int


NOTHING = Way((), "", 0)


def random_queues(seed: int, *, queues: int = 2, most: int = 3, others: int = 1) -> Json:
    """Return a small tight system with shared queues, some of which run already."""
    rng = random.Random(seed)
    accelerators = [accelerator("A", cost=rng.choice([8, 10])), accelerator("B", cost=rng.choice([15, 19]))]
    models = [
        {
            "name": model,
            "acc": acc,
            "maxBatchSize": rng.choice([4, 8, 16]),
            "decodeParms": {"alpha": alpha * rng.uniform(0.8, 1.2), "beta": 0.4},
            "prefillParms": {"gamma": 4.0, "delta": 0.01},
        }
        for model in ("m", "n")
        for acc, alpha in (("A", 12.0), ("B", 6.0))
    ]
    priorities = rng.sample(range(1, 9), 3)
    classes = [
        {
            "name": f"c{i}",
            "priority": priority,
            "modelTargets": [
                {"model": model, "slo-ttft": rng.choice([25, 40, 80, 300, 2000]), "slo-itl": 40}
                for model in ("m", "n")
            ],
        }
        for i, priority in enumerate(priorities)
    ]
    servers = []
    for q in range(queues):
        now = running(rng.choice("AB"), rng.randint(1, 3)) if rng.random() < 0.5 else {}
        for k in range(rng.randint(2, most)):
            servers.append(_server(rng, f"q{q}s{k}", str(rng.choice(classes)["name"]), "mn"[q % 2], now))
            servers[-1]["sharedQueue"] = f"queue{q}"
    servers += [
        _server(rng, f"x{i}", str(rng.choice(classes)["name"]), rng.choice("mn"), {}) for i in range(others)
    ]
    units = {"A": rng.randint(0, 4 * (queues + others)), "B": rng.randint(0, 2 * (queues + others))}
    return {
        "accelerators": accelerators,
        "models": models,
        "serviceClasses": classes,
        "servers": servers,
        "count": [{"type": kind, "count": count} for kind, count in units.items()],
        "optimizer": {"gap": 0.0},
    }


def _server(rng: random.Random, name: str, service: str, model: str, now: Json) -> Json:
    rate = 0 if rng.random() < 0.08 else rng.choice([60, 150, 300, 450])
    load = {"arrivalRate": rate, "avgInTokens": LENGTHS[0], "avgOutTokens": LENGTHS[1]}
    return {"name": name, "class": service, "model": model, "currentAlloc": {**now, "load": load}}


class Case(DocumentCase):
    """A document, by name."""

    def __init__(self, system: System) -> None:
        super().__init__(system)
        self.rate = {n: item["currentAlloc"]["load"]["arrivalRate"] / 60 for n, item in self.servers.items()}
        self.planned: dict[str, list[str]] = {}
        for name, item in self.servers.items():
            self.planned.setdefault(item.get("sharedQueue") or name, []).append(name)

    def levels(self) -> list[str]:
        ranks = sorted(set(self.priority.values()))
        return [f"priority {p}: unserved {what}" for p in ranks for what in ("rate", "servers")] + [
            "value",
            "changes",
        ]

    def ways(self, name: str) -> Iterator[Way]:
        """Yield nothing, and each set of members on each accelerator with the fewest replicas."""
        members = self.planned[name]
        loaded = [member for member in members if self.rate[member]]
        yield NOTHING
        for size in range(1, len(loaded) + 1):
            for some in itertools.combinations(loaded, size):
                for acc in self.accelerators:
                    count = self.replicas(some, acc)
                    if count is not None:
                        yield Way(some, acc, count)

    def replicas(self, members: tuple[str, ...], acc: str) -> int | None:
        """Return the fewest replicas with which the targets of all members hold; None: there are none."""
        profile = self.profiles[self.servers[members[0]]["model"], acc]
        total = sum(self.rate[member] for member in members)
        shared = "sharedQueue" in self.servers[members[0]]
        for count in range(1, MAX_REPLICAS):
            waits = _one_class(_key(profile), total / count, 2**40 if shared else None)
            if waits is None:
                continue
            wait, ttft, itl, load = waits
            if all(
                itl <= self.target[m]["slo-itl"] * (1 + 1e-9)
                and ttft + wait * (self._factor(m, members, load) - 1)
                <= self.target[m]["slo-ttft"] * (1 + 1e-9)
                for m in members
            ):
                return count
        return None

    def _factor(self, member: str, members: tuple[str, ...], load: float) -> float:
        """Return the wait of a class over that of one class (Cobham)."""
        total = sum(self.rate[m] for m in members)
        above = sum(self.rate[m] for m in members if self.priority[m] < self.priority[member]) / total
        upto = sum(self.rate[m] for m in members if self.priority[m] <= self.priority[member]) / total
        return float((1 - load) / ((1 - above * load) * (1 - upto * load)))

    def adds(self, name: str, way: Way) -> tuple[float, ...]:
        """Return what a way adds to each level."""
        names, left = self.levels(), [m for m in self.planned[name] if self.rate[m] and m not in way.members]
        adds = dict.fromkeys(names, 0.0)
        for member in left:
            adds[f"priority {self.priority[member]}: unserved rate"] += self.rate[member] * 60
            adds[f"priority {self.priority[member]}: unserved servers"] += 1
        now = self.servers[self.planned[name][0]]["currentAlloc"]
        here, count = now.get("accelerator", ""), now.get("numReplicas", 0)
        old = now.get("cost") or (count * self.accelerators[here]["cost"] if here and count else 0.0)
        cost = way.replicas * self.accelerators[way.accelerator]["cost"] if way.replicas else 0.0
        same = (here if count else "", count) == (way.accelerator, way.replicas)
        moved = cost if way.accelerator != here else 0.0
        gone = 0.0 if way.replicas and way.accelerator == here else old
        adds["value"] = 0.0 if same else cost - old + self.penalty * (moved + gone)
        adds["changes"] = float(not same)
        return tuple(adds[level] for level in names)


def best_levels(system: System) -> dict[str, float]:
    """Return the best value of every level over all plans."""
    case = Case(system)
    ways = {name: list(case.ways(name)) for name in case.planned}
    best: dict[tuple[int, ...], tuple[float, ...]] = {(0, 0): (0.0,) * len(case.levels())}
    for name, mine in ways.items():
        joined: dict[tuple[int, ...], tuple[float, ...]] = {}
        for (used, levels), way in itertools.product(best.items(), mine):
            a, b = used
            total = (a + way.replicas * (way.accelerator == "A"), b + way.replicas * (way.accelerator == "B"))
            if not system.options.unlimited and any(
                n > case.units.get(k, 0) for n, k in zip(total, "AB", strict=True)
            ):
                continue
            reached = tuple(round(x + y, 9) for x, y in zip(levels, case.adds(name, way), strict=True))
            if total not in joined or reached < joined[total]:
                joined[total] = reached
        best = joined
    return dict(zip(case.levels(), min(best.values()), strict=True))


def _key(profile: Json) -> tuple[Any, ...]:
    return (
        profile["maxBatchSize"],
        *profile["decodeParms"].values(),
        *profile["prefillParms"].values(),
    )


@cache
def _one_class(
    key: tuple[Any, ...], rate: float, room: int | None
) -> tuple[float, float, float, float] | None:
    """Return wait, TTFT and ITL [ms] and load of a replica at a rate [requests/s]; None: unstable."""
    batch, alpha, beta, gamma, delta = key
    replica = Replica.model_validate(
        {
            "maxBatch": batch,
            "inTokens": LENGTHS[0],
            "outTokens": LENGTHS[1],
            "decodeParms": {"alpha": alpha, "beta": beta},
            "prefillParms": {"gamma": gamma, "delta": delta},
            **({} if room is None else {"maxQueue": 1_000_000}),
        }
    )
    (found,) = analyze_replicas([replica], [rate])
    if rate > found.stable_rate_rps:
        return None
    return found.wait_ms, found.ttft_ms, found.itl_ms, rate / found.stable_rate_rps * (1 - 1e-3)


def cbc_levels(system: System) -> dict[str, float]:
    """Return the best value of every level by CBC: a variable for each way, and for each member served."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PuLP 3 announces the names of PuLP 4
        return _cbc_levels(system)


def _cbc_levels(system: System) -> dict[str, float]:
    import pulp

    case, model = Case(system), pulp.LpProblem("queues", pulp.LpMinimize)
    served = {m: pulp.LpVariable(f"s_{i}", cat="Binary") for i, m in enumerate(case.servers) if case.rate[m]}
    taken = {
        name: [(way, pulp.LpVariable(f"w_{u}_{i}", cat="Binary")) for i, way in enumerate(case.ways(name))]
        for u, name in enumerate(case.planned)
    }
    for name, ways in taken.items():
        model += pulp.lpSum(x for _, x in ways) == 1
        for member in served.keys() & set(case.planned[name]):
            model += served[member] <= pulp.lpSum(x for way, x in ways if member in way.members)
    for acc, count in case.units.items():
        used = [w.replicas * x for ways in taken.values() for w, x in ways if w.accelerator == acc]
        model += pulp.lpSum(used) <= count
    found = {}
    for place, level in enumerate(case.levels()):
        if level in ("value", "changes"):
            parts = [case.adds(name, way)[place] * x for name, ways in taken.items() for way, x in ways]
        else:
            here = [m for m in served if level.startswith(f"priority {case.priority[m]}:")]
            parts = [(case.rate[m] * 60 if level.endswith("rate") else 1) * (1 - served[m]) for m in here]
        objective = pulp.lpSum(parts)
        model.setObjective(objective)
        status = model.solve(pulp.PULP_CBC_CMD(msg=False, gapRel=0))
        assert pulp.LpStatus[status] == "Optimal", level
        found[level] = float(pulp.value(objective) or 0.0)
        model += objective <= found[level] + 1e-6 * max(1.0, abs(found[level]))
    return found
