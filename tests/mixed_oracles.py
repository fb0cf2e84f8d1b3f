"""Mixed plans by exhaustive search: every number of replicas on every accelerator, for every server.

Reads a system as its plain document. Which pairs of server and accelerator meet their targets, and up to
which rate, is taken from `find_candidates`, which has its own tests; units, costs, transition values,
changes and levels are worked out here in exact fractions. Servers are joined one after the other, keeping
for each use of units the best levels: levels add up over servers, so nothing better is lost on the way.
"""

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from builders import random_document
from oracles import Json, Levels, _current_cost, exact, load_rpm, plain

from optimizer import System, find_candidates

OFFLINE = 101
"""Rank of offline work, after every priority."""
SLOTS = "(slots)"
"""Counted like a type of which every replica takes some."""
TOLERANCE = Fraction(1, 10**9)
"""Relative shortfall of rate that counts as rounding, as for the replicas of a candidate (eq. 29)."""


@dataclass(frozen=True)
class Column:
    """An accelerator that a server may run on, per replica."""

    accelerator: str
    kind: str
    units: int
    cost: Fraction
    rate_rpm: Fraction
    """Largest rate at which every target holds."""


@dataclass(frozen=True)
class Demand:
    """What one server asks for, what it may run on, and what it runs on now."""

    name: str
    priority: int
    load_rpm: Fraction
    least: int
    most: int
    columns: tuple[Column, ...]
    now: str
    now_replicas: int
    now_cost: Fraction

    @property
    def to_serve(self) -> bool:
        return self.load_rpm > 0 or self.least > 0


@dataclass(frozen=True)
class Mixture:
    """One way to run a server: replicas by column; none at all is a way, too."""

    replicas: tuple[int, ...]
    units: tuple[int, ...]
    """By accelerator type, in the order of the names."""
    levels: tuple[Fraction, ...]
    """What it adds to every level."""


def just_in_time_rpm(work: Json) -> Fraction:
    """Return the rate at which offline work is done by its deadline."""
    return exact(work["requests"]) / exact(work["hours"]) / 60


def missing_rpm(spec: Json, server: Json) -> Fraction:
    """Return the load of a server that its cache does not answer."""
    return load_rpm(spec, server) * (1 - exact(server.get("cacheHitRate", 0.0)))


def rank_name(priority: int) -> str:
    return "offline work" if priority == OFFLINE else f"priority {priority}"


def demands(system: System) -> dict[str, Demand]:
    """Return what every server asks for, by name."""
    spec = plain(system)
    catalogue = {item["name"]: item for item in spec["accelerators"]}
    slices = {(item["name"], item["acc"]): item["accCount"] for item in spec["models"]}
    priority = {item["name"]: item["priority"] for item in spec["serviceClasses"]}
    rates = rates_rpm(system)
    answer = {}
    for server in spec["servers"]:
        name, now = server["name"], server["currentAlloc"]
        columns = tuple(
            Column(
                acc,
                catalogue[acc]["type"],
                slices[server["model"], acc] * catalogue[acc]["multiplicity"],
                exact(catalogue[acc]["cost"]) * int(slices[server["model"], acc]),
                rate,
            )
            for acc, rate in rates[name].items()
        )
        answer[name] = Demand(
            name,
            OFFLINE if server.get("deadline") else priority[server["class"]],
            just_in_time_rpm(server["deadline"]) if server.get("deadline") else missing_rpm(spec, server),
            server["minNumReplicas"],
            server["maxNumReplicas"] or 10**9,
            columns,
            now["accelerator"] if now["numReplicas"] else "",
            now["numReplicas"],
            _current_cost(server, catalogue, slices),
        )
    return answer


def rates_rpm(system: System) -> dict[str, dict[str, Fraction]]:
    """Return the largest rate of a replica for each server and accelerator that meets the targets.

    Pairs that need more replicas than the server may have are among them: a mixture may use a few.
    """
    found = find_candidates(system)
    rates: dict[str, dict[str, Fraction]] = {name: {} for name in system.servers}
    for table in (found.table, found.over_limit):
        for c in range(len(table)):
            server = found.arrays.server_names[table.server[c]]
            acc = found.arrays.accelerator_names[table.accelerator[c]]
            rates[server][acc] = Fraction(float(table.max_rate_rps[c])) * 60
    return rates


# --- brute force -----------------------------------------------------------------------------------------


def mixed_brute_force(system: System, *, in_steps: bool = False, slots: int | None = None) -> Levels:
    """Return the best value of every level over all mixed plans; rates in requests/min, or in steps.

    Args:
        system: what is planned.
        in_steps: whether rates are in steps.
        slots: what replicas may take together, one for every two cards of each; none: not limited.
    """
    asked = demands(system)
    names = level_names(asked)
    weights = steps(asked) if in_steps else {name: demand.load_rpm for name, demand in asked.items()}
    units = None if system.options.unlimited else dict(system.capacity)
    kinds = sorted({column.kind for demand in asked.values() for column in demand.columns})
    limits = None if units is None else tuple(units.get(kind, 0) for kind in kinds)
    if slots is not None:
        limits = (*(limits or (10**9,) * len(kinds)), slots)
        kinds.append(SLOTS)
    penalty = exact(system.options.transition_penalty)
    best: dict[tuple[int, ...], tuple[Fraction, ...]] = {(0,) * len(kinds): tuple(Fraction(0) for _ in names)}
    for demand in asked.values():
        weight = weights[demand.name]
        ways = _undominated(list(mixtures(demand, kinds, limits, names, penalty, weight)))
        joined: dict[tuple[int, ...], tuple[Fraction, ...]] = {}
        for (used, levels), way in itertools.product(best.items(), ways):
            total = tuple(a + b for a, b in zip(used, way.units, strict=True))
            if limits is not None and any(a > b for a, b in zip(total, limits, strict=True)):
                continue
            key = total if limits is not None else (0,) * len(kinds)
            reached = tuple(a + b for a, b in zip(levels, way.levels, strict=True))
            if key not in joined or reached < joined[key]:
                joined[key] = reached
        best = joined
    return dict(zip(names, min(best.values()), strict=True))


def level_names(asked: Mapping[str, Demand]) -> list[str]:
    """Return the names of the levels in their order."""
    names = []
    for priority in sorted({demand.priority for demand in asked.values()}):
        names += [f"{rank_name(priority)}: unserved rate", f"{rank_name(priority)}: unserved servers"]
    return [*names, "value", "changes"]


def mixtures(
    demand: Demand,
    kinds: list[str],
    limits: tuple[int, ...] | None,
    names: list[str],
    penalty: Fraction,
    weight: Fraction,
) -> Iterator[Mixture]:
    """Yield every way to run a server in full, and none at all."""
    ranges = []
    for column in demand.columns:
        needed = ceil(demand.load_rpm * (1 - TOLERANCE) / column.rate_rpm) if demand.load_rpm else 0
        most = min(max(needed, demand.least, demand.now_replicas), demand.most)
        if limits is not None:
            most = min(most, limits[kinds.index(column.kind)] // column.units)
        ranges.append(range(most + 1) if demand.to_serve else range(1))
    for replicas in itertools.product(*ranges):
        count = sum(replicas)
        rate = sum(
            (n * column.rate_rpm for n, column in zip(replicas, demand.columns, strict=True)), Fraction(0)
        )
        serves = demand.least <= count <= demand.most and rate >= demand.load_rpm * (1 - TOLERANCE)
        if count and not serves:
            continue
        used = dict.fromkeys(kinds, 0)
        for n, column in zip(replicas, demand.columns, strict=True):
            used[column.kind] += n * column.units
            if SLOTS in used:
                used[SLOTS] += n * ceil(column.units / 2)
        unserved = demand.to_serve and not count
        levels = dict.fromkeys(names, Fraction(0))
        if unserved:
            levels[f"{rank_name(demand.priority)}: unserved rate"] = weight
            levels[f"{rank_name(demand.priority)}: unserved servers"] = Fraction(1)
        levels["value"] = transition_value(demand, replicas, penalty)
        levels["changes"] = Fraction(not is_unchanged(demand, replicas))
        yield Mixture(replicas, tuple(used.values()), tuple(levels.values()))


def steps(asked: Mapping[str, Demand]) -> dict[str, Fraction]:
    """Return the load of each server as the integer that plans are compared by (eq. 35), by name."""
    answer: dict[str, Fraction] = {}
    for priority in {demand.priority for demand in asked.values()}:
        loads = {d.name: float(d.load_rpm) for d in asked.values() if d.priority == priority}
        unit = max(1e-3, max(loads.values()) / 1e9)
        answer |= {name: Fraction(max(round(load / unit), 1) if load else 0) for name, load in loads.items()}
    return answer


def transition_value(demand: Demand, replicas: tuple[int, ...], penalty: Fraction) -> Fraction:
    """Return Σ cost - old + penalty x (cost on other accelerators + old if no pool stays) (eq. 33)."""
    pools = [(column, n * column.cost) for n, column in zip(replicas, demand.columns, strict=True) if n]
    stays = any(column.accelerator == demand.now for column, _ in pools)
    moved = sum((cost for column, cost in pools if column.accelerator != demand.now), Fraction(0))
    if not stays:
        moved += demand.now_cost
    return sum((cost for _, cost in pools), Fraction(0)) - demand.now_cost + penalty * moved


def is_unchanged(demand: Demand, replicas: tuple[int, ...]) -> bool:
    """Return whether exactly the current allocation, or the lack of one, stays."""
    pools = {column.accelerator: n for n, column in zip(replicas, demand.columns, strict=True) if n}
    return pools == ({demand.now: demand.now_replicas} if demand.now else {})


def _undominated(ways: list[Mixture]) -> list[Mixture]:
    """Leave out every way that takes no fewer units than another and is no better."""
    kept: list[Mixture] = []
    for way in sorted(ways, key=lambda way: (way.levels, way.units)):
        if not any(all(a <= b for a, b in zip(one.units, way.units, strict=True)) for one in kept):
            kept.append(way)
    return kept


# --- random systems --------------------------------------------------------------------------------------


def random_mixed_document(seed: int) -> Json:
    """Return a small system of up to 3 servers and 3 accelerators that often takes a mixture to serve.

    Replicas carry little, units are few, and most targets are loose; for the size of sums that differ see
    `random_document`.
    """
    rng = random.Random(f"mixed {seed}")
    source = random_document(rng)
    source["servers"] = source["servers"][:3]
    for server in source["servers"]:
        load = server["currentAlloc"]["load"]
        if load["arrivalRate"]:
            load["arrivalRate"] = rng.choice([30.0, 60.0, 100.0, 150.0, 200.0])
        if rng.random() < 0.3:
            server["maxNumReplicas"] = max(server["minNumReplicas"], rng.randint(1, 4))
    for service in source["serviceClasses"]:
        for target in service["modelTargets"]:
            target |= {"slo-tps": min(target["slo-tps"], 128)}  # 120 requests/min of 64 tokens
            if rng.random() < 0.7:
                target |= {"slo-itl": 0, "slo-ttft": 0}
    for profile in source["models"]:
        profile |= {
            "maxBatchSize": rng.choice([1, 1, 2]),
            "atTokens": 0,
            "accCount": rng.choice([1, 1, 1, 2]),
        }
    for i, card in enumerate(source["accelerators"]):
        card |= {"multiplicity": rng.choice([1, 1, 2])}
        if rng.random() < 0.6:
            card["type"] = f"T{i}"
    kinds = sorted({card["type"] for card in source["accelerators"]})
    source["count"] = [{"type": kind, "count": rng.randint(0, 6)} for kind in kinds]
    source["optimizer"] |= {"heterogeneous": True}
    return source
