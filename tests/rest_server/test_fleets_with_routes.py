"""Routes of a stored fleet: documents, loads by route, targets of both servers, and the state file."""

from pathlib import Path

import pytest
import yaml
from api_clients import client, state_of
from builders import Json
from fastapi.testclient import TestClient

from optimizer import Plan, load_system, solve, verify
from optimizer.schema import Route
from optimizer.stabilisation.decisions import TargetReason
from optimizer.stabilisation.rules import RECOMMENDED

RATE = 6000.0


@pytest.fixture
def source(specs: Path) -> Json:
    """The document of the sample with a route."""
    found: Json = yaml.safe_load((specs / "routes.yaml").read_text(encoding="utf-8"))
    return found


@pytest.fixture
def service(service: TestClient, source: Json) -> TestClient:
    """A stateful service with that fleet."""
    assert service.put("/v1/fleet", json=source).status_code == 200
    return service


def planned(service: TestClient, loads: Json) -> Plan:
    answer = service.post("/v1/loads", json=loads)
    assert answer.status_code == 200, answer.text
    return Plan.model_validate_json(answer.content)


def targets(service: TestClient) -> dict[str, int]:
    """Return the desired replicas that are not 0, by server and accelerator."""
    found = service.get("/v1/targets").json()["targets"]
    return {item["target"]: item["desiredReplicas"] for item in found if item["desiredReplicas"]}


def of_plan(plan: Plan) -> dict[str, int]:
    return {
        f"{name}/{pool.accelerator}": pool.num_replicas
        for name, pools in plan.allocations.items()
        for pool in pools
    }


def test_a_document_with_routes_comes_back(service: TestClient, source: Json) -> None:
    assert load_system(service.get("/v1/fleet").json()) == load_system(source)


def test_loads_of_routes_are_planned_and_stored(service: TestClient, source: Json) -> None:
    plan = planned(service, {"chat": {"arrivalRate": 3000}})
    system = load_system(source)
    route = system.routes["chat"].model_copy(update={"arrival_rate_rpm": 3000.0})
    wanted = solve(system.with_items(route))
    assert (plan.allocations, plan.routes) == (wanted.allocations, wanted.routes)
    assert service.get("/v1/routes/chat").json()["arrivalRate"] == 3000
    assert targets(service) == of_plan(plan)
    stored = service.get("/v1/servers/chat-70b").json()
    assert stored["currentAlloc"]["load"]["arrivalRate"] == 0
    assert stored["desiredAlloc"]["numReplicas"] == sum(p.num_replicas for p in plan.allocations["chat-70b"])
    applied = service.post("/v1/plan/apply")
    assert applied.status_code == 200, applied.text
    assert load_system(service.get("/v1/fleet").json()).servers["chat-70b"].current.is_running
    assert not planned(service, {"chat": {"arrivalRate": 3000}}).changes


@pytest.mark.parametrize(
    ("loads", "field", "text"),
    [
        ({"chat-8b": {"arrivalRate": 1}}, "chat-8b", "server 'chat-8b' gets its load from route 'chat'"),
        ({"chat": {"avgInTokens": 5}}, "chat.avgInTokens", "a route has an arrivalRate only; remove it"),
        ({"chat": {"replicas": {}}}, "chat.replicas", "a route has an arrivalRate only; remove it"),
        ({"chat": {"arrivalRate": -1}}, "chat.arrivalRate", "must be at least 0"),
        ({"talk": {"arrivalRate": 1}}, "talk", "server 'talk' does not exist"),
        ({"loads": {"chat": {"arrivalRate": 1}}}, "loads", "the body names servers, as in"),
        ({"chatt": 5}, "chatt", "server 'chatt' does not exist; did you mean 'chat'?"),
    ],
)
def test_wrong_loads_of_routes_are_422(service: TestClient, loads: Json, field: str, text: str) -> None:
    before = service.get("/v1/fleet").text
    answer = service.post("/v1/loads", json=loads)
    assert answer.status_code == 422
    assert text in answer.text
    assert f'"{field}' in answer.text or field in answer.json()["detail"]
    assert service.get("/v1/fleet").text == before


def test_a_route_of_a_deleted_server_is_named(service: TestClient) -> None:
    planned(service, {"chat": {"arrivalRate": RATE}})
    assert service.delete("/v1/servers/chat-8b").status_code == 204
    answer = service.post("/v1/loads", json={"chat": {"arrivalRate": RATE}})
    assert answer.status_code == 422
    assert "routes[0].small: server 'chat-8b'" in answer.text
    assert service.get("/v1/targets").status_code == 200
    assert service.delete("/v1/routes/chat").status_code == 204
    plan = planned(service, {"chat-70b": {"arrivalRate": RATE, "avgInTokens": 300, "avgOutTokens": 195}})
    assert plan.complete
    assert not plan.routes


def test_routes_are_entities_of_the_fleet(service: TestClient) -> None:
    route = service.get("/v1/routes").json()["routes"][0]
    unequal = {**route, "kinds": route["kinds"][:1]}
    answer = service.put("/v1/routes/chat", json=unequal)
    assert answer.status_code == 422
    assert "kinds: the shares add up to 0.7, not 1; change them" in answer.text
    answer = service.put("/v1/routes/chat", json={**route, "maxLoss": 0})
    assert answer.status_code == 200
    assert not planned(service, {"chat": {"arrivalRate": RATE}}).routes["chat"].routed
    assert Route.model_validate_json(service.get("/v1/routes/chat").content).max_loss == 0


def test_both_servers_of_an_unserved_route_keep_replicas(service: TestClient) -> None:
    first = planned(service, {"chat": {"arrivalRate": RATE}})
    replicas = {
        name: {"replicas": {pool.accelerator: {"ready": pool.num_replicas} for pool in pools}}
        for name, pools in first.allocations.items()
    }
    for name, change in replicas.items():
        assert planned(service, {name: change}).complete
    for kind, count in (("A100", 5), ("H100", 10), ("L40S", 0)):
        service.put(f"/v1/capacity/{kind}", json={"count": count})
    plan = planned(service, {"chat": {"arrivalRate": 2 * RATE}} | replicas)
    assert [item.server for item in plan.unserved] == ["chat-70b"]
    assert targets(service) == {"chat-70b/2xH100": 5, "chat-8b/A100": 5}
    system = load_system(service.get("/v1/fleet").json())
    assert verify(plan, system) == []
    reasons = {item["reason"] for item in service.get("/v1/targets").json()["targets"] if item["held"]}
    assert reasons == {TargetReason.unserved}
    metrics = service.get("/metrics").text
    assert 'inferplan_unserved_requests_per_minute{reason="capacity",server="chat-70b"} 12000.0' in metrics


def test_a_missing_load_of_a_route_holds_both_servers(source: Json) -> None:
    with client(stateful=True) as service:
        state_of(service).held = type(state_of(service).held)(instance="run", rules=RECOMMENDED)
        assert service.put("/v1/fleet", json=source).status_code == 200
        planned(service, {"chat": {"arrivalRate": RATE}})
        before = targets(service)
        answer = service.post("/v1/loads", json={})
        assert answer.status_code == 200
        assert targets(service) == before
        decisions = state_of(service).held.snapshot().decisions
        assert decisions.servers["chat-70b"].load.level_rpm == RATE
        share = decisions.servers["chat-8b"].load.level_rpm / RATE
        assert share == pytest.approx(0.7 * 0.9 + 0.3)  # 1 - miss of each kind


def test_the_wire_of_the_reference_plans_the_stored_route(service: TestClient, source: Json) -> None:
    answer = service.post("/optimize", json={"optimizerData": {"optimizer": {"milpSolver": True}}})
    assert answer.status_code == 200, answer.text
    plan = solve(load_system(source))
    found = {name: item["numReplicas"] for name, item in answer.json()["allocations"].items()}
    assert found == {name: pools[0].num_replicas for name, pools in plan.allocations.items()}
    service.get("/removeServer/chat-8b")
    answer = service.post("/optimize", json={"optimizerData": {"optimizer": {"milpSolver": True}}})
    assert answer.status_code == 200
    assert "routes/chat" in answer.headers["X-Inferplan-Unplanned"]
