"""Reading entities as the reference's Go does it, and how answers are written.

What is expected follows from the rules of Go's ``encoding/json``: keys match in any case, unknown ones are
passed over, and a field that is absent has its zero value.
"""

import json
from typing import Any

import pytest
from builders import Json
from fastapi.testclient import TestClient
from wire_client import LOAD, one_server

from optimizer import SpecError
from optimizer.schema import Accelerator, Capacity, ModelProfile, Server, ServiceClass
from rest_server.compat.answers import json_response, notice_headers
from rest_server.compat.lenient import read_entity
from rest_server.compat.serializers import plain_json


def read(model: Any, raw: object, path: str = "") -> tuple[Any, list[str]]:
    ignored: list[str] = []
    return read_entity(model, raw, path, ignored), ignored


def refusal(model: Any, raw: object, path: str = "") -> str:
    with pytest.raises(SpecError) as caught:
        read_entity(model, raw, path, [])
    return str(caught.value)


# --- what is repaired ------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelled", ["type", "TYPE"])
@pytest.mark.parametrize("unset", [{}, {"type": ""}, {"type": None}])
def test_an_accelerator_without_a_type_is_its_own_type(spelled: str, unset: Json) -> None:
    raw = {"name": "L4", "cost": 6} | dict.fromkeys((spelled,) if unset else (), unset.get("type"))
    item, ignored = read(Accelerator, raw)
    assert (item.type, ignored) == ("L4", [])
    assert "type" not in item.model_dump(by_alias=True, exclude_unset=True)


def test_a_given_type_stays_when_another_field_is_repaired() -> None:
    item, ignored = read(Accelerator, {"Name": "4xA100", "Type": "A100", "colour": "red"})
    assert (item.name, item.type, ignored) == ("4xA100", "A100", ["colour"])
    assert item.model_dump(by_alias=True, exclude_unset=True) == {"name": "4xA100", "type": "A100"}


@pytest.mark.parametrize("raw", [{"type": "T4"}, {"Type": "T4"}, {"type": "T4", "count": None}])
def test_units_that_are_not_given_are_none(raw: Json) -> None:
    assert read(Capacity, raw)[0] == Capacity(type="T4", count=0)


def test_of_two_key_spellings_the_last_counts_even_if_zero() -> None:
    assert read(Capacity, {"type": "T4", "COUNT": 3, "Count": 4})[0].count == 4
    assert read(ServiceClass, {"name": "gold", "Priority": 5, "priority": 0})[0].priority == 100
    assert read(ServiceClass, {"name": "gold", "Priority": 0, "priority": 5})[0].priority == 5


@pytest.mark.parametrize(("given", "kept"), [(0, 100), (-1, 100), (101, 100), (1, 1), (57, 57), (100, 100)])
def test_only_a_priority_out_of_range_becomes_the_lowest(given: int, kept: int) -> None:
    item, ignored = read(ServiceClass, {"name": "gold", "priority": given, "colour": "red"})
    assert (item.priority, ignored) == (kept, ["colour"])


@pytest.mark.parametrize(
    ("model", "raw", "path"),
    [
        (ServiceClass, {"name": "gold", "priority": False}, "priority"),
        (ModelProfile, {"name": "m", "acc": "A", "accCount": False}, "accCount"),
        (Server, one_server(keepAccelerator=0), "keepAccelerator"),
    ],
)
def test_a_truth_value_is_no_zero_and_a_zero_is_no_truth_value(model: Any, raw: Json, path: str) -> None:
    assert refusal(model, raw).startswith(f"{path}: ")


@pytest.mark.parametrize("policy", ["none", "PriorityRoundRobin", "ROUNDROBIN", "priorityexhaustive"])
def test_saturation_policies_are_known_in_any_case(service: TestClient, policy: str) -> None:
    answer = service.post("/optimize", json={"unlimited": True, "saturationPolicy": policy, "colour": 1})
    assert answer.headers["X-Inferplan-Ignored"] == "colour"


# --- where it is wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load", "place"),
    [
        ({"arrivalRate": "many"}, "currentAlloc.load.arrivalRate: must be a number"),
        (LOAD | {"avgOutTokens": 0.5}, "currentAlloc.load.avgOutTokens: must be 0 (idle) or at least 1"),
    ],
)
def test_an_error_within_an_entity_is_named_with_its_full_path(load: Json, place: str) -> None:
    raw = one_server(currentAlloc={"load": load})
    assert refusal(Server, raw).startswith(place)
    assert refusal(Server, raw, "servers[3]").startswith(f"servers[3].{place}")


def test_an_entity_that_is_none_is_named_by_its_place_alone() -> None:
    assert refusal(Server, 5, "servers[3]") == "servers[3]: must be an object with keys, not 5"


def test_unknown_keys_are_named_with_their_places_at_any_depth() -> None:
    raw = {"name": "gold", "x": 1, "modelTargets": [{"model": "m"}, {"model": "n", "y": 2}]}
    places = ["serviceClasses[1].x", "serviceClasses[1].modelTargets[1].y"]
    assert read(ServiceClass, raw, "serviceClasses[1]")[1] == places


# --- targets ---------------------------------------------------------------------------------------------


def target(model: str, itl: int, ttft: int) -> Json:
    return {"model": model, "slo-itl": itl, "slo-ttft": ttft, "slo-tps": 0}


def test_added_targets_replace_only_those_of_their_models(service: TestClient) -> None:
    """The reference keeps targets in a map by model, into which those of the body are written."""
    before = [target("m", 50, 900), target("n", 60, 800)]
    gold: Json = {"name": "gold", "priority": 1}
    service.post("/setServiceClasses", json={"serviceClasses": [gold | {"modelTargets": before}]})
    added = [target("n", 20, 300), target("o", 30, 400)]
    answer = service.post("/addServiceClassModelTargets", json=gold | {"modelTargets": added}).json()
    wanted = {"m": before[0], "n": added[0], "o": added[1]}
    for shown in (answer, service.get("/getServiceClass/gold").json()):
        assert {item["model"]: item for item in shown["modelTargets"]} == wanted
        assert len(shown["modelTargets"]) == 3
    for model, item in wanted.items():
        assert service.get(f"/getServiceClassModelTarget/gold/{model}").json() == item


def test_of_two_targets_of_one_model_in_a_body_the_last_counts() -> None:
    item, _ = read(ServiceClass, {"name": "gold", "modelTargets": [target("m", 1, 2), target("m", 3, 4)]})
    assert [(each.model, each.itl_ms, each.ttft_ms) for each in item.model_targets] == [("m", 3, 4)]


# --- how answers are written -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.0, "3"),
        (-0.5, "-0.5"),
        (2.9999999999999996, "2.9999999999999996"),
        (1e15, "1000000000000000"),
        (2.0**53 - 1, "9007199254740991"),
        (2.0**53, "9007199254740992.0"),
        (1e300, "1e+300"),
        (0.1 + 0.2, "0.30000000000000004"),
        (True, "true"),
    ],
)
def test_only_integers_exact_as_floats_lose_their_fraction(value: float, text: str) -> None:
    """From 2**53 on, neighbouring integers share a float, so nothing says that it was one."""
    assert json.dumps(plain_json({"x": [value]})) == f'{{"x": [{text}]}}'


@pytest.mark.parametrize("count", [1, 19, 20, 21, 300])
def test_a_header_names_twenty_paths_and_counts_the_rest(count: int) -> None:
    named = notice_headers([f"key{i}" for i in range(count)])["X-Inferplan-Ignored"]
    listed, _, more = named.partition(" and ")
    assert listed.split(", ") == [f"key{i}" for i in range(min(count, 20))]
    assert more == (f"{count - 20} more" if count > 20 else "")


@pytest.mark.parametrize(
    ("path", "shown"),
    [("é\n€~", r"\xe9\n\u20ac~"), *(("x" * length, "x" * min(length, 100)) for length in (99, 100, 101))],
)
def test_a_header_escapes_and_cuts_what_headers_cannot_hold(path: str, shown: str) -> None:
    assert notice_headers([path])["X-Inferplan-Ignored"] == shown
    assert notice_headers([]) == {}


def test_half_a_surrogate_pair_is_written_as_its_escape() -> None:
    assert json.loads(bytes(json_response({"x": "a\ud800é"}).body)) == {"x": "a\ud800é"}


def test_a_null_leaves_what_another_spelling_of_the_key_has_said() -> None:
    """As Go reads it: null does nothing to a number, a text or an object, and empties a list."""
    found, ignored = read(Accelerator, {"name": "A", "Cost": 5, "cost": None, "COLOUR": 1})
    assert (found.cost_cents_per_h, ignored) == (5, ["COLOUR"])
    assert read(Accelerator, {"name": "A", "Cost": 5, "cost": 0})[0].cost_cents_per_h == 0
    raw = {"Name": "c", "name": None, "ModelTargets": [target("m", 5, 0)], "modelTargets": None}
    assert read(ServiceClass, raw)[0].model_targets == ()
    flat = {"name": "c", "NAME": None, "Model": "m", "model": None, "slo-itl": 5, "SLO-ITL": None}
    (found_target,) = read(ServiceClass, flat)[0].model_targets
    assert (found_target.model, found_target.itl_ms) == ("m", 5)


@pytest.mark.parametrize(
    ("given", "queue_model"),
    [
        ({"decodeParms": {"alpha": 7}}, "reference"),
        ({"perfParms": {"alpha": 7}}, "reference"),
        ({"batchParms": {"base": 7}}, "bulk"),
    ],
)
def test_only_a_latency_model_of_the_reference_changes_its_queue(given: Json, queue_model: str) -> None:
    profile, _ = read(ModelProfile, {"name": "m", "acc": "A"} | given)
    assert profile.queue_model == queue_model
