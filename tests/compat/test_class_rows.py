"""Rows with classes, read and answered as the command and the service do."""

import json
from typing import Any

import pytest
from commands import Run

from optimizer.compat.class_rows import ClassSimulation
from optimizer.compat.row_types import kind_of_row
from optimizer.errors import AnalysisError, SpecError
from optimizer.kinds.rows import Row
from optimizer.schema.messages import validated
from optimizer.simulation.replicas import Effort

LINEAR = {
    "maxBatchSize": 8,
    "avgInputTokens": 0,
    "avgOutputTokens": 2,
    "decodeParms": {"alpha": 2000, "beta": 5},
}
TOKENS = {"maxBatchSize": 32, "avgInputTokens": 128, "avgOutputTokens": 256, "alpha": 6, "beta": 0.02}
CONTINUOUS = TOKENS | {"gamma": 0.0005, "queueModel": "continuous"}
CLASSES = [{"RPS": 1.5, "priority": 2}, {"RPS": 0.7, "priority": 1}, {"RPS": 0.9, "priority": 3}]


def row(value: dict[str, Any]) -> Row:
    return validated(kind_of_row(value), value)


def answer(value: dict[str, Any], question: str = "analyze") -> dict[str, Any]:
    found = getattr(row(value), question)()
    document: dict[str, Any] = json.loads(found.model_dump_json(by_alias=True))
    return document


@pytest.mark.parametrize("law", [LINEAR, TOKENS, CONTINUOUS])
def test_one_class_is_the_row_without_classes(law: dict[str, Any]) -> None:
    found = answer(law | {"classes": [{"RPS": 3.1, "priority": 4}]})
    plain = answer(law | {"RPS": 3.1} | ({} if "queueModel" in law else {"maxQueueSize": 10**6}))
    assert set(found) == {*plain, "classes"}
    assert {name: found[name] for name in plain} == pytest.approx(plain, rel=1e-9)
    (own,) = found["classes"]
    assert own["avgTTFT"] == pytest.approx(plain["avgTTFT"], rel=1e-9)
    assert own["avgWaitTime"] == pytest.approx(plain["avgWaitTime"], rel=1e-9)


def test_classes_are_answered_in_the_order_of_the_row() -> None:
    found = answer(LINEAR | {"classes": CLASSES})
    assert [one["priority"] for one in found["classes"]] == [2, 1, 3]
    assert [one["offeredRPS"] for one in found["classes"]] == pytest.approx([1.5, 0.7, 0.9])
    second, first, third = (one["avgWaitTime"] for one in found["classes"])
    assert first < second < third
    assert found["avgWaitTime"] == pytest.approx((1.5 * second + 0.7 * first + 0.9 * third) / 3.1)
    assert found["offeredRPS"] == 3.1
    assert all(one["avgTTFT"] == one["avgWaitTime"] for one in found["classes"])  # there is no prompt
    fixed = answer(LINEAR | {"classes": CLASSES, "workCV": 0})
    assert all(
        few["p95WaitTime"] < many["p95WaitTime"]
        for few, many in zip(fixed["classes"], found["classes"], strict=True)
    )


@pytest.mark.slow
def test_work_varies_as_outputs_do_unless_stated() -> None:
    law = CONTINUOUS | {"classes": [{"RPS": 5, "priority": 1}, {"RPS": 5, "priority": 2}], "outTokensCV": 0.5}
    assert answer(law) == answer(law | {"workCV": 0.5})
    assert answer(law) != answer(law | {"workCV": 1.5})


def test_unstable_rows_have_no_steady_state() -> None:
    found = answer(LINEAR | {"classes": [{"RPS": 3, "priority": 1}, {"RPS": 3, "priority": 2}]})
    assert (found["offeredRPS"], found["maxRPS"]) == (6, pytest.approx(8 / 2.04 * 0.999))
    assert found["message"].startswith("no steady state: the rate 6 requests/s exceeds")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"RPS": 2}, "RPS: the classes give their rates; remove it"),
        ({"maxQueueSize": 5}, "maxQueueSize: the queue of a row with classes has no limit; remove it"),
        ({"batching": "static", "outTokensCV": 1}, "classes: only a continuous batch has classes"),
        ({"classes": []}, "classes: "),
        ({"classes": [{"RPS": 1}]}, r"classes\[0\].priority: "),
        ({"classes": [{"RPS": -1, "priority": 1}]}, r"classes\[0\].RPS: "),
        ({"classes": [{"RPS": 1, "priority": 0}]}, r"classes\[0\].priority: "),
        ({"workCV": -1}, "workCV: "),
    ],
)
def test_contradictions_are_errors(more: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        row(LINEAR | {"classes": CLASSES} | more)


def test_batch_servers_have_no_classes_and_classes_need_a_rate() -> None:
    with pytest.raises(SpecError, match="classes: unknown key"):
        row({"batchParms": {"base": 1}, "maxBatchSize": 2, "classes": CLASSES})
    with pytest.raises(AnalysisError, match="no class has a rate"):
        answer(LINEAR | {"classes": [{"RPS": 0, "priority": 1}]})


def test_sizing_keeps_proportions_and_all_targets() -> None:
    found = answer(LINEAR | {"classes": CLASSES, "targetTTFT": 900}, "size")
    assert max(one["avgTTFT"] for one in found["classes"]) == pytest.approx(900, rel=1e-6)
    assert found["RPSTargetTTFT"] == found["offeredRPS"] < found["RPSTargetITL"]
    assert found["classes"][0]["offeredRPS"] == pytest.approx(found["offeredRPS"] * 1.5 / 3.1)
    with pytest.raises(AnalysisError, match="no rate meets the targets in every class"):
        answer(LINEAR | {"classes": CLASSES, "targetITL": 1}, "size")


def test_rows_with_classes_are_simulated() -> None:
    classes = [{"RPS": rate, "priority": priority} for rate, priority in ((3, 2), (3, 1), (0, 3))]
    law = CONTINUOUS | {"classes": classes}
    mine, found = answer(law)["classes"], row(law).simulate(Effort(20_000))
    assert isinstance(found, ClassSimulation)
    low, high, none = found.classes
    assert none is None
    assert low is not None
    assert high is not None
    assert (low.priority, high.priority) == (2, 1)
    assert high.ttft_ms < low.ttft_ms
    assert mine[1]["avgTTFT"] == pytest.approx(high.ttft_ms, rel=0.15)
    assert mine[0]["avgTTFT"] == pytest.approx(low.ttft_ms, rel=0.25)


def test_the_command_answers_a_line(run: Run) -> None:
    value = LINEAR | {"classes": CLASSES}
    rows = f"{json.dumps(value)}\n{json.dumps(value | {'RPS': 1})}"
    found = run("analyze", "--batch", "-", stdin=rows.encode())
    assert found.status == 2
    first, second = map(json.loads, found.out.splitlines())
    assert first == answer(value)
    assert second == {"message": "line 2: RPS: the classes give their rates; remove it"}
