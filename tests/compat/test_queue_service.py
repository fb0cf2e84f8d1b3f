"""The reference's queue-analysis format: problems as JSON lines, answers under its names."""

import json
import math
from typing import Any

import pytest
from queue_oracles import Iteration, Machine

from optimizer.compat.queue_service import QueueAnswer, QueueProblem, read_problems
from optimizer.compat.rows import ReplicaRow
from optimizer.errors import AnalysisError, SpecError

EXAMPLE: dict[str, Any] = {  # the reference's own example
    "RPS": 3, "maxBatchSize": 48, "avgInputTokens": 128, "avgOutputTokens": 512, "alpha": 12, "beta": 0.05,
    "gamma": 0.0005, "maxQueueSize": 128,
}  # fmt: skip


def problem(**changes: Any) -> QueueProblem:
    return QueueProblem.model_validate(EXAMPLE | changes)


def read(*lines: str) -> list[QueueProblem | SpecError]:
    return list(read_problems(lines, QueueProblem))


def analyzed(given: QueueProblem) -> QueueAnswer:
    answer = given.analyze()
    assert isinstance(answer, QueueAnswer)
    return answer


def wire(answer: QueueAnswer) -> dict[str, Any]:
    return answer.model_dump(by_alias=True)


def test_the_references_analysis_example_is_reproduced() -> None:
    answer = wire(analyzed(problem()))
    # recorded from the reference, to its digits
    recorded = {"avgRespTime": 10_348.367, "avgWaitTime": 21.405, "avgNumInServ": 30.981, "avgTTFT": 67.615}
    assert {name: round(answer[name], 3) for name in recorded} == recorded
    assert round(answer["avgITL"], 4) == 20.1189
    assert answer["maxRPS"] == pytest.approx(3.8609295, rel=1e-7)
    assert answer["offeredRPS"] == 3
    assert answer["throughput"] == pytest.approx(3, rel=1e-6)
    assert (answer["RPSTargetTTFT"], answer["RPSTargetITL"]) == (0, 0)


def test_the_references_sizing_example_is_reproduced() -> None:
    answer = wire(problem(targetTTFT=60, targetITL=20).size())
    # The reference's own answer, recorded; the search of the reference ends at 1e-6 relative.
    assert answer["throughput"] == pytest.approx(2.9494622, rel=2e-6)
    assert answer["RPSTargetTTFT"] == pytest.approx(2.9494622, rel=2e-6)
    assert answer["RPSTargetITL"] == pytest.approx(2.971982, rel=2e-6)
    assert answer["avgTTFT"] == pytest.approx(60, rel=1e-8)
    assert answer["maxRPS"] == pytest.approx(3.8609295, rel=1e-7)


def test_sizing_does_not_ask_for_a_rate() -> None:
    rates = [problem(RPS=rate, targetITL=20).size().offered_rps for rate in (0, 3, 1e6)]
    assert rates[0] == rates[1] == rates[2]


def test_a_missing_queue_has_no_room_as_in_the_reference() -> None:
    raw = {key: value for key, value in EXAMPLE.items() if key != "maxQueueSize"}
    answer = analyzed(QueueProblem.model_validate(raw | {"RPS": 4}))
    seen = Machine(Iteration(12, 0.05, 0.0005, 128, 512), 48, 0).see(4)
    assert answer.wait_ms == 0
    assert answer.throughput_rps == pytest.approx(seen.throughput, rel=1e-9)
    assert answer.throughput_rps < 3.8


def test_without_a_target_its_rate_is_the_stable_rate() -> None:
    answer = problem(targetITL=20).size()
    assert answer.rate_ttft_rps == pytest.approx(answer.stable_rate_rps, rel=1e-12)
    assert answer.offered_rps == answer.rate_itl_rps


def test_unattainable_targets_are_errors_with_the_best_latency() -> None:
    with pytest.raises(AnalysisError, match=r"best ITL at batch 1 is 12\.\d+ ms, target 5 ms"):
        problem(targetITL=5).size()


def test_a_single_place_without_a_queue_is_no_invalid_model() -> None:
    answer = analyzed(problem(maxBatchSize=1, maxQueueSize=0, RPS=0.1))
    offered = 0.1 / 1000 * Iteration(12, 0.05, 0.0005, 128, 512).service(1)
    assert answer.throughput_rps == pytest.approx(0.1 / (1 + offered), rel=1e-12)  # Erlang, one line


@pytest.mark.parametrize("change", [{"RPS": 0}, {"alpha": 0, "beta": 0, "gamma": 0}])
def test_a_rate_or_a_service_time_of_zero_is_an_error(change: dict[str, float]) -> None:
    with pytest.raises(AnalysisError, match=r"must be more than 0|service time of a request is zero"):
        analyzed(problem(**change))


# --- lines ------------------------------------------------------------------------------------------------


def test_problems_are_read_line_by_line_and_empty_lines_skipped() -> None:
    lines = [json.dumps(EXAMPLE), "", "  \n", json.dumps(EXAMPLE | {"RPS": 2}) + "\n"]
    assert read(*lines) == [problem(), problem(RPS=2)]
    assert read("", " ") == []


@pytest.mark.parametrize("spell", [str.lower, str.upper, str.swapcase])
def test_keys_are_matched_in_any_case(spell: Any) -> None:
    assert read(json.dumps({spell(key): value for key, value in EXAMPLE.items()})) == [problem()]


def test_fields_that_may_be_missing_are_zero() -> None:
    (found,) = read('{"maxBatchSize": 4, "avgInputTokens": 0, "avgOutputTokens": 1}')
    assert isinstance(found, QueueProblem)
    numbers = (found.rate_rps, found.alpha, found.beta, found.gamma, found.max_queue)
    assert numbers == (0, 0, 0, 0, 0)
    assert (found.target_ttft_ms, found.target_itl_ms) == (0, 0)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "line 1:1:2: not valid JSON"),
        ("[1]", "line 1: must be an object with keys, not a list"),
        (json.dumps(EXAMPLE | {"rps": 2}), "line 1: key 'RPS' occurs twice"),
        (json.dumps(EXAMPLE | {"RPS": -1}), "line 1: RPS: must be at least 0, not -1"),
        (json.dumps(EXAMPLE | {"RPS": math.nan}), "line 1: RPS: must be a finite number"),
        (json.dumps(EXAMPLE | {"maxBatchSize": 0}), "line 1: maxBatchSize: must be at least 1, not 0"),
        (json.dumps(EXAMPLE | {"maxBatchSize": 10**7}), "line 1: maxBatchSize: must be at most 1"),
        (json.dumps(EXAMPLE | {"avgOutputTokens": 0}), "line 1: avgOutputTokens: must be at least 1, not 0"),
        (json.dumps(EXAMPLE | {"alpha": "12"}), "line 1: alpha: must be a number"),
        (json.dumps(EXAMPLE | {"delta": 1}), "line 1: delta: unknown key"),
    ],
)
def test_a_bad_line_yields_one_clear_error_and_the_next_is_read(line: str, text: str) -> None:
    bad, good = read(line, json.dumps(EXAMPLE))
    assert isinstance(bad, SpecError)
    assert str(bad).startswith(text)
    assert "\n" not in str(bad)
    assert good == problem()


@pytest.mark.parametrize("kind", [QueueProblem, ReplicaRow])
def test_rows_reject_numbers_with_units(kind: type[QueueProblem]) -> None:
    (bad,) = read_problems([json.dumps(EXAMPLE | {"avgInputTokens": "128 tokens"})], kind)
    assert isinstance(bad, SpecError)
    assert str(bad).startswith("line 1: avgInputTokens: must be a number")
