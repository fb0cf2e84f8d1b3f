"""Plans with routes by exhaustive search and by CBC, and random systems for both.

Reads a system as its plain document. Replicas of both servers are enumerated; shares are found by linear
programs in SciPy. Maximum rates of replicas are found by bisection on `analyze_replicas`.
"""

import itertools
import random
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from builders import Json, accelerator, running
from document_case import DocumentCase
from scipy.optimize import linprog

from optimizer import Replica, System, analyze_replicas

TIGHT = 1e-9
Counts = tuple[tuple[str, int], ...]
"""Accelerators with replicas."""


def random_routes(seed: int, *, routes: int = 1, others: int = 1, kinds: int = 3) -> Json:
    """Return a small tight system with routes, some of whose servers run already."""
    rng = random.Random(seed)
    accelerators = [accelerator("A", cost=rng.choice([8, 10])), accelerator("B", cost=rng.choice([15, 19]))]
    models = [
        {
            "name": model,
            "acc": acc,
            "maxBatchSize": rng.choice([4, 8, 16]),
            "decodeParms": {"alpha": alpha * slower * rng.uniform(0.8, 1.2), "beta": 0.4},
            "prefillParms": {"gamma": 4.0 * slower, "delta": 0.01 * slower},
        }
        for model, slower in (("s", 1.0), ("l", rng.uniform(3, 6)))
        for acc, alpha in (("A", 12.0), ("B", 6.0))
    ]
    priorities = rng.sample(range(1, 9), 2)
    classes = [
        {
            "name": f"c{i}",
            "priority": priority,
            "modelTargets": [
                {"model": model, "slo-ttft": rng.choice([1000, 4000]), "slo-itl": rng.choice([90, 150])}
                for model in "sl"
            ],
        }
        for i, priority in enumerate(priorities)
    ]
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
        else:
            ranges = list(zip(self.large_of(self.high), self.rate, strict=True))
        best = [0.0, 0.0]
        for weights in itertools.product(*ranges):
            if sum(weights) > 0:
                for k in range(2):
                    total = sum(w * each[k] for w, each in zip(weights, self.lengths, strict=True))
                    best[k] = max(best[k], total / sum(weights))
        return best[0], best[1]

    def full_shape(self) -> tuple[float, float]:
        """Return the mean lengths of all requests."""
        inside, out = self.rate @ np.array(self.lengths) / self.load
        return float(inside), float(out)

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
        self.unlimited = system.options.unlimited
        self.mixed = system.options.heterogeneous
        self.routes = [RouteCase(route) for route in self.spec["routes"]]
        self.load = {n: item["currentAlloc"]["load"]["arrivalRate"] / 60 for n, item in self.servers.items()}
        self.shape = {
            n: (item["currentAlloc"]["load"]["avgInTokens"], item["currentAlloc"]["load"]["avgOutTokens"])
            for n, item in self.servers.items()
        }
        for route in self.routes:
            self.load |= {route.large: route.load, route.small: float((route.rate * route.high).sum())}
            self.shape |= {route.large: route.shape(small=False), route.small: route.shape(small=True)}
        self.routed = {name for route in self.routes for name in (route.small, route.large)}

    def levels(self) -> list[str]:
        ranks = sorted(set(self.priority.values()))
        service = [f"priority {p}: unserved {what}" for p in ranks for what in ("rate", "servers")]
        return [*service, "value", "changes"]

    def rate(self, name: str, acc: str, shape: tuple[float, float] | None = None) -> float:
        """Return the maximum rate of a replica [requests/s]; 0: there is none."""
        profile, target = self.profiles[self.servers[name]["model"], acc], self.target[name]
        inside, out = shape or self.shape[name]
        return _largest_rate(_key(profile), inside, out, target["slo-itl"], target["slo-ttft"])

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

    def capacity(self, name: str, placed: Counts, shape: tuple[float, float] | None = None) -> float:
        return sum(self.rate(name, acc, shape) * n for acc, n in placed)

    def ways(self, route: RouteCase) -> Iterator[Choice]:
        """Yield the placements of both servers that serve a route, and those that do not."""
        for large in self.counts(route.large):
            needed = route.least_small(self.capacity(route.large, large))
            if self.capacity(route.large, large, route.full_shape()) >= route.load * (1 - TIGHT):
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
        """Return what a choice adds to each level."""
        adds = dict.fromkeys(self.levels(), 0.0)
        for name in choice.unserved:
            adds[f"priority {self.priority[name]}: unserved rate"] += self.load[name] * 60
            adds[f"priority {self.priority[name]}: unserved servers"] += 1
        for name, placed in choice.replicas.items():
            now = self.servers[name]["currentAlloc"]
            here, count = now.get("accelerator", ""), now.get("numReplicas", 0)
            old = count * self.accelerators[here]["cost"] if here and count else 0.0
            cost = {acc: n * self.accelerators[acc]["cost"] for acc, n in placed}
            moved = sum(each for acc, each in cost.items() if acc != here)
            gone = 0.0 if here in cost else old
            adds["value"] += sum(cost.values()) - old + self.penalty * (moved + gone)
            adds["changes"] += placed != (((here, count),) if here and count else ())
        return tuple(adds[level] for level in self.levels())


def best_levels(system: System) -> dict[str, float]:
    """Return the best value of every level over all plans."""
    case = Case(system)
    groups = [list(case.ways(route)) for route in case.routes]
    groups += [list(case.alone(name)) for name in case.servers if name not in case.routed]
    best: dict[tuple[int, ...], tuple[float, ...]] = {(0, 0): (0.0,) * len(case.levels())}
    for group in groups:
        joined: dict[tuple[int, ...], tuple[float, ...]] = {}
        for choice in group:
            added = case.adds(choice)
            more = [sum(n for pl in choice.replicas.values() for acc, n in pl if acc == k) for k in "AB"]
            for used, levels in best.items():
                total = tuple(a + b for a, b in zip(used, more, strict=True))
                if not case.unlimited and any(
                    n > case.units.get(k, 0) for n, k in zip(total, "AB", strict=True)
                ):
                    continue
                reached = tuple(round(x + y, 9) for x, y in zip(levels, added, strict=True))
                if total not in joined or reached < joined[total]:
                    joined[total] = reached
        best = joined
    return dict(zip(case.levels(), min(best.values()), strict=True))


def _key(profile: Json) -> tuple[float, ...]:
    return (profile["maxBatchSize"], *profile["decodeParms"].values(), *profile["prefillParms"].values())


@cache
def _largest_rate(key: tuple[float, ...], inside: float, out: float, itl: float, ttft: float) -> float:
    batch, alpha, beta, gamma, delta = key
    replica = Replica.model_validate(
        {
            "maxBatch": batch,
            "inTokens": inside,
            "outTokens": out,
            "decodeParms": {"alpha": alpha, "beta": beta},
            "prefillParms": {"gamma": gamma, "delta": delta},
        }
    )

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


def cbc_levels(system: System) -> dict[str, float]:
    """Return the best value of every level by CBC, with numbers of replicas and shares as variables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PuLP 3 announces the names of PuLP 4
        return _Cbc(Case(system)).solved()


class _Cbc:
    """A formulation in PuLP: a binary for each number of replicas of each accelerator."""

    def __init__(self, case: Case) -> None:
        import pulp

        self.pulp, self.case = pulp, case
        self.model = pulp.LpProblem("routes", pulp.LpMinimize)
        self.taken: dict[str, list[tuple[Counts, Any]]] = {}
        self.unserved: dict[str, Any] = {}
        for i, name in enumerate(case.servers):
            placements = (
                case.counts(name)
                if name in case.routed
                else [choice.replicas[name] for choice in case.alone(name)]
            )
            self.taken[name] = [
                (placed, pulp.LpVariable(f"t_{i}_{k}", cat="Binary")) for k, placed in enumerate(placements)
            ]
            self.model += pulp.lpSum(x for _, x in self.taken[name]) == 1
            if name not in case.routed:
                self.unserved[name] = next(x for placed, x in self.taken[name] if not placed)
        for r, route in enumerate(case.routes):
            self._route(r, route)
        for acc, count in case.units.items():
            used = [
                n * x for mine in self.taken.values() for placed, x in mine for a, n in placed if a == acc
            ]
            if not case.unlimited:
                self.model += pulp.lpSum(used) <= count

    def _route(self, r: int, route: RouteCase) -> None:
        """Shares of three states of a route: divided, all at the large model, and not served."""
        lp, case, model = self.pulp, self.case, self.model
        states = [lp.LpVariable(f"{word}_{r}", cat="Binary") for word in ("divided", "off", "unserved")]
        model += lp.lpSum(states) == 1
        self.unserved[route.large] = states[2]
        share = [lp.LpVariable(f"f_{r}_{d}", 0, 1) for d in range(len(route.rate))]
        for d, x in enumerate(share):
            model += x >= float(route.low[d]) * states[0]
            model += x <= float(route.high[d]) * states[0]
        room = {
            name: lp.lpSum(case.capacity(name, placed) * x for placed, x in self.taken[name])
            for name in (route.small, route.large)
        }
        small = lp.lpSum(float(rate) * x for rate, x in zip(route.rate, share, strict=True))
        base, slope = route.rate * (1 + route.again_at_0), route.rate * (route.again_slope - 1)
        large = float(base.sum()) * states[0]
        large += lp.lpSum(float(s) * x for s, x in zip(slope, share, strict=True))
        model += 1000 * small <= 1000 * room[route.small] + 1e-6
        model += 1000 * large <= 1000 * room[route.large] + 1e-6
        alone = [
            case.capacity(route.large, placed, route.full_shape()) * x
            for placed, x in self.taken[route.large]
        ]
        model += 1000 * route.load * states[1] <= 1000 * lp.lpSum(alone) + 1e-6
        lost = lp.lpSum(float(each) * x for each, x in zip(route.loss, share, strict=True))
        model += 1000 * lost <= 1000 * route.most
        nothing = next(x for placed, x in self.taken[route.large] if not placed)
        model += states[2] <= nothing

    def solved(self) -> dict[str, float]:
        lp, case, found = self.pulp, self.case, {}
        for place, level in enumerate(case.levels()):
            if level in ("value", "changes"):
                parts = [
                    case.adds(Choice({name: placed}, ()))[place] * x
                    for name, mine in self.taken.items()
                    for placed, x in mine
                ]
            else:
                here = [n for n in self.unserved if level.startswith(f"priority {case.priority[n]}:")]
                parts = [
                    (case.load[n] * 60 if level.endswith("rate") else 1) * self.unserved[n] for n in here
                ]
            objective = lp.lpSum(parts)
            self.model.setObjective(objective)
            status = self.model.solve(lp.PULP_CBC_CMD(msg=False, gapRel=0))
            if lp.LpStatus[status] != "Optimal":  # CBC's preprocessing calls some feasible levels infeasible
                plain = lp.PULP_CBC_CMD(msg=False, gapRel=0, presolve=False, options=["preprocess off"])
                status = self.model.solve(plain)
            assert lp.LpStatus[status] == "Optimal", level
            found[level] = float(lp.value(objective) or 0.0)
            self.model += objective <= found[level] + 1e-4 * max(1.0, abs(found[level]))
        return found
