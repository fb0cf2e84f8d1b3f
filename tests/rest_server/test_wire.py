"""The reference's wire: recorded exchanges replayed, and what the recordings do not show."""

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from wire_client import ACCELERATORS, MODELS, differences, one_server, replay, system, wire_client

from optimizer import load_system, solve

DATA = Path(__file__).resolve().parent.parent / "data"


# --- recordings ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["stateless", "stateful"])
def test_a_recording_of_the_reference_is_answered_alike(mode: str, reference: Path) -> None:
    exchanges = json.loads((reference / "wire" / f"{mode}.json").read_text(encoding="utf-8"))
    assert replay(wire_client(stateful=mode == "stateful", unserved="omit"), exchanges) == []


@pytest.mark.slow
def test_recordings_differ_only_where_a_server_would_stop(reference: Path) -> None:
    for mode, wanted in (("stateless", []), ("stateful", ["68 POST /optimize.allocations"])):
        exchanges = json.loads((reference / "wire" / f"{mode}.json").read_text(encoding="utf-8"))
        found = replay(wire_client(stateful=mode == "stateful"), exchanges)
        assert [place.partition(": ")[0] for place in found] == wanted


def test_the_excerpt_of_a_recording_is_answered_alike() -> None:
    exchanges = json.loads((DATA / "wire_excerpt.json").read_text(encoding="utf-8"))["exchanges"]
    assert replay(wire_client(stateful=True), exchanges) == []


def test_the_comparison_of_answers_sees_what_differs() -> None:
    wanted = {"a": [1, {"name": "x", "b": 100.0}], "c": False, "d": None}
    assert differences({"a": [{"name": "x", "b": 100.5}, 1], "c": False, "d": None}, wanted) == []
    assert differences({"a": [{"name": "x", "b": 102.0}, 1], "c": False, "d": None}, wanted)
    assert differences({"a": [{"name": "x", "b": 100.0}, 1], "c": 0, "d": None}, wanted)
    assert differences({"a": [1], "c": False, "d": None}, wanted)
    assert differences({"a": [{"name": "x", "b": 100.0}, 1], "c": False, "d": []}, wanted)


# --- what is answered ----------------------------------------------------------------------------------


def test_one_system_is_planned_as_the_library_does_it(specs: Path) -> None:
    whole = load_system(specs / "small")
    body = whole.to_spec().model_dump(mode="json", by_alias=True)
    answer = wire_client(stateful=False).post("/optimizeOne", json=body)
    assert answer.status_code == 200
    assert answer.json() == solve(whole).reference_answer(whole)


@pytest.mark.slow
def test_without_a_word_on_the_solver_it_is_the_greedy_one(service: TestClient, specs: Path) -> None:
    whole = load_system(specs / "small").with_options(milp_solver=False, unlimited=False)
    body = whole.to_spec().model_dump(mode="json", by_alias=True)
    del body["optimizer"]["milpSolver"]
    answer = service.post("/optimizeOne", json=body)
    assert answer.json() == solve(whole).reference_answer(whole)
    again = service.post("/optimize", json={})
    assert again.json() == answer.json()


@pytest.mark.slow
def test_a_plan_of_the_state_takes_bare_or_wrapped_options(service: TestClient) -> None:
    few = [{"type": "A", "count": 0}]
    option = {"unlimited": True}
    for wrapped in (
        option,
        {"UNLIMITED": True},
        {"optimizer": option},
        {"optimizerData": {"optimizer": option}},
    ):
        service.post("/optimizeOne", json=system(one_server(), count=few, optimizer={}))
        assert service.post("/optimize", json={}).json() == {"allocations": {}}
        assert set(service.post("/optimize", json=wrapped).json()["allocations"]) == {"s"}


def test_whole_numbers_are_written_without_a_fraction(service: TestClient) -> None:
    answers = [service.post("/optimizeOne", json=system(one_server()))]
    answers += [service.get(path) for path in ("/getServers", "/getAccelerators", "/getModel/m")]
    for answer in answers:
        assert ".0," not in answer.text
        assert ".0}" not in answer.text


def test_fields_of_newer_members_are_shown_only_if_given(service: TestClient) -> None:
    law = {"alpha": 6.5, "beta": 0.02, "gamma": 0.0}
    model = {"name": "m", "acc": "A", "maxBatchSize": 8, "perfParms": law}
    service.post("/setModels", json={"models": [model]})
    service.post("/addServer", json=one_server(maxQueueSize=3))
    shown = service.get("/getModelAcceleratorPerf/m/A").json()
    assert shown["perfParms"] == law
    assert shown["decodeParms"] == {"alpha": 0, "beta": 0}
    assert shown["accCount"] == 0  # Go's zero for what was left out; it is planned with 1
    assert service.post("/setModels", json={"models": [shown]}).status_code == 200
    assert service.get("/getServer/s").json()["maxQueueSize"] == 3


def test_a_priority_out_of_range_is_echoed_but_kept_as_lowest(service: TestClient) -> None:
    classes = [{"name": "a"}, {"name": "b", "priority": 1000}, {"name": "c", "priority": -1}]
    answer = service.post("/setServiceClasses", json={"serviceClasses": classes}).json()["serviceClasses"]
    shown = [(item["priority"], item["modelTargets"]) for item in answer]
    assert shown == [(0, None), (1000, None), (-1, None)]
    kept = service.get("/getServiceClasses").json()["serviceClasses"]
    assert [(item["priority"], item["modelTargets"]) for item in kept] == [(100, [])] * 3


@pytest.mark.parametrize("priority", ["", "abc", "1.5", "1e3", "٣", "9" * 30])
def test_a_priority_that_is_no_whole_number_is_refused(service: TestClient, priority: str) -> None:
    answer = service.get(f"/addServiceClass/x/{priority}")
    assert answer.status_code == (400 if priority else 404)


# --- leniency ------------------------------------------------------------------------------------------


def test_unknown_keys_mean_nothing_and_are_named(service: TestClient) -> None:
    body = system(one_server(colour="red"), optimizer={"unlimited": True, "saturationPolicy": "Fair"})
    body["system"]["extra"] = body["more"] = 1
    answer = service.post("/optimizeOne", json=body)
    assert set(answer.json()["allocations"]) == {"s"}
    ignored = "system.extra, more, servers[0].colour, optimizer.saturationPolicy"
    assert answer.headers["X-Inferplan-Ignored"] == ignored
    assert "X-Inferplan-Ignored" not in service.post("/optimizeOne", json=system(one_server())).headers


@pytest.mark.parametrize("body", ["null", "{}", '{"system": null}', '{"system": {"serverData": null}}'])
def test_an_empty_system_has_an_empty_plan(body: str) -> None:
    answer = wire_client(stateful=False).post("/optimizeOne", content=body)
    assert (answer.status_code, answer.json()) == (200, {"allocations": {}})


def test_zeros_and_nulls_are_what_was_not_set(service: TestClient) -> None:
    spare = {"multiplicity": 0, "memSize": None, "type": ""}
    accelerators = [{**ACCELERATORS[0], **spare}]
    models = [{**MODELS[0], "accCount": 0}]
    answer = service.post(
        "/optimizeOne", json=system(one_server(), accelerators=accelerators, models=models, optimizer=None)
    )
    assert set(answer.json()["allocations"]) == {"s"}
    shown = service.get("/getAccelerator/A").json()
    assert (shown["type"], shown["multiplicity"]) == ("", 0)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{bad",
        "[]",
        "5",
        '{"servers": {}}',
        '{"servers": [null]}',
        '{"servers": [{"name": "s", "model": 5}]}',
        '{"servers": [{"name": "s", "model": "m", "keepAccelerator": "yes"}]}',
        '{"servers": [{"name": "s", "model": "m", "currentAlloc": {"load": {"arrivalRate": NaN}}}]}',
        '{"servers": [{"name": "s", "model": "m", "currentAlloc": {"load": {"avgOutTokens": 0.5}}}]}',
        '{"servers": [{"name": "s\\ud800", "model": "m"}]}',
        '{"servers": ' + "[" * 100_000,
        '{"servers": [{"name": "s", "model": "m", "minNumReplicas": ' + "9" * 5000 + "}]}",
    ],
)
def test_a_bad_body_changes_nothing_and_is_told_why(service: TestClient, body: str) -> None:
    service.post("/addServer", json=one_server())
    for route, content in (("/setServers", body), ("/optimizeOne", f'{{"serverData": {body}}}')):
        answer = service.post(route, content=content)
        if body in {"", "5"} or route == "/setServers":
            assert answer.status_code == 400
            assert set(answer.json()) == {"message"}
            assert answer.json()["message"]
    assert service.post("/optimize", json={"unlimited": "yes"}).status_code == 400
    assert service.get("/getServer/s").json()["model"] == "m"
