"""Formats of the family: profiles of its newest member, targets of its Kubernetes controller, paths, text."""

import codecs
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from wire_client import LOAD, MODELS, Json, one_server, system, wire_client

from optimizer import LatencyTargets, Replica, load_system, size_replicas
from optimizer.kinds.replicas import ReplicaSizing
from optimizer.timing import PerfParms

LAW = {"alpha": 6.7, "beta": 0.024, "gamma": 0.00005}
NEWEST = {"name": "m", "acc": "A", "accCount": 1, "maxBatchSize": 64, "perfParms": LAW}
"""A profile as release 0.8 of the family sends it: without ``atTokens``, ``maxBatchSize`` being a ceiling."""
HEAVY = LOAD | {"arrivalRate": 6000, "avgInTokens": 1024, "avgOutTokens": 256}
SHORT_OF_BEST = 0.01


def planned(*servers: Json, **sections: Any) -> Json:
    answer = wire_client(stateful=False).post("/optimizeOne", json=system(*servers, **sections))
    assert answer.status_code == 200, answer.text
    allocations: Json = answer.json()["allocations"]
    return allocations


# --- the newest format ---------------------------------------------------------------------------------


def rates_of_batches(batches: range) -> list[float]:
    """Return the largest rate of a replica of the heavy server at each batch limit; 0: none [requests/s]."""
    law = PerfParms.model_validate(LAW)
    replicas = [
        Replica(max_batch=batch, max_queue=10 * batch, in_tokens=1024, out_tokens=256, iteration=law)
        for batch in batches
    ]
    found = size_replicas(replicas, [LatencyTargets(ttft_ms=900, itl_ms=50)] * len(replicas))
    return [sizing.max_rate_rps if isinstance(sizing, ReplicaSizing) else 0.0 for sizing in found]


@pytest.mark.slow
@pytest.mark.parametrize("ceiling", [64, 0])
def test_without_atTokens_the_smallest_good_batch_is_found(ceiling: int) -> None:  # noqa: N802
    rates = rates_of_batches(range(1, (ceiling or 256) + 1))
    wanted = 1 + next(i for i, rate in enumerate(rates) if rate >= (1 - SHORT_OF_BEST) * max(rates))
    profile = {key: value for key, value in NEWEST.items() if ceiling or key != "maxBatchSize"}
    server = one_server(currentAlloc={"load": HEAVY})
    for models in ([profile], [{**profile, "atTokens": 0, "maxBatchSize": ceiling}]):
        assert planned(server, models=models)["s"]["maxBatch"] == wanted
    assert 1 < wanted < (ceiling or 256)


def test_a_given_atTokens_or_batch_is_used() -> None:  # noqa: N802
    server = one_server(currentAlloc={"load": HEAVY})
    scaled = {**NEWEST, "atTokens": 512}
    assert planned(server, models=[scaled])["s"]["maxBatch"] == 64 * 512 // 256
    assert planned(server | {"maxBatchSize": 64}, models=[NEWEST])["s"]["maxBatch"] == 64
    told = {"unlimited": True, "batchSizing": "profile"}
    assert planned(server, models=[NEWEST], optimizer=told)["s"]["maxBatch"] == 64
    linear = {key: value for key, value in MODELS[0].items() if key != "atTokens"}
    assert planned(server, models=[linear])["s"]["maxBatch"] == MODELS[0]["maxBatchSize"]


def test_newer_samples_without_atTokens_get_chosen_batches(reference: Path) -> None:  # noqa: N802
    body = json.loads((reference / "systems" / "small-perf.json").read_text(encoding="utf-8"))
    profiles = body["system"]["modelData"]["models"]
    for profile in profiles:
        profile.pop("atTokens", None)
        profile["maxBatchSize"] = 64
    options = body["system"]["optimizerData"]["optimizer"]
    client = wire_client(stateful=False)
    found = client.post("/optimizeOne", json=body).json()
    body["system"]["optimizerData"]["optimizer"] = options | {"batchSizing": "optimal"}
    assert client.post("/optimizeOne", json=body).json() == found
    assert len(load_system(body).servers) == len(found["allocations"])
    body["system"]["optimizerData"]["optimizer"] = options | {"batchSizing": "profile"}
    assert client.post("/optimizeOne", json=body).json() != found


def test_the_state_is_planned_as_a_system_in_a_body_is(service: TestClient) -> None:
    body = system(one_server(currentAlloc={"load": HEAVY}), models=[NEWEST])
    one = service.post("/optimizeOne", json=body).json()
    assert service.post("/optimize", json={"unlimited": True}).json() == one
    assert one["allocations"]["s"]["maxBatch"] < 64


# --- targets beside the name of their class -------------------------------------------------------------


def test_the_kubernetes_controller_adds_targets_one_by_one(service: TestClient) -> None:
    """As its reconciler does it: the class, then for each model a POST with name, priority and flat keys."""
    assert service.get("/addServiceClass/Premium/1").status_code == 200
    for model, itl, wait in (("granite-13b", 40, 500), ("llama0-70b", 80, 500)):
        body = {"name": "Premium", "priority": 1, "model": model, "slo-itl": itl, "slo-ttw": wait}
        answer = service.post("/addServiceClassModelTarget", json=body)
        assert (answer.status_code, "X-Inferplan-Ignored" in answer.headers) == (200, False)
    assert service.get("/getServiceClass/Premium").json()["modelTargets"] == [
        {"model": "granite-13b", "slo-itl": 40, "slo-ttft": 500, "slo-tps": 0},
        {"model": "llama0-70b", "slo-itl": 80, "slo-ttft": 500, "slo-tps": 0},
    ]
    wrong = {"name": "Premium", "priority": 2, "model": "m", "slo-itl": 1}
    assert service.post("/addServiceClassModelTarget", json=wrong).status_code == 400


FLAT = [
    {"name": "gold", "model": "m", "priority": 1, "slo-itl": 50, "SLO-TTFT": 900, "slo-ttw": 5},
    {"name": "free", "model": "m", "priority": 9, "slo-ttft": 2000},
    {"name": "gold", "Model": "n", "priority": 1, "slo-ttw": 700, "slo-tps": 30},
    {"name": "gold", "model": "m", "priority": 1, "slo-itl": 40, "slo-ttft": 800},
]
GOLD = [
    {"model": "m", "slo-itl": 40, "slo-ttft": 800, "slo-tps": 0},
    {"model": "n", "slo-itl": 0, "slo-ttft": 700, "slo-tps": 30},
]


def test_a_list_of_flat_classes_is_joined_by_name(service: TestClient) -> None:
    answer = service.post("/setServiceClasses", json={"serviceClasses": FLAT})
    assert answer.status_code == 200
    assert len(answer.json()["serviceClasses"]) == len(FLAT)
    assert service.get("/getServiceClass/gold").json() == {
        "name": "gold",
        "priority": 1,
        "modelTargets": GOLD,
    }
    assert service.get("/getServiceClass/free").json()["modelTargets"][0]["slo-ttft"] == 2000


def test_a_system_with_flat_classes_keeps_their_targets(service: TestClient) -> None:
    flat, nested = (system(one_server()) for _ in range(2))
    flat["system"]["serviceClassData"]["serviceClasses"] = FLAT
    gold = {"name": "gold", "priority": 1, "modelTargets": GOLD}
    nested["system"]["serviceClassData"]["serviceClasses"] = [gold]
    answer = service.post("/optimizeOne", json=flat)
    assert answer.json() == service.post("/optimizeOne", json=nested).json()
    assert set(answer.json()["allocations"]) == {"s"}
    assert "X-Inferplan-Ignored" not in answer.headers


def test_flat_targets_are_checked_and_stray_ones_named(service: TestClient) -> None:
    for bad in ({"slo-itl": -1}, {"slo-itl": "x"}, {"modelTargets": 5}):
        body = {"serviceClasses": [{"name": "gold", "model": "m"} | bad]}
        assert service.post("/setServiceClasses", json=body).status_code == 400
    stray = {"name": "gold", "model": "", "slo-itl": 5}
    answer = service.post("/setServiceClasses", json={"serviceClasses": [stray]})
    assert answer.status_code == 200
    assert answer.headers["X-Inferplan-Ignored"] == "serviceClasses[0].model, serviceClasses[0].slo-itl"


# --- trailing slashes ----------------------------------------------------------------------------------


def test_a_trailing_slash_is_answered_as_the_path_without_it(service: TestClient) -> None:
    body = system(one_server())
    for method, path, given in (
        ("POST", "/optimizeOne", body),
        ("GET", "/getServers", None),
        ("GET", "/getServer/s", None),
        ("POST", "/optimize", {"unlimited": True}),
        ("POST", "/queue/solve", {"RPS": 1, "maxBatchSize": 8, "avgOutputTokens": 64, "alpha": 5}),
        ("GET", "/healthz", None),
    ):
        bare, slashed = (
            service.request(method, path + end, json=given, follow_redirects=False) for end in ("", "/")
        )
        assert (slashed.status_code, slashed.text) == (200, bare.text), path
    assert service.get("/removeServer/s/").status_code == 200
    assert service.get("/getServer/s").status_code == 404


@pytest.mark.parametrize("path", ["/getServers//", "/nosuch/", "/getServer/", "/v1/plan/", "/getServer/s%2F"])
def test_other_slashes_lead_nowhere(service: TestClient, path: str) -> None:
    service.post("/addServer", json=one_server())
    assert service.get(path).status_code == 404


def test_a_trailing_slash_does_not_lead_past_the_keys(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("solve only-solves\n", encoding="utf-8")
    client = wire_client(stateful=True, api_key_files=(keys,))
    for path in ("/optimizeOne", "/optimizeOne/"):
        assert client.post(path, json=system(one_server())).status_code == 401
        answer = client.post(path, json=system(one_server()), headers={"X-API-KEY": "only-solves"})
        assert answer.status_code == 403


# --- text ----------------------------------------------------------------------------------------------

MARKS = {
    "utf-8-sig": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
}


@pytest.mark.parametrize("encoding", [*MARKS, "utf-16-le without mark", "utf-16-be without mark"])
def test_only_plain_utf_8_is_read(service: TestClient, encoding: str) -> None:
    codec = encoding.partition(" ")[0]
    text = json.dumps(system(one_server()))
    mark = MARKS[codec] if codec == encoding and codec != "utf-8-sig" else b""
    for path in ("/optimizeOne", "/setServers", "/queue/solve"):
        answer = service.post(path, content=mark + text.encode(codec))
        assert answer.status_code == 400, answer.text
        assert set(answer.json()) == {"message"}
        assert "JSON" in answer.json()["message"] or "UTF-8" in answer.json()["message"]
    answer = service.post("/v1/plan", content=mark + text.encode(codec))
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert "body" in answer.json()["detail"]
