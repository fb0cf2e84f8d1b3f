"""The schema: keys in any case, null, both laws, and the range of every kind of value."""

from typing import Any

import pytest
from builders import Json, accelerator, document, refusal, server
from pydantic import ValidationError

from optimizer import SystemSpec, load_system
from optimizer.documents import MAX_COUNT
from optimizer.kinds.laws import laws_known
from optimizer.schema import Load, ModelProfile, OptimizerOptions, Server, ServiceClass
from optimizer.schema.files import spec_from_value
from optimizer.schema.messages import path_text, validated


def refused(raw: Json) -> str:
    return refusal(lambda: spec_from_value(raw))


def spelled(value: Any, spelling: Any) -> Any:
    """Return plain values with every key spelled anew."""
    if isinstance(value, dict):
        return {spelling(key): spelled(item, spelling) for key, item in value.items()}
    return [spelled(item, spelling) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("spelling", [str.lower, str.upper, str.title, str.swapcase])
def test_keys_match_in_any_case(spelling: Any) -> None:
    source = document(
        [server("s", accelerators=["A"], maxQueueSize=3, keepAccelerator=False)], [accelerator("A")], {"A": 9}
    )
    assert load_system(spelled(source, spelling)) == load_system(source)


def test_python_names_are_understood_as_well() -> None:
    assert Load.model_validate({"arrival_rate_rpm": 3.0}) == Load.model_validate({"arrivalRate": 3.0})


def test_null_means_absent_everywhere() -> None:
    given = {"name": "s", "model": "m", "class": None, "currentAlloc": None, "accelerators": None}
    bare = {"name": "s", "model": "m"}
    assert Server.model_validate(given) == Server.model_validate(bare)
    assert Server.model_validate(given).model_fields_set == Server.model_validate(bare).model_fields_set
    assert refused({"servers": [bare | {"model": None}]}) == "servers[0].model: missing; this key is required"


def test_absent_values_take_the_defaults_of_the_reference() -> None:
    found = Server.model_validate({"name": "s", "model": "m"})
    assert (found.service_class, found.keep_accelerator, found.min_num_replicas) == ("Free", False, 0)
    assert found.max_queue_size is None
    assert Server.model_validate({"name": "s", "model": "m", "maxQueueSize": 0}).max_queue_size == 0
    assert ServiceClass.model_validate({"name": "c"}).priority == 100
    assert ModelProfile.model_validate({"name": "m", "acc": "A"}).acc_count == 1
    assert ModelProfile.model_validate({"name": "m", "acc": "A"}).max_num_tokens == 8192
    options = OptimizerOptions()
    assert (options.unlimited, options.milp_solver, options.saturation_policy) == (False, True, "None")
    assert (options.transition_penalty, options.gap) == (0.1, None)


# --- the two laws --------------------------------------------------------------------------------------

LINEAR = {"decodeParms": {"alpha": 1.0, "beta": 2.0}, "prefillParms": {"gamma": 3.0, "delta": 4.0}}
ITERATION = {"perfParms": {"alpha": 1.0, "beta": 2.0, "gamma": 3.0}}


@pytest.mark.parametrize(
    ("given", "name", "parms"),
    [
        (LINEAR, "linear", ((1.0, 2.0), (3.0, 4.0), None)),
        (ITERATION, "iteration", (None, None, (1.0, 2.0, 3.0))),
        (
            LINEAR | {"perfParms": {"alpha": 0, "beta": 0, "gamma": 0}},
            "linear",
            ((1.0, 2.0), (3.0, 4.0), None),
        ),
    ],
)
def test_both_laws_are_read(given: Json, name: str, parms: tuple[Any, ...]) -> None:
    found = ModelProfile.model_validate({"name": "m", "acc": "A"} | given)
    assert [law.name for law in laws_known(found)] == [name]
    decode, prefill, law = found.decode, found.prefill, found.iteration if name == "iteration" else None
    assert (
        decode and (decode.base_ms, decode.per_request_ms),
        prefill and (prefill.base_ms, prefill.per_token_ms),
        law and (law.base_ms, law.compute_per_token_ms, law.kv_read_per_token_ms),
    ) == parms


def test_both_laws_at_once_are_refused_with_the_path() -> None:
    assert refused({"models": [{"name": "m", "acc": "A"} | LINEAR | ITERATION]}).startswith(
        "models[0]: both decodeParms/prefillParms and perfParms are given"
    )


# --- ranges and types ----------------------------------------------------------------------------------


def at(path: str, value: object) -> Json:
    """Return a sound document with one value changed; the path is ``section.key`` or ``section.key.key``."""
    source = document([server("s")], [accelerator("A")], {"A": 9})
    source["serviceClasses"][0]["modelTargets"][0] |= {"slo-itl": 100}
    section, *keys, last = path.split(".")
    place: Any = source[section] if section == "optimizer" else source[section][0]
    for key in keys:
        place = place[key][0] if isinstance(place[key], list) else place[key]
    place[last] = value
    return source


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("accelerators.cost", "5", 'accelerators[0].cost: must be a number, not "5"'),
        ("accelerators.cost", True, "accelerators[0].cost: must be a number, not true"),
        ("accelerators.cost", -0.5, "accelerators[0].cost: must be at least 0, not -0.5"),
        ("accelerators.cost", float("nan"), "accelerators[0].cost: must be a finite number, not NaN"),
        ("accelerators.cost", float("inf"), "accelerators[0].cost: must be a finite number, not Infinity"),
        ("accelerators.name", "", "accelerators[0].name: must not be empty"),
        ("accelerators.name", 5, "accelerators[0].name: must be text (in YAML put it in quotes), not 5"),
        (
            "accelerators.name",
            "x" * 254,
            f'accelerators[0].name: must have at most 253 characters, not "{"x" * 56}...',
        ),
        ("models.shares", "x", 'models[0].shares: must be a list, not "x"'),
        ("accelerators.multiplicity", 0, "accelerators[0].multiplicity: must be at least 1, not 0"),
        (
            "accelerators.power",
            [],
            (
                "accelerators[0].power: must be an object with keys, not a list; its keys are idle, full, "
                "midPower, midUtil"
            ),
        ),
        ("models.accCount", 1.5, "models[0].accCount: must be an integer, not 1.5"),
        ("models.maxBatchSize", -1, "models[0].maxBatchSize: must be at least 0, not -1"),
        ("models.decodeParms.alpha", "fast", 'models[0].decodeParms.alpha: must be a number, not "fast"'),
        (
            "models.queueModel",
            "mmk",
            "models[0].queueModel: must be 'reference' or 'continuous', not \"mmk\"",
        ),
        ("serviceClasses.priority", 0, "serviceClasses[0].priority: must be at least 1, not 0"),
        ("serviceClasses.priority", 101, "serviceClasses[0].priority: must be at most 100, not 101"),
        ("serviceClasses.modelTargets", {}, "serviceClasses[0].modelTargets: must be a list, not an object"),
        (
            "serviceClasses.modelTargets.slo-itl",
            -1,
            "serviceClasses[0].modelTargets[0].slo-itl: must be at least 0, not -1",
        ),
        ("servers.keepAccelerator", "yes", 'servers[0].keepAccelerator: must be true or false, not "yes"'),
        ("servers.keepAccelerator", 1, "servers[0].keepAccelerator: must be true or false, not 1"),
        ("servers.maxNumReplicas", 0, "servers[0].maxNumReplicas: must be at least 1, not 0"),
        ("servers.minNumReplicas", True, "servers[0].minNumReplicas: must be an integer, not true"),
        (
            "servers.currentAlloc.load.arrivalRate",
            -1,
            "servers[0].currentAlloc.load.arrivalRate: must be at least 0, not -1",
        ),
        ("count.count", -1, "count[0].count: must be at least 0, not -1"),
        ("count.count", 1e300, "count[0].count: must be at most 1,000,000,000, not 1e+300"),
        ("count.count", float("inf"), "count[0].count: must be an integer, not Infinity"),
        ("optimizer.gap", 1.1, "optimizer.gap: must be at most 1, not 1.1"),
        ("optimizer.maxLoss", 1.5, "optimizer.maxLoss: must be at most 1, not 1.5"),
        ("optimizer.maxLoss", 0, "optimizer.maxLoss: must be more than 0, not 0"),
        ("optimizer.timeLimit", 0, "optimizer.timeLimit: must be more than 0, not 0"),
        (
            "optimizer.batchSizing",
            "big",
            "optimizer.batchSizing: must be 'profile' or 'optimal', not \"big\"",
        ),
    ],
)
def test_values_out_of_range_state_path_value_and_limit(path: str, value: object, message: str) -> None:
    assert refused(at(path, value)) == message


def test_a_whole_number_may_be_written_with_a_point() -> None:
    assert load_system(at("count.count", 1024.0)).capacity["A"] == 1024
    assert isinstance(load_system(at("count.count", 1024.0)).capacity["A"], int)
    assert load_system(at("serviceClasses.priority", 2.0)).service_classes["gold"].priority == 2


def test_the_largest_values_allowed_are_accepted() -> None:
    assert load_system(at("count.count", MAX_COUNT)).capacity["A"] == MAX_COUNT
    assert load_system(at("accelerators.cost", 1e15)).accelerators["A"].cost_cents_per_h == 1e15


def test_a_message_stays_short_however_long_the_offender() -> None:
    for raw in (
        {"servers": "x" * 100_000},
        {"servers": [{"name": "s", "model": "m", "k" * 100_000: 1}]},
        {"k" * 100_000: 1},
        {"servers": [{"name": "s", "model": "m", "minNumReplicas": 10**4000}]},
        {"optimizer": {"saturationPolicy": "x" * 100_000}},
    ):
        assert len(refused(raw)) < 400


def test_more_replicas_at_least_than_at_most_are_refused() -> None:
    raw = {"servers": [{"name": "s", "model": "m", "minNumReplicas": 3, "maxNumReplicas": 2}]}
    assert refused(raw).startswith("servers[0]: maxNumReplicas 2 is below minNumReplicas 3")


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ("", "None"),
        ("none", "None"),
        ("roundrobin", "RoundRobin"),
        ("PRIORITYEXHAUSTIVE", "PriorityExhaustive"),
        ("PriorityRoundRobin", "PriorityRoundRobin"),
    ],
)
def test_saturation_policies_match_in_any_case(given: str, policy: str) -> None:
    assert OptimizerOptions.model_validate({"saturationPolicy": given}).saturation_policy == policy


@pytest.mark.parametrize(
    ("given", "read"), [(5e-324, 0.0), (9e-13, 0.0), (1e-12, 1e-12), ("1e-9/h", 1e-9 / 60)]
)
def test_tiny_decayed_rates_are_read_as_zero(given: object, read: float) -> None:
    load = Load.model_validate({"arrivalRate": given})
    assert load.arrival_rate_rpm == pytest.approx(read, rel=1e-12, abs=0)


def test_documents_are_immutable() -> None:
    load = Load.model_validate({"arrivalRate": 3})
    with pytest.raises(ValidationError):
        load.arrival_rate_rpm = 4.0  # type: ignore[misc]


def test_every_field_of_every_document_says_what_it_is() -> None:
    schema = SystemSpec.model_json_schema(by_alias=True)
    for name, model in [("SystemSpec", schema), *schema["$defs"].items()]:
        for key, value in model["properties"].items():
            shared = schema["$defs"].get(value.get("$ref", "").rpartition("/")[2], {})
            assert value.get("description") or shared.get("description"), f"{name}.{key} is not described"


def test_a_location_is_shown_as_a_path() -> None:
    assert path_text(("servers", 3, "currentAlloc", "load")) == "servers[3].currentAlloc.load"
    assert path_text(()) == ""


def test_a_valid_document_passes_validation_unchanged() -> None:
    assert validated(Load, {"arrivalRate": 3}) == Load(arrival_rate_rpm=3.0)
