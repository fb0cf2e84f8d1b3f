"""Units and estimates over HTTP: /v1 takes both, the reference's wire takes plain numbers only."""

import pytest
from api_clients import refused
from builders import Json, accelerator, document, server
from fastapi.testclient import TestClient

from optimizer import load_system, solve

STATEFUL = False


def small(cost: object = 250, rate: object = 60) -> Json:
    raw = document([server("s")], [accelerator("A")], {"A": 9})
    raw["accelerators"][0]["cost"] = cost
    raw["servers"][0]["currentAlloc"]["load"]["arrivalRate"] = rate
    return raw


def estimated(**settings: object) -> Json:
    raw = small("$2.50/h", "1/s")
    raw["accelerators"][0]["type"] = "H100"
    raw["count"] = [{"type": "H100", "count": 9}]
    for item in raw["models"]:
        for key in ("decodeParms", "prefillParms"):
            item.pop(key, None)
        item["perfParms"] = {"estimate": {"model": "llama-3.1-8b", **settings}}
    return raw


def test_v1_takes_units_and_answers_with_the_currency(service: TestClient) -> None:
    answer = service.post("/v1/plan", json=small("$2.50/h", "1/s"))
    assert answer.status_code == 200
    assert answer.json()["currency"] == "USD"
    assert answer.text == solve(load_system(small("$2.50/h"))).to_json()


def test_the_reference_s_wire_refuses_units(service: TestClient) -> None:
    for raw in (small("$2.50/h"), small(250, "1/s")):
        answer = service.post("/optimizeOne", json=raw)
        assert answer.status_code == 400
        assert "must be a number" in answer.text
    assert service.post("/optimizeOne", json=small()).status_code == 200


@pytest.mark.slow
def test_v1_plans_with_estimates_and_marks_them(service: TestClient) -> None:
    answer = service.post("/v1/plan", json=estimated(), params={"estimates": "middle"})
    assert answer.status_code == 200
    assert answer.text == solve(load_system(estimated()), estimates="middle").to_json()
    pools = [pool for pools in answer.json()["allocations"].values() for pool in pools]
    assert {pool["estimated"] for pool in pools} <= {"middle"}
    found = service.post("/v1/candidates", json=estimated()).json()
    assert {item["estimated"] for item in found["candidates"]} <= {"upper"}
    assert pools or found["rejections"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"model": "no-such-model"}, "perfParms.estimate: model: 'no-such-model' is not in the catalogue"),
        ({"model": "/etc/config.json"}, "is not in the catalogue"),
        ({"config": "/etc/hostname"}, "only documents in files can name a config.json"),
    ],
)
def test_over_http_there_are_names_of_the_catalogue_only(
    service: TestClient, settings: Json, problem: str
) -> None:
    refused(service.post("/v1/plan", json=estimated(**settings)), 422, problem)
