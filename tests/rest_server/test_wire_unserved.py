"""What the reference's actuator makes of an answer.

It sets every server that it knows to what the answer says, and every one that the answer leaves out to 0
replicas. No running server may go to 0 by such silence.
"""

import itertools
import random
from typing import Any
from urllib.parse import unquote

import pytest
from builders import service_class
from fastapi.testclient import TestClient
from slow_cases import mostly_slow
from wire_client import ACCELERATORS, LOAD, MODELS, Json, one_server, system, wire_client

HEADER = "X-Inferplan-Unserved"
SYSTEMS = 200
SLICES = {"A": ("A", 1), "2xA": ("A", 2), "C": ("C", 1), "D": ("D", 1)}
"""Accelerators of the random systems, with their types and cards; D is not listed in the capacities."""
PRIORITIES = {"gold": 1, "silver": 5, "bronze": 9}
PLENTY = 100_000


def actuated(body: Json, answer: Json) -> dict[str, int]:
    """Return the replicas of every server after the reference's actuator has carried an answer out."""
    allocations = answer["allocations"]
    return {name: allocations.get(name, {"numReplicas": 0})["numReplicas"] for name in servers_of(body)}


def servers_of(body: Json) -> dict[str, Json]:
    return {item["name"]: item for item in body["system"]["serverData"]["servers"]}


def units_per_replica(body: Json, server: Json, accelerator: str) -> tuple[str, int]:
    """Return type and units of a replica, from the body alone; none of an unknown accelerator."""
    if accelerator not in SLICES:
        return "", 0
    kind, cards = SLICES[accelerator]
    counts = [
        item.get("accCount", 1)
        for item in body["system"]["modelData"]["models"]
        if (item["name"], item["acc"]) == (server["model"], accelerator)
    ]
    return kind, cards * (counts[0] if counts else 1)


def units_left(body: Json, answer: Json) -> dict[str, int]:
    """Return what an answer leaves of the listed units."""
    left = {item["type"]: item["count"] for item in body["system"]["capacityData"]["count"]}
    for name, given in answer["allocations"].items():
        kind, units = units_per_replica(body, servers_of(body)[name], given["accelerator"])
        if kind in left:
            left[kind] -= units * given["numReplicas"]
    return left


def unserved_of(answer: Any) -> set[str]:
    named = answer.headers.get(HEADER, "")
    return {unquote(name) for name in named.split(", ") if name}


# --- random systems ------------------------------------------------------------------------------------


def random_system(seed: int, *, plenty: bool) -> Json:
    """Return a system with some of: shortage, zero parameters, unknown names, accelerators that are gone."""
    rng = random.Random(seed)
    accelerators = [
        {"name": name, "type": kind, "multiplicity": cards, "cost": 10 * cards + len(name)}
        for name, (kind, cards) in SLICES.items()
    ]
    models = []
    for model in ("m", "n", "warming"):
        for name in rng.sample(list(SLICES), 3):
            times = MODELS[0] | {"name": model, "acc": name, "accCount": rng.choice([1, 1, 2])}
            if model == "warming":
                times |= {"decodeParms": {"alpha": 0, "beta": 0}, "prefillParms": {"gamma": 0, "delta": 0}}
            models.append(times)
    classes = [
        service_class(name, priority, ("m", "n", "warming"), itl=50, ttft=900)
        for name, priority in PRIORITIES.items()
    ]
    classes[2]["modelTargets"][1]["slo-itl"] = 1  # nothing can meet this one
    options: Json = {"unlimited": rng.random() < 0.1, "milpSolver": rng.random() < 0.2}
    if rng.random() < 0.3:
        options["saturationPolicy"] = rng.choice(["PriorityExhaustive", "PriorityRoundRobin", "RoundRobin"])
    count = [{"type": kind, "count": PLENTY if plenty else rng.randrange(12)} for kind in ("A", "C")]
    body = system(
        *(_random_server(rng, f"s{i}") for i in range(rng.randint(1, 8))),
        accelerators=accelerators,
        models=models,
        count=count,
        optimizer=options,
    )
    body["system"]["serviceClassData"] = {"serviceClasses": classes}
    return body


def _random_server(rng: random.Random, name: str) -> Json:
    current = {
        "accelerator": rng.choice([*SLICES, *SLICES, "gone", ""]),
        "numReplicas": rng.choice([0, 1, 1, 2, 3, 8]),
        "maxBatch": rng.choice([0, 8, 16]),
        "cost": rng.choice([0, 0, 55.5]),
        "itlAverage": 12.5,
        "ttftAverage": 100.25,
        "load": LOAD | {"arrivalRate": rng.choice([0, 60, 600, 3000])},
    }
    return {
        "name": name,
        "class": rng.choice([*PRIORITIES, *PRIORITIES, "unknown"]),
        "model": rng.choice(["m", "m", "n", "n", "warming", "unknown"]),
        "keepAccelerator": rng.random() < 0.2,
        "minNumReplicas": rng.choice([0, 0, 0, 2]),
        "currentAlloc": current,
    }


@pytest.fixture(scope="module")
def keeping() -> TestClient:
    return wire_client(stateful=False)


@pytest.fixture(scope="module")
def omitting() -> TestClient:
    return wire_client(stateful=False, unserved="omit")


@pytest.mark.slow
@pytest.mark.parametrize("part", mostly_slow(range(4), 1))
def test_no_running_server_is_stopped_by_silence(part: int, keeping: TestClient) -> None:
    stopped = kept = 0
    for seed, plenty in itertools.product(range(part, SYSTEMS, 4), (False, True)):
        body = random_system(seed, plenty=plenty)
        response = keeping.post("/optimizeOne", json=body)
        assert response.status_code == 200, (seed, response.text)
        answer = response.json()
        after, named, left = actuated(body, answer), unserved_of(response), units_left(body, answer)
        limited = not body["system"]["optimizerData"]["optimizer"]["unlimited"]
        assert not limited or min(left.values()) >= 0, seed
        for name, server in servers_of(body).items():
            current = server["currentAlloc"]
            if not current["numReplicas"]:
                continue
            assert name in answer["allocations"], (seed, name)
            if after[name] == 0 and name in named:  # it says so, and not even one replica has room
                kind, units = units_per_replica(body, server, current["accelerator"])
                assert limited, (seed, name)
                assert left[kind] < units, (seed, name)
                stopped += 1
            elif after[name] == 0:  # nothing comes in
                assert server["currentAlloc"]["load"]["arrivalRate"] == 0, (seed, name)
            elif name in named:
                given = answer["allocations"][name]
                share = given["numReplicas"] / current["numReplicas"]
                assert given == {**current, "numReplicas": given["numReplicas"], "cost": given["cost"]}
                assert given["cost"] == pytest.approx(current["cost"] * share)
                assert share <= 1
                kept += 1
    assert stopped > 5  # both happen
    assert kept > 20


@pytest.mark.slow
def test_with_enough_units_retention_does_not_affect_others(
    keeping: TestClient, omitting: TestClient
) -> None:
    for seed in range(40):
        body = random_system(seed, plenty=True)
        found, without = (client.post("/optimizeOne", json=body) for client in (keeping, omitting))
        named = unserved_of(found)
        assert named == unserved_of(without) == servers_of(body).keys() - without.json()["allocations"].keys()
        for name, given in found.json()["allocations"].items():
            if name in named:
                assert given["numReplicas"] == servers_of(body)[name]["currentAlloc"]["numReplicas"]
            else:
                assert given == without.json()["allocations"][name]


@pytest.mark.slow
def test_retention_displaces_no_server_of_higher_priority(keeping: TestClient, omitting: TestClient) -> None:
    """Where every server has candidates, those served before the first that is not stay as they are."""
    seen = 0
    for seed in range(300):
        body = random_system(seed, plenty=False)
        for server in servers_of(body).values():
            server |= {"model": "m", "class": random.Random(seed + 1).choice(list(PRIORITIES))}
            server["keepAccelerator"] = False
            server["class"] = list(PRIORITIES)[(seed + int(server["name"][1:])) % 3]
        body["system"]["optimizerData"] = {"optimizer": {"milpSolver": seed % 4 == 0}}
        without = omitting.post("/optimizeOne", json=body).json()["allocations"]
        missing = [
            PRIORITIES[server["class"]]
            for name, server in servers_of(body).items()
            if name not in without and server["currentAlloc"]["numReplicas"]
        ]
        if not missing:
            continue
        found = keeping.post("/optimizeOne", json=body)
        for name, given in without.items():
            if PRIORITIES[servers_of(body)[name]["class"]] <= min(missing):
                assert found.json()["allocations"][name] == given, (seed, name)
                assert name not in unserved_of(found)
                seen += 1
        if seen > 60:
            break
    assert seen > 60


# --- one by one ----------------------------------------------------------------------------------------


def running(accelerator: str = "A", replicas: int = 3, **more: Any) -> Json:
    return {"accelerator": accelerator, "numReplicas": replicas, "maxBatch": 8, "load": LOAD} | more


def warming(count: int = 100) -> Json:
    """Return four running servers whose token times a tuner has not found yet, as the family sends them."""
    law = {"alpha": 0, "beta": 0, "gamma": 0}
    models = [{"name": "m", "acc": "A", "accCount": 1, "maxBatchSize": 8, "perfParms": law}]
    servers = [one_server(f"s{i}", currentAlloc=running(replicas=i + 1)) for i in range(4)]
    capacity = [{"type": "A", "count": count}]
    return system(*servers, models=models, count=capacity, optimizer={"unlimited": False})


def test_a_tuner_that_warms_up_stops_nothing() -> None:
    answer = wire_client(stateful=False).post("/optimizeOne", json=warming())
    assert actuated(warming(), answer.json()) == {"s0": 1, "s1": 2, "s2": 3, "s3": 4}
    assert answer.headers[HEADER] == "s0, s1, s2, s3"
    zero = {"itlAverage": 0, "ttftAverage": 0, "cost": 0}
    assert answer.json()["allocations"]["s1"] == running(replicas=2) | zero


def test_retention_fits_the_capacity_and_keeps_one_each_first() -> None:
    client = wire_client(stateful=False)
    for count, wanted in ((7, [1, 2, 3, 1]), (4, [1, 1, 1, 1]), (3, [1, 1, 1, 0]), (0, [0, 0, 0, 0])):
        answer = client.post("/optimizeOne", json=warming(count)).json()
        assert [answer["allocations"][f"s{i}"]["numReplicas"] for i in range(4)] == wanted
        assert {item["accelerator"] for item in answer["allocations"].values()} == {"A"}


def test_without_a_number_of_units_nothing_is_taken_away() -> None:
    """A type that is not listed, an accelerator that has left the catalogue, one without a name: it runs."""
    spare = {"name": "S", "type": "not listed", "multiplicity": 1, "cost": 1}
    places = {"listed": "A", "unlisted": "S", "gone": "gone", "nameless": ""}
    servers = [one_server(name, model="x", currentAlloc=running(on, 5)) for name, on in places.items()]
    few = [{"type": "A", "count": 2}]
    whole = system(*servers, accelerators=[*ACCELERATORS, spare], count=few, optimizer={})
    answer = wire_client(stateful=False).post("/optimizeOne", json=whole)
    assert actuated(whole, answer.json()) == {"listed": 2, "unlisted": 5, "gone": 5, "nameless": 5}
    assert {name: item["accelerator"] for name, item in answer.json()["allocations"].items()} == places
    assert answer.headers["X-Inferplan-Unplanned"].count("servers/") == 4


def crowded(units: int, *priorities: int, milp: bool = False) -> Json:
    """Return servers that run 2 replicas each of 1 unit and need 5, one for each priority."""
    load = LOAD | {"arrivalRate": 2400}
    servers = [
        one_server(f"s{i}", **{"class": f"c{p}"}, currentAlloc=running(replicas=2, load=load))
        for i, p in enumerate(priorities)
    ]
    body = system(*servers, count=[{"type": "A", "count": units}], optimizer={"milpSolver": milp})
    classes = [service_class(f"c{p}", p, itl=50, ttft=900) for p in set(priorities)]
    body["system"]["serviceClassData"]["serviceClasses"] = classes
    return body


@pytest.mark.slow
@pytest.mark.parametrize("milp", [False, True])
def test_retention_comes_before_service_of_lower_priorities(*, milp: bool) -> None:
    client = wire_client(stateful=False)
    one = client.post("/optimizeOne", json=crowded(100, 1, milp=milp)).json()
    need = actuated(crowded(1, 1), one)["s0"]
    assert need > 3
    answers = {}
    for units in (need - 1, need + 1, need + 2, 2 * need - 1):
        body = crowded(units, 1, 2, milp=milp)
        answers[units] = actuated(body, client.post("/optimizeOne", json=body).json())
    assert answers == {
        need - 1: {"s0": 2, "s1": 2},  # nobody is served, both keep
        need + 1: {"s0": need, "s1": 1},
        need + 2: {"s0": need, "s1": 2},
        2 * need - 1: {"s0": need, "s1": 2},
    }
    small = crowded(need, 1, 2, milp=milp)
    small["system"]["serverData"]["servers"][0]["currentAlloc"]["load"]["arrivalRate"] *= 3
    answer = client.post("/optimizeOne", json=small)
    assert actuated(small, answer.json()) == {"s0": 2, "s1": 2}  # and not all of them for s1
    assert unserved_of(answer) == {"s0", "s1"}


def test_the_whole_answer_fails_if_told_so() -> None:
    client = wire_client(stateful=True, unserved="fail")
    good = client.post("/optimizeOne", json=system(one_server()))
    assert (good.status_code, HEADER in good.headers) == (200, False)
    for body in (system(one_server("b", model="x"), one_server("a"), one_server("c", model="x")), warming()):
        answer = client.post("/optimizeOne", json=body)
        assert answer.status_code == 404
        names = "b, c" if len(servers_of(body)) == 3 else "s0, s1, s2, s3"
        message = f"optimization error: no feasible allocation for servers: [{names}]"
        assert answer.json() == {"message": message}
        assert unserved_of(answer) == set(names.split(", "))
        assert client.post("/optimize", json={}).status_code == 404


def test_a_server_is_left_out_if_told_so() -> None:
    client = wire_client(stateful=True, unserved="omit")
    answer = client.post("/optimizeOne", json=warming())
    assert (answer.status_code, answer.json()) == (200, {"allocations": {}})
    assert unserved_of(answer) == {"s0", "s1", "s2", "s3"}
    assert set(actuated(warming(), answer.json()).values()) == {0}  # that is what this setting does


def test_the_header_has_bounded_length_and_separates_odd_names() -> None:
    names = [f"é,{i:03} " + "x" * 150 for i in range(130)]
    body = system(*(one_server(name, model="x") for name in names))
    named = wire_client(stateful=False).post("/optimizeOne", json=body).headers[HEADER]
    assert named.endswith(" and 30 more")
    assert len(named.split(", ")) == 100
    assert len(named) < 11_000


# --- the state -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["/optimizeOne", "/optimize"])
def test_what_a_server_keeps_is_desired_of_it_and_applied(service: TestClient, route: str) -> None:
    body = warming(7)
    idle = running(load=dict.fromkeys(LOAD, 0))
    body["system"]["serverData"]["servers"].append(one_server("idle", currentAlloc=idle))
    service.post("/optimizeOne", json=body)
    if route == "/optimize":
        service.post("/setServers", json=body["system"]["serverData"])
        assert service.get("/getServer/s3").json()["desiredAlloc"]["numReplicas"] == 0
        service.post("/optimize", json={})
    wanted = {"s0": 1, "s1": 2, "s2": 3, "s3": 1, "idle": 0}
    shown = {item["name"]: item for item in service.get("/getServers").json()["servers"]}
    assert {name: item["desiredAlloc"]["numReplicas"] for name, item in shown.items()} == wanted
    assert service.get("/applyAllocation").json() == "Done"
    shown = {item["name"]: item["currentAlloc"] for item in service.get("/getServers").json()["servers"]}
    assert {name: item["numReplicas"] for name, item in shown.items()} == wanted
    assert shown["s3"]["load"] == LOAD


def test_running_unplanned_replicas_stay_when_plans_are_applied() -> None:
    client = wire_client(stateful=True, unserved="omit")
    empty = {"accelerator": "", "numReplicas": 0, "maxBatch": 0, "cost": 0, "load": {}}
    client.post("/optimizeOne", json=warming())
    client.post("/addServer", json=one_server("posted", currentAlloc=running(), desiredAlloc=empty))
    client.get("/applyAllocation")
    shown = client.get("/getServers").json()["servers"]
    assert [item["currentAlloc"]["numReplicas"] for item in shown] == [1, 2, 3, 4, 3]


def test_the_last_plan_says_that_servers_were_not_served(service: TestClient) -> None:
    body = crowded(6, 1, 2)
    body["system"]["serverData"]["servers"][0]["currentAlloc"]["load"]["arrivalRate"] *= 3
    service.post("/optimizeOne", json=body)
    plan = service.get("/v1/plan").json()
    assert not plan["complete"]
    assert {item["server"] for item in plan["unserved"]} == {"s0", "s1"}
