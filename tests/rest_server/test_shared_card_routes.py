"""Shared cards over HTTP: plans of documents, and the target of each kind of shared card."""

from pathlib import Path

import pytest
import yaml
from builders import Json
from fastapi.testclient import TestClient

SAMPLE = Path(__file__).resolve().parents[2] / "specs" / "shared-cards.yaml"


def source() -> Json:
    """Return the sample with two servers in shares, which need no model of turns."""
    found: Json = yaml.safe_load(SAMPLE.read_text(encoding="utf-8"))
    found["servers"] = [one for one in found["servers"] if one["name"] in {"detect", "embed"}]
    return found


@pytest.fixture
def service(service: TestClient) -> TestClient:
    """A stateful service with that fleet."""
    assert service.put("/v1/fleet", json=source()).status_code == 200
    return service


def test_each_kind_of_shared_card_has_one_target(service: TestClient) -> None:
    unplanned = service.get("/v1/targets/shared-detect-embed/T4")
    assert unplanned.status_code == 503
    plan = service.post("/v1/loads", json={}).json()
    cards = {use["name"]: use["numCards"] for use in plan["sharedCards"]}
    listed = service.get("/v1/targets").json()["targets"]
    found = {item["server"]: item["desiredReplicas"] for item in listed}
    assert found == {"detect": 0, "embed": 0, **cards}
    for name, count in cards.items():
        assert service.get(f"/v1/targets/{name}/T4").json()["desiredReplicas"] == count
    assert service.get("/v1/targets/shared-embed-detect/T4").json()["desiredReplicas"] == 0
    assert service.get("/v1/targets/shared-embed/L40S").status_code == 404
    assert service.get("/v1/targets/others/T4").status_code == 404


def test_metrics_have_the_targets_of_shared_cards(service: TestClient) -> None:
    """A card has no model and no class of its own."""
    plan = service.post("/v1/loads", json={}).json()
    answer = service.get("/metrics")
    assert answer.status_code == 200
    for use in plan["sharedCards"]:
        labels = f'accelerator="T4",model="",server="{use["name"]}",service_class=""'
        assert f"inferplan_desired_replicas{{{labels}}} {use['numCards']}.0" in answer.text


@pytest.mark.parametrize(("option", "value"), [("milpSolver", False), ("saturationPolicy", "RoundRobin")])
def test_options_that_cannot_share_cards_are_422(service: TestClient, option: str, value: object) -> None:
    answer = service.post("/v1/plan", json=source() | {"optimizer": {option: value}})
    assert answer.status_code == 422
    assert "remove it, or sharedCard" in answer.json()["detail"]
