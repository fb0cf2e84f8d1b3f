"""What a program that knows separate servers answers: run in a copy of the tree, by `test_a_new_coupling`.

The argument is a number of random systems, whose plans are compared with enumeration. Gives JSON.
"""

import itertools
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from builders import accelerator, document, profile, server, service_class
from copy_answers import faults_of, leaves, said

import optimizer
from optimizer import Plan, explain, find_candidates, load_system, make_report, render_report, solve, verify
from optimizer.features.separate.fields import apart_from

ACCELERATORS = {"A": "A", "2A": "A", "B": "B", "C": "C"}
"""Accelerators with their types."""


def random_fleet(seed: int) -> dict[str, Any]:
    """Return two to four servers of two priorities, most of them apart from an earlier one."""
    rng = random.Random(f"separate {seed}")
    servers = [
        server(f"s{i}", rng.choice([60, 400, 900]), service=rng.choice("cd"))
        for i in range(rng.randint(2, 4))
    ]
    for i, one in enumerate(servers[1:], 1):
        if rng.random() < 0.7:
            one["apartFrom"] = f"s{rng.randrange(i)}"
    cards = [accelerator(name, kind, rng.randint(20, 99), len(name)) for name, kind in ACCELERATORS.items()]
    models = [profile("m", name, alpha=rng.uniform(5, 20)) for name in ACCELERATORS]
    units = None if rng.random() < 0.3 else {kind: rng.choice([1, 2, 4, 8]) for kind in "ABC"}
    classes = [service_class(name, priority, itl=60, ttft=2000) for priority, name in enumerate("cd", 1)]
    return document(servers, cards, units, classes=classes, models=models)


def levels_by_enumeration(source: dict[str, Any]) -> list[float]:
    """Return unserved rate and servers of both priorities, and the cost, of the best plan."""
    system = load_system(source)
    candidates = find_candidates(system)
    table, names, types = candidates.table, candidates.arrays.server_names, candidates.arrays.type_names
    options = [[None, *np.flatnonzero(table.server == s).tolist()] for s in range(len(names))]
    pairs = [
        (names.index(name), names.index(other))
        for name, one in system.servers.items()
        if (other := apart_from(one)) is not None
    ]

    def is_allowed(chosen: tuple[int | None, ...]) -> bool:
        rows = [c for c in chosen if c is not None]
        units = np.bincount(
            table.type[rows], table.units_per_replica[rows] * table.num_replicas[rows], len(types)
        )
        limits = [system.card_limit(kind) for kind in types]
        fits = all(limit is None or used <= limit for used, limit in zip(units.tolist(), limits, strict=True))
        both = [(chosen[a], chosen[b]) for a, b in pairs]
        return fits and not any(
            a is not None and b is not None and table.type[a] == table.type[b] for a, b in both
        )

    def value(chosen: tuple[int | None, ...]) -> list[float]:
        found = list[float]()
        for priority in (1, 2):
            out = [
                one.current.load.arrival_rate_rpm
                for one, c in zip(system.servers.values(), chosen, strict=True)
                if c is None and system.priority(one) == priority
            ]
            found += [sum(out), float(len(out))]
        return [*found, sum(float(table.cost_cents_per_h[c]) for c in chosen if c is not None)]

    return min(value(chosen) for chosen in itertools.product(*options) if is_allowed(chosen))


def differing(count: int) -> Iterator[str]:
    """Yield the random systems whose plan differs from enumeration, or is not verified."""
    for seed in range(count):
        source = random_fleet(seed)
        system, want = load_system(source), levels_by_enumeration(source)
        plan = solve(system)
        out = {item.server: item for item in plan.unserved}
        got = list[float]()
        for priority in (1, 2):
            mine = [system.servers[name] for name, item in out.items() if item.priority == priority]
            got += [sum(one.current.load.arrival_rate_rpm for one in mine), float(len(mine))]
        got.append(plan.total_cost_cents_per_h)
        if plan.status != "optimal" or not np.allclose(got, want):
            yield f"{seed}: {plan.status} {got}, by enumeration {want}"
        yield from (f"{seed}: {line}" for line in verify(plan, system))


def believed(plan: Plan, system: optimizer.System) -> Iterator[str]:
    """Yield the falsified leaves of what the plan states of separate servers that no check finds."""
    for path in leaves(json.loads(plan.to_json())["separate"]):
        false = json.loads(plan.to_json())
        place = false["separate"]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = "other"
        if not verify(Plan.model_validate(false), system):
            yield str(path)


def one_system() -> dict[str, Any]:
    """Return what commands say of one system, in which both servers would prefer the cheap type."""
    cards = [accelerator("A", cost=50), accelerator("B", cost=80)]
    servers = [server("s", 900), server("t", 900, apartFrom="s", spareReplicas=1)]
    source = document(servers, cards, {"A": 9, "B": 9}, classes=[service_class("gold", itl=60, ttft=2000)])
    system = load_system(source)
    plan = solve(system)
    together = json.loads(plan.to_json())
    together["allocations"]["t"] = together["allocations"]["s"]
    explained = explain(system)
    with tempfile.TemporaryDirectory() as folder:
        path, trace = Path(folder) / "system.json", Path(folder) / "trace.csv"
        path.write_text(json.dumps(source), encoding="utf-8")
        trace.write_text("time,s,t\n60,900,900\n120,600,900\n180,900,900\n", encoding="utf-8")
        texts = {
            "solve": said("solve", path),
            "sweep": said("sweep", path, "--vary", "load=0.5..1/2"),
            "replay": said("replay", trace, path),
            "report": render_report(make_report(system), system, "markdown"),
        }
    first, other = servers
    return {
        "plan": json.loads(plan.to_json()),
        "believed": list(believed(plan, system)),
        "together": verify(Plan.model_validate(together), system),
        "runner-up": json.loads(explained.to_json())["servers"],
        "refusals": [faults_of(source | {"servers": [first, other | {"apartFrom": name}]}) for name in "tu"],
        "texts": texts,
    }


if __name__ == "__main__":
    home = str(Path(optimizer.__file__).parent)
    print(json.dumps({"home": home, "faults": list(differing(int(sys.argv[1]))), **one_system()}))
