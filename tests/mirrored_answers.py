"""What a program that knows mirrored servers answers: run in a copy of the tree, by `test_a_new_feature`.

The argument is a number of random systems, whose plans are compared with enumeration. Gives JSON.
"""

import contextlib
import io
import itertools
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import optimizer
from optimizer import (
    Plan,
    find_candidates,
    load_system,
    make_report,
    render_report,
    solve,
    verify,
)
from optimizer.candidates import Candidates
from optimizer.cli.main import main as program
from optimizer.features.mirrored.feature import MIRRORED
from optimizer.schema.faults import FaultyDocumentsError
from optimizer.spec.system import System

LARGEST = 5
"""Largest number of replicas for which all twins are enumerated."""


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every number and text."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    elif value is not None and not isinstance(value, bool):
        yield path


def said(*arguments: object) -> str:
    """Return the output of a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = program([str(argument) for argument in arguments])
    assert status in (0, None, 1), (arguments, status)
    return out.getvalue()


def faults_of(document: dict[str, Any]) -> list[str]:
    """Return the faults of a document."""
    try:
        load_system(document)
    except FaultyDocumentsError as error:
        return [str(fault) for fault in error.faults]
    return []


def random_document(rng: random.Random) -> dict[str, Any]:
    """Return two servers, one or both mirrored, on two types of cards in two or three places."""
    places = {kind: "xyz"[: rng.choice([2, 3])] for kind in "AB"}
    names = [f"{kind}{place}" for kind, mine in places.items() for place in mine]
    cards = [{"name": n, "type": n, "cost": rng.randint(20, 200), "place": n[1]} for n in names]
    times = {"maxBatchSize": 8, "atTokens": 100, "prefillParms": {"gamma": 5, "delta": 0.01}}
    models = [
        {"name": "m", "acc": n, **times, "decodeParms": {"alpha": rng.uniform(5, 20), "beta": 0.2}}
        for n in names
    ]
    loads = (
        {"arrivalRate": rng.choice([60, 200, 600]), "avgInTokens": 100, "avgOutTokens": 50} for _ in "st"
    )
    servers: list[dict[str, Any]] = [
        {"name": n, "class": "c", "model": "m", "currentAlloc": {"load": load}}
        for n, load in zip("st", loads, strict=True)
    ]
    for server in servers if rng.random() < 0.3 else servers[:1]:
        server |= {"mirrored": True}
    return {
        "accelerators": cards,
        "models": models,
        "serviceClasses": [
            {"name": "c", "priority": 1, "modelTargets": [{"model": "m", "slo-itl": 60, "slo-ttft": 2000}]}
        ],
        "servers": servers,
        "count": [{"type": n, "count": rng.randint(0, 6)} for n in names],
    }


def choices(candidates: Candidates, s: int) -> Iterator[tuple[float, Counter[int]]]:
    """Yield cost and cards by type of all ways to serve a server."""
    table, system = candidates.table, candidates.system
    place = [item.place for item in system.accelerators.values()]
    mirrored = MIRRORED.of_server([*system.servers.values()][s])
    for r in np.flatnonzero(table.server == s).tolist():
        count, price = int(table.num_replicas[r]), table.cost_per_replica
        others = [
            q
            for q in np.flatnonzero(table.server == s).tolist()
            if place[table.accelerator[q]] != place[table.accelerator[r]]
        ]
        for twins in itertools.product(range(count + 1), repeat=len(others)) if mirrored else [()]:
            if not mirrored or sum(twins) == count:
                cards = Counter({int(table.type[r]): count})
                cost = count * price[r]
                for q, n in zip(others, twins, strict=False):
                    cards[int(table.type[q])] += n
                    cost += n * price[q]
                yield float(cost), cards


def enumerated(candidates: Candidates) -> tuple[float, int, float]:
    """Return the least unserved rate [requests/min], unserved servers and cost [cents/h] of all plans."""
    arrays, system = candidates.arrays, candidates.system
    amounts = [system.capacity.get(name, 0) for name in arrays.type_names]
    options = [[None, *choices(candidates, s)] for s in range(len(arrays.server_names))]
    found = []
    for chosen in itertools.product(*options):
        taken = [item for item in chosen if item is not None]
        cards = sum((item[1] for item in taken), Counter[int]())
        if all(n <= amounts[of] for of, n in cards.items()):
            left = [
                rate
                for rate, item in zip(arrays.servers.load_rps.tolist(), chosen, strict=True)
                if item is None
            ]
            found.append((round(60 * sum(left), 3), len(left), round(sum(item[0] for item in taken), 6)))
    return min(found)


def of_plan(plan: Plan) -> tuple[float, int, float]:
    """Return the same of a plan."""
    levels = {level.name.partition(": ")[2] or level.name: level.value for level in plan.levels}
    return (
        round(levels["unserved rate"], 3),
        int(levels["unserved servers"]),
        round(plan.total_cost_cents_per_h, 6),
    )


def differing(count: int) -> Iterator[str]:
    """Yield the random systems whose plan differs from enumeration, or is not verified."""
    for seed in range(count):
        document = random_document(random.Random(seed))
        system = load_system(document)
        candidates = find_candidates(system)
        if (candidates.table.num_replicas > LARGEST).any():
            continue
        plan = solve(system)
        want, got = enumerated(candidates), of_plan(plan)
        if want != got or plan.status != "optimal":
            yield f"{seed}: {plan.status} {got}, by enumeration {want}"
        yield from (f"{seed}: {line}" for line in verify(plan, system))


def believed(plan: Plan, system: System) -> Iterator[str]:
    """Yield the falsified leaves of pools of twins that no check finds."""
    document = json.loads(plan.to_json())
    for name, pools in document["allocations"].items():
        for i, pool in enumerate(pools):
            for path in leaves(pool) if "role" in pool else ():
                false = json.loads(plan.to_json())
                place = false["allocations"][name][i]
                for key in path[:-1]:
                    place = place[key]
                place[path[-1]] = "other" if isinstance(place[path[-1]], str) else place[path[-1]] * 2 + 1
                if not verify(Plan.model_validate(false), system):
                    yield f"{name}.{i}.{path}"


def one_system() -> dict[str, Any]:
    """Return what all commands say of one system, in which a mirrored server is served."""
    document = next(
        found
        for found in (random_document(random.Random(seed)) for seed in range(100))
        if solve(load_system(found)).complete and "mirrored" not in found["servers"][1]
    )
    system = load_system(document)
    plan = solve(system)
    kinds = [{"share": 1, "inTokens": 100, "outTokens": 50}]
    route = {"name": "r", "small": "s", "large": "t", "arrivalRate": 60, "kinds": kinds}
    first, *others = document["servers"]
    refusals = [
        faults_of(document | {"servers": [first | {"sharedQueue": "chat"}, *others]}),
        faults_of(document | {"routes": [route]}),
    ]
    with tempfile.TemporaryDirectory() as folder:
        path, trace = Path(folder) / "mirrored.yaml", Path(folder) / "trace.csv"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        trace.write_text("time,s,t\n60,60,60\n120,90,60\n180,60,60\n", encoding="utf-8")
        written = Path(folder) / "plan.json"
        written.write_text(plan.to_json(), encoding="utf-8")
        bare = Path(folder) / "bare.yaml"
        alone = [{key: server[key] for key in server if key != "mirrored"} for server in document["servers"]]
        bare.write_text(yaml.safe_dump(document | {"servers": alone}), encoding="utf-8")
        texts = {
            "solve": said("solve", path),
            "explain": said("explain", path) + said("explain", path, "--server", "s"),
            "simulate": said("simulate", path, "--requests", 2000),
            "sweep": said("sweep", path, "--vary", "load=0.5..1/2"),
            "replay": said("replay", trace, path),
            "compare": said("compare", path, "--with", bare),
            "report": render_report(make_report(system), system, "markdown"),
            "manifests": said("manifests", written, "--system", path, "--deployments"),
        }
    return {
        "plan": json.loads(plan.to_json()),
        "believed": list(believed(plan, system)),
        "refusals": refusals,
        "texts": texts,
    }


if __name__ == "__main__":
    home = str(Path(optimizer.__file__).parent)
    print(json.dumps({"home": home, "faults": list(differing(int(sys.argv[1]))), **one_system()}))
