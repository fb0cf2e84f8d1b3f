"""Plans to falsify, and how: scenarios whose true plans hold, and copies with one thing changed."""

import json
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from builders import GONE, Json, accelerator, document, profile, running, server, service_class
from small_fleets import available, cached, canary, everything, offline, rolling

from optimizer import Plan, System, load_system, solve, verify
from optimizer.candidates import Candidates
from optimizer.solvers.deadline import Deadline
from optimizer.stabilisation.keeping import Planner, plan_keeping

Place = tuple[str | int, ...]
Lie = Callable[[Any], Any]


def fleet() -> Json:
    """Return a system with servers kept, moved, stopped, idle with and without replicas, and two unserved."""
    servers = [
        server("free", 900, replicas=2),
        server("idle", 0),
        server("kept", 60, replicas=1, keepAccelerator=True, current=running("B", 1)),
        server("moved", 60, replicas=1, current=running("A", 1, 50), accelerators=["B"]),
        server("standby", 0, replicas=1, maxNumReplicas=2, accelerators=["A"]),
        server("stopped", 0, current=running(GONE, 2, 7)),
        server("unknown", 1, service="silver"),
        server("waiting", 1, replicas=9),
    ]
    accelerators = [accelerator("A", cost=10), accelerator("B", cost=12, multiplicity=2)]
    classes = [service_class("gold", itl=40, ttft=500), service_class("silver", 7, itl=1)]
    return document(servers, accelerators, {"A": 4, "B": 6}, classes=classes)


def scarce(**options: Any) -> Json:
    """Return a system whose last server gets replicas for a part of its load only."""
    servers = [
        server("first", 900, service="gold"),
        server("last", 2000, service="silver", current=running("A", 1)),
    ]
    classes = [service_class("gold", 1, itl=40), service_class("silver", 2, itl=40)]
    return document(servers, [accelerator("A")], {"A": 4}, classes=classes, **options)


def shapes() -> Json:
    """Return a system whose server has short and long requests, some of them with a shared head."""
    several = [
        {"name": "chat", "share": 0.9, "avgInTokens": 50, "avgOutTokens": 20},
        {"name": "docs", "share": 0.1, "avgInTokens": 400, "avgOutTokens": 30} | HEAD,
    ]
    source = document(
        [server("a", 60)], [accelerator("A")], classes=[service_class("gold", itl=40, ttft=900)]
    )
    source["models"] = [
        {"name": "m", "acc": "A", "maxBatchSize": 16, "perfParms": LAW, "queueModel": "continuous"}
    ]
    source["servers"][0]["currentAlloc"]["load"] = {"arrivalRate": 60, "shapes": several}
    return source


def by_length() -> Json:
    """Return a system with a server that is divided by length, and one for which that does not pay."""
    source = shapes()
    short, long = source["servers"][0]["currentAlloc"]["load"]["shapes"]
    several = [short, long | {"avgInTokens": 20_000}]
    source["servers"] = [
        server(name, 1)
        | {"poolsByLength": "allowed", "currentAlloc": {"load": {"arrivalRate": rate, "shapes": several}}}
        for name, rate in (("a", 900), ("b", 6))
    ]
    source["serviceClasses"] = [service_class("gold", itl=60)]
    target = source["serviceClasses"][0]["modelTargets"][0]
    target |= {"percentile": 95, "shapes": {"chat": {"slo-ttft": 200}, "docs": {"slo-ttft": 5000}}}
    return source


def by_role() -> Json:
    """Return a system with a server that has prefill and decode pools."""
    law = {"name": "m", "acc": "A", "maxBatchSize": 64, "perfParms": LAW, "kvBytesPerToken": 131_072}
    found = document(
        [server("a", 900)], [accelerator("A") | {"linkBandwidth": 25}], classes=[service_class("gold")]
    )
    found["models"] = [law]
    found["servers"][0] |= {"disaggregation": "required"}
    load = {"arrivalRate": 900, "avgInTokens": 2000, "avgOutTokens": 100, "inTokensCV": 0}
    found["servers"][0]["currentAlloc"] = {"load": load}
    found["serviceClasses"] = [service_class("gold", itl=20, ttft=900)]
    return found


HEAD = {"prefixTokens": 300, "prefixHitRate": 0.8}
LAW = {"alpha": 8, "beta": 0.02, "gamma": 5e-5}


def in_nodes() -> Json:
    """Return a system whose servers share nodes of two types, with free cards, a spare node, and a move."""
    cards = [accelerator("1xH", "H", 0), accelerator("4xH", "H", 0, 4)]
    models = [profile("m", "1xH"), profile("n", "4xH")]
    classes = [service_class("gold", 1, ("m", "n"))]
    servers = [server("a", 1500, model="m"), server("b", 1500, model="n")]
    nodes = [
        {"name": "owned", "type": "H", "cards": 8, "cost": 0, "maxNodes": 1},
        {"name": "rented", "type": "H", "cards": 8, "cost": 28, "spareNodes": 1},
    ]
    for one, on, where in ((0, "1xH", (2, 3, 4)), (1, "4xH", (1, 2))):
        pools = [{"accelerator": on, "numReplicas": 1, "node": f"rented/{n}"} for n in where]
        servers[one]["currentAlloc"]["pools"] = pools
    return document(servers, cards, {}, models=models, classes=classes) | {"nodes": nodes}


def patient() -> Json:
    """Return a system in which a batch of 4 does as well as the profile's 8, by the target for ITL."""
    classes = [service_class("gold", itl=12)]
    return document([server("a", 600)], [accelerator("A")], classes=classes, batchSizing="optimal")


def two_kinds(**options: Any) -> Json:
    """Return a system whose only server needs replicas of both accelerators."""
    accelerators = [accelerator("A"), accelerator("B", cost=30)]
    models = [profile("m", "A"), profile("m", "B", alpha=5.0)]
    classes = [service_class("gold", itl=40)]
    return document(
        [server("a", 2400)], accelerators, {"A": 3, "B": 1}, classes=classes, models=models, **options
    )


def tails() -> Json:
    """Return a system with a target on a percentile, and one on the share of requests within two limits."""
    law = {"name": "m", "acc": "A", "perfParms": {"alpha": 10, "beta": 0.2}, "queueModel": "continuous"}
    classes = [service_class("gold", ttft=400), service_class("silver", 2, itl=40, ttft=400)]
    classes[0]["modelTargets"][0]["percentile"] = 95
    classes[1]["modelTargets"][0]["goodputShare"] = 0.9
    servers = [server("a", 2000), server("b", 1000, service="silver")]
    return document(servers, [accelerator("A")], {"A": 9}, classes=classes, models=[law])


def collected() -> Json:
    """Return a system with a batch server that collects for a while."""
    law = {"name": "m", "acc": "A", "maxBatchSize": 4, "batchParms": {"base": 40, "slope": 2}}
    classes = [service_class("gold", ttft=1)]
    target = {"model": "m", "latency": [{"percentile": 95, "ms": 150}]}
    classes[0]["modelTargets"] = [target]
    servers = [server("a", 6000) | {"batchTimeout": 5}]
    return document(servers, [accelerator("A")], {"A": 9}, classes=classes, models=[law])


def queued() -> Json:
    """Return a system with a queue of three servers, of which one is not served; one target is a p95."""
    law = {"name": "m", "acc": "A", "maxBatchSize": 8, "perfParms": {"alpha": 10, "beta": 0.2}}
    classes = [
        service_class("gold", ttft=200),
        service_class("silver", 2, ttft=900),
        service_class("free", 3),
    ]
    classes[1]["modelTargets"][0]["percentile"] = 95
    servers = [
        server("a", 400, sharedQueue="q"),
        server("b", 400, service="silver", sharedQueue="q"),
        server("c", 3000, service="free", sharedQueue="q"),
    ]
    return document(servers, [accelerator("A")], {"A": 4}, classes=classes, models=[law])


def shared() -> Json:
    """Return a system whose servers share cards in shares, in slices and in time; one is served alone."""
    cards = [
        accelerator("A", cost=30) | {"memSize": 16},
        accelerator("B", cost=60) | {"memSize": 40},
        accelerator("B-4", cost=0)
        | {"type": "B", "memSize": 20, "slice": {"card": "B", "memory": 4, "compute": 3}},
    ]
    shares = [{"share": 0.25, "slowdown": 3.0}, {"share": 0.5, "slowdown": 1.8}]
    models = [
        {
            "name": name,
            "acc": acc,
            "maxBatchSize": 8,
            "memory": 4,
            "batchParms": {"base": base, "slope": 2},
            **more,
        }
        for name, acc, base, more in (
            ("x", "A", 10, {"shares": shares}),
            ("y", "A", 8, {"shares": shares}),
            ("z", "A", 12, {}),
            ("w", "A", 15, {}),
            ("v", "B-4", 20, {}),
        )
    ] + [profile("m", "A")]
    targets = [{"model": name, "latency": [{"percentile": 95, "ms": 200}]} for name in "xyzwv"]
    classes = [service_class("gold", ttft=500), service_class("silver", 2)]
    classes[0]["modelTargets"] += targets
    rates = {"x": 3000, "y": 2400, "z": 1800, "w": 1500, "v": 6000}
    servers = [{**server(name, rate), "model": name, "sharedCard": True} for name, rate in rates.items()] + [
        server("alone", 60)
    ]
    for one in servers[:-1]:
        one["currentAlloc"]["load"] = {"arrivalRate": rates[one["name"]]}
    return document(servers, cards, {"A": 5, "B": 1}, classes=classes, models=models)


SCENARIOS: dict[str, Json | System | Path] = {
    "fleet": fleet(),
    "unlimited": fleet() | {"optimizer": {"unlimited": True}},
    "greedy": fleet() | {"optimizer": {"milpSolver": False}},
    "partial": scarce(saturationPolicy="PriorityExhaustive"),
    "mixed": two_kinds(heterogeneous=True),
    "nodes": in_nodes(),
    "chosen batch": patient(),
    "tails": tails(),
    "collected": collected(),
    "queued": queued(),
    "shared": shared(),
    "running": scarce(),
    "robust": everything(),
    "offline": offline(8),
    "late": offline(5, saturationPolicy="PriorityExhaustive"),
    "cached": cached(),
    "split": canary(rollBack=True),
    "rolling": rolling(10, rollout="all"),
    "rolling one": rolling(10, rollout="one"),
    "available": available(availabilityTarget=0.999, surge=0.5),
    "shapes": shapes(),
    "lengths": by_length(),
    "roles": by_role(),
    "routed": Path(__file__).parents[2] / "specs" / "routes.yaml",
}
RUNS = {"first": {"A": 2}, "last": {"A": 1}}
"""What runs in the scenario "running", where the last server cannot be served and keeps what it runs."""


@cache
def system_of(scenario: str) -> System:
    source = SCENARIOS[scenario]
    return source if isinstance(source, System) else load_system(source)


@cache
def plan_of(scenario: str) -> Plan:
    if scenario == "running":
        return plan_keeping(system_of(scenario), RUNS, Planner(Deadline.after(60.0)))
    return solve(system_of(scenario))


def wire(plan: Plan) -> Json:
    answer: Json = json.loads(plan.to_json())
    return answer


def falsified(plan: Json, path: Place, lie: Lie) -> Json:
    """Return a copy of a plan in which what stands at a path is another."""
    copy = deepcopy(plan)
    *way, last = path
    inner: Any = copy
    for step in way:
        inner = inner[step]
    there = inner.get(last) if isinstance(inner, dict) else inner[last]  # what is absent is null
    inner[last] = lie(there)
    return copy


def found_in(plan: Json, system: System, candidates: Candidates | None = None) -> list[str]:
    return verify(Plan.model_validate_json(json.dumps(plan)), system, candidates)


def to(value: Any) -> Lie:
    return lambda _: value


def times(factor: float) -> Lie:
    return lambda value: value * factor


def plus(amount: float) -> Lie:
    return lambda value: value + amount


def path_of(place: str) -> Place:
    """Return the steps to a place such as ``levels.0.value``."""
    return tuple(int(step) if step.lstrip("-").isdigit() else step for step in place.split("."))
