"""The queue model of a document that names none, wherever documents are read."""

from typing import Any

import pytest
from builders import accelerator, server, service_class

from optimizer.compat.rows import ReplicaRow
from optimizer.kinds.replicas import Replica, analyze_replicas
from optimizer.schema import ModelProfile
from rest_server.compat.bodies import read_list, read_reference_system

LINEAR = {"decodeParms": {"alpha": 10, "beta": 0.5}, "prefillParms": {"gamma": 5, "delta": 0.01}}
THREE = {"alpha": 8.0, "beta": 0.02, "gamma": 1e-4}
ITERATION = {"perfParms": THREE}
FULL = {"perfParms": THREE | {"weightRead": 4.0, "clientOffset": 6.0}}
WHOLE = ITERATION | {"scheduler": "prefill-first"}
BATCH = {"batchParms": {"base": 5.0, "slope": 1.0}}
SHAPE = {"maxBatch": 64, "inTokens": 512, "outTokens": 128}
DEFAULTS = [
    (LINEAR, "reference"),
    ({}, "reference"),
    (ITERATION, "continuous"),
    (FULL, "continuous"),
    (WHOLE, "continuous"),
    ({"perfParms": "estimate"}, "continuous"),
    (BATCH, "bulk"),
]


def profile(**given: object) -> ModelProfile:
    return ModelProfile.model_validate({"name": "m", "acc": "A"} | given)


def fleet(law: dict[str, Any]) -> dict[str, Any]:
    return {
        "accelerators": [accelerator("A")],
        "models": [{"name": "m", "acc": "A", **law}],
        "serviceClasses": [service_class("gold", itl=50)],
        "servers": [server("s")],
    }


@pytest.mark.parametrize(("law", "model"), DEFAULTS)
def test_default_queue_model_is_not_written(law: dict[str, Any], model: str) -> None:
    given = profile(**law)
    assert given.queue_model == model
    written = given.model_dump(by_alias=True, exclude_unset=True)
    assert "queueModel" not in written
    assert ModelProfile.model_validate(written).queue_model == model


@pytest.mark.parametrize("model", ["reference", "continuous"])
def test_explicit_queue_model_wins(model: str) -> None:
    assert profile(**ITERATION, queueModel=model).queue_model == model
    assert Replica.model_validate(ITERATION | SHAPE | {"queueModel": model}).queue_model == model


# --- the reference's formats ------------------------------------------------------------------------------


@pytest.mark.parametrize("unknown", [{}, {"of another": 1}], ids=["strictly", "key by key"])
def test_reference_routes_default_to_the_reference_model(unknown: dict[str, Any]) -> None:
    """`/setModels` and `/optimizeOne`, with and without keys that only the lenient reader takes."""
    (item,) = read_list("models", {"models": [{"name": "m", "acc": "A"} | ITERATION | unknown]}, []) or [None]
    assert item.queue_model == "reference"
    assert item.model_dump(by_alias=True, exclude_unset=True)["queueModel"] == "reference"
    system = read_reference_system(fleet(ITERATION) | unknown, [])
    assert [item.queue_model for item in system.models] == ["reference"]


def test_unsupported_reference_models_get_our_default() -> None:
    for law, model in ((FULL, "continuous"), (WHOLE, "continuous"), (BATCH, "bulk")):
        assert read_reference_system(fleet(law), []).models[0].queue_model == model


def test_explicit_queue_model_wins_on_reference_routes() -> None:
    named = ITERATION | {"queueModel": "continuous"}
    assert read_reference_system(fleet(named), []).models[0].queue_model == "continuous"


def test_reference_analyser_rows_use_the_reference_model() -> None:
    row = {"RPS": 5.0, "maxBatchSize": 64, "avgInputTokens": 512, "avgOutputTokens": 128, "maxQueueSize": 640}
    answer = ReplicaRow.model_validate(row | THREE).analyze()
    replica = ITERATION | SHAPE | {"maxQueue": 640, "queueModel": "reference"}
    (expected,) = analyze_replicas([Replica.model_validate(replica)], [5.0])
    assert answer.model_dump()["ttft_ms"] == expected.ttft_ms
    assert answer.model_dump()["itl_ms"] == expected.itl_ms
