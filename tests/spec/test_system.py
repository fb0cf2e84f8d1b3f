"""The system: cross-checks name the offender's path, and nothing can be changed afterwards."""

import random
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
from builders import GONE, Json, accelerator, document, refusal, running, server, service_class, shuffled

from optimizer import SpecError, load_plan, load_system, solve
from optimizer.render.manifests import workload_pairs
from optimizer.spec.writing import write_document
from optimizer.stabilisation.decisions import Observation
from optimizer.stabilisation.rules import Rules
from optimizer.stabilisation.stabilise import stabilise


def refused(source: Json | Path) -> str:
    return refusal(lambda: load_system(source))


def sound() -> Json:
    return document(
        [server("s"), server("t")],
        [accelerator("A"), accelerator("B")],
        {"A": 9, "B": 9},
        classes=[service_class("gold", itl=100), service_class("free", 2)],
    )


# --- names that occur twice ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("accelerators", "'A'"),
        ("models", "'m' on 'A'"),
        ("serviceClasses", "'gold'"),
        ("servers", "'s'"),
        ("count", "'A'"),
    ],
)
def test_a_name_that_occurs_twice_is_refused_with_both_places(section: str, name: str) -> None:
    source = sound()
    source[section].append(source[section][0])
    assert refused(source) == f"{section}[2]: {name} occurs twice; it is also at {section}[0]"


def test_duplicates_across_files_name_both_files(tmp_path: Path) -> None:
    write_document(sound(), tmp_path / "a.yaml")
    write_document({"servers": [server("u"), server("t")]}, tmp_path / "b.json")
    assert refused(tmp_path) == (
        f"{tmp_path}/b.json:16:5: servers[1]: 't' occurs twice; "
        f"it is also at {tmp_path}/a.yaml:51:3: servers[1]"
    )


def test_names_that_differ_in_case_are_two_names() -> None:
    source = sound()
    source["servers"].append(server("S"))
    assert set(load_system(source).servers) == {"s", "t", "S"}


def test_a_target_that_occurs_twice_in_a_class_is_refused() -> None:
    source = sound()
    source["serviceClasses"][1]["modelTargets"] *= 2
    assert refused(source) == "serviceClasses[1].modelTargets[1].model: 'm' occurs twice in class 'free'"


def test_two_optimizer_sections_in_a_directory_are_refused(tmp_path: Path) -> None:
    write_document(sound(), tmp_path / "a.yaml")
    write_document({"optimizer": {}}, tmp_path / "b.yaml")
    assert refused(tmp_path) == (
        f"{tmp_path}/b.yaml:1:1: optimizer: the section is also in {tmp_path}/a.yaml; keep one"
    )


# --- names that refer to nothing -----------------------------------------------------------------------


def changed(section: str, index: int, **more: Any) -> Json:
    source = sound()
    source[section][index] |= more
    return source


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            changed("servers", 1, model="x9"),
            "servers[1].model: model 'x9' does not exist; add it, or correct 'model'",
        ),
        (
            changed("servers", 0, **{"class": "golden"}),
            "servers[0].class: service class 'golden' does not exist; did you mean 'gold'?",
        ),
        (
            changed("models", 1, acc="Q"),
            "models[1].acc: accelerator 'Q' does not exist; add it, or correct 'acc'",
        ),
        (
            changed("servers", 1, accelerators=["A", "Q"]),
            (
                "servers[1].accelerators[1]: accelerator 'Q' does not exist; "
                "add it, or correct 'accelerators[1]'"
            ),
        ),
        (
            changed("servers", 0, keepAccelerator=True, currentAlloc=running(GONE, 2, 5.0)),
            (
                f"servers[0].currentAlloc.accelerator: accelerator '{GONE}' does not exist; "
                "add it, or correct 'accelerator'"
            ),
        ),
        (
            changed("servers", 0, currentAlloc=running(GONE, 2)),
            (
                f"servers[0].currentAlloc.accelerator: accelerator '{GONE}' does not exist; "
                "add it, or correct 'accelerator'"
            ),
        ),
    ],
)
def test_a_name_that_refers_to_nothing_is_refused_with_its_path(source: Json, message: str) -> None:
    assert refused(source) == message


def test_undefined_names_state_file_and_index(tmp_path: Path) -> None:
    write_document(sound(), tmp_path / "a.yaml")
    write_document({"servers": [server("u", model="llama")]}, tmp_path / "b.yaml")
    assert refused(tmp_path).startswith(
        f"{tmp_path}/b.yaml:4:3: servers[0].model: model 'llama' does not exist"
    )


def test_a_missing_default_class_is_called_default() -> None:
    source = sound()
    del source["servers"][0]["class"]
    assert refused(source).startswith("servers[0].class: service class 'Free' (the default) does not exist")


def test_a_removed_current_accelerator_needs_a_cost() -> None:
    found = load_system(changed("servers", 0, currentAlloc=running(GONE, 2, 5.0)))
    assert found.servers["s"].current.accelerator == GONE


def test_a_class_may_have_targets_for_models_without_profiles() -> None:
    source = sound()
    source["serviceClasses"][0]["modelTargets"].append({"model": "planned"})
    assert ("gold", "planned") in load_system(source).targets


# --- what the queue model cannot do --------------------------------------------------------------------


def test_percentiles_need_a_queue_model_that_supports_them() -> None:
    source = sound()
    source["serviceClasses"][0]["modelTargets"][0]["percentile"] = 95
    assert refused(source) == (
        "serviceClasses[0].modelTargets[0].percentile: 95 is a percentile, but the queue model 'reference' "
        "of 'm' on 'A' computes means only; remove it, or give perfParms (queueModel 'continuous') instead "
        "of decodeParms/prefillParms there"
    )


@pytest.mark.parametrize("load", [{}, {"inTokensCV": 2}, {"prefixTokens": 8, "prefixHitRate": 0.5}])
def test_estimates_have_the_limits_of_their_queue_model(load: Json) -> None:
    source = sound()
    source["models"][0] = {"name": "m", "acc": "A", "perfParms": "estimate", "queueModel": "reference"}
    source["servers"][0]["currentAlloc"]["load"] |= load
    if not load:
        source["serviceClasses"][0]["modelTargets"][0]["percentile"] = 95
    assert "the queue model 'reference' of 'm' on 'A'" in refused(source)
    assert "set queueModel to 'continuous'" in refused(source)


@pytest.mark.parametrize("field", ["arrivalCV", "inTokensCV", "outTokensCV"])
def test_a_coefficient_of_variation_other_than_one_is_refused(field: str) -> None:
    source = sound()
    source["servers"][1]["currentAlloc"]["load"][field] = 2
    assert refused(source).startswith(f"servers[1].currentAlloc.load.{field}: 2 is not 1")
    source["servers"][1]["currentAlloc"]["load"][field] = 1
    assert load_system(source)


def test_answers_of_less_than_one_token_are_refused() -> None:
    source = sound()
    source["servers"][0]["currentAlloc"]["load"]["avgOutTokens"] = 0.999
    assert refused(source).startswith(
        "servers[0].currentAlloc.load.avgOutTokens: must be 0 (idle) or at least"
    )


@pytest.mark.parametrize("source", [{}, {"system": {}}, {"system": {"serverData": None}}])
def test_a_document_without_any_section_is_refused(source: Json) -> None:
    assert refused(source) == "expected a document with sections such as 'servers', but found none"


@pytest.mark.parametrize(
    "source", [{"servers": []}, {"servers": None}, {"count": []}, sound() | {"servers": []}]
)
def test_a_system_without_servers_is_a_system(source: Json) -> None:
    found = load_system(source)
    assert not found.servers
    assert load_system(found.to_spec().model_dump(mode="json", by_alias=True)) == found


# --- the value -----------------------------------------------------------------------------------------


def test_systems_are_sorted_by_name_in_any_input_order() -> None:
    first = load_system(sound())
    for seed in range(5):
        other = load_system(shuffled(sound(), random.Random(seed)))
        assert other == first
        assert list(other.servers) == ["s", "t"]
        assert list(other.profiles) == [("m", "A"), ("m", "B")]
        assert list(other.targets) == [("free", "m"), ("gold", "m")]


@pytest.mark.parametrize(
    "change",
    [
        lambda system: setattr(system, "options", None),
        lambda system: system.servers.update({}),
        lambda system: system.servers.__setitem__("s", None),
        lambda system: system.capacity.pop("A"),
        lambda system: system.targets.clear(),
        lambda system: setattr(system, "extra", 1),
    ],
)
def test_a_system_cannot_be_changed(change: Callable[[Any], object]) -> None:
    system = load_system(sound())
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        change(system)
    assert system == load_system(sound())


def test_later_changes_of_the_source_have_no_effect() -> None:
    source = sound()
    system = load_system(source)
    source["servers"][0]["name"] = "changed"
    source["count"].clear()
    assert system == load_system(sound())


def test_options_are_changed_in_a_copy() -> None:
    system = load_system(sound())
    other = system.with_options(unlimited=True, gap=0.01, time_limit_s=3)
    assert (other.options.unlimited, other.options.gap, other.options.time_limit_s) == (True, 0.01, 3)
    assert not system.options.unlimited
    assert other.servers == system.servers
    assert system.with_options() == system


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gapp": 0.1}, "optimizer.gapp: unknown option; did you mean 'gap'?"),
        ({"timeLimit": 1}, "optimizer.timeLimit: unknown option; did you mean 'time_limit_s'?"),
        ({"gap": 2}, "optimizer.gap: must be at most 1, not 2; did you mean 0.02?"),
        ({"time_limit_s": 0}, "optimizer.timeLimit: must be more than 0, not 0"),
        ({"unlimited": "yes"}, 'optimizer.unlimited: must be true or false, not "yes"'),
        ({"gap": float("nan")}, "optimizer.gap: must be a finite number, not NaN"),
    ],
)
def test_options_out_of_range_are_refused(options: Json, message: str) -> None:
    assert refusal(lambda: load_system(sound()).with_options(**options)) == message


def test_the_priority_of_a_server_is_that_of_its_class() -> None:
    source = changed("servers", 1, **{"class": "free"})
    system = load_system(source)
    assert {name: system.priority(item) for name, item in system.servers.items()} == {"s": 1, "t": 2}


def test_a_changed_target_is_in_the_targets_and_in_the_document() -> None:
    source = load_system(sound())
    (service_class, model), before = next(iter(source.targets.items()))
    changed = source.with_target(service_class, model, ttft_ms=812.0)
    assert changed.targets[service_class, model].ttft_ms == 812.0
    assert changed.targets[service_class, model].itl_ms == before.itl_ms
    assert load_system(changed.to_spec().model_dump(by_alias=True)) == changed
    assert source.targets[service_class, model] == before


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ttft_ms": -1.0}, "slo-ttft: must be at least 0, not -1.0"),
        ({"speed": 1.0}, "speed: unknown field"),
    ],
)
def test_a_changed_target_that_cannot_be_is_one_line(changes: dict[str, float], text: str) -> None:
    source = load_system(sound())
    service_class, model = next(iter(source.targets))
    with pytest.raises(SpecError, match=text):
        source.with_target(service_class, model, **changes)
    with pytest.raises(SpecError, match="class 'nobody' has no target for 'm'"):
        source.with_target("nobody", "m", itl_ms=1.0)


def test_changed_capacities_keep_the_others_and_the_order() -> None:
    document = sound()
    document["accelerators"].append({"name": "AA", "type": "AA"})
    source = load_system(document)
    changed = source.with_capacity({"AA": 3})
    assert list(changed.capacity) == sorted(changed.capacity)
    assert {**source.capacity, "AA": 3} == changed.capacity
    with pytest.raises(SpecError, match=r"count\.AA\.count: must be at least 0, not -1"):
        source.with_capacity({"AA": -1})
    with pytest.raises(SpecError, match=r"accelerator type: 'aa' does not exist; did you mean 'AA'\?"):
        source.with_capacity({"aa": 3})


TEXT = "this is text instead of its path; parse it, or write it to a file"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "load_system: must be a path or a mapping, not None"),
        (5, "load_system: must be a path or a mapping, not an int"),
        ([{}], "load_system: must be a path or a mapping, not a list"),
        ("servers:\n- name: a\n", f"load_system: {TEXT}"),
    ],
)
def test_what_is_no_path_gets_a_sentence(source: Any, message: str) -> None:
    assert refusal(lambda: load_system(source)) == message
    reader = message.replace("load_system", "load_plan")
    assert refusal(lambda: load_plan(source)) == reader


def test_names_of_documents_get_the_python_name() -> None:
    system = load_system(sound())
    name = next(iter(system.servers))
    message = refusal(lambda: system.with_load(name, arrivalRate=5))
    assert message == f"servers.{name}.load.arrivalRate: unknown field; did you mean 'arrival_rate_rpm'?"
    message = refusal(lambda: system.with_load(name, arival_rate_rpm=5))
    assert message.endswith("did you mean 'arrival_rate_rpm'?")


class Listed(dict[Any, Any]):
    """A mapping that counts how often it is listed."""

    times = 0

    def __iter__(self) -> Iterator[Any]:
        self.times += 1
        return super().__iter__()

    def items(self) -> Any:
        self.times += 1
        return super().items()


def test_profiles_are_listed_as_often_for_many_servers() -> None:
    """Fleets of one model for each server took a hundred times longer for ten times as many servers."""
    times = []
    for count in (2, 20):
        system = load_system(document([server(f"s{i}", 1) for i in range(count)], [accelerator("A")]))
        profiles = Listed(system.profiles)
        listed, plan = replace(system, profiles=profiles), solve(system.with_options(unlimited=True))
        assert len(workload_pairs(listed)) == count
        applied = replace(plan.applied_to(system), profiles=profiles)
        stabilise(plan, applied, Rules(), None, Observation(0.0))
        times.append(profiles.times)
    assert times[0] == times[1]
