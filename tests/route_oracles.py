"""Plans with routes by exhaustive search, and random systems for it.

Replicas of both servers are enumerated; shares are found by linear programs in SciPy. Maximum rates of
replicas are found by bisection on `analyze_replicas`.
"""

import itertools
import random
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from builders import Json, running
from document_case import (
    Counts,
    DocumentCase,
    law_key,
    on_two_cards,
    random_classes,
    replica_of,
    two_cards,
)
from plan_search import joined, rounded, within
from scipy.optimize import linprog

from optimizer import System, analyze_replicas

TIGHT = 1e-9


def random_routes(seed: int, *, routes: int = 1, others: int = 1, kinds: int = 3) -> Json:
    rng = random.Random(seed)
    accelerators = two_cards(rng)
    models = on_two_cards(rng, {"s": 1.0, "l": rng.uniform(3, 6)})
    classes = random_classes(
        rng,
        2,
        "sl",
        lambda: {"slo-ttft": rng.choice([1000, 4000]), "slo-itl": rng.choice([90, 150])},
    )
    servers, made = [], []
    for r in range(routes):
        owner = str(rng.choice(classes)["name"])
        for size in "sl":
            now = running(rng.choice("AB"), rng.randint(1, 3)) if rng.random() < 0.5 else {}
            bound = {"maxNumReplicas": rng.randint(1, 3)} if rng.random() < 0.2 else {}
            servers.append({"name": f"{size}{r}", "class": owner, "model": size, "currentAlloc": now} | bound)
        made.append(_route(rng, r, kinds))
    for i in range(others):
        load = {"arrivalRate": rng.choice([60, 150]), "avgInTokens": 64, "avgOutTokens": 64}
        owner = str(rng.choice(classes)["name"])
        servers.append(
            {"name": f"x{i}", "class": owner, "model": rng.choice("sl"), "currentAlloc": {"load": load}}
        )
    units = {"A": rng.randint(1, 9 * routes + 3 * others), "B": rng.randint(1, 6 * routes + 2 * others)}
    return {
        "accelerators": accelerators,
        "models": models,
        "serviceClasses": classes,
        "servers": servers,
        "routes": made,
        "count": [{"type": kind, "count": count} for kind, count in units.items()],
        "optimizer": {"gap": 0.0},
    }


def _route(rng: random.Random, r: int, kinds: int) -> Json:
    count = rng.randint(1, kinds)
    weights = [rng.randint(1, 5) for _ in range(count)]
    alike = rng.random() < 0.5
    shares = [round(w / sum(weights), 3) for w in weights]
    shares[-1] = round(1 - sum(shares[:-1]), 3)
    return {
        "name": f"r{r}",
        "small": f"s{r}",
        "large": f"l{r}",
        "arrivalRate": rng.choice([200, 600, 900]),
        "maxLoss": rng.choice([0, 0.01, 0.03, 0.1, 0.5]),
        "rerun": rng.random() < 0.5,
        "kinds": [
            {
                "share": share,
                "inTokens": 64 if alike else rng.choice([32, 64, 128]),
                "outTokens": 64 if alike else rng.choice([32, 64, 96]),
                "loss": rng.choice([0, 0.005, 0.05, 0.3]),
                "miss": rng.choice([0, 0.1, 0.3]),
                "wrong": rng.choice([0, 0, 0.05, 0.2]),
            }
            for share in shares
        ],
    }


class RouteCase:
    """A route as numbers."""

    def __init__(self, route: Json) -> None:
        self.name, self.small, self.large = route["name"], route["small"], route["large"]
        kinds = route["kinds"]
        self.rate = np.array([kind["share"] for kind in kinds]) * route["arrivalRate"] / 60
        self.load = float(self.rate.sum())
        self.low = np.array([kind["wrong"] for kind in kinds])
        self.high = 1 - np.array([kind["miss"] for kind in kinds])
        self.loss = np.array([kind["share"] * kind["loss"] for kind in kinds])
        self.most = route["maxLoss"]
        # again = wrong (1 - p), where p is the part meant for the small model: share = p high + (1 - p) low
        width = np.where(self.high > self.low, self.high - self.low, 1.0)
        free = self.high > self.low
        self.again_at_0 = np.where(free, self.low * self.high / width, self.low) * route["rerun"]
        self.again_slope = np.where(free, -self.low / width, 0.0) * route["rerun"]
        self.lengths = [(kind["inTokens"], kind["outTokens"]) for kind in kinds]

    def large_of(self, share: np.ndarray) -> np.ndarray:
        """Return the requests at the large model by kind for some shares."""
        found: np.ndarray = self.rate * (1 - share + self.again_at_0 + self.again_slope * share)
        return found

    def shape(self, *, small: bool) -> tuple[float, float]:
        """Return the largest mean lengths over all corners of the weights."""
        if small:
            ranges = list(zip(self.rate * self.low, self.rate * self.high, strict=True))
        elif float((self.loss * np.minimum(self.low, self.high)).sum()) > self.most + 1e-9:
            ranges = list(zip(self.rate, self.rate, strict=True))  # the router is never in use
        else:
            ranges = list(zip(self.large_of(self.high), self.rate, strict=True))
        best = [0.0, 0.0]
        for weights in itertools.product(*ranges):
            if sum(weights) > 0:
                for k in range(2):
                    total = sum(w * each[k] for w, each in zip(weights, self.lengths, strict=True))
                    best[k] = max(best[k], total / sum(weights))
        return best[0], best[1]

    def least_small(self, large_rps: float) -> float:
        """Return the least capacity of the small server for one of the large server; inf: there is none."""
        slope = self.rate * (self.again_slope - 1)
        found = linprog(
            self.rate,
            A_ub=np.array([slope, self.loss]),
            b_ub=np.array(
                [
                    large_rps * (1 + TIGHT) - float((self.rate * (1 + self.again_at_0)).sum()),
                    self.most + 1e-12,
                ]
            ),
            bounds=list(zip(self.low, self.high, strict=True)),
        )
        return float("inf") if found.status or found.fun is None else float(found.fun)


class Choice(NamedTuple):
    """Replicas of some servers, and the names of those that are not served."""

    replicas: dict[str, Counts]
    unserved: tuple[str, ...]


class Case(DocumentCase):
    """A document, by name."""

    def __init__(self, system: System) -> None:
        super().__init__(system)
        self.mixed = system.options.heterogeneous
        self.routes = [RouteCase(route) for route in self.spec["routes"]]
        self.shape = {
            n: (item["currentAlloc"]["load"]["avgInTokens"], item["currentAlloc"]["load"]["avgOutTokens"])
            for n, item in self.servers.items()
        }
        for route in self.routes:
            self.load |= {route.large: route.load, route.small: float((route.rate * route.high).sum())}
            self.shape |= {route.large: route.shape(small=False), route.small: route.shape(small=True)}
        self.routed = {name for route in self.routes for name in (route.small, route.large)}

    def rate(self, name: str, acc: str) -> float:
        """Return the maximum rate of a replica [requests/s]; 0: there is none."""
        profile, target = self.profiles[self.servers[name]["model"], acc], self.target[name]
        inside, out = self.shape[name]
        return _largest_rate(law_key(profile), inside, out, target["slo-itl"], target["slo-ttft"])

    def counts(self, name: str) -> list[Counts]:
        """Return all placements of a server that are of use, none first."""
        most = self.servers[name].get("maxNumReplicas") or 10**6
        bounds = {}
        for acc in self.accelerators:
            rate = self.rate(name, acc)
            bounds[acc] = 0 if rate == 0 else min(most, int(np.ceil(self.load[name] / rate - TIGHT)))
            now = self.servers[name]["currentAlloc"]
            if bounds[acc] and now.get("accelerator") == acc:
                bounds[acc] = max(bounds[acc], min(now["numReplicas"], most))
        ranges = [range(bound + 1) for bound in bounds.values()]
        found = []
        for counts in itertools.product(*ranges):
            placed = tuple((acc, n) for acc, n in zip(bounds, counts, strict=True) if n)
            if sum(counts) <= most and (self.mixed or len(placed) <= 1):
                found.append(placed)
        return found

    def capacity(self, name: str, placed: Counts) -> float:
        return sum(self.rate(name, acc) * n for acc, n in placed)

    def ways(self, route: RouteCase) -> Iterator[Choice]:
        """Yield the placements of both servers that serve a route, and those that do not."""
        for large in self.counts(route.large):
            needed = route.least_small(self.capacity(route.large, large))
            if self.capacity(route.large, large) >= route.load * (1 - TIGHT):
                needed = 0.0  # without a router
            for small in self.counts(route.small):
                replicas = {route.small: small, route.large: large}
                if self.capacity(route.small, small) >= needed * (1 - TIGHT) - 1e-12:
                    yield Choice(replicas, ())
                elif not large:
                    yield Choice(replicas, (route.large,))

    def alone(self, name: str) -> Iterator[Choice]:
        """Yield the placements of a server without a route: as few replicas as carry its load, or none."""
        yield Choice({name: ()}, (name,))
        for acc in self.accelerators:
            rate = self.rate(name, acc)
            if rate:
                yield Choice({name: ((acc, int(np.ceil(self.load[name] / rate - TIGHT))),)}, ())

    def adds(self, choice: Choice) -> tuple[float, ...]:
        return tuple(self.added(choice.unserved, choice.replicas).values())


def best_levels(system: System) -> dict[str, float]:
    """Return the best value of every level over all plans."""
    case = Case(system)
    parts = [*(case.ways(route) for route in case.routes)]
    parts += [case.alone(name) for name in case.servers if name not in case.routed]
    limits = case.limits()
    groups = (
        [
            (
                rounded(sum(dict(counts).get(acc, 0) for counts in way.replicas.values()) for acc in limits),
                rounded(case.adds(way)),
            )
            for way in part
        ]
        for part in parts
    )
    best = joined(groups, (len(limits), len(case.levels())), within([*limits.values()]))
    return dict(zip(case.levels(), map(float, min(best.values())), strict=True))


@cache
def _largest_rate(key: tuple[float, ...], inside: float, out: float, itl: float, ttft: float) -> float:
    replica = replica_of(key, inside, out)

    def holds(rate: float) -> bool:
        (found,) = analyze_replicas([replica], [rate])
        return bool(rate <= found.stable_rate_rps and found.itl_ms <= itl and found.ttft_ms <= ttft)

    low, high = 1e-6, 1e4
    if not holds(low):
        return 0.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
