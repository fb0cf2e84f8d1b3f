"""Plans with shared queues by exhaustive search, and random systems for it.

Waiting times are those of one class, from `analyze_replicas`, divided among the classes by the formula for
exponential work.
"""

import itertools
import random
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from builders import Json, running
from document_case import DocumentCase, law_key, on_two_cards, random_classes, replica_of, two_cards
from plan_search import joined, rounded, within

from optimizer import System, analyze_replicas

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
    accelerators = two_cards(rng)
    models = on_two_cards(rng, {"m": 1.0, "n": 1.0})
    classes = random_classes(
        rng, 3, "mn", lambda: {"slo-ttft": rng.choice([25, 40, 80, 300, 2000]), "slo-itl": 40}
    )
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
        self.planned: dict[str, list[str]] = {}
        for name, item in self.servers.items():
            self.planned.setdefault(item.get("sharedQueue") or name, []).append(name)

    def ways(self, name: str) -> Iterator[Way]:
        """Yield nothing, and each set of members on each accelerator with the fewest replicas."""
        members = self.planned[name]
        loaded = [member for member in members if self.load[member]]
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
        total = sum(self.load[member] for member in members)
        shared = "sharedQueue" in self.servers[members[0]]
        for count in range(1, MAX_REPLICAS):
            waits = _one_class(law_key(profile), total / count, 2**40 if shared else None)
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
        total = sum(self.load[m] for m in members)
        above = sum(self.load[m] for m in members if self.priority[m] < self.priority[member]) / total
        upto = sum(self.load[m] for m in members if self.priority[m] <= self.priority[member]) / total
        return float((1 - load) / ((1 - above * load) * (1 - upto * load)))

    def adds(self, name: str, way: Way) -> dict[str, float]:
        left = [m for m in self.planned[name] if self.load[m] and m not in way.members]
        counts = ((way.accelerator, way.replicas),) if way.replicas else ()
        return self.added(left, {self.planned[name][0]: counts})


def best_levels(system: System) -> dict[str, float]:
    """Return the best value of every level over all plans."""
    case = Case(system)
    limits = case.limits()
    groups = (
        [
            (rounded(way.replicas * (way.accelerator == acc) for acc in limits), rounded(adds.values()))
            for way in case.ways(name)
            for adds in [case.adds(name, way)]
        ]
        for name in case.planned
    )
    best = joined(groups, (len(limits), len(case.levels())), within([*limits.values()]))
    return dict(zip(case.levels(), map(float, min(best.values())), strict=True))


@cache
def _one_class(
    key: tuple[Any, ...], rate: float, room: int | None
) -> tuple[float, float, float, float] | None:
    """Return wait, TTFT and ITL [ms] and load of a replica at a rate [requests/s]; None: unstable."""
    replica = replica_of(key, *LENGTHS, **({} if room is None else {"maxQueue": 1_000_000}))
    (found,) = analyze_replicas([replica], [rate])
    if rate > found.stable_rate_rps:
        return None
    return found.wait_ms, found.ttft_ms, found.itl_ms, rate / found.stable_rate_rps * (1 - 1e-3)
