"""Second computations that share no code with the optimiser: brute force, another MILP, a plan checker.

All of them read a system as its plain document. Which pairs of server and accelerator are candidates, and
with how many replicas, is taken from `find_candidates`, which has its own tests; units, costs, transition
values, changes and levels are worked out here, the money in exact fractions.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pulp
from plan_search import minimised, relative, service_levels, transition_value, without_announcements

from optimizer import System, find_candidates

Json = dict[str, Any]
RATE_UNIT_RPM = 1e-3
"""Unserved rates are counted in integer multiples of this."""
Levels = dict[str, Fraction]
"""The value of every level by its name, in order."""


@dataclass(frozen=True)
class Option:
    """One way to run a server, or none at all."""

    accelerator: str
    replicas: int
    kind: str
    units: int
    cost: Fraction
    value: Fraction
    changed: bool
    room: float = 0.0
    """Capacity over load, which decides among equals."""


@dataclass(frozen=True)
class Choice:
    """A server, what it may run on, and what leaving it without replicas means."""

    name: str
    priority: int
    load_rpm: Fraction
    to_serve: bool
    options: tuple[Option, ...]
    nothing: Option


@dataclass(frozen=True)
class Case:
    """A system as a question of choice."""

    choices: tuple[Choice, ...]
    units: Mapping[str, int] | None

    def levels(self, taken: Sequence[Option]) -> Levels:
        """Return the value of every level for an answer, one option per server."""
        rate: dict[int, Fraction] = {choice.priority: Fraction(0) for choice in self.choices}
        left: Counter[int] = Counter()
        for choice, option in zip(self.choices, taken, strict=True):
            if choice.to_serve and option is choice.nothing:
                rate[choice.priority] += choice.load_rpm
                left[choice.priority] += 1
        service = (value for priority in sorted(rate) for value in (rate[priority], Fraction(left[priority])))
        names = service_levels(f"priority {priority}" for priority in sorted(rate))
        levels: Levels = dict(zip(names, service, strict=True))
        levels["value"] = sum((option.value for option in taken), Fraction(0))
        levels["changes"] = Fraction(sum(option.changed for option in taken))
        return levels

    def fits(self, taken: Iterable[Option]) -> bool:
        """Return whether an answer is within the units that exist."""
        if self.units is None:
            return True
        used: Counter[str] = Counter()
        for option in taken:
            used[option.kind] += option.units
        return all(count <= self.units.get(kind, 0) for kind, count in used.items())


def exact(number: float) -> Fraction:
    """Return the decimal number that was written."""
    return Fraction(repr(number))


def plain(system: System) -> Json:
    """Return a system as a plain document with every field filled in."""
    spec: Json = system.to_spec().model_dump(mode="json", by_alias=True)
    return spec


def read_case(system: System) -> Case:
    """Return the question that a system asks."""
    spec = plain(system)
    catalogue = {item["name"]: item for item in spec["accelerators"]}
    slices = {(item["name"], item["acc"]): item["accCount"] for item in spec["models"]}
    priority = {item["name"]: item["priority"] for item in spec["serviceClasses"]}
    penalty = exact(spec["optimizer"]["transitionPenalty"])
    sized: dict[str, list[tuple[str, int, float]]] = {item["name"]: [] for item in spec["servers"]}
    for row in find_candidates(system).to_wire()["candidates"]:
        replicas, rate = int(str(row["numReplicas"])), float(str(row["maxRateRpm"]))
        sized[str(row["server"])].append((str(row["accelerator"]), replicas, replicas * rate))

    def option(server: Json, acc: str, replicas: int, capacity_rpm: float) -> Option:
        now = server["currentAlloc"]
        count = slices.get((server["model"], acc), 1)
        card = catalogue.get(acc, {"cost": 0.0, "multiplicity": 0, "type": ""})
        cost = exact(card["cost"]) * count * replicas
        old = _current_cost(server, catalogue, slices)
        same: bool = (now["accelerator"], now["numReplicas"]) == (acc, replicas)
        value = transition_value({acc: cost}, now["accelerator"], old, penalty)
        units = replicas * count * card["multiplicity"]
        load = float(load_rpm(spec, server))
        room = round(capacity_rpm / load, 9) if load else 0.0
        return Option(
            acc, replicas, card["type"], units, cost, Fraction(0) if same else value, not same, room
        )

    def nothing(server: Json) -> Option:
        old = _current_cost(server, catalogue, slices)
        now = server["currentAlloc"]
        runs = bool(now["accelerator"]) and now["numReplicas"] > 0
        return Option("", 0, "", 0, Fraction(0), penalty * old - old, runs)

    choices = []
    for server in spec["servers"]:
        load = load_rpm(spec, server)
        options = tuple(option(server, *one) for one in sized[server["name"]])
        to_serve = load > 0 or server["minNumReplicas"] > 0
        choices.append(
            Choice(server["name"], priority[server["class"]], load, to_serve, options, nothing(server))
        )
    unlimited = spec["optimizer"]["unlimited"]
    units = None if unlimited else {item["type"]: item["count"] for item in spec["count"]}
    return Case(tuple(choices), units)


def _current_cost(
    server: Json,
    catalogue: Mapping[str, Json],
    slices: Mapping[tuple[str, str], int],
    pool: Json | None = None,
) -> Fraction:
    now = pool or server["currentAlloc"]
    card = catalogue.get(now["accelerator"])
    if now["cost"] or not now["numReplicas"] or card is None:
        return exact(now["cost"])
    count: int = slices.get((server["model"], now["accelerator"]), 1)
    replicas: int = now["numReplicas"]
    return exact(card["cost"]) * count * replicas


def load_rpm(spec: Json, server: Json) -> Fraction:
    """Return what a server must carry: its arrival rate, or its throughput target over the output length."""
    load = server["currentAlloc"]["load"]
    if not load["arrivalRate"] or not load["avgOutTokens"]:
        return Fraction(0)
    tps = find_target(spec, server).get("slo-tps", 0)
    return exact(tps) * 60 / exact(load["avgOutTokens"]) if tps else exact(load["arrivalRate"])


def find_target(spec: Json, server: Json) -> Json:
    """Return the targets of a server, empty where it has none."""
    target: Json = next(
        (
            target
            for item in spec["serviceClasses"]
            if item["name"] == server["class"]
            for target in item["modelTargets"]
            if target["model"] == server["model"]
        ),
        {},
    )
    return target


# --- brute force -----------------------------------------------------------------------------------------


def brute_force(case: Case) -> Levels:
    """Return the best levels among all combinations of options, leaving servers out included."""
    combinations = itertools.product(*[(*choice.options, choice.nothing) for choice in case.choices])
    return min(
        (case.levels(taken) for taken in combinations if case.fits(taken)),
        key=lambda levels: tuple(levels.values()),
    )


# --- another MILP ----------------------------------------------------------------------------------------


@without_announcements()
def solve_with_cbc(case: Case) -> Levels:
    """Return the best levels by CBC through PuLP: one binary per option, one solve per level."""
    model = pulp.LpProblem("choice", pulp.LpMinimize)
    taken = [
        [pulp.LpVariable(f"x_{i}_{j}", cat="Binary") for j in range(len(choice.options))]
        for i, choice in enumerate(case.choices)
    ]
    pairs = [
        (variable, option, choice)
        for row, choice in zip(taken, case.choices, strict=True)
        for variable, option in zip(row, choice.options, strict=True)
    ]
    for row in taken:
        model += pulp.lpSum(row) <= 1
    if case.units is not None:
        for kind in sorted({option.kind for _, option, _ in pairs}):
            used = [option.units * variable for variable, option, _ in pairs if option.kind == kind]
            model += pulp.lpSum(used) <= case.units.get(kind, 0)
    minimised(model, _objectives(case, pairs), relative(1e-6))
    return case.levels(
        [
            next((o for x, o in zip(row, choice.options, strict=True) if x.value() > 0.5), choice.nothing)
            for row, choice in zip(taken, case.choices, strict=True)
        ]
    )


def _objectives(case: Case, pairs: Sequence[tuple[Any, Option, Choice]]) -> dict[str, Any]:
    """Return each level as a sum over the options taken, up to its value if nothing runs."""
    none = {choice.name: choice.nothing for choice in case.choices}
    base = case.levels([*none.values()])
    terms: dict[str, list[Any]] = {name: [] for name in base}
    for x, option, choice in pairs:
        for name, value in case.levels([*(none | {choice.name: option}).values()]).items():
            terms[name].append(float(value - base[name]) * x)
    return {name: pulp.lpSum(parts) for name, parts in terms.items()}


# --- a plan, checked without the optimiser -----------------------------------------------------------------

REASONS = {
    "batch_limit",
    "capacity",
    "does_not_fit",
    "no_candidate",
    "no_profile",
    "no_target",
    "no_work",
    "not_allowed",
    "place",
    "replica_limit",
    "simulation_missed",
    "slo_unattainable",
    "solver_stopped",
}


def check_plan(plan: Json, system: System) -> list[str]:
    """Return what is wrong with a plan (as JSON), from the system's document alone."""
    spec = plain(system)
    problems: list[str] = []

    def claim(holds: bool, text: str) -> None:  # noqa: FBT001  reads as a sentence
        if not holds:
            problems.append(text)

    unserved = {item["server"]: item for item in plan["unserved"]}
    names = {item["name"] for item in spec["servers"]}
    claim(len(unserved) == len(plan["unserved"]), "a server is unserved twice")
    claim(plan["allocations"].keys() | unserved.keys() == names, "the servers are not those of the system")
    claim(not plan["allocations"].keys() & unserved.keys(), "a server is both served and unserved")
    claim(plan["complete"] == (not unserved), "complete")
    claim({item["reason"] for item in unserved.values()} <= REASONS, "an unknown reason")
    claim(all(item["detail"] for item in unserved.values()), "a reason without numbers")
    used: Counter[str] = Counter()
    cost = Fraction(0)
    for server in spec["servers"]:
        pools = plan["allocations"].get(server["name"], [])
        cost += sum((_check_pool(spec, server, pool, used, claim) for pool in pools), Fraction(0))
        needed = load_rpm(spec, server) > 0 or server["minNumReplicas"] > 0
        claim(len(pools) == (needed and server["name"] not in unserved), f"{server['name']}: pools")
    claim(_near(plan["totalCostCentsPerH"], cost), "totalCostCentsPerH")
    _check_units(plan, spec, used, claim)
    _check_objectives(plan, system, claim)
    return problems


def _near(value: float, other: float | Fraction, tolerance: float = 1e-6) -> bool:
    return math.isclose(value, float(other), rel_tol=tolerance, abs_tol=tolerance)


def _check_pool(spec: Json, server: Json, pool: Json, used: Counter[str], claim: Any) -> Fraction:
    """Check one pool and return its cost."""
    name, acc, replicas = server["name"], pool["accelerator"], pool["numReplicas"]
    card = next(item for item in spec["accelerators"] if item["name"] == acc)
    perf = next(item for item in spec["models"] if (item["name"], item["acc"]) == (server["model"], acc))
    load, now = load_rpm(spec, server), server["currentAlloc"]
    used[card["type"]] += replicas * perf["accCount"] * card["multiplicity"]
    cost = exact(card["cost"]) * int(perf["accCount"]) * int(replicas)
    claim(_near(pool["costCentsPerH"], cost), f"{name}: cost")
    claim(_near(pool["arrivalRateRpm"], load), f"{name}: arrivalRateRpm")
    claim(replicas >= max(1, server["minNumReplicas"]), f"{name}: too few replicas")
    claim(replicas <= (server["maxNumReplicas"] or replicas), f"{name}: too many replicas")
    claim(acc in (server["accelerators"] or [acc]), f"{name}: accelerator not allowed")
    if server["keepAccelerator"] and now["accelerator"]:
        claim(acc == now["accelerator"], f"{name}: accelerator not kept")
    claim(pool["maxBatch"] == _batch(server, perf, idle=not load), f"{name}: maxBatch")
    if load:
        claim(pool["arrivalRateRpm"] <= pool["maxArrivalRateRpm"] * (1 + 1e-6), f"{name}: overloaded")
        if perf["decodeParms"]:
            figures = linear_replica(server, perf, pool["maxBatch"], float(load) / 60 / replicas)
            for key, value in figures.items():
                claim(_near(pool[key], value, 1e-5), f"{name}: {key}")
        target = find_target(spec, server)
        for key, limit in (("itlMs", target["slo-itl"]), ("ttftMs", target["slo-ttft"])):
            claim(not limit or pool[key] <= limit * (1 + 1e-5), f"{name}: {key} over the target")
    return cost


def _batch(server: Json, perf: Json, *, idle: bool) -> int:
    load, limit = server["currentAlloc"]["load"], perf["maxBatchSize"] or 256
    if server["maxBatchSize"]:
        limit = server["maxBatchSize"]
    elif perf["maxBatchSize"] and perf["atTokens"] and not idle:
        limit = max(1, int(limit * perf["atTokens"] // load["avgOutTokens"]))
    if perf["kvCapacity"] is not None and not idle:
        limit = min(limit, int(perf["kvCapacity"] // (load["avgInTokens"] + load["avgOutTokens"])))
    return int(limit)


def linear_replica(server: Json, perf: Json, batch: int, rate_rps: float) -> dict[str, float]:
    """Return the means of one replica under the linear law, state by state (math.md, sections 2.1 and 3)."""
    load, decode, prefill = server["currentAlloc"]["load"], perf["decodeParms"], perf["prefillParms"] or {}
    prompt, steps = load["avgInTokens"], load["avgOutTokens"] - 1
    gamma, delta = (prefill.get("gamma", 0), prefill.get("delta", 0)) if prompt else (0, 0)
    base, slope = gamma + decode["alpha"] * steps, delta * prompt + decode["beta"] * steps
    room = 10 * batch if server["maxQueueSize"] is None else server["maxQueueSize"]
    states = np.arange(batch + room + 1)
    busy = np.minimum(states, batch)
    steps_up = rate_rps / 1000 * (base + slope * busy[1:]) / busy[1:]
    logs = np.concatenate([[0.0], np.cumsum(np.log(steps_up))])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    in_service, waiting = float(busy @ weights), float((states - busy) @ weights)
    loss = float(weights[-1])
    throughput = rate_rps / 1000 * (1 - loss)
    effective = (in_service / throughput - base) / slope if slope else in_service
    effective = min(max(effective, 0.0), batch)
    return {
        "itlMs": decode["alpha"] + decode["beta"] * effective,
        "waitMs": waiting / throughput,
        "ttftMs": waiting / throughput + gamma + delta * prompt * effective,
        "utilization": in_service / batch,
        "loss": loss,
    }


def _check_units(plan: Json, spec: Json, used: Counter[str], claim: Any) -> None:
    limits = {item["type"]: item["count"] for item in spec["count"]}
    kinds = limits.keys() | {item["type"] for item in spec["accelerators"]}
    claim([item["type"] for item in plan["capacity"]] == sorted(kinds), "the accelerator types")
    for item in plan["capacity"]:
        limit = None if spec["optimizer"]["unlimited"] else limits.get(item["type"], 0)
        claim(item["limit"] == limit, f"{item['type']}: limit")
        claim(item["used"] == used[item["type"]], f"{item['type']}: used")
        claim(limit is None or item["used"] <= limit, f"{item['type']}: more units than exist")


def _check_objectives(plan: Json, system: System, claim: Any) -> None:
    """Work out levels and changes again from what is allocated."""
    case = read_case(system)
    pools = plan["allocations"]
    taken, changes = [], []
    for choice in case.choices:
        mine = pools.get(choice.name, [])
        placed = [(pool["accelerator"], pool["numReplicas"]) for pool in mine]
        options = [o for o in choice.options if [(o.accelerator, o.replicas)] == placed]
        claim(len(options) == len(placed), f"{choice.name}: not a candidate")
        option = options[0] if options else choice.nothing
        taken.append(option)
        if option.changed:
            changes.append(choice.name)
    claim([item["server"] for item in plan["changes"]] == changes, "changes")
    levels = case.levels(taken)
    claim([item["name"] for item in plan["levels"]] == list(levels), "names of the levels")
    for item in plan["levels"]:
        value = levels[item["name"]]
        slack = RATE_UNIT_RPM * len(case.choices) if item["name"].endswith("rate") else 0.0
        claim(_near(item["value"], value) or abs(item["value"] - value) < slack, f"level {item['name']}")
    claim(_near(plan["costChangeWithPenaltyCentsPerH"], levels["value"]), "objective")
