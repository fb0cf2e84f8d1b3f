"""/v1 without a fleet: it answers what the library answers, and refuses what the library refuses."""

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_clients import PROBLEM, client, refused
from builders import Json, accelerator, document, server
from fastapi.testclient import TestClient
from hypothesis import given, settings
from strategies import documents

from optimizer import (
    Replica,
    SpecError,
    analyze_replicas,
    load_system,
    solve,
)
from optimizer.cli.main import main
from rest_server.v1 import examples as api_examples


@pytest.fixture(scope="module")
def service() -> Iterator[TestClient]:
    with client() as found:
        yield found


def small() -> Json:
    return document([server("s"), server("t")], [accelerator("A"), accelerator("B")], {"A": 9, "B": 9})


def planned(source: Json, **options: Any) -> str:
    return solve(load_system(source), **options).to_json()


# --- plan ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=25)
@given(source=documents)
def test_a_plan_is_byte_for_byte_the_librarys(service: TestClient, source: Json) -> None:
    answer = service.post("/v1/plan", json=source)
    assert answer.status_code == 200
    assert answer.text == planned(source)
    assert answer.headers["content-type"] == "application/json"


def test_a_body_may_have_any_content_type(service: TestClient) -> None:
    body = json.dumps(small()).encode()
    for headers in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "application/json; charset=utf-8"}):
        assert service.post("/v1/plan", content=body, headers=headers).text == planned(small())


@pytest.mark.slow
def test_a_policy_of_the_query_serves_in_part(service: TestClient) -> None:
    scarce = document([server("a", 5000.0)], [accelerator("A")], {"A": 3})
    answer = service.post("/v1/plan?saturation=RoundRobin", json=scarce)
    assert answer.text == planned(scarce, saturation_policy="RoundRobin")
    assert 0 < answer.json()["unserved"][0]["servedFraction"] < 1
    assert service.post("/v1/plan", json=scarce).json()["unserved"][0]["servedFraction"] == 0
    (option,) = service.post("/v1/report", json=scarce).json()["overload"]["options"]
    assert option["saturationPolicy"] == "PriorityExhaustive"


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("solver=magic", "solver"),
        ("unlimited=perhaps", "unlimited"),
        ("saturation=Fair", "saturation"),
        ("gap=2", "gap"),
        ("gap=nan", "gap"),
        ("time_limit=0", "time_limit"),
        ("colour=red", "colour"),
        ("scale=-1", "scale"),
    ],
)
def test_an_option_that_is_wrong_is_named(service: TestClient, query: str, name: str) -> None:
    refused(service.post(f"/v1/plan?{query}", json=small()), 422, name)


def test_a_query_is_refused_in_the_words_of_the_documents(service: TestClient) -> None:
    problem = service.post("/v1/plan?unlimited=perhaps", json=small()).json()
    assert problem["title"] == "The request is wrong"
    assert problem["detail"] == 'query.unlimited: must be true or false, not "perhaps"'
    assert service.post("/v1/plan").json()["detail"] == "body: missing; send a JSON object"


def test_no_solve_may_take_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    def record(system: Any, **options: Any) -> Any:
        limits.append(options["time_limit_s"])
        return solve(system, **options)

    monkeypatch.setattr("rest_server.v1.work.solve", record)
    with client(request_timeout_s=10) as service:
        for query in ("", "?time_limit=3", "?time_limit=3000"):
            assert service.post(f"/v1/plan{query}", json=small()).status_code == 200
    assert limits == [9.0, 3.0, 9.0]


def test_the_time_of_each_stage_stands_in_a_header(service: TestClient) -> None:
    timing = service.post("/v1/plan", json=small()).headers["server-timing"]
    for stage in ("candidates", "solve", "plan", "verify"):
        assert f"{stage};dur=" in timing


@pytest.mark.parametrize("source", [{"servers": []}, {"servers": None}, small() | {"servers": []}])
def test_an_empty_system_has_an_empty_plan_on_every_route(service: TestClient, source: Json) -> None:
    plan = service.post("/v1/plan", json=source)
    assert plan.status_code == 200
    assert (plan.json()["status"], plan.json()["totalCostCentsPerH"]) == ("optimal", 0)
    assert plan.json()["allocations"] == {}
    assert plan.json()["unserved"] == []
    for route, body in (("candidates", source), ("explain", source), ("report", {"system": source})):
        answer = service.post(f"/v1/{route}", json=body)
        assert answer.status_code == 200, (route, answer.text)


# --- candidates, analyze, size -------------------------------------------------------------------------


def replica(**changes: Any) -> Json:
    return api_examples.REPLICA | changes


def test_an_analysis_is_the_librarys(service: TestClient) -> None:
    answer = service.post("/v1/analyze", json={"replica": replica(), "rate": 8})
    assert answer.json() == analyze_replicas([Replica(**replica())], [8.0])[0].model_dump(by_alias=True)


def test_several_analyses_are_answered_in_their_order(service: TestClient) -> None:
    rates = [8.0, 0.5, 20.0]
    items = [{"replica": replica(maxBatch=i + 1), "rate": rate} for i, rate in enumerate(rates)]
    answer = service.post("/v1/analyze", json={"ITEMS": items}).json()
    alone = [service.post("/v1/analyze", json=item).json() for item in items]
    assert [item["offeredRate"] for item in answer["items"]] == rates
    assert answer["items"] == [pytest.approx(item, rel=1e-9) for item in alone]


def test_unreachable_targets_are_refused_alone_but_listed(service: TestClient) -> None:
    item = {"replica": replica(), "targets": {"itl": 1}}
    refused(service.post("/v1/size", json=item), 422, "the best ITL at batch 1 is")
    answers = service.post("/v1/size", json={"items": [item, {"replica": replica()}]}).json()["items"]
    assert answers[0].keys() == {"message"}
    assert answers[1]["maxRate"] > 0


ROWS: list[Json] = [
    {"RPS": 2, "maxBatchSize": 8, "batchParms": {"base": 20, "slope": 2}, "latency": [{"ms": 400}]},
    {"RPS": 2, "maxBatchSize": 64, "avgInputTokens": 128, "avgOutputTokens": 256}
    | {"alpha": 6, "beta": 0.02, "gamma": 0.0005, "targetTTFT": 500, "targetITL": 24},
    {"classes": [{"RPS": 2, "priority": 2}, {"RPS": 1, "priority": 1}], "maxBatchSize": 8, "targetTTFT": 900}
    | {"avgInputTokens": 0, "avgOutputTokens": 2, "decodeParms": {"alpha": 2000, "beta": 5}},
    {
        "shared": [
            {"RPS": rate, "maxBatchSize": 4, "batchParms": {"base": 20}, "latency": [{"ms": 400}]}
            for rate in (2, 9)
        ]
    },
]


@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["analyze", "size"])
def test_rows_of_any_kind_get_the_answers_of_the_command(
    service: TestClient, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    assert main([command, "--batch", str(path)]) == 0
    expected = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert service.post(f"/v1/{command}", json={"items": ROWS}).json()["items"] == expected
    assert [service.post(f"/v1/{command}", json=row).json() for row in ROWS] == expected


@pytest.mark.parametrize(
    ("row", "path"),
    [
        (ROWS[0] | {"maxBatchSize": 100_000}, "maxBatchSize"),
        (ROWS[0] | {"batchParms": {"base": -1}}, "batchParms.base"),
    ],
)
def test_a_wrong_row_is_named(service: TestClient, row: Json, path: str) -> None:
    for body, place in ((row, path), ({"items": [ROWS[0], row]}, f"items[1].{path}")):
        answer = service.post("/v1/analyze", json=body)
        assert (answer.status_code, answer.json()["path"]) == (422, place)


def test_an_empty_list_gets_an_empty_answer(service: TestClient) -> None:
    for path in ("analyze", "size"):
        assert service.post(f"/v1/{path}", json={"items": []}).json() == {"items": []}


def test_many_large_replicas_are_sized_in_parts(service: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.kinds.replicas.MAX_BATCHES_AT_ONCE", 10)
    items = [{"replica": replica(maxBatch=batch), "rate": 1} for batch in (4, 6, 9, 2, 30, 1)]
    parts = service.post("/v1/analyze", json={"items": items}).json()["items"]
    monkeypatch.undo()
    assert parts == service.post("/v1/analyze", json={"items": items}).json()["items"]


NO_WORK: Json = {"decodeParms": {}, "prefillParms": {}}


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("analyze", {"replica": replica()}, "rate: missing"),
        ("analyze", {"rate": 1}, "replica: missing"),
        ("analyze", {"replica": replica(), "rate": 0}, "rate: must be more than 0, not 0"),
        ("analyze", {"replica": replica(maxBatch=0), "rate": 8}, "replica.maxBatch: must be at least 1"),
        (
            "analyze",
            {"replica": replica(maxBatch=9_999), "rate": 8},
            "replica.maxBatch: must be at most 8,192",
        ),
        ("analyze", {"replica": replica(perfParms={"alpha": 1}), "rate": 8}, "replica: give either"),
        ("analyze", {"items": {}}, "items: must be a list"),
        ("analyze", {"items": [{"replica": replica(), "rate": -1}]}, "items[0].rate: must be more than 0"),
        (
            "analyze",
            {"items": [{"replica": replica(), "rate": 1}, {"replica": replica(**NO_WORK), "rate": 8}]},
            "items[1].replica: the service time of a request is zero",
        ),
        ("size", {"replica": replica(), "targets": {"itl": -1}}, "targets.itl: must be at least 0"),
        ("size", {"items": [{"replica": replica(maxBatch=10_000)}]}, "items[0].replica.maxBatch: must be at"),
        ("size", {"items": [{"replica": replica()}] * 1001}, "items"),
        ("size", {}, "replica: missing"),
    ],
)
def test_a_replica_that_is_wrong_is_named(service: TestClient, path: str, body: Json, place: str) -> None:
    refused(service.post(f"/v1/{path}", json=body), 422, place)


# --- bad input; all faults of documents are in tests/spec ----------------------------------------------


def wrong(change: Callable[[Json], object]) -> Json:
    source = small()
    change(source)
    return source


@pytest.mark.parametrize("path", ["plan", "candidates"])
@pytest.mark.parametrize(
    ("source", "place"),
    [
        (wrong(lambda d: d["servers"][1].update(modle="m")), "servers[1].modle"),
        (wrong(lambda d: d["servers"][1].update(model="n")), "servers[1].model"),
        ({}, "servers"),
        (wrong(lambda d: d["servers"][0].update({"k" * 100_000: 1})), "servers[0].k"),
        (wrong(lambda d: d["servers"][0].update(model="zz\nyy")), "servers[0].model"),
        (wrong(lambda d: d["servers"][0].update(maxNumReplicas=10**30)), "servers[0].maxNumReplicas"),
    ],
)
def test_a_wrong_document_is_refused_in_the_words_of_the_library(
    service: TestClient, path: str, source: Json, place: str
) -> None:
    problem = refused(service.post(f"/v1/{path}", json=source), 422, place)
    with pytest.raises(SpecError) as error:
        load_system(source)
    assert problem["detail"] in str(error.value)


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e400", "9" * 4000])
@pytest.mark.parametrize("path", ["plan", "candidates"])
def test_numbers_that_are_not_finite(service: TestClient, path: str, value: str) -> None:
    text = json.dumps(wrong(lambda d: d["count"][0].update(count="HERE"))).replace('"HERE"', value)
    refused(service.post(f"/v1/{path}", content=text.encode()), 422, "count[0].count")


@pytest.mark.few(22)
@pytest.mark.parametrize("path", ["plan", "candidates", "analyze", "size"])
@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"", "body"),
        (b"   ", "body"),
        (b'{"servers": []} {}', "body:1:"),
        (b"servers: []\n", "body:1:1"),
        (b"[]", "body"),
        (b"null", "body"),
        (b"7", "body"),
        (b'{"servers": [{"name": "s", "name": "t"}]}', "name"),
        (b"\xff\xfe{\x00}\x00", "body"),
        (b'{"servers": "\xe9"}', "body"),
        (random.Random(1).randbytes(100_000), "body"),
        (b"\x1f\x8b\x08\x00", "body"),
        (b"[" * 100_000, "body"),
        (b'{"a":' * 100_000, "body"),
        (b'{"system": {"system": {"system": {"system": {"system": {}}}}}}', ""),
        (b'{"count": ' + b"9" * 5000 + b"}", "body"),
        (b'{"\\ud800": 1}', ""),
        (b'{"servers": [{"name": "\\ud800", "model": "m"}]}', ""),
        (b'{"items": "\\ud800", "\\udfff": {}}', ""),
    ],
)
def test_a_body_that_is_no_document(service: TestClient, path: str, body: bytes, place: str) -> None:
    refused(service.post(f"/v1/{path}", content=body), 422, place)


# --- OpenAPI -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def operations() -> list[tuple[str, str, Json]]:
    with client(stateful=True) as found:
        paths = found.get("/openapi.json").json()["paths"]
    return [
        (path, method, operation)
        for path, item in paths.items()
        if path.startswith("/v1/")
        for method, operation in item.items()
    ]


def test_broken_json_gets_the_documented_answer_on_every_route(
    operations: list[tuple[str, str, Json]],
) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "rest.md").read_text(encoding="utf-8")
    (documented,) = re.findall(r"^\| (\d+) \| the body is not JSON", page, re.MULTILINE)
    with client(stateful=True) as found:
        for path, method, operation in operations:
            if "requestBody" in operation:
                answer = found.request(method, path.replace("{", "").replace("}", ""), content=b"{")
                assert str(answer.status_code) == documented, (method, path)
                assert "not JSON" in operation["responses"][documented]["description"]
                assert answer.json()["path"] == "body"


@pytest.mark.slow
def test_errors_have_one_schema_with_a_name(operations: list[tuple[str, str, Json]]) -> None:
    """Generators name a type after each schema in place, and stop at the second of a name."""
    named = {"$ref": "#/components/schemas/Problem"}
    for path, method, operation in operations:
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert response["content"][PROBLEM]["schema"] == named, (method, path, status)
    with client() as service:
        components = service.get("/openapi.json").json()["components"]["schemas"]
    assert components["Problem"]["required"] == ["title", "status"]
    unlimited = {"type": "string", "enum": ["unlimited"]}  # a constant without a type has no name either
    assert unlimited in components["Capacity"]["properties"]["count"]["anyOf"]


def test_every_operation_documents_its_refusals(operations: list[tuple[str, str, Json]]) -> None:
    assert len(operations) == 5 + 7 + 5 * 4 + 3 + 3 + 17
    for path, method, operation in operations:
        expected = {"401", "403", "413", "421"}
        if "requestBody" in operation:
            expected |= {"408", "422", "503"}
        if "if-match" in {item["name"] for item in operation.get("parameters", [])}:
            expected |= {"412", "503", "507"}
        if "{" in path and method != "put":
            expected |= {"404", "422"}
        assert expected <= operation["responses"].keys(), (method, path)
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert list(response["content"]) == [PROBLEM], (method, path, status)


WITHOUT_A_BODY = {"/v1/plan/apply"} | {
    f"/v1/fleet/{study}" for study in ("explain", "simulate", "report", "figure", "sweep", "horizon")
}
"""Requests about the fleet that is held."""


def test_every_body_has_examples_and_every_operation_a_summary(
    operations: list[tuple[str, str, Json]],
) -> None:
    for path, method, operation in operations:
        assert operation["summary"]
        if method in {"post", "put"} and path not in WITHOUT_A_BODY:
            content = operation["requestBody"]["content"]["application/json"]
            assert content["examples"], path
            assert content["schema"], path


def test_operations_have_names_of_their_own(operations: list[tuple[str, str, Json]]) -> None:
    names = [operation["operationId"] for _, _, operation in operations]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch("[a-z]+(_[a-z]+)*", name)] == []
    assert [name for name in names if re.search("_v1_|_(get|post|put|delete)$", name)] == []
    assert {"plan_system", "plan_loads", "explain_fleet", "list_service_classes", "read_plan"} <= set(names)


@pytest.mark.slow
def test_a_stateless_service_has_no_fleet(service: TestClient) -> None:
    paths = service.get("/openapi.json").json()["paths"]
    own = {path for path in paths if path.startswith("/v1/")}
    planning = {"plan", "candidates", "analyze", "size", "memory"}
    studies = {"compare", "explain", "report", "figure", "simulate", "sweep", "horizon"}
    assert own == {f"/v1/{name}" for name in planning | studies}
    for path in ("/v1/servers", "/v1/optimizer", "/v1/nothing"):
        assert service.get(path).status_code == 404
    assert service.post("/v1/loads", json={}).status_code == 404


@pytest.mark.slow
def test_every_route_refuses_an_unknown_query_parameter(operations: list[tuple[str, str, Json]]) -> None:
    assert len(operations) > 40
    with client(stateful=True) as found:
        for path, method, _ in operations:
            where = path.replace("{", "").replace("}", "")
            refused(found.request(method, f"{where}?colour=red", json={}), 422, "colour")
