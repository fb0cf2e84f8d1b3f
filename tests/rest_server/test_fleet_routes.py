"""The held fleet as a whole: exported, imported, asked about as a document is, and its past."""

import json
from pathlib import Path

import pytest
from api_clients import client, refused, state_of
from builders import Json, accelerator, document, profile, server, service_class
from fastapi.testclient import TestClient
from slow_cases import mostly_slow

from optimizer import load_system, solve
from optimizer.stabilisation.rules import Rules
from rest_server.app import create_app
from rest_server.settings import Settings
from rest_server.state import FleetStore


def source(*names: str) -> Json:
    found = document(
        [server(name) for name in names or ("s", "t")], [accelerator("B"), accelerator("A")], {"A": 9, "B": 9}
    )
    found["accelerators"][0]["cost"] = "$2.50/h"
    return found


def test_an_imported_fleet_exports_and_plans_like_its_document(service: TestClient) -> None:
    given = source()
    answer = service.put("/v1/fleet", json=given)
    assert (answer.status_code, answer.headers["etag"]) == (200, '"run-1"')
    exported = service.get("/v1/fleet")
    assert (exported.json(), exported.headers["etag"]) == (answer.json(), '"run-1"')
    assert exported.json()["accelerators"][0]["cost"] == "2.50 USD/h"
    assert load_system(exported.json()) == load_system(given)
    assert [item["name"] for item in exported.json()["accelerators"]] == ["B", "A"]
    assert service.post("/v1/loads", json={}).text == solve(load_system(given)).to_json()
    again = service.put("/v1/fleet", json=service.get("/v1/fleet").json())
    assert again.json() == service.get("/v1/fleet").json()


def test_an_import_replaces_everything_in_one_step_or_nothing(service: TestClient) -> None:
    service.put("/v1/fleet", json=source("old"))
    before = service.get("/v1/fleet").content
    wrong = [
        ({"servers": [server("a"), server("a")]}, "servers[1]: server 'a' occurs twice"),
        ({"servers": [server("a") | {"colour": 1}]}, "servers[0].colour"),
        ({"models": [{"name": "m", "acc": "A"}] * 2}, "models[1]: model profile 'm' on 'A' occurs twice"),
        ({"servers": [server("a", -1.0)]}, "servers[0].currentAlloc.load.arrivalRate"),
        ({"allocations": {}}, "this is a plan"),
    ]
    for given, problem in wrong:
        refused(service.put("/v1/fleet", json=given), 422, problem)
    refused(service.put("/v1/fleet", json=source("new"), headers={"If-Match": '"run-0"'}), 412)
    assert service.get("/v1/fleet").content == before
    assert service.put("/v1/fleet", json=source("new"), headers={"If-Match": '"run-1"'}).status_code == 200
    assert [item["name"] for item in service.get("/v1/fleet").json()["servers"]] == ["new"]


def test_an_accelerator_without_a_type_is_exported_with_one(service: TestClient) -> None:
    service.post("/addAccelerator", json={"name": "plain", "cost": 4})
    (card,) = service.get("/v1/fleet").json()["accelerators"]
    assert card == {"name": "plain", "type": "plain", "cost": 4.0}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("question", "query"),
    mostly_slow([
        ("compare", "?scale=2"), ("compare", ""), ("explain", "?server=s"), ("simulate", "?requests=2000"),
        ("simulate", "?requests=500&repair=true"), ("report", ""), ("report", "?format=csv"),
        ("figure", "?kind=types"), ("figure", "?format=svg"),
    ], 5),
)  # fmt: skip
def test_a_fleet_question_is_answered_as_for_its_document(
    service: TestClient, question: str, query: str
) -> None:
    service.put("/v1/fleet", json=source())
    of_fleet = service.post(f"/v1/fleet/{question}{query}")
    of_document = service.post(f"/v1/{question}{query}", json=service.get("/v1/fleet").json())
    assert (of_fleet.status_code, of_fleet.content) == (200, of_document.content)
    assert service.get("/v1/fleet").headers["etag"] == '"run-1"'


@pytest.mark.few(1)
@pytest.mark.parametrize("question", ["compare", "explain", "simulate", "report", "figure"])
def test_a_fleet_question_is_described_as_for_its_document(service: TestClient, question: str) -> None:
    paths = service.get("/openapi.json").json()["paths"]
    held, given = (paths[f"/v1{part}/{question}"]["post"]["responses"] for part in ("/fleet", ""))
    for described in (held, given):
        described["200"]["content"]["application/json"]["schema"].pop("title", None)  # named after the route
    assert held == given


def test_the_fleet_is_compared_with_another_side(service: TestClient) -> None:
    service.put("/v1/fleet", json=source())
    other = source("s", "t", "u")
    found = service.post("/v1/fleet/compare", json={"second": other})
    sides = {"first": service.get("/v1/fleet").json(), "second": other}
    assert found.content == service.post("/v1/compare", json=sides).content
    wrong = service.post("/v1/fleet/compare", json={"third": other})
    assert (wrong.status_code, wrong.json()["path"]) == (422, "third")


def test_the_history_says_what_was_changed_and_planned(service: TestClient) -> None:
    service.put("/v1/fleet", json=source())
    service.put("/v1/capacity/A", json={"count": 5})
    service.delete("/v1/servers/t")
    plan = service.post("/v1/loads", json={"s": {"arrivalRate": 90}}).json()
    found = service.get("/v1/history").json()
    assert [event["cause"] for event in found["events"]] == ["plan", "loads", "change", "change", "imported"]
    assert [event["revision"] for event in found["events"]] == [5, 4, 3, 2, 1]
    assert found["events"][2]["names"] == ["servers/t"]
    assert found["events"][4]["changed"] == {
        "accelerators": 2, "serviceClasses": 1, "servers": 2, "count": 2, "models": 3
    }  # fmt: skip
    assert found["plans"] == [5]
    assert service.get("/v1/history/plans/5").json() == plan
    assert len(service.get("/v1/history?limit=2").json()["events"]) == 2
    missing = service.get("/v1/history/plans/4")
    assert (missing.status_code, "stored revisions: 5" in missing.json()["detail"]) == (404, True)


# --- stabilisation in the service ---------------------------------------------------------------------------


def number(service: TestClient) -> tuple[int, bool, str]:
    found = service.get("/v1/targets/s/A").json()
    return found["desiredReplicas"], found["held"], found["reason"]


@pytest.mark.slow
def test_rules_hold_what_is_desired_and_go_on_after_a_restart(tmp_path: Path) -> None:
    rules, state = tmp_path / "rules.json", tmp_path / "fleet.db"
    rules.write_text(json.dumps({"scaleDownWindow": 300, "holdMissingLoad": True}))
    settings = Settings(stateful=True, stabilise=rules, state=state, solver_processes=0)
    with TestClient(create_app(settings), "http://localhost") as service:
        given = document([server("s", 3000.0)], [accelerator("A")], {"A": 99})
        assert service.put("/v1/fleet", json=given).status_code == 200
        assert service.post("/v1/loads", json={"s": {"arrivalRate": 3000}}).status_code == 200
        most = number(service)[0]
        assert most > 3
        assert number(service) == (most, False, "New")
    with TestClient(create_app(settings), "http://localhost") as service:
        assert number(service) == (most, False, "New")
        plan = service.post("/v1/loads", json={"s": {"arrivalRate": 600}}).json()
        assert plan["allocations"]["s"][0]["numReplicas"] < most
        assert number(service) == (most, True, "ScaleDownWindow")
    with TestClient(create_app(settings), "http://localhost") as service:
        assert number(service) == (most, True, "ScaleDownWindow")
        assert service.post("/v1/loads", json={}).status_code == 200
        assert number(service)[1:] == (True, "LoadMissing")
        assert 'reason="LoadMissing"' in service.get("/metrics").text


def test_noise_is_not_planned_for_where_the_rule_is_on() -> None:
    given = document([server("s", 3000.0)], [accelerator("A")], {"A": 99})
    with client(stateful=True) as service:
        state_of(service).held = FleetStore(rules=Rules(noise=3.5, load_window_s=60.0))
        service.put("/v1/fleet", json=given)
        first = service.post("/v1/loads", json={"s": {"arrivalRate": 3000}}).json()["allocations"]["s"][0]
        again = service.post("/v1/loads", json={"s": {"arrivalRate": 3100}}).json()["allocations"]["s"][0]
        assert again["arrivalRateRpm"] == first["arrivalRateRpm"] == 3000
        assert service.get("/v1/servers/s").json()["currentAlloc"]["load"]["arrivalRate"] == 3100
        step = service.post("/v1/loads", json={"s": {"arrivalRate": 9000}}).json()["allocations"]["s"][0]
        assert step["arrivalRateRpm"] == 9000


@pytest.mark.slow
def test_noise_of_queues_and_versions_is_not_planned_for() -> None:
    servers = [
        server("a", 2000.0, sharedQueue="q"),
        server("b", 1000.0, sharedQueue="q"),
        server("v", 3000.0, split=[{"model": "m", "weight": 0.5}, {"model": "n", "weight": 0.5}]),
    ]
    models = [profile("m", "A"), profile("n", "A")]
    classes = [service_class("gold", models=["m", "n"], itl=50.0)]
    given = document(servers, [accelerator("A")], {"A": 99}, models=models, classes=classes)
    with client(stateful=True) as service:
        state_of(service).held = FleetStore(rules=Rules(noise=3.5, load_window_s=60.0))
        assert service.put("/v1/fleet", json=given).is_success
        first = service.post("/v1/loads", json={}).json()["allocations"]
        rates = {"a": 2050, "b": 1050, "v": 3100}
        body = {name: {"arrivalRate": rate} for name, rate in rates.items()}
        again = service.post("/v1/loads", json=body).json()["allocations"]
        assert {name: pools[0]["arrivalRateRpm"] for name, pools in again.items()} == {
            name: pytest.approx(pools[0]["arrivalRateRpm"]) for name, pools in first.items()
        }
        stored = {one["name"]: one for one in service.get("/v1/servers").json()["servers"]}
        assert {n: one["currentAlloc"]["load"]["arrivalRate"] for n, one in stored.items()} == rates
