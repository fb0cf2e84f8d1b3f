"""Fields and options that topologies do not support: each is found where it stands, and refused if given."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import Json, accelerator, document, profile, server, service_class

from optimizer import SpecError, load_system
from optimizer.cli.main import main
from optimizer.features.table import FEATURES
from optimizer.schema import OptimizerOptions, Server
from optimizer.spec.examination import examine

Capture = pytest.CaptureFixture[str]
STATED: Json = {
    "availabilityTarget": 0.9,
    "cacheHitRate": 0.5,
    "deadline": {"requests": 60, "hours": 1},
    "disaggregation": "allowed",
    "external": {"inPerMillion": 1, "outPerMillion": 1, "ttft": 1, "itl": 1},
    "headroomShare": 0.1,
    "keepAccelerator": True,
    "maxNumReplicas": 3,
    "maxQueueSize": 5,
    "minNumReplicas": 1,
    "place": "eu",
    "poolsByLength": "allowed",
    "preferred": ["A"],
    "sharedCard": True,
    "sharedQueue": "q",
    "spareReplicas": 1,
    "split": [{"model": "m", "weight": 1}],
    "surge": 0.5,
}
"""A value of each field."""
SHAPES = [
    {"name": name, "share": 0.5, "avgInTokens": tokens, "avgOutTokens": 8}
    for name, tokens in (("chat", 64), ("docs", 900))
]
OPTIONS: Json = {
    "milpSolver": False,
    "saturationPolicy": "RoundRobin",
    "batchSizing": "optimal",
    "maxPower": 500,
    "headroomShare": 0.1,
}
"""A value of each option."""
FLAGS = {
    "milpSolver": ["--solver", "greedy"],
    "saturationPolicy": ["--saturation", "RoundRobin"],
    "batchSizing": ["--batch-sizing", "optimal"],
}
"""Flags of `solve` for some of them."""


BY_FIELD = {(*feature.fields, feature.name)[0]: feature for feature in FEATURES if feature.refused_fields}


RESERVES = ("availability_target", "headroom_share", "spare_replicas", "surge")
NAMES = {
    "routes": (
        {*RESERVES, "cache_hit_rate", "deadline", "external", "min_num_replicas", "preferred"}
        | {"shared_card", "shared_queue", "split"},
        {"batch_sizing", "headroom_share", "max_power_w", "milp_solver", "saturation_policy"},
    ),
    "shared_card": (
        {*RESERVES, "deadline", "keep_accelerator", "max_num_replicas", "min_num_replicas", "preferred"}
        | {"shared_queue"},
        {"headroom_share", "max_power_w", "milp_solver", "saturation_policy"},
    ),
    "shared_queue": (
        {"cache_hit_rate", "deadline", "external", "max_queue_size"},
        {"saturation_policy"},
    ),
    "pools_by_length": (
        {*RESERVES, "deadline", "external", "max_num_replicas", "min_num_replicas", "shared_card"}
        | {"shared_queue", "split"},
        {"headroom_share", "milp_solver", "saturation_policy"},
    ),
    "disaggregation": (
        {*RESERVES, "cache_hit_rate", "deadline", "external", "keep_accelerator", "max_num_replicas"}
        | {"max_queue_size", "min_num_replicas", "place", "pools_by_length", "shared_card", "shared_queue"}
        | {"split"},
        {"batch_sizing", "headroom_share", "milp_solver"},
    ),
    "split": ({"deadline", "external", "max_num_replicas", "shared_queue"}, set()),
    "deadline": ({"cache_hit_rate"}, set()),
}
"""Unsupported fields and options of each topology."""


def test_every_topology_has_its_unsupported_fields() -> None:
    assert {
        name: ({*each.refused_fields}, {*each.refused_options}) for name, each in BY_FIELD.items()
    } == NAMES


def alias(model: Any, name: str) -> str:
    return str(model.model_fields[name].alias or name)


def written(topology: str, field: str | None = None) -> Json:
    """Return a document with a topology, and the server that has it with another field."""
    mine = server("a", 0 if topology in {"routes", "deadline"} or field == "deadline" else 60)
    if topology != "routes":
        mine[alias(Server, topology)] = STATED[alias(Server, topology)]
    if topology == "pools_by_length":
        mine["currentAlloc"] = {"load": {"arrivalRate": 60, "shapes": SHAPES}}
    if field is not None:
        mine[field] = STATED[field]
    cards = [accelerator("A") | {"memSize": 80, "power": {"full": 300}}]
    models = [profile("m", "A") | {"memory": 4, "shares": [{"share": 0.5}]}]
    if topology == "disaggregation":
        models[0]["kvBytesPerToken"], cards[0]["linkBandwidth"] = 1000, 10
    if topology in {"disaggregation", "pools_by_length"}:
        models[0]["perfParms"] = {"alpha": 5, "beta": 0.02}
        del models[0]["decodeParms"], models[0]["prefillParms"]
    found = document([mine, server("b", 0)], cards, {"A": 9}, models=models, classes=[service_class("gold")])
    if topology == "routes":
        kinds = [{"share": 1, "inTokens": 64, "outTokens": 64}]
        found["routes"] = [{"name": "r", "small": "a", "large": "b", "arrivalRate": 60, "kinds": kinds}]
    return found


FIELDS = [(name, alias(Server, field)) for name, each in BY_FIELD.items() for field in each.refused_fields]
WITH_OPTIONS = [
    (name, alias(OptimizerOptions, field))
    for name, each in BY_FIELD.items()
    for field in each.refused_options
]


@pytest.mark.few(17)
@pytest.mark.parametrize(("topology", "field"), FIELDS)
def test_each_field_is_found_where_it_stands(topology: str, field: str) -> None:
    load_system(written(topology))
    name = next(name for name in Server.model_fields if alias(Server, name) == field)
    reason = BY_FIELD[topology].refused_fields[name]
    other = "route 'r'" if topology == "routes" else alias(Server, topology)
    with pytest.raises(SpecError) as caught:
        load_system(written(topology, field))
    faults = [str(fault) for fault in caught.value.faults]  # type: ignore[attr-defined]
    assert f"servers[0].{field}: {reason}; remove it, or {other}" in faults


@pytest.mark.few(3)
@pytest.mark.parametrize(("topology", "option"), WITH_OPTIONS)
def test_check_finds_each_option_in_its_own_file(
    topology: str, option: str, tmp_path: Path, capsys: Capture
) -> None:
    found = written(topology)
    del found["optimizer"]
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(found), encoding="utf-8")
    assert examine(tmp_path).faults == ()
    (tmp_path / "b.yaml").write_text(
        yaml.safe_dump({"optimizer": {"gap": 0, option: OPTIONS[option]}}, sort_keys=False), encoding="utf-8"
    )
    name = next(name for name in OptimizerOptions.model_fields if alias(OptimizerOptions, name) == option)
    reason = BY_FIELD[topology].refused_options[name]
    other = "routes" if topology == "routes" else alias(Server, topology)
    assert main(["check", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert f"b.yaml:3:3: optimizer.{option}: {reason}; remove it, or {other}" in error


@pytest.mark.parametrize(("topology", "option"), [each for each in WITH_OPTIONS if each[1] in FLAGS])
def test_solve_refuses_each_option_in_one_line(
    topology: str, option: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(written(topology)), encoding="utf-8")
    assert main(["solve", str(path), *FLAGS[option]]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert f"optimizer.{option}: " in error
    assert error.count("\n") == 1


def test_headroom_of_a_class_is_found_at_its_servers() -> None:
    for topology in ("routes", "shared_card"):
        found = written(topology)
        found["serviceClasses"][0]["headroomShare"] = 0.1
        with pytest.raises(SpecError, match=r"servers\[0\].class: class 'gold' has headroomShare; .*reserve"):
            load_system(found)
