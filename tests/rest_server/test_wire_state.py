"""The state behind the reference's wire: what it keeps, what it plans of it, and how large it may grow."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from wire_client import LOAD, MODELS, one_server, system, wire_client

from optimizer import load_system

# --- names that refer to nothing -----------------------------------------------------------------------


def test_a_server_with_dangling_references_is_unserved_and_named(service: TestClient) -> None:
    stray = [
        one_server("no model", model="x"),
        one_server("no class", **{"class": "x"}),
        one_server("no accelerator", accelerators=["x"]),
        one_server("held", keepAccelerator=True, currentAlloc={"accelerator": "x", "load": LOAD}),
    ]
    models = [*MODELS, {**MODELS[0], "acc": "gone"}]
    answer = service.post("/optimizeOne", json=system(one_server(), *stray, models=models))
    assert set(answer.json()["allocations"]) == {"s"}
    unplanned = [f"servers/{name}" for name in ("no%20model", "no%20class", "no%20accelerator", "held")]
    assert answer.headers["X-Inferplan-Unplanned"].split(", ") == ["models/m/gone", *unplanned]
    assert len(service.get("/getServers").json()["servers"]) == 5


def test_a_server_on_a_removed_accelerator_is_planned_as_new(service: TestClient) -> None:
    running = {"accelerator": "gone", "numReplicas": 3, "load": LOAD}
    answer = service.post("/optimizeOne", json=system(one_server(currentAlloc=running)))
    assert answer.json()["allocations"]["s"]["accelerator"] == "A"
    assert "X-Inferplan-Unplanned" not in answer.headers
    assert service.get("/getServer/s").json()["currentAlloc"]["accelerator"] == "gone"


def test_where_nothing_can_be_planned_the_answer_is_empty(service: TestClient) -> None:
    answer = service.post("/optimizeOne", json=system(one_server(model="x")))
    assert (answer.status_code, answer.json()) == (200, {"allocations": {}})
    assert answer.headers["X-Inferplan-Unplanned"] == "servers/s"


def test_a_solver_that_is_not_there_is_not_found(
    service: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    options = {"milpSolver": True, "useCplex": True}
    answer = service.post("/optimizeOne", json=system(one_server(), optimizer=options))
    assert answer.status_code == 404
    assert answer.json()["message"].startswith("optimization error: ")


# --- the state -----------------------------------------------------------------------------------------


def test_a_plan_is_desired_until_it_is_applied(service: TestClient) -> None:
    service.post("/optimizeOne", json=system(one_server(), one_server("idle", currentAlloc={"load": {}})))
    before = service.get("/getServer/s").json()
    assert before["currentAlloc"]["numReplicas"] == 0
    assert before["desiredAlloc"]["accelerator"] == "A"
    assert before["desiredAlloc"]["load"] == LOAD
    assert service.get("/applyAllocation").json() == "Done"
    assert service.get("/getServer/s").json()["currentAlloc"] == before["desiredAlloc"]


def test_desired_replicas_apply_at_once_until_a_later_plan(service: TestClient) -> None:
    service.post("/optimizeOne", json=system(one_server(), count=[], optimizer={}))
    service.get("/applyAllocation")
    shown = service.get("/getServer/s").json()
    assert shown["currentAlloc"] == shown["desiredAlloc"]
    assert shown["currentAlloc"]["load"] == {"arrivalRate": 0, "avgInTokens": 0, "avgOutTokens": 0}
    service.post("/optimizeOne", json=system(one_server()))
    before = service.get("/getServer/s").json()["desiredAlloc"]
    service.get("/removeAccelerator/A")
    assert service.post("/optimize", json={}).json() == {"allocations": {}}
    assert service.get("/getServer/s").json()["desiredAlloc"] == before


@pytest.mark.slow
def test_a_protected_state_is_not_replaced() -> None:
    client = wire_client(stateful=True, protect_state=True)
    client.post("/addServer", json=one_server("mine"))
    assert set(client.post("/optimizeOne", json=system(one_server())).json()["allocations"]) == {"s"}
    assert [item["name"] for item in client.get("/getServers").json()["servers"]] == ["mine"]


def test_without_a_state_the_last_system_is_shown_unchanged() -> None:
    client = wire_client(stateful=False)
    assert client.get("/getServers").json() == {"servers": []}
    client.post("/optimizeOne", json=system(one_server("first")))
    client.post("/optimizeOne", json=system(one_server("second")))
    assert [item["name"] for item in client.get("/getServers").json()["servers"]] == ["second"]
    for line in ("GET /removeServer/second", "GET /applyAllocation", "POST /addServer", "POST /optimize"):
        answer = client.request(*line.split())
        assert (answer.status_code, answer.text) == (404, "404 page not found")


# --- limits --------------------------------------------------------------------------------------------


def test_a_fleet_grows_no_further_than_the_service_allows() -> None:
    client = wire_client(stateful=True, max_servers=2, max_models=1, max_batch=16)
    assert client.get("/addModel/m").status_code == 200
    assert client.get("/addModel/n").status_code == 400
    for name in ("a", "b"):
        assert client.post("/addServer", json=one_server(name)).status_code == 200
    assert "INFERPLAN_MAX_SERVERS" in client.post("/addServer", json=one_server("c")).json()["message"]
    assert client.post("/addServer", json=one_server("a", maxBatchSize=17)).status_code == 400
    assert len(client.get("/getServers").json()["servers"]) == 2
    many = system(one_server("a"), one_server("b"), one_server("c"))
    assert client.post("/optimizeOne", json=many).status_code == 400


@pytest.mark.slow
def test_plans_made_in_other_processes_are_the_same(specs: Path) -> None:
    body = load_system(specs / "small").to_spec().model_dump(mode="json", by_alias=True)
    answers = []
    for processes in (0, 1):
        with wire_client(stateful=True, solver_processes=processes) as client:
            one = client.post("/optimizeOne", json=body)
            answers.append(
                (one.json(), client.get("/getServers").json(), client.post("/optimize", json={}).json())
            )
    assert answers[0] == answers[1]
