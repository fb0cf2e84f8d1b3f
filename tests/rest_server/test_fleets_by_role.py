"""Prefill and decode pools of a fleet of the service: targets, reported replicas, changes."""

import pytest
from builders import Json
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from role_oracles import document

POOLS = ("s (prefill)", "s (decode)")


def planned(service: TestClient, rate: str, replicas: Json | None = None) -> Json:
    loads: Json = {"s": {"arrivalRate": rate}}
    for name, count in (replicas or {}).items():
        loads.setdefault(name, {})["replicas"] = {"H100": {"ready": count}}
    answer = service.post("/v1/loads", json=loads)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def targets(service: TestClient) -> Json:
    answer = service.get("/v1/targets")
    assert answer.status_code == 200, answer.text
    return {item["server"]: item["desiredReplicas"] for item in answer.json()["targets"]}


@pytest.fixture
def service(service: TestClient) -> TestClient:
    """A stateful service whose only server can have prefill and decode pools, without noise of its load."""
    source = document(itl_ms=14)
    source["optimizer"]["transitionPenalty"] = 0
    assert service.put("/v1/fleet", json=source).status_code == 200
    return service


def test_both_pools_have_targets_and_scale_with_the_load(service: TestClient) -> None:
    plan = planned(service, "20/s")
    sizes = {name: pools[0]["numReplicas"] for name, pools in plan["allocations"].items()}
    assert sizes.keys() == {*POOLS}
    assert targets(service) == {"s": 0, **sizes}
    more = planned(service, "40/s", sizes)["allocations"]
    wanted = {name: pools[0]["numReplicas"] for name, pools in more.items() if pools}
    assert targets(service) == {"s": 0, **wanted}
    assert all(wanted[name] > sizes[name] for name in POOLS)
    current = service.get("/v1/servers/s").json()["currentAlloc"]["pools"]
    assert {pool["role"]: pool["numReplicas"] for pool in current} == {
        "prefill": sizes["s (prefill)"], "decode": sizes["s (decode)"],
    }  # fmt: skip
    for family in text_string_to_metric_families(service.get("/metrics").text):
        if family.name == "inferplan_desired_replicas":
            assert {one.labels["server"]: one.value for one in family.samples} == {"s": 0, **wanted}


def test_pools_replace_replicas_only_when_they_are_ready(service: TestClient) -> None:
    """Replicas that do both serve until the pools of the new plan run; then they stop."""
    both_roles = document(itl_ms=14)["servers"][0]
    assert service.put("/v1/servers/s", json=both_roles | {"disaggregation": "never"}).status_code == 200
    (both,) = planned(service, "20/s")["allocations"]["s"]
    assert service.put("/v1/servers/s", json=both_roles).status_code == 200
    planned(service, "20/s", {"s": both["numReplicas"]})
    first = targets(service)
    assert first["s"] == both["numReplicas"]
    assert all(first[name] for name in POOLS), (
        service.get("/v1/targets").text + service.get("/v1/plan").text[-3500:]
    )
    planned(service, "20/s", {"s": both["numReplicas"], **{name: first[name] for name in POOLS}})
    assert targets(service)["s"] == 0


def test_an_applied_plan_runs_its_pools(service: TestClient) -> None:
    sizes = {n: pools[0]["numReplicas"] for n, pools in planned(service, "20/s")["allocations"].items()}
    applied = service.post("/v1/plan/apply").json()["servers"][0]["currentAlloc"]["pools"]
    assert {f"s ({pool['role']})": pool["numReplicas"] for pool in applied} == sizes


def test_a_pool_has_no_load_of_its_own(service: TestClient) -> None:
    answer = service.post("/v1/loads", json={"s (decode)": {"arrivalRate": "3/s"}})
    assert answer.status_code == 422
    assert "its load is a share of the load of 's'" in answer.text
