"""Ages of loads: what renews them, where they are shown, and what a stale one does."""

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from api_clients import client
from builders import Json, accelerator, document, server, service_class
from fastapi.testclient import TestClient

from rest_server import load_ages
from rest_server.state_file import open_state

LIMIT_S = 300.0


class Clock:
    """A clock that tests advance, for the ages of loads and plans."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def time(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "time", found.time)
    return found


def source() -> Json:
    servers = [server("a"), server("b"), server("c", sharedQueue="q"), server("d", sharedQueue="q")]
    return document(servers, [accelerator("H")], classes=[service_class("gold", itl=50.0)])


def ages(service: TestClient) -> dict[str, float]:
    found = service.get("/v1/servers").json()["loadSentAt"]
    return {name: time.time() - datetime.fromisoformat(at).timestamp() for name, at in found.items()}


@pytest.mark.slow
def test_only_a_rate_or_a_document_renews_a_load(clock: Clock) -> None:
    with client(stateful=True) as service:
        assert service.put("/v1/fleet", json=source()).is_success
        clock.now_s += 100
        assert ages(service) == {"a": 100, "b": 100, "q": 100}
        updates: list[tuple[Any, dict[str, float]]] = [
            ({}, {"a": 100, "b": 100, "q": 100}),
            ({"a": {"replicas": {}}}, {"a": 100, "b": 100, "q": 100}),
            ({"a": {"avgOutTokens": 64}}, {"a": 100, "b": 100, "q": 100}),
            ({"a": {"arrivalRate": 60}}, {"a": 0, "b": 100, "q": 100}),
            ({"a": {"arrivalRate": 0}, "c": {"arrivalRate": 1}}, {"a": 0, "b": 100, "q": 100}),
            ({"d": {"arrivalRate": 1}}, {"a": 0, "b": 100, "q": 0}),
        ]
        for body, after in updates:
            assert service.post("/v1/loads", json=body).is_success
            assert ages(service) == after
        clock.now_s += 10
        assert service.post("/v1/plan/apply").is_success
        assert service.put("/v1/capacity/H", json={"count": 9}).is_success
        assert ages(service) == {"a": 10, "b": 110, "q": 10}
        assert service.put("/v1/servers/b", json=server("b")).is_success
        assert ages(service) == {"a": 10, "b": 0, "q": 10}
        text = service.get("/metrics").text
        assert 'inferplan_load_age_seconds{server="a"} 10.0' in text
        found = {item["server"]: item["loadAgeSeconds"] for item in targets(service)["targets"]}
        assert found == {"a": 10, "b": 0, "q": 10}
        clock.now_s += 5
        assert service.post("/optimizeOne", json=source() | {"servers": [server("a")]}).is_success
        assert ages(service) == {"a": 0}


def targets(service: TestClient) -> Json:
    found: Json = service.get("/v1/targets").json()
    return found


@pytest.mark.slow
def test_a_server_whose_load_is_stale_has_no_target(clock: Clock) -> None:
    with client(stateful=True, stale_after_s=LIMIT_S) as service:
        assert service.put("/v1/fleet", json=source()).is_success
        assert service.post("/v1/loads", json={}).is_success
        assert "stale" not in targets(service)
        for _ in range(4):
            clock.now_s += 100
            assert service.post("/v1/loads", json={"a": {"arrivalRate": 60}}).is_success
        found = targets(service)
        assert {item["server"] for item in found["targets"]} == {"a"}
        assert found["stale"] == ["b", "q"]
        answer = service.get("/v1/targets/b/H")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "15")
        assert answer.json()["detail"] == (
            "the load of server 'b' is 400 s old, over the limit of 300 s; send its arrivalRate again"
        )
        text = service.get("/metrics").text
        assert 'inferplan_desired_replicas{accelerator="H",model="m",server="a"' in text
        assert 'inferplan_desired_replicas{accelerator="H",model="m",server="b"' not in text
        assert service.post("/v1/loads", json={"b": {"arrivalRate": 60}}).is_success
        assert service.get("/v1/targets/b/H").is_success


def test_ages_survive_a_restart(clock: Clock, tmp_path: Path) -> None:
    for passed_s, expected in ((0.0, 0.0), (50.0, 50.0), (25.0, 75.0)):
        clock.now_s += passed_s
        held = open_state(tmp_path / "state")
        if not passed_s:
            with client(stateful=True) as service:
                service.app.state.held = held  # type: ignore[attr-defined]
                assert service.put("/v1/fleet", json=source()).is_success
        found = held.snapshot().planned_loads_sent_at
        assert {name: load_ages.age_s(at_s) for name, at_s in found.items()} == dict.fromkeys("abq", expected)
        held.close()
