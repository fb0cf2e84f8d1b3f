# ruff: noqa: E501  # each case is a line
"""Messages of documents that recommend a change: following each gives an accepted system.

The faults are made in the samples, and a test finds every message of the checks that no case follows.
"""

import ast
import copy
import re
from collections.abc import Callable
from typing import NamedTuple

import pytest
import yaml
from builders import Json, refusal
from commands import ROOT
from test_advice import ADVICE as ADVICE_OF_MODELS
from test_following_advice import WAYS

from optimizer import load_system


class Case(NamedTuple):
    """A fault in a sample, a part of its message, and the changes that the message names, each on its own."""

    sample: str
    fault: Callable[[Json], object]
    message: str
    ways: tuple[Callable[[Json], object], ...]


def part(source: Json, section: str, name: str | int) -> Json:
    """Return an item of a section, by name or place."""
    items: list[Json] = source[section]
    return items[name] if isinstance(name, int) else next(item for item in items if item["name"] == name)


def put(section: str, name: str | int, /, **fields: object) -> Callable[[Json], object]:
    """Return the change that sets fields of an item."""
    return lambda source: part(source, section, name).update(fields)


def drop(section: str, name: str | int, *keys: str) -> Callable[[Json], object]:
    """Return the change that removes fields of an item."""
    return lambda source: [part(source, section, name).pop(key) for key in keys]


def option(**fields: object) -> Callable[[Json], object]:
    return lambda source: source.setdefault("optimizer", {}).update(fields)


def no_option(*keys: str) -> Callable[[Json], object]:
    return lambda source: [source["optimizer"].pop(key) for key in keys]


def load(name: str, **fields: object) -> Callable[[Json], object]:
    return lambda source: (
        part(source, "servers", name)
        .setdefault("currentAlloc", {})
        .update(load=part(source, "servers", name).get("currentAlloc", {}).get("load", {}) | fields)
    )


def runs(**fields: object) -> Callable[[Json], object]:
    """Return the change of what the server `search` runs on now."""
    return lambda source: part(source, "servers", "search")["currentAlloc"].update(fields)


def spread(source: Json) -> None:
    """State the variability of output lengths, which static batches need."""
    for item in source["servers"]:
        item["currentAlloc"]["load"]["outTokensCV"] = 0.5


def end_to_end(source: Json) -> None:
    """Limit end-to-end latencies only, which models with and without tokens have."""
    for item in source["serviceClasses"]:
        item["modelTargets"] = [{"model": "assistant", "latency": [{"ms": 60000}]}]


def both(*changes: Callable[[Json], object]) -> Callable[[Json], object]:
    return lambda source: [change(source) for change in changes]


def kind(place: int, **fields: object) -> Callable[[Json], object]:
    return lambda source: source["routes"][0]["kinds"][place].update(fields)


def targets(place: int, **fields: object) -> Callable[[Json], object]:
    return lambda source: source["serviceClasses"][0]["modelTargets"][place].update(fields)


def another_class(name: str, owner: str, /, **fields: object) -> Callable[[Json], object]:
    """Return the change that moves a server to a copy of the first class with other fields."""

    def change(source: Json) -> None:
        source["serviceClasses"].append(copy.deepcopy(source["serviceClasses"][0]) | {"name": name} | fields)
        part(source, "servers", owner)["class"] = name

    return change


def all_profiles(**fields: object) -> Callable[[Json], object]:
    return lambda source: [item.update(fields) for item in source["models"]]


SPLIT = [{"model": "chat-1", "weight": 0.9}, {"model": "chat-2", "weight": 0.1}]
ROUTE_OTHER = {"name": "again", "small": "chat-8b", "large": "chat-70b", "arrivalRate": 6, "kinds": [{"share": 1, "inTokens": 9, "outTokens": 9}]}  # fmt: skip
CASES = [
    Case("routes", load("chat-8b", arrivalRate=60, avgInTokens=9, avgOutTokens=9), "servers[0].currentAlloc.load.arrivalRate: 'chat-8b' gets its load from route 'chat'; remove it", (load("chat-8b", arrivalRate=0),)),
    Case("routes", lambda s: s["routes"].append(ROUTE_OTHER), "routes[1].small: 'chat-8b' is also in route 'chat'; use a server in one route only", (lambda s: s["routes"].pop(),)),
    Case("routes", kind(0, share=0.6), "routes[0].kinds: the shares add up to 0.9, not 1; change them", (kind(0, share=0.7),)),
    Case("routes", kind(0, wrong=0.95), "routes[0].kinds[0].wrong: 0.95 exceeds 1 - miss, 0.9: this router is wrong more often than right; swap its two decisions", (kind(0, wrong=0.1, miss=0.05),)),
    Case("routes", put("routes", 0, large="chat-8b"), "routes[0].large: 'chat-8b' is also the small server; name another", (put("routes", 0, large="chat-70b"),)),
    Case("routes", another_class("other", "chat-70b", priority=2), "routes[0].large: 'chat-70b' has priority 2, 'chat-8b' 1; give both servers of a route the same priority", (lambda s: s["serviceClasses"][1].update(priority=1),)),
    Case("routes", targets(0, **{"slo-tps": 100}), "servers[0].class: class 'chat' has slo-tps for 'llama-3.1-8b'; routes have none, remove it", (lambda s: s["serviceClasses"][0]["modelTargets"][0].pop("slo-tps"),)),
    Case("routes", put("servers", "chat-8b", minNumReplicas=2), "servers[0].minNumReplicas: the plan chooses the number of replicas of a route; remove it, or route 'chat'", (drop("servers", "chat-8b", "minNumReplicas"), lambda s: s.pop("routes"))),
    Case("routes", put("servers", "chat-8b", preferred=["H100"]), "servers[0].preferred: routes prefer no accelerators; list the allowed ones", (both(drop("servers", "chat-8b", "preferred"), put("servers", "chat-8b", accelerators=["H100"])),)),
    Case("routes", option(headroomShare=0.1), "optimizer.headroomShare: reserves of routes are not planned (raise arrivalRate instead); remove it, or routes", (no_option("headroomShare"), lambda s: s.pop("routes"))),
    Case("routes", lambda s: s["serviceClasses"][0].update(headroomShare=0.1), "servers[0].class: class 'chat' has headroomShare; reserves of routes are not planned", (lambda s: s["serviceClasses"][0].pop("headroomShare"),)),
    Case("versions", put("servers", "chat", split=[]), "servers[0].split: the list is empty; give each version a model and a weight, or remove it", (put("servers", "chat", split=SPLIT), drop("servers", "chat", "split", "rollBack"))),
    Case("versions", put("servers", "search", rollBack=True), "servers[1].rollBack: the server has no versions to roll back from; remove it, or add split", (drop("servers", "search", "rollBack"), put("servers", "search", split=[{"model": "search", "weight": 0.5}, {"model": "chat-2", "weight": 0.5}]))),
    Case("versions", lambda s: part(s, "servers", "chat")["split"][0].update(weight=0.5), "servers[0].split: the weights sum to 0.6, not 1; change them", (put("servers", "chat", split=SPLIT),)),
    Case("versions", lambda s: part(s, "servers", "chat")["split"].append(SPLIT[1]), "servers[0].split[2].model: 'chat-2' occurs twice; list it once", (put("servers", "chat", split=SPLIT),)),
    Case("versions", put("servers", "chat", split=[{"model": "chat-2", "weight": 1}]), "servers[0].split: 'chat-1', the server's own model, is missing; add it, with weight 0 if it gets nothing", (both(put("servers", "chat", split=[{"model": "chat-1", "weight": 0}, {"model": "chat-2", "weight": 1}]), drop("servers", "chat", "rollBack")),)),
    Case("versions", put("servers", "chat", split=[{"model": "chat-1", "weight": 0}, {"model": "chat-2", "weight": 1}]), "servers[0].rollBack: 'chat-1' has weight 0 and no replicas; give it a weight above 0", (put("servers", "chat", split=SPLIT),)),
    Case("versions", lambda s: part(s, "servers", "chat")["split"][0].update(currentAlloc={"accelerator": "H100", "numReplicas": 1}), "servers[0].split[0].currentAlloc: 'chat-1' is the server's own model; state it in the server's currentAlloc", (put("servers", "chat", split=SPLIT),)),
    Case("versions", lambda s: part(s, "servers", "chat")["split"][1].update(currentAlloc={"accelerator": "H100", "numReplicas": 1, "load": {"arrivalRate": 6}}), "servers[0].split[1].currentAlloc.load: the load of a version follows from its weight; remove it", (lambda s: part(s, "servers", "chat")["split"][1]["currentAlloc"].pop("load"),)),
    Case("versions", put("servers", "search", name="chat (chat-2)"), "servers[0].split[1].model: its version would be named", (put("servers", "chat (chat-2)", name="search"),)),
    Case("versions", put("servers", "chat", maxNumReplicas=9), "servers[0].maxNumReplicas: a limit on all versions is not supported; remove it, or split", (drop("servers", "chat", "maxNumReplicas"), drop("servers", "chat", "split", "rollBack"))),
    Case("shared-queue", lambda s: part(s, "servers", "free").update(sharedQueue="premium"), "servers[2].sharedQueue: 'premium' is also the name of a server; give the queue another name", (put("servers", "free", sharedQueue="chat"),)),
    Case("shared-queue", both(*(put("servers", name, currentAlloc={"accelerator": "H100", "numReplicas": n, "load": {"arrivalRate": 6, "avgInTokens": 9, "avgOutTokens": 9}}) for n, name in enumerate(("premium", "standard"), 1))), "servers[1].currentAlloc: 2 x H100 at 0, but 'premium' in the same shared queue runs on 1 x H100 at 0; state the replicas of the queue for one server only, or the same for all", (lambda s: part(s, "servers", "standard")["currentAlloc"].update(numReplicas=1), lambda s: [part(s, "servers", "standard")["currentAlloc"].pop(key) for key in ("accelerator", "numReplicas")])),
    Case("shared-queue", put("servers", "free", maxQueueSize=9), "servers[2].maxQueueSize: a shared queue has no separate limit for each server; remove it, or sharedQueue", (drop("servers", "free", "maxQueueSize"), drop("servers", "free", "sharedQueue", "maxQueueSize"))),
    Case("shared-queue", lambda s: s["serviceClasses"][2].update(modelTargets=[]), "servers[2].class: class 'free' has no target for 'chat-70b'; add one", (lambda s: s["serviceClasses"][2].update(modelTargets=[{"model": "chat-70b", "slo-ttft": 3000}]),)),
    Case("shared-queue", lambda s: s["serviceClasses"][2]["modelTargets"][0].update({"slo-tps": 9}), "servers[2].class: class 'free' has slo-tps for 'chat-70b'; remove it, because a shared queue needs an arrival rate", (lambda s: s["serviceClasses"][2]["modelTargets"][0].pop("slo-tps"),)),
    Case("shared-queue", both(all_profiles(batching="static"), spread), "servers[0].sharedQueue: 'chat-70b' is not batched continuously, which a shared queue needs; remove it", (lambda s: [item.pop("sharedQueue") for item in s["servers"]],)),
    Case("shared-queue", put("servers", "free", minNumReplicas=2), "servers[2].minNumReplicas: 2, but 'premium' in the same shared queue has 0; servers that share replicas need the same", (lambda s: [item.update(minNumReplicas=2) for item in s["servers"]],)),
    Case("shared-cards", drop("models", "detect", "memory"), "servers[0].sharedCard: the memory of 'detect' on one card is unknown; add memory [GB] to its profiles", (put("models", "detect", memory=4),)),
    Case("shared-cards", drop("accelerators", "T4", "memSize"), "servers[0].sharedCard: the memory of T4 is unknown; add memSize [GB] to it", (put("accelerators", "T4", memSize=16),)),
    Case("shared-cards", lambda s: s["accelerators"].append({"name": "part", "type": "T4", "cost": 9, "memSize": 8, "slice": {"card": "T5", "compute": 1, "memory": 1}}), "accelerators[1].slice.card: 'T5' is not a complete card of the system; name one", (lambda s: s["accelerators"][1]["slice"].update(card="T4"),)),
    Case("shared-cards", put("servers", "detect", minNumReplicas=2), "servers[0].minNumReplicas: the plan chooses the number of replicas on shared cards; remove it, or sharedCard", (drop("servers", "detect", "minNumReplicas"), drop("servers", "detect", "sharedCard"))),
    Case("shared-cards", put("models", "detect", kvCapacity=9), "models[0].kvCapacity: requests of a batch server (batchParms) have no tokens; remove it", (drop("models", "detect", "kvCapacity"),)),
    Case("versions", runs(pools=[{"accelerator": "H100", "numReplicas": 1}, {"accelerator": "H100", "numReplicas": 1}]), "servers[1].currentAlloc.pools[1].accelerator: 'H100' occurs twice; add up its replicas in one pool", (runs(pools=[{"accelerator": "H100", "numReplicas": 2}]),)),
    Case("versions", runs(accelerator="H100", numReplicas=3, pools=[{"accelerator": "H100", "numReplicas": 2}]), "servers[1].currentAlloc.accelerator: 3 x H100 is none of the pools with mode own; give the largest of them, or remove it", (runs(accelerator="H100", numReplicas=2), lambda s: [part(s, "servers", "search")["currentAlloc"].pop(key) for key in ("accelerator", "numReplicas")])),
    Case("robust", lambda s: part(s, "accelerators", "H100")["tiers"].append({"units": 1, "cost": 100}), "accelerators[0]: tier 1 costs 220 cents/h, the accelerators after it 100 cents/h; prices must not fall from tier to tier: put the cheapest first", (lambda s: part(s, "accelerators", "H100")["tiers"].reverse(),)),
    Case("robust", option(budget=100), "optimizer.budget: 100 cents/h is below the cost of the committed tiers, 1,760 cents/h; raise the budget or remove committed tiers", (option(budget=5000), drop("accelerators", "H100", "tiers"))),
    Case("robust", drop("accelerators", "L40S", "power"), "optimizer.maxPower: the power of L40S is not known; give it power.idle and power.full", (put("accelerators", "L40S", power={"idle": 40, "full": 350}),)),
    Case("robust", lambda s: s["count"][0].update(more=500), "count[0].more: H100 has tiers, which state a price by number too; remove one of the two", (lambda s: s["count"][0].pop("more"), drop("accelerators", "H100", "tiers"))),
    Case("robust", lambda s: s["count"][2].update(more=50), "count[2].more: 50 cents/h is below the price of the first cards, 90 cents/h; prices must not fall: set cost to the lower price and count to unlimited", (both(put("accelerators", "L40S", cost=50), lambda s: s["count"][2].update(count="unlimited"), lambda s: s["count"][2].pop("more")),)),
    Case("robust", lambda s: (s["accelerators"].append({"name": "2xL40S", "type": "L40S", "multiplicity": 2, "cost": 300}), s["count"][2].update(more=200)), "count[2].more: a card costs 90 cents/h in L40S and 150 cents/h in 2xL40S; give all of L40S the same price per card", (put("accelerators", "2xL40S", cost=180, power={"idle": 80, "full": 700}),)),
    Case("robust", lambda s: s["count"][2].update(count="unlimited", more=200), "count[2]: more: the price of cards beyond count, which is unlimited; remove one of the two", (lambda s: s["count"][2].pop("more"), lambda s: s["count"][2].update(count=12))),
    Case("robust", put("servers", "chat", deadline={"requests": 1000, "hours": 2}), "servers[0].currentAlloc.load.arrivalRate: 1,800 requests/min, but the deadline requires 8.33333; remove one of the two", (drop("servers", "chat", "deadline"), load("chat", arrivalRate=0))),
    Case("robust", both(put("servers", "nightly", deadline={"requests": 1e15, "hours": 1e-3}), load("nightly", arrivalRate=0)), "servers[4].deadline: 1e+15 requests in 0.001 h exceed the largest rate that can be planned; give more hours", (put("servers", "nightly", deadline={"requests": 1e15, "hours": 1e6}),)),
    Case("robust", both(put("accelerators", "L40S", place="b"), put("servers", "chat", place="a")), "servers[0].place: optimizer.networkMs: the network latency between 'a' and 'b' is missing; add it, or limit mayServeFrom", (option(networkMs={"a": {"b": 5}}),)),
    Case("robust", lambda s: (part(s, "accelerators", "L40S").update(place="b"), s["accelerators"].append(part(s, "accelerators", "L40S") | {"name": "other", "place": "c"})), "accelerators[3].place: accelerators of type 'L40S' are at 'b' (L40S) and 'c' (other); give all of a type one place, or another type", (put("accelerators", "other", place="b"), put("accelerators", "other", type="L40"))),
    Case("robust", lambda s: s["serviceClasses"][0]["modelTargets"][0].update(maxLoss=0.1, maxRejected=0.1), "serviceClasses[0].modelTargets[0]: maxLoss and maxRejected have the same meaning; keep one", (lambda s: s["serviceClasses"][0]["modelTargets"][0].pop("maxLoss"), lambda s: s["serviceClasses"][0]["modelTargets"][0].pop("maxRejected"))),
    Case("robust", lambda s: s["serviceClasses"][0]["modelTargets"].append({"model": "assistant2", "goodputShare": 0.9}), "serviceClasses[0].modelTargets[1]: goodputShare requires a latency target; add one", (lambda s: s["serviceClasses"][0]["modelTargets"].pop(),)),
    Case("robust", put("models", 0, perfParms={"alpha": 9}), "models[0]: both decodeParms/prefillParms and perfParms are given; keep one of the two latency models", (drop("models", 0, "perfParms"), drop("models", 0, "decodeParms", "prefillParms"))),
    Case("robust", put("models", 0, perfParms="estimate"), "models[0]: both decodeParms/prefillParms and an estimate are given; keep one of the two", (drop("models", 0, "perfParms"),)),
    Case("robust", both(drop("models", 0, "decodeParms", "prefillParms"), put("models", 0, perfParms={"alpha": 9, "estimate": {}})), "models[0].perfParms: both coefficients and an estimate are given; keep one of the two", (lambda s: s["models"][0]["perfParms"].pop("estimate"),)),
    Case("robust", both(all_profiles(batching="padded"), put("models", 0, perfParms={"alpha": 9}), spread), "models[0]: batching: padded batches take decodeParms and prefillParms (linear law); give those", (drop("models", 0, "perfParms"),)),
    Case("robust", both(drop("models", 0, "decodeParms", "prefillParms", "atTokens"), put("models", 0, batchParms={"base": 9}), end_to_end), "servers[0].model: 'assistant' has batchParms on some accelerators and tokens on others; give it one kind of latency model", (both(drop("models", 0, "batchParms"), put("models", 0, decodeParms={"alpha": 9}, prefillParms={"gamma": 1})),)),
    Case("robust", both(drop("models", 0, "decodeParms", "prefillParms"), put("models", 0, perfParms={"alpha": 9, "expertRead": 4})), "models[0].perfParms: expertRead needs expertShare; give both or neither", (lambda s: s["models"][0]["perfParms"].update(expertShare=0.1), lambda s: s["models"][0]["perfParms"].pop("expertRead"))),
    Case("robust", both(put("accelerators", "H100", cost="4 USD/h"), put("accelerators", "L40S", cost="1 EUR/h")), "accelerators[2].cost: a price in EUR; give all prices in one currency", (put("accelerators", "L40S", cost="1 USD/h"),)),
    Case("robust", put("servers", "chat", **{"class": "Vip"}), "servers[0].class: service class 'Vip' does not exist; add it, or correct 'class'", (put("servers", "chat", **{"class": "Interactive"}), lambda s: s["serviceClasses"].append({"name": "Vip", "modelTargets": [{"model": "assistant", "slo-itl": 40}]}))),
    Case("shared-cards", lambda s: s["accelerators"].append({"name": "part", "type": "T5", "cost": 9, "memSize": 8, "slice": {"card": "T4", "compute": 1, "memory": 1}}), "accelerators[1].slice.card: must be one card of type 'T5'; correct the type or the multiplicity", (lambda s: s["accelerators"][1].update(type="T4"),)),
    Case("shared-cards", put("servers", "detect", preferred=["T4"]), "servers[0].preferred: servers on shared cards prefer no accelerators; list the allowed ones", (both(drop("servers", "detect", "preferred"), put("servers", "detect", accelerators=["T4"])),)),
    Case("shared-cards", both(drop("servers", "sentiment", "sharedCard"), put("servers", "sentiment", stages=[{"name": "a", "time": 1, "where": "before"}, {"name": "a", "time": 2, "where": "after"}])), "servers[2].stages: two stages have the name 'a'; give each its own name", (lambda s: part(s, "servers", "sentiment")["stages"][0].update(name="b"),)),
    Case("shared-cards", both(drop("servers", "sentiment", "sharedCard"), load("sentiment", arrivalCV=50)), "servers[2].currentAlloc.load.arrivalCV: on 'T4': 50 is outside the tested range", (load("sentiment", arrivalCV=1),)),
    Case("shared-cards", both(drop("servers", "sentiment", "sharedCard"), put("servers", "sentiment", jobs=100000)), "servers[2].jobs: on 'T4': at most 1024 jobs are supported, not 100000; lower or remove it", (put("servers", "sentiment", jobs=4), drop("servers", "sentiment", "jobs"))),
    Case("shared-cards", put("models", "sentiment", maxBatchSize=100000), "servers[2].maxBatchSize: on 'T4': a batch of at most 512 requests is supported, not 100000; lower it", (put("models", "sentiment", maxBatchSize=4),)),
    Case("shared-cards", both(drop("models", "detect", "batchParms", "shares"), put("models", "detect", perfParms={"alpha": 9}), load("detect", avgInTokens=9, avgOutTokens=9)), "servers[0].sharedCard: 'detect' cannot run on a part of a card; give its profiles shares, or times on slices", (put("models", "detect", shares=[{"share": 0.5, "slowdown": 2}]),)),
]  # fmt: skip


def sample(name: str) -> Json:
    found: Json = yaml.safe_load((ROOT / "specs" / f"{name}.yaml").read_text("utf-8"))
    return found


@pytest.mark.few(24)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.message)
def test_following_a_message_gives_an_accepted_system(case: Case) -> None:
    source = sample(case.sample)
    case.fault(source)
    assert case.message in refusal(lambda: load_system(copy.deepcopy(source)))
    for way in case.ways:
        followed = copy.deepcopy(source)
        way(followed)
        assert load_system(followed)


ADVICE = re.compile(
    r"(; |, or |^)(set|use|write|choose|make|state|raise|lower|give|count|lengthen|keep|name|put|correct|add|"
    r"remove|limit|list|divide|swap|rename|change|allow) "
)
CHECKED = ("optimizer/spec", "optimizer/kinds", "optimizer/queueing/bulk/limits.py", "optimizer/timing")
"""Where documents are checked."""
ELSEWHERE = {
    "files.py": "files, whose tests are tests/spec/test_files.py",
    "yaml_format.py": "files", "writing.py": "files", "load_traces.py": "tables of loads", "loads.py": "tables of loads",
    "trace_shapes.py": "recorded requests: tests/test_request_shapes.py",
    "arguments.py": "Python", "messages.py": "spelling: tests/spec/test_written_values.py",
    "replicas.py": "single replicas", "rows.py": "single replicas", "shared_rows.py": "single replicas",
}  # fmt: skip
"""Files whose messages are about something other than the documents of a system."""


def advising(tree: ast.Module) -> list[list[str]]:
    """Return the literal pieces of each text of a module that recommends something."""
    plain = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for inner in node.values}
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        pieces = node.values if isinstance(node, ast.JoinedStr) else [node]
        texts = [
            piece.value
            for piece in pieces
            if isinstance(piece, ast.Constant) and isinstance(piece.value, str)
        ]
        if id(node) not in plain | told and any(map(ADVICE.search, texts)):
            found.append(texts)
    return found


@pytest.mark.slow
def test_every_advising_message_is_followed() -> None:
    """A case here, or in one of the two other tests of advice, has the message; others are listed."""
    said = [case.message for case in CASES] + [advice.message for advice in ADVICE_OF_MODELS]
    patterns = [pattern for pattern, _ in WAYS]
    missing = []
    for place in CHECKED:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            for texts in [] if file.name in ELSEWHERE else advising(ast.parse(file.read_text("utf-8"))):
                whole = "…".join(texts)
                clauses = [clause.strip(" ,") for clause in re.split(r"; |…|{\w+}", whole)]
                longest, advice = max(clauses, key=len), clauses[-1] if len(clauses[-1]) > 15 else " "
                if not (
                    any(longest in message or advice in message for message in said)
                    or any(re.search(pattern, whole) for pattern in patterns)
                    or any(part in whole for part in UNFOLLOWED)
                ):
                    missing.append(f"{file.name}: {whole}")
    assert missing == []


UNFOLLOWED = {
    "the section is also in": "two files: tests/spec/test_files.py",
    "with queueModel … longer requests can have a higher": "test_a_route_recommends_the_references_queue_if_it_can",
    "; set queueModel to ": "tests/spec/test_following_advice.py",
    "only documents in files can name": "values in Python: tests/profiles/test_requested.py",
    "most … can; divide them": "a limit of many servers",
    "its load is a share of the load of": "methods in Python",
    "its cards exist only in nodes": "methods in Python and sweeps",
    "it is the load of route": "methods in Python",
    "give the load of that route": "tables of loads: tests/spec/test_loads.py",
    "is the name of a server and of a route": "tables of loads: tests/spec/test_loads.py",
    "cannot be simulated under this latency model": "simulations of single replicas",
    "; give mean lengths": "request shapes: tests/test_request_shapes.py",
    "give the length of the shared": "request shapes: tests/test_request_shapes.py",
    "occurs twice; give each shape its own name": "request shapes: tests/test_request_shapes.py",
    "give every shape either its share or its arrivalRate": "request shapes: tests/test_request_shapes.py",
}
"""Parts of messages that no case follows, with the reason."""
