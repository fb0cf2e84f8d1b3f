"""What autoscalers read: a number for every target, or a refusal, and never a solve."""

import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from api_clients import PROBLEM, client
from builders import Json, accelerator, document, profile, running, server, service_class
from fastapi.testclient import TestClient
from patience import until
from prometheus_client.parser import text_string_to_metric_families
from service_runs import in_a_thread

SLASHED, SPACED = "serving/llama 70b", "4x A100/80GB"
CLASSES = {SLASHED: "gold", "idle": "gold", "lost": "hard", "none": "hard"}


def source() -> Json:
    """Return a fleet with names that need encoding, a server that cannot be served, and an idle one."""
    found = document(
        [
            server(SLASHED, current=running("A", 1)),
            server("lost", current=running("A", 2)) | {"class": "hard"},
            server("none") | {"class": "hard"},
            server("idle", 0.0),
        ],
        [accelerator("A"), accelerator(SPACED), accelerator("C")],
        {"A": 9},
    )
    found["models"] = [profile("m", "A"), profile("m", SPACED)]
    found["serviceClasses"] = [service_class("gold", itl=50), service_class("hard", itl=0.01)]
    return found


@pytest.fixture
def service(service: TestClient) -> TestClient:
    """A stateful service with a small fleet."""
    assert service.put("/v1/fleet", json=source()).status_code == 200
    return service


def read(service: TestClient, name: str, on: str) -> Any:
    return service.get(f"/v1/targets/{quote(name, safe='')}/{quote(on, safe='')}")


def planned(service: TestClient, loads: Json | None = None) -> Json:
    answer = service.post("/v1/loads", json=loads or {})
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def test_every_accelerator_that_a_server_can_run_on_has_a_number(service: TestClient) -> None:
    plan = planned(service)
    (pool,) = plan["allocations"][SLASHED]
    for on in ("A", SPACED):
        answer = read(service, SLASHED, on)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        found = answer.json()
        chosen = on == pool["accelerator"]
        assert type(found["desiredReplicas"]) is int
        assert found["desiredReplicas"] == (pool["numReplicas"] if chosen else 0)
        assert (found["server"], found["accelerator"], found["held"]) == (SLASHED, on, False)
        assert found["reason"] == ("New" if chosen else "NotChosen")
        assert 0 <= found["ageSeconds"] < 10
        assert found["revision"] == service.get("/v1/plan").json()["revision"]
    idle = [read(service, "idle", on).json() for on in ("A", SPACED)]
    assert [(found["desiredReplicas"], found["reason"]) for found in idle] == [(0, "Idle")] * 2


@pytest.mark.parametrize(
    ("name", "on", "text"),
    [
        ("nobody", "A", "server 'nobody' does not exist"),
        (SLASHED, "Z", "accelerator 'Z' does not exist"),
        (SLASHED, "C", "cannot run on 'C'"),
    ],
)
def test_an_unknown_target_is_a_404_with_or_without_a_plan(
    service: TestClient, name: str, on: str, text: str
) -> None:
    for _ in range(2):
        answer = read(service, name, on)
        assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM)
        assert text in answer.json()["detail"]
        planned(service)


def test_without_a_plan_there_is_no_number(service: TestClient) -> None:
    for answer in (read(service, SLASHED, "A"), service.get("/v1/targets")):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "15")
        assert answer.headers["content-type"] == PROBLEM
        assert "no plan has been made yet" in answer.json()["detail"]
    planned(service)
    service.put("/v1/servers/new", json=server("new"))
    answer = read(service, "new", "A")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "15")
    assert "server 'new' is not in the last plan" in answer.json()["detail"]


def test_an_unserved_server_holds_its_replicas_with_a_reason(service: TestClient) -> None:
    planned(service)
    found = read(service, "lost", "A").json()
    assert (found["desiredReplicas"], found["held"], found["reason"]) == (2, True, "Unserved")
    assert "target" in found["detail"]
    assert read(service, "none", "A").json()["desiredReplicas"] == 0


def test_replicas_that_are_reported_are_what_is_there(service: TestClient) -> None:
    replicas = {"A": {"ready": 1, "pending": 2}, SPACED: {"ready": 1}}
    plan = planned(service, {SLASHED: {"replicas": replicas}})
    assert service.get(f"/v1/servers/{quote(SLASHED, safe='')}").json()["currentAlloc"]["numReplicas"] == 3
    assert next(item for item in plan["changes"] if item["server"] == SLASHED)["from"][0]["numReplicas"] == 3
    assert read(service, SLASHED, "A").json()["currentReplicas"] == 3
    assert read(service, SLASHED, SPACED).json()["currentReplicas"] == 1
    planned(service, {SLASHED: {"replicas": {}}})
    assert read(service, SLASHED, "A").json()["currentReplicas"] == 0
    wrong = service.post("/v1/loads", json={SLASHED: {"replicas": {"B": {"ready": 1}}}})
    assert wrong.status_code == 422
    assert "accelerator 'B' does not exist" in wrong.json()["detail"]


def test_all_targets_can_be_read_at_once(service: TestClient) -> None:
    planned(service)
    found = service.get("/v1/targets").json()["targets"]
    assert {(item["server"], item["accelerator"]) for item in found} == {
        (name, on) for name in (SLASHED, "lost", "none", "idle") for on in ("A", SPACED)
    }


def test_a_fleet_from_a_wire_request_has_targets(service: TestClient) -> None:
    assert service.post("/optimizeOne", json=source()).status_code == 200
    assert read(service, SLASHED, "A").status_code == 200
    assert read(service, "lost", "A").json()["desiredReplicas"] == 2


def test_a_plan_is_followed_for_the_promised_time_and_no_longer() -> None:
    with client(stateful=True, stale_after_s=1.0) as service:
        service.put("/v1/fleet", json=source())
        before = time.monotonic()
        planned(service)
        after = time.monotonic()

        def is_old() -> bool:
            asked = time.monotonic()
            status = read(service, SLASHED, "A").status_code
            shown = b"\ninferplan_desired_replicas{" in service.get("/metrics").content
            if time.monotonic() < before + 1:
                assert (status, shown) == (200, True)
            if asked > after + 1:
                assert (status, shown) == (503, False)
            return asked > after + 1

        until(is_old)
        answer = read(service, SLASHED, "A")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "15")
        assert "over the limit of 1 s" in answer.json()["detail"]
        text = service.get("/metrics").text
        assert "inferplan_plan_usable 0.0" in text
        assert "inferplan_desired_replicas{" not in text
        load = {SLASHED: {"arrivalRate": 60}}
        until(lambda: bool(planned(service, load)) and read(service, SLASHED, "A").status_code == 200)


@pytest.mark.slow
def test_a_number_is_read_while_every_solver_worker_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = {"a": threading.Event(), "b": threading.Event()}
    with in_a_thread(busy, stateful=True) as here:
        assert here.ask("PUT", "/v1/fleet", source()).status == 200
        assert here.ask("POST", "/v1/loads", {}).status == 200

        def no_solve(*_: object, **__: object) -> None:
            pytest.fail("a number is not worth a solve")

        monkeypatch.setattr("rest_server.v1.work.solve", no_solve)
        waiting = [here.connect(f"/wait/{name}") for name in busy]
        here.until(1, 1)
        assert here.ask("GET", f"/v1/targets/{quote(SLASHED, safe='')}/A").status == 200
        assert here.ask("GET", "/metrics").status == 200
        assert not any(event.is_set() for event in busy.values())
        for connection in waiting:
            connection.close()


# --- metrics ----------------------------------------------------------------------------------------------


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return the value of every sample by its name and the values of its labels, ordered by their names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_metrics_are_those_of_the_targets_and_the_plan(service: TestClient) -> None:
    before = samples(service.get("/metrics").text)
    assert before["inferplan_plan_usable",] == 0
    assert not [name for name, *_ in before if name.startswith("inferplan_desired")]
    began = time.monotonic()
    plan = planned(service, {SLASHED: {"replicas": {"A": {"ready": 1, "pending": 1}}}})
    found = samples(service.get("/metrics").text)
    targets = service.get("/v1/targets").json()["targets"]
    desired = {key[1:]: value for key, value in found.items() if key[0] == "inferplan_desired_replicas"}
    assert desired == {
        (item["accelerator"], "m", item["server"], CLASSES[item["server"]]): item["desiredReplicas"]
        for item in targets
    }
    assert found["inferplan_plan_cost_per_hour",] == plan["totalCostCentsPerH"]
    assert found["inferplan_unserved_requests_per_minute", "no_candidate", "lost"] == 60
    assert found["inferplan_unserved_servers",] == 2
    assert found["inferplan_solver_workers", "plans"] >= 1
    assert found["inferplan_requests_total", "POST", "/v1/loads", "200"] >= 1
    assert read(service, SLASHED, "A").status_code == 200
    found = samples(service.get("/metrics").text)
    assert found["inferplan_requests_total", "GET", "/v1/targets/{server}/{accelerator}", "200"] >= 1
    assert found["inferplan_solve_seconds_count", "/v1/loads"] >= 1
    assert 0 <= found["inferplan_plan_age_seconds",] < time.monotonic() - began
    assert found["inferplan_pending_replicas", "A", "m", SLASHED, "gold"] == 1
    assert found["inferplan_held_target", "A", "m", "Unserved", "lost", "hard"] == 1


@pytest.mark.slow
def test_other_names_are_given_only_where_they_are_asked_for(service: TestClient) -> None:
    planned(service)
    assert "wva_desired" not in service.get("/metrics").text
    with client(stateful=True, metric_aliases=("wva", "inferno")) as other:
        other.put("/v1/fleet", json=source())
        planned(other)
        found = samples(other.get("/metrics").text)
    wanted = read(service, SLASHED, "A").json()["desiredReplicas"]
    for family in ("wva", "inferno"):
        assert found[f"{family}_desired_replicas", "A", "serving", "llama 70b"] == wanted


def test_a_stateless_service_has_metrics_of_itself_alone() -> None:
    with client() as service:
        assert service.post("/v1/plan", json=source()).status_code == 200
        found = samples(service.get("/metrics").text)
    assert found["inferplan_requests_total", "POST", "/v1/plan", "200"] == 1
    assert not [name for name, *_ in found if "desired" in name or "revision" in name]


def test_metrics_need_a_key_as_every_reading_does(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("read reader\n")
    with client(stateful=True, api_key_files=(keys,)) as service:
        assert service.get("/metrics").status_code == 401
        assert service.get("/metrics", headers={"Authorization": "Bearer reader"}).status_code == 200
        assert service.get("/v1/targets/s/A", headers={"X-API-KEY": "reader"}).status_code == 404


def test_missing_reserves_are_counted_by_class(service: TestClient) -> None:
    found = source()
    for item in found["servers"]:
        item["spareReplicas"] = 20 if item["class"] == "gold" else 1
    assert service.put("/v1/fleet", json=found).status_code == 200
    plan = planned(service)
    lacking = [item["server"] for item in plan["reserves"] if not item["hasReserve"]]
    assert sorted(lacking) == ["lost", "none", SLASHED]
    metrics = samples(service.get("/metrics").text)
    assert metrics["inferplan_reserve_missing_servers", "gold"] == 1
    assert metrics["inferplan_reserve_missing_servers", "hard"] == 2
