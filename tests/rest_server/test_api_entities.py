"""/v1 with a fleet: its entities, their revision, loads in and plans out."""

import copy
import json
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from api_clients import PROBLEM, refused
from builders import Json, accelerator, document, profile, running, server, service_class
from fastapi.testclient import TestClient

from optimizer import SolverError, load_system, solve
from optimizer.schema import (
    Accelerator,
    Capacity,
    ModelProfile,
    OptimizerOptions,
    Route,
    Server,
    ServiceClass,
)
from optimizer.stabilisation.stabilise import plan_next
from rest_server.v1 import control_loop
from rest_server.workers import RequestTimeoutError


class Kind(NamedTuple):
    """How one kind of entity is written and read."""

    listing: str
    section: str
    path: str
    body: Json
    change: Json
    model: Any


KINDS = (
    Kind("accelerators", "accelerators", "accelerators/A", accelerator("A"), {"cost": 3}, Accelerator),
    Kind("models", "models", "models/m/A", profile("m", "A"), {"accCount": 2}, ModelProfile),
    Kind(
        "service-classes", "serviceClasses", "service-classes/gold", service_class("gold"), {"priority": 7},
        ServiceClass,
    ),
    Kind("servers", "servers", "servers/s", server("s"), {"minNumReplicas": 2}, Server),
    Kind("capacity", "count", "capacity/A", {"type": "A", "count": 9}, {"count": 10}, Capacity),
    Kind(
        "routes", "routes", "routes/r",
        {
            "name": "r", "small": "s", "large": "t",
            "kinds": [{"share": 1.0, "inTokens": 8.0, "outTokens": 8.0}],
        },
        {"arrivalRate": 30.0}, Route,
    ),
)  # fmt: skip
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.listing)


def fleet(service: TestClient, source: Json | None = None) -> Json:
    """Write a whole system, which is revision 1."""
    source = source or document([server("s"), server("t")], [accelerator("A"), accelerator("B")], {"A": 9})
    assert service.put("/v1/fleet", json=source).status_code == 200
    return source


def written(service: TestClient, path: str, body: Json) -> str:
    answer = service.put(f"/v1/{path}", json=body)
    assert answer.status_code in {200, 201}, answer.text
    etag: str = answer.headers["etag"]
    return etag


def whole(model: Any, body: Json) -> Json:
    """Return a document with its defaults, as answers have it."""
    answer: Json = model.model_validate(body).model_dump(mode="json", by_alias=True)
    return answer


# --- entities ------------------------------------------------------------------------------------------


@pytest.mark.few(1)
@each_kind
def test_an_entity_is_added_read_replaced_listed_and_deleted(service: TestClient, kind: Kind) -> None:
    added = service.put(f"/v1/{kind.path}", json=kind.body)
    assert added.status_code == 201
    assert added.json() == whole(kind.model, kind.body)
    assert added.headers["etag"] == '"run-1"'
    replaced = service.put(f"/v1/{kind.path}", json=kind.body | kind.change)
    assert replaced.status_code == 200
    assert replaced.headers["etag"] == '"run-2"'
    wanted = whole(kind.model, kind.body | kind.change)
    found = service.get(f"/v1/{kind.path}")
    assert (found.status_code, found.json(), found.headers["etag"]) == (200, wanted, '"run-2"')
    listed = service.get(f"/v1/{kind.listing}")
    assert (listed.json()[kind.section], listed.headers["etag"]) == ([wanted], '"run-2"')
    gone = service.delete(f"/v1/{kind.path}")
    assert (gone.status_code, gone.content, gone.headers["etag"]) == (204, b"", '"run-3"')
    assert service.get(f"/v1/{kind.listing}").json() == {kind.section: []}


@pytest.mark.few(3)
@each_kind
def test_what_is_not_there_is_not_found(service: TestClient, kind: Kind) -> None:
    for method in ("GET", "DELETE"):
        refused(service.request(method, f"/v1/{kind.path}"), 404, "does not exist")
    assert service.get(f"/v1/{kind.listing}").headers["etag"] == '"run-0"'


@each_kind
def test_the_name_may_be_left_to_the_path_but_not_contradict_it(service: TestClient, kind: Kind) -> None:
    names = {"models": {"name", "acc"}, "capacity": {"type"}}.get(kind.listing, {"name"})
    nameless = {key: value for key, value in kind.body.items() if key not in names}
    assert service.put(f"/v1/{kind.path}", json=nameless).json() == whole(kind.model, kind.body)
    for name in names:
        refused(service.put(f"/v1/{kind.path}", json=kind.body | {name: "other"}), 422, f"{name}: must be")


@each_kind
def test_a_write_for_another_revision_is_refused_without_effect(service: TestClient, kind: Kind) -> None:
    old = written(service, kind.path, kind.body)
    new = written(service, kind.path, kind.body | kind.change)
    before = service.get(f"/v1/{kind.path}").content
    for tag in (old, "W/" + new, '"x"', "", '"' + "9" * 5000 + '"'):
        for method in ("PUT", "DELETE"):
            body = json.dumps(kind.body).encode() if method == "PUT" else None
            answer = service.request(method, f"/v1/{kind.path}", content=body, headers={"If-Match": tag})
            refused(answer, 412, "revision")
            assert answer.headers["etag"] == new
    assert service.get(f"/v1/{kind.path}").content == before
    tags = {"If-Match": f"{old}, {new}"}
    assert service.put(f"/v1/{kind.path}", json=kind.body, headers=tags).status_code == 200
    assert service.delete(f"/v1/{kind.path}", headers={"If-Match": "*"}).status_code == 204
    refused(service.put(f"/v1/{kind.path}", json=kind.body, headers={"If-Match": "*"}), 412, "nothing")
    assert service.get(f"/v1/{kind.listing}").json() == {kind.section: []}


@pytest.mark.few(2)
@each_kind
def test_a_document_that_is_wrong_changes_nothing(service: TestClient, kind: Kind) -> None:
    unknown = json.dumps(kind.body | {"colour": 1}).encode()
    for body, place in (
        (b"[]", "body"),
        (b"{", "body:1"),
        (unknown, "unknown key"),
        (b'{"name": 1, "type": 1, "acc": 1}', "must be text"),
    ):
        refused(service.put(f"/v1/{kind.path}", content=body), 422, place)
    assert service.get(f"/v1/{kind.listing}").headers["etag"] == '"run-0"'


@pytest.mark.parametrize(
    ("path", "text", "place"),
    [
        ("accelerators/A", '{"type": "A", "cost": NaN}', "cost: must be a finite number"),
        ("models/m/A", '{"perfParms": {"alpha": 1}, "decodeParms": {"alpha": 1}}', "keep one of the two"),
        ("service-classes/c", '{"modelTargets": [{"model": "m"}, {"model": "m"}]}', "modelTargets[1].model"),
        (
            "servers/s",
            '{"model": "m", "minNumReplicas": 3, "maxNumReplicas": 2}',
            "maxNumReplicas 2 is below",
        ),
        ("capacity/A", '{"count": 1e400}', "count: must be"),
        ("optimizer", '{"saturationPolicy": "Lottery"}', "saturationPolicy: must be"),
        ("optimizer", '{"gap": NaN}', "gap: must be"),
    ],
)
def test_a_value_that_is_wrong_is_named(service: TestClient, path: str, text: str, place: str) -> None:
    refused(service.put(f"/v1/{path}", content=text.encode()), 422, place)
    assert service.get("/v1/optimizer").headers["etag"] == '"run-0"'


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name",
    ["meta/llama", "a b", "ü/ö", "100%", "?", "#", "x" * 253, ".hidden", "a//b", "+", "x\n", "\nx", "x\ny"],
)
def test_names_may_hold_anything(service: TestClient, name: str) -> None:
    inside = quote(name, safe="")
    assert service.put(f"/v1/servers/{inside}", json={"model": "m"}).json()["name"] == name
    assert service.get(f"/v1/servers/{inside}").json()["name"] == name
    for path, model, acc in (
        (f"{inside}/A", name, "A"),
        (f"m/{inside}", "m", name),
        (f"{inside}/{inside}", name, name),
    ):
        found = service.put(f"/v1/models/{path}", json={}).json()
        assert (found["name"], found["acc"]) == (model, acc)
        assert service.get(f"/v1/models/{path}").json() == found
        assert service.delete(f"/v1/models/{path}").status_code == 204


@pytest.mark.parametrize("path", ["servers/", "servers/" + "x" * 254, "models/m", "models/m/", "models//A"])
def test_names_that_are_empty_or_too_long_are_refused(service: TestClient, path: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        answer = service.request(method, f"/v1/{path}", content=b'{"model": "m"}')
        assert answer.status_code in {404, 405, 422}
        assert answer.headers["content-type"] == PROBLEM


def test_the_options_are_replaced_and_reset(service: TestClient) -> None:
    default = OptimizerOptions().model_dump(mode="json", by_alias=True)
    assert service.get("/v1/optimizer").json() == default
    written(service, "optimizer", {"unlimited": True, "gap": 0.5})
    written(service, "optimizer", {"gap": 0.25})
    answer = service.get("/v1/optimizer")
    assert (answer.json(), answer.headers["etag"]) == (default | {"gap": 0.25}, '"run-2"')
    refused(service.put("/v1/optimizer", json={}, headers={"If-Match": '"run-1"'}), 412, "revision run-2")
    refused(service.delete("/v1/optimizer", headers={"If-Match": '"run-1"'}), 412, "revision run-2")
    assert service.delete("/v1/optimizer").status_code == 204
    assert service.get("/v1/optimizer").json() == default


def test_lists_keep_the_order_in_which_things_came(service: TestClient) -> None:
    for name in ("z", "a", "m"):
        written(service, f"servers/{name}", {"model": "m"})
    written(service, "servers/z", {"model": "n"})
    assert [item["name"] for item in service.get("/v1/servers").json()["servers"]] == ["z", "a", "m"]


@pytest.mark.parametrize("path", ["servers", "servers/s", "optimizer", "plan", "plan/apply", "loads"])
def test_another_method_is_refused_with_those_that_work(service: TestClient, path: str) -> None:
    answer = service.request("PATCH", f"/v1/{path}")
    refused(answer, 405, "")
    wanted = {"servers": "GET", "servers/s": "DELETE, GET, PUT", "optimizer": "DELETE, GET, PUT"}
    assert answer.headers["allow"] == wanted.get(path, "GET, POST" if path == "plan" else "POST")


# --- loads and plans -----------------------------------------------------------------------------------


def loaded(source: Json, loads: dict[str, Json]) -> Json:
    changed: Json = json.loads(json.dumps(source))
    for item in changed["servers"]:
        item["currentAlloc"]["load"] |= loads.get(item["name"], {})
    return changed


def test_a_snapshot_of_loads_is_stored_and_planned(service: TestClient) -> None:
    source = fleet(service)
    loads: dict[str, Json] = {
        "s": {"arrivalRate": 3000, "avgInTokens": 32, "avgOutTokens": 32},
        "t": {"ARRIVALRATE": 0.5},
    }
    answer = service.post("/v1/loads", json=loads)
    assert answer.status_code == 200
    wanted = loaded(source, {"s": loads["s"], "t": {"arrivalRate": 0.5}})
    expected = json.loads(solve(load_system(wanted)).to_json())
    assert answer.json() | {"warnings": []} == expected | {"warnings": []}
    stored = service.get("/v1/servers/s").json()["currentAlloc"]["load"]
    assert {key: stored[key] for key in loads["s"]} == loads["s"]
    assert answer.headers["etag"] == service.get("/v1/servers").headers["etag"]


def revision_of(answer: Any) -> int:
    return int(answer.headers["etag"].strip('"').removeprefix("run-"))


def test_loads_make_two_revisions_and_can_be_sent_again(service: TestClient) -> None:
    fleet(service)
    before, loads = revision_of(service.get("/v1/servers")), {"s": {"arrivalRate": 300}}
    first = service.post("/v1/loads", json=loads)
    assert revision_of(first) == before + 2
    changes = [item["cause"] for item in service.get("/v1/history").json()["events"]]
    assert changes[:2] == ["plan", "loads"]
    again = service.post("/v1/loads", json=loads)
    assert (again.text, revision_of(again)) == (first.text, before + 4)


@pytest.mark.slow
def test_loads_remain_if_planning_fails(service: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/rest.md and OpenAPI both say."""
    fleet(service)
    planned = service.post("/v1/loads", json={"s": {"arrivalRate": 90}})
    before = service.get("/v1/plan").json()
    for status, error in ((500, SolverError("none")), (504, RequestTimeoutError("late"))):

        def fails(*_: object, error: Exception = error) -> bytes:
            raise error

        monkeypatch.setattr(control_loop, "plan_fleet", fails)
        tag = service.get("/v1/servers").headers["etag"]
        loads = {"s": {"arrivalRate": 90 + status}}
        refused(service.post("/v1/loads", json=loads, headers={"If-Match": tag}), status)
        stored = service.get("/v1/servers/s").json()["currentAlloc"]["load"]
        assert stored["arrivalRate"] == 90 + status
        now = service.get("/v1/plan").json()
        assert {key: now[key] for key in before.keys() - {"ageSeconds"}} == {
            key: before[key] for key in before.keys() - {"ageSeconds"}
        }
        refused(service.post("/v1/loads", json=loads, headers={"If-Match": tag}), 412)
    assert revision_of(service.get("/v1/servers")) == revision_of(planned) + 2
    page = (Path(__file__).parents[2] / "docs" / "rest.md").read_text("utf-8")
    page = page[page.index("### POST /v1/loads") :]
    described = service.get("/openapi.json").json()["paths"]["/v1/loads"]["post"]["description"]
    for text in (page[: page.index("### GET")], described):
        words = " ".join(text.replace(" or 507", ", 507").split())
        assert "500, 503, 504, 507" in words
        assert "makes two revisions" in words
        assert "can be sent again" in words


def test_a_fleet_whose_last_server_leaves_gets_an_empty_plan(service: TestClient) -> None:
    fleet(service)
    for name in [item["name"] for item in service.get("/v1/servers").json()["servers"]]:
        assert service.delete(f"/v1/servers/{name}").status_code in {200, 204}
    answer = service.post("/v1/loads", json={})
    assert (answer.status_code, answer.json()["allocations"]) == (200, {})
    assert answer.json()["totalCostCentsPerH"] == 0
    assert service.get("/v1/plan").json()["allocations"] == {}


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"s": {"arrivalRate": 1}, "x": {"arrivalRate": 1}}', "x"),
        ('{"s": {"arrivalRate": 1}, "t": {"avgInTokens": -Infinity}}', "t.avgInTokens"),
        ('{"s": {"arrivalRate": 1}, "t": {"arrivalRate": "1"}}', "t.arrivalRate"),
        ('{"s": {"arrivalRate": 1}, "t": {"avgOutTokens": 0.5}}', "t.avgOutTokens"),
        ('{"s": {"arrivalRate": 1}, "t": {"colour": 1}}', "t.colour"),
        ('{"s": {"arrivalRate": 1}, "t": null}', "t"),
        ('{"s": {"arrivalRate": 1}, "s": {"arrivalRate": 2}}', "'s' occurs twice"),
        ("", "body"),
    ],
)
def test_a_snapshot_that_is_wrong_anywhere_changes_nothing(
    service: TestClient, text: str, place: str
) -> None:
    fleet(service)
    before = service.get("/v1/servers")
    answer = service.post("/v1/loads", content=text.encode())
    refused(answer, 422, place)
    if place != "body" and "twice" not in place:
        assert answer.json()["path"] == place
    after = service.get("/v1/servers")
    assert (after.content, after.headers["etag"]) == (before.content, before.headers["etag"])
    refused(service.get("/v1/plan"), 404, "no plan")


@pytest.mark.slow
@pytest.mark.parametrize("length", [{"avgOutTokens": 0}, {"avgOutTokens": 0.0, "avgInTokens": 9}])
def test_an_output_length_of_zero_leaves_the_last_one(service: TestClient, length: Json) -> None:
    fleet(service)
    before = service.get("/v1/servers/s").json()["currentAlloc"]["load"]
    loads = {"s": {"arrivalRate": 700} | length, "t": {"arrivalRate": 90}}
    answer = service.post("/v1/loads", json=loads)
    assert (answer.status_code, answer.headers["x-inferplan-missing"]) == (200, "s")
    stored = service.get("/v1/servers").json()["servers"]
    kept = {"arrivalRate": 700, "avgInTokens": length.get("avgInTokens", before["avgInTokens"])}
    assert [item["currentAlloc"]["load"] for item in stored] == [before | kept, before | {"arrivalRate": 90}]
    for name, rate in (("s", 700), ("t", 90)):
        assert sum(pool["arrivalRateRpm"] for pool in answer.json()["allocations"][name]) == rate
    # A null is not given, so the length stays as it is.
    answer = service.post("/v1/loads", json={"s": {"arrivalRate": 700, "avgOutTokens": None}})
    assert (answer.status_code, "x-inferplan-missing" in answer.headers) == (200, False)
    assert service.get("/v1/servers/s").json()["currentAlloc"]["load"] == before | kept


@pytest.mark.slow
def test_a_server_of_unknown_output_length_gets_a_replica(
    service: TestClient,
) -> None:
    source = fleet(service)
    del source["servers"][0]["currentAlloc"]["load"]["avgOutTokens"]
    place = "servers[0].currentAlloc.load.avgOutTokens: 0 or missing"
    refused(service.put("/v1/fleet", json=source), 422, place)
    refused(service.put("/v1/servers/s", json=source["servers"][0]), 422, "currentAlloc.load.avgOutTokens")
    source["servers"][0]["currentAlloc"]["load"]["arrivalRate"] = 0
    assert service.put("/v1/servers/s", json=source["servers"][0]).status_code == 200
    answer = service.post("/v1/loads", json={"s": {"arrivalRate": 700}})
    assert (answer.status_code, answer.headers["x-inferplan-missing"]) == (200, "s")
    assert service.get("/v1/servers/s").json()["currentAlloc"]["load"]["arrivalRate"] == 700
    # On the wire of the reference's family a server without an output length is idle.
    load = {"arrivalRate": 700, "avgInTokens": 16, "avgOutTokens": 0}
    wire = source["servers"][0] | {"name": "w s", "currentAlloc": {"load": load}}
    assert service.post("/addServer", json=wire).status_code in {200, 201}
    answer = service.post("/v1/loads", json={"t": {"arrivalRate": 90}})
    assert (answer.status_code, answer.headers["x-inferplan-missing"]) == (200, "s, w%20s")
    for name in ("s", "w s"):
        assert sum(pool["numReplicas"] for pool in answer.json()["allocations"][name]) == 1
    assert service.post("/v1/fleet/report?format=json").status_code == 200


def test_a_load_without_an_input_length_is_missing(service: TestClient) -> None:
    source = fleet(service)
    del source["servers"][0]["currentAlloc"]["load"]["avgInTokens"]
    refused(service.put("/v1/fleet", json=source), 422, "servers[0].currentAlloc.load.avgInTokens: missing")
    refused(service.put("/v1/servers/s", json=source["servers"][0]), 422, "currentAlloc.load.avgInTokens")
    source["servers"][0]["currentAlloc"]["load"]["arrivalRate"] = 0
    assert service.put("/v1/servers/s", json=source["servers"][0]).status_code == 200
    for load in ({"arrivalRate": 700}, {"arrivalRate": 700, "avgInTokens": None, "avgOutTokens": 64}):
        answer = service.post("/v1/loads", json={"s": load})
        assert (answer.status_code, answer.headers["x-inferplan-missing"]) == (200, "s")
        assert sum(pool["numReplicas"] for pool in answer.json()["allocations"]["s"]) == 1
    answer = service.post("/v1/loads", json={"s": {"arrivalRate": 700, "avgInTokens": 0}})
    assert (answer.status_code, "x-inferplan-missing" in answer.headers) == (200, False)
    assert (
        service.post("/v1/loads", json={"s": {"arrivalRate": 800}}).headers.get("x-inferplan-missing") is None
    )


def test_the_references_routes_read_an_absent_input_length_as_0(service: TestClient) -> None:
    source = document([server("s")], [accelerator("A")])
    stated, absent = source, copy.deepcopy(source)
    stated["servers"][0]["currentAlloc"]["load"]["avgInTokens"] = 0
    del absent["servers"][0]["currentAlloc"]["load"]["avgInTokens"]
    answers = [service.post("/optimizeOne", json=body) for body in (stated, absent)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()


def test_snapshot_errors_are_located_as_in_the_body(service: TestClient) -> None:
    names = ("Premium-llama: x", "a.b[0]", "t 1")
    service.put("/v1/fleet", json=document([server(name) for name in names], [accelerator("A")]))
    for name in names:
        wrong = service.post("/v1/loads", json={name: {"arrivalRate": -1}}).json()
        assert wrong["path"] == f"{name}.arrivalRate"
        assert wrong["detail"] == f"{name}.arrivalRate: must be at least 0, not -1"
        unknown = service.post("/v1/loads", json={name: {"arivalRate": 1}}).json()
        assert unknown["path"] == f"{name}.arivalRate"
        assert unknown["detail"].endswith("unknown key; did you mean 'arrivalRate'?")
        other = f"{name}{name}"
        for change in ({}, {"arrivalRate": -1}):  # a server that does not exist is the first mistake
            absent = service.post("/v1/loads", json={other: change}).json()
            assert (absent["path"], absent["status"]) == (other, 422)


def test_loads_of_a_fleet_that_is_no_system_change_nothing(service: TestClient) -> None:
    fleet(service)
    service.delete("/v1/service-classes/gold")
    before = service.get("/v1/servers").content
    refused(service.post("/v1/loads", json={"s": {"arrivalRate": 7}}), 422, "service class 'gold' does not")
    assert service.get("/v1/servers").content == before


def test_loads_for_another_revision_are_refused(service: TestClient) -> None:
    fleet(service)
    refused(service.post("/v1/loads", json={}, headers={"If-Match": '"run-0"'}), 412, "revision")
    tag = service.get("/v1/servers").headers["etag"]
    assert service.post("/v1/loads", json={}, headers={"If-Match": tag}).status_code == 200


def test_the_last_plan_is_kept_with_its_age_and_revision(service: TestClient) -> None:
    fleet(service)
    refused(service.get("/v1/plan"), 404, "no plan")
    before = time.time()
    made = service.post("/v1/loads", json={"s": {"arrivalRate": 90}})
    after = time.time()
    time.sleep(0.05)
    written(service, "capacity/B", {"count": 3})
    asked = time.time()
    found = service.get("/v1/plan")
    answered = time.time()
    plan = found.json()
    age_s = plan.pop("ageSeconds")
    assert asked - after - 0.001 <= age_s <= answered - before + 0.001  # in whole milliseconds
    assert f'"run-{plan.pop("revision")}"' == found.headers["etag"] == made.headers["etag"]
    assert abs(int(found.headers["age"]) - age_s) <= 1
    assert plan == made.json()


def test_planning_a_document_leaves_the_fleet_alone(service: TestClient) -> None:
    source = fleet(service)
    before = service.get("/v1/servers")
    assert service.post("/v1/plan", json=source).status_code == 200
    after = service.get("/v1/servers")
    assert (after.content, after.headers["etag"]) == (before.content, before.headers["etag"])
    refused(service.get("/v1/plan"), 404, "no plan")


@pytest.mark.slow
def test_a_plan_is_carried_out(service: TestClient) -> None:
    source = fleet(service)
    plan = solve(load_system(source))
    tag = service.post("/v1/loads", json={}).headers["etag"]
    answer = service.post("/v1/plan/apply", headers={"If-Match": tag})
    assert answer.status_code == 200
    applied = plan.applied_to(load_system(source)).servers
    for item in answer.json()["servers"]:
        assert item["currentAlloc"] == applied[item["name"]].current.model_dump(mode="json", by_alias=True)
    assert service.get("/v1/servers").json()["servers"] == answer.json()["servers"]
    assert service.get("/v1/servers").headers["etag"] == answer.headers["etag"]
    again = service.post("/v1/loads", json={}).json()
    assert again["changes"] == []
    assert again["allocations"] == json.loads(plan.to_json())["allocations"]


@pytest.mark.slow
def test_a_mixed_plan_is_carried_out(service: TestClient, specs: Path) -> None:
    source = load_system(specs / "small").with_options(heterogeneous=True).to_spec()
    fleet(service, json.loads(source.model_dump_json(by_alias=True)))
    plan = service.post("/v1/loads", json={}).json()
    assert any(len(pools) > 1 for pools in plan["allocations"].values())
    assert service.post("/v1/plan/apply").status_code == 200
    again = service.post("/v1/loads", json={}).json()
    assert again["changes"] == []
    assert again["allocations"] == plan["allocations"]


def test_reported_pools_of_a_mixed_fleet_all_run(service: TestClient) -> None:
    reported = {"A": {"ready": 2}, "B": {"ready": 1, "pending": 1}}
    for mixed in (False, True):
        one = document([server("s")], [accelerator("A"), accelerator("B")], heterogeneous=mixed)
        fleet(service, one)
        service.post("/v1/loads", json={"s": {"replicas": reported}})
        current = service.get("/v1/servers/s").json()["currentAlloc"]
        assert (current["accelerator"], current["numReplicas"]) == ("A", 2)
        pools = [(pool["accelerator"], pool["numReplicas"]) for pool in current.get("pools", ())]
        assert pools == ([("A", 2), ("B", 2)] if mixed else [])


def test_an_outdated_plan_is_applied_only_without_a_revision(service: TestClient) -> None:
    fleet(service)
    refused(service.post("/v1/plan/apply"), 404, "no plan")
    tag = service.post("/v1/loads", json={}).headers["etag"]
    written(service, "servers/new", server("new", current=running("B", 4)))
    service.delete("/v1/servers/t")
    service.delete("/v1/service-classes/gold")
    refused(service.post("/v1/plan/apply", headers={"If-Match": tag}), 412, "revision")
    answer = service.post("/v1/plan/apply").json()["servers"]
    assert [item["name"] for item in answer] == ["s", "new"]
    assert answer[0]["currentAlloc"]["numReplicas"] > 0
    assert answer[1]["currentAlloc"]["numReplicas"] == 4


def test_an_unserved_server_keeps_its_replicas_and_is_named(service: TestClient) -> None:
    short = server("s x", replicas=3, current=running("A", 1))
    fleet(service, document([short], [accelerator("A")], {"A": 2}))
    assert service.post("/v1/loads", json={}).json()["complete"] is False
    answer = service.post("/v1/plan/apply")
    current = answer.json()["servers"][0]["currentAlloc"]
    assert (current["accelerator"], current["numReplicas"]) == ("A", 1)
    assert current["load"]["arrivalRate"] == 60
    assert answer.headers["x-inferplan-unserved"] == "s%20x"
    assert service.get("/applyAllocation").status_code == 200
    assert service.get("/v1/servers/s%20x").json()["currentAlloc"]["numReplicas"] == 1


def test_a_plan_of_a_fleet_changed_meanwhile_keeps_its_revision(
    service: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet(service)
    original: Any = plan_next

    def slow(*arguments: Any, **options: Any) -> Any:
        written(service, "capacity/B", {"count": 5})  # somebody else, while this solve runs
        return original(*arguments, **options)

    monkeypatch.setattr("rest_server.v1.work.plan_next", slow)
    tag = service.post("/v1/loads", json={"s": {"arrivalRate": 70}}).headers["etag"]
    assert service.get("/v1/plan").headers["etag"] == tag
    assert service.get("/v1/servers").headers["etag"] != tag
    assert service.post("/v1/plan/apply", headers={"If-Match": tag}).status_code == 412
    assert service.get("/v1/servers/s").json()["desiredAlloc"]["accelerator"]
