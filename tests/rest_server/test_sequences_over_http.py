"""The control loop over HTTP: loads in, targets out, whatever comes."""

import random
from urllib.parse import quote

import pytest
from api_clients import client
from builders import Json, accelerator, document, server, service_class
from fastapi.testclient import TestClient
from fleets import Cluster, random_fleet, units
from slow_cases import mostly_slow

from optimizer import load_system, verify
from optimizer.plan import Plan

Place = tuple[str, str]
SEEDS = mostly_slow(range(40), 2)


def loads(service: TestClient, body: Json) -> Plan:
    answer = service.post("/v1/loads", json=body)
    assert answer.status_code == 200, answer.text
    return Plan.model_validate_json(answer.content)


def targets(service: TestClient) -> dict[Place, Json]:
    found = service.get("/v1/targets").json()["targets"]
    return {(item["server"], item["accelerator"]): item for item in found}


def numbers(service: TestClient) -> dict[Place, int]:
    found = {place: item["desiredReplicas"] for place, item in targets(service).items()}
    return {place: number for place, number in found.items() if number}


def load_of(rate: float, replicas: Json | None = None) -> Json:
    body: Json = {"arrivalRate": rate}
    return body if replicas is None else body | {"replicas": replicas}


@pytest.mark.slow
def test_a_higher_priority_takes_the_cards_of_a_lower_one() -> None:
    source = document(
        [server("a", 1000.0, service="p1"), server("b", 1000.0, service="p2")],
        [accelerator("H")],
        {"H": 4},
        classes=[service_class("p1", 1, itl=50.0), service_class("p2", 2, itl=50.0)],
    )
    with client(stateful=True) as service:
        assert service.put("/v1/fleet", json=source).status_code == 200
        loads(service, {"a": load_of(1000.0), "b": load_of(1000.0)})
        assert numbers(service) == {("a", "H"): 2, ("b", "H"): 2}
        runs = {"H": {"ready": 2}}
        plan = loads(service, {"a": load_of(2000.0, runs), "b": load_of(1000.0, runs)})
        assert numbers(service) == {("a", "H"): 4}
        assert targets(service)["b", "H"]["reason"] == "Unserved"
        assert plan.kept == ()
        stored = service.get("/v1/plan").json()
        assert stored["unserved"] == plan.model_dump(mode="json", by_alias=True)["unserved"]


@pytest.mark.slow
def test_kept_replicas_are_in_the_returned_and_stored_plan() -> None:
    source = document(
        [server("a", 500.0, service="p1"), server("b", 3000.0, service="p2")],
        [accelerator("H")],
        {"H": 5},
        classes=[service_class("p1", 1, itl=50.0), service_class("p2", 2, itl=50.0)],
    )
    with client(stateful=True) as service:
        assert service.put("/v1/fleet", json=source).status_code == 200
        plan = loads(service, {"b": load_of(3000.0, {"H": {"ready": 5}})})
        assert [(item.server, item.accelerator, item.num_replicas) for item in plan.kept] == [("b", "H", 4)]
        assert service.get("/v1/plan").json()["kept"] == [
            {"accelerator": "H", "numReplicas": 4, "server": "b"}
        ]
        assert numbers(service) == {("a", "H"): 1, ("b", "H"): 4}
        assert service.post("/v1/plan/apply").status_code == 200
        assert service.get("/v1/servers/b").json()["currentAlloc"]["numReplicas"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_slow(SEEDS, 1))
@pytest.mark.parametrize("stabilise", [None, "recommended"])
def test_any_sequence_of_snapshots_is_safe(seed: int, stabilise: str | None) -> None:
    rng = random.Random(seed)
    source = random_fleet(rng)
    names = [item["name"] for item in source["servers"]]
    cluster, before = Cluster(), dict[Place, int]()
    with client(stateful=True, stabilise=stabilise) as service:
        assert service.put("/v1/fleet", json=source).status_code == 200
        for _ in range(10):
            body = {}
            for name in names:
                if rng.random() < 0.9:
                    seen = {
                        on: {"ready": n.ready, "pending": n.pending} for on, n in cluster.seen(name).items()
                    }
                    body[name] = load_of(rng.choice([0.0, 300.0, 900.0, 2000.0]), seen)
            ready = {place: cluster.ready(place) for place in cluster.starting}
            plan = loads(service, body)
            system = load_system(service.get("/v1/fleet").json())
            if stabilise is None:
                assert verify(plan, system) == []
            now = numbers(service)
            assert all(used <= system.capacity[kind] for kind, used in units(system, now).items())
            for name in names:
                had = [on for (server_name, on), count in ready.items() if server_name == name and count]
                is_served = any(pool.num_replicas for pool in plan.allocations.get(name, ()))
                if name in body and is_served and any(before.get((name, on)) for on in had):
                    assert any(now.get((name, on)) for on in had), name
            for (name, on), number in now.items():
                one = service.get(f"/v1/targets/{quote(name, safe='')}/{quote(on, safe='')}")
                assert one.json()["desiredReplicas"] == number
            before = now
            cluster.follow(now, rng, slowest=2)
            cluster.pass_time()


def test_a_server_of_unknown_output_length_keeps_its_replicas() -> None:
    source = document(
        [server("s", 500.0), server("other", 500.0)], [accelerator("H")], {"H": 5},
        classes=[service_class("gold", itl=50.0)],
    )  # fmt: skip
    source["servers"][0]["currentAlloc"] = {"accelerator": "H", "numReplicas": 2, "load": {}}
    with client(stateful=True) as service:
        assert service.put("/v1/fleet", json=source).status_code == 200
        answer = service.post("/v1/loads", json={"s": load_of(500.0), "other": load_of(500.0)})
        assert answer.headers["X-Inferplan-Missing"] == "s"
        assert numbers(service)["other", "H"] == 1
        assert numbers(service)["s", "H"] == 2
        assert targets(service)["s", "H"]["reason"] == "LoadMissing"
