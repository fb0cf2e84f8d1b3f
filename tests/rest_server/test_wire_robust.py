"""Reserves, prices and limits over HTTP: kept on the wire, planned by every route, not rented for a fleet."""

from fastapi.testclient import TestClient
from wire_client import ACCELERATORS, CLASSES, LOAD, MODELS, Json, one_server, system

from optimizer import load_system, solve

RESERVES: Json = {
    "headroomShare": 0.5,
    "spareReplicas": 1,
    "availabilityTarget": 0.9,
    "preferred": ["A"],
    "external": {"inPerMillion": 1.0, "outPerMillion": 2.0, "ttft": 3.0, "itl": 4.0},
}


def robust() -> Json:
    """Return a document of one server with every reserve."""
    cards = [
        ACCELERATORS[0] | {"availability": 0.99, "tiers": [{"units": 2, "cost": 1.0, "committed": True}]}
    ]
    return {
        "accelerators": cards,
        "models": MODELS,
        "serviceClasses": [CLASSES[0] | {"headroomShare": 0.25}],
        "servers": [one_server(**RESERVES)],
        "count": [{"type": "A", "count": 100}],
    }


def wrapped(source: Json) -> Json:
    """Return a document as the wire has it."""
    found = system(
        *source["servers"], accelerators=source["accelerators"], models=source["models"], optimizer={}
    )
    found["system"]["serviceClassData"] = {"serviceClasses": source["serviceClasses"]}
    return found


def test_the_wire_keeps_what_it_was_given(service: TestClient) -> None:
    assert service.post("/optimizeOne", json=wrapped(robust())).status_code == 200
    server = service.get("/getServer/s").json()
    assert {key: server[key] for key in RESERVES} == RESERVES
    card = service.get("/getAccelerator/A").json()
    assert (card["availability"], card["tiers"]) == (0.99, [{"units": 2, "cost": 1, "committed": True}])
    (gold,) = service.get("/getServiceClasses").json()["serviceClasses"]
    assert gold["headroomShare"] == 0.25


def test_the_wire_plans_with_reserves_and_rents_nothing(service: TestClient) -> None:
    source = robust()
    (pool,) = solve(load_system(source).without_external()).allocations["s"]
    answer = service.post("/optimizeOne", json=wrapped(source)).json()["allocations"]["s"]
    assert (answer["accelerator"], answer["numReplicas"]) == ("A", pool.num_replicas)
    source["servers"] = [one_server()]
    source["serviceClasses"] = CLASSES
    (bare,) = solve(load_system(source)).allocations["s"]
    assert pool.num_replicas > bare.num_replicas


def test_only_plans_of_documents_rent(service: TestClient) -> None:
    source = robust()
    del source["servers"][0]["preferred"]  # which would come before the cost
    source["servers"][0]["external"] |= {"inPerMillion": 1e-6, "outPerMillion": 1e-6}
    answer = service.post("/v1/plan", json=source)
    assert answer.status_code == 200, answer.text
    assert [item["server"] for item in answer.json()["rented"]] == ["s"]
    assert service.put("/v1/fleet", json=source).status_code == 200
    fleet = service.post("/v1/loads", json={"s": LOAD})
    assert fleet.status_code == 200, fleet.text
    assert fleet.json()["notRented"] == ["s"]
    assert "rented" not in fleet.json()


def test_a_preference_for_what_is_gone_is_no_obstacle(service: TestClient) -> None:
    answer = service.post("/optimizeOne", json=system(one_server(preferred=["gone"])))
    assert "s" in answer.json()["allocations"]
