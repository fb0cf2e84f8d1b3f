"""Mixed plans by exhaustive search: every number of replicas on every accelerator, for every server.

Reads a system as its plain document. Which pairs of server and accelerator meet their targets, and up to
which rate, is taken from `find_candidates`, which has its own tests; units, costs, transition values,
changes and levels are worked out here in exact fractions.
"""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from builders import random_document
from oracles import Json, Levels, _current_cost, exact, load_rpm, plain
from plan_search import Way, joined, service_levels, transition_value, within

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
    now: Mapping[str, int]
    """Replicas by accelerator."""
    now_cost: Fraction

    @property
    def to_serve(self) -> bool:
        return self.load_rpm > 0 or self.least > 0


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
            {pool["accelerator"]: pool["numReplicas"] for pool in _running(now)},
            sum(
                (_current_cost(server, catalogue, slices, pool) for pool in _running(now) or [now]),
                Fraction(0),
            ),
        )
    return answer


def _running(now: Json) -> list[Json]:
    """Return the pools of a current allocation."""
    return [pool for pool in now.get("pools") or [now] if pool["accelerator"] and pool["numReplicas"]]


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
    kinds = {column.kind for demand in asked.values() for column in demand.columns}
    limits = {} if system.options.unlimited else {k: system.capacity.get(k, 0) for k in sorted(kinds)}
    if slots is not None:
        limits[SLOTS] = slots
    penalty = exact(system.options.transition_penalty)
    groups = (
        _undominated([*mixtures(demand, limits, names, penalty, weights[demand.name])])
        for demand in asked.values()
    )
    best = joined(groups, (len(limits), len(names)), within([*limits.values()]))
    return dict(zip(names, min(best.values()), strict=True))


def level_names(asked: Mapping[str, Demand]) -> list[str]:
    ranks = sorted({demand.priority for demand in asked.values()})
    return [*service_levels(map(rank_name, ranks)), "value", "changes"]


def numbers_of_replicas(
    demand: Demand, grown_rpm: Fraction, limits: Mapping[str, int] | None = None
) -> Iterator[tuple[int, ...]]:
    """Yield the replicas by column that serve in full, up to those for a grown load; first none."""
    yield (0,) * len(demand.columns)
    ranges = []
    for column in demand.columns:
        needed = ceil(grown_rpm * (1 - TOLERANCE) / column.rate_rpm) if grown_rpm else 0
        most = min(max(needed, demand.least, demand.now.get(column.accelerator, 0)), demand.most)
        if limits and column.kind in limits:
            most = min(most, limits[column.kind] // column.units)
        ranges.append(range(most + 1))
    for replicas in itertools.product(*ranges) if demand.to_serve else ():
        rate = total(replicas, [column.rate_rpm for column in demand.columns])
        count = sum(replicas)
        if count and demand.least <= count <= demand.most and rate >= demand.load_rpm * (1 - TOLERANCE):
            yield replicas


def total(replicas: Sequence[int], each: Sequence[Fraction | int]) -> Fraction:
    """Return the sum over replicas by column."""
    return sum((n * Fraction(one) for n, one in zip(replicas, each, strict=True)), Fraction(0))


def mixtures(
    demand: Demand, limits: Mapping[str, int], names: list[str], penalty: Fraction, weight: Fraction
) -> Iterator[Way]:
    """Yield every way to run a server in full, and none at all."""
    for replicas in numbers_of_replicas(demand, demand.load_rpm, limits):
        used = [
            [ceil(c.units / 2) if kind == SLOTS else c.units * (c.kind == kind) for c in demand.columns]
            for kind in limits
        ]
        placed = [(c, n) for c, n in zip(demand.columns, replicas, strict=True) if n]
        counts, costs = {c.accelerator: n for c, n in placed}, {c.accelerator: n * c.cost for c, n in placed}
        levels = level_values(demand, names, weight, counts, costs, penalty)
        yield tuple(total(replicas, each) for each in used), tuple(levels.values())


def level_values(
    demand: Demand, names: list[str], weight: Fraction,
    counts: Mapping[str, int], costs: Mapping[str, Fraction], penalty: Fraction,
) -> Levels:  # fmt: skip
    """Return what replicas and their costs by accelerator add to each level."""
    levels = dict.fromkeys(names, Fraction(0))
    if demand.to_serve and not counts:
        levels[f"{rank_name(demand.priority)}: unserved rate"] = weight
        levels[f"{rank_name(demand.priority)}: unserved servers"] = Fraction(1)
    levels["value"] = Fraction(transition_value(costs, demand.now, demand.now_cost, penalty))
    levels["changes"] = Fraction(counts != demand.now)
    return levels


def steps(asked: Mapping[str, Demand]) -> dict[str, Fraction]:
    """Return the load of each server as the integer that plans are compared by (eq. 35), by name."""
    answer: dict[str, Fraction] = {}
    for priority in {demand.priority for demand in asked.values()}:
        loads = {d.name: float(d.load_rpm) for d in asked.values() if d.priority == priority}
        unit = max(1e-3, max(loads.values()) / 1e9)
        answer |= {name: Fraction(max(round(load / unit), 1) if load else 0) for name, load in loads.items()}
    return answer


def _undominated(ways: list[Way]) -> list[Way]:
    """Leave out every way that uses no less than another and is no better."""
    kept: list[Way] = []
    for used, levels in sorted(ways, key=lambda way: way[::-1]):
        if not any(all(a <= b for a, b in zip(one, used, strict=True)) for one, _ in kept):
            kept.append((used, levels))
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
