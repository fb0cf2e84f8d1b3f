"""The queue-analysis routes: the answers of rows, and the best batch against trying every one by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from slow_cases import mostly_slow
from wire_client import Json, wire_client

from optimizer.compat.queue_service import QueueProblem
from rest_server.compat.queue import best_concurrency

# The reference's own example: the problem, and the recorded answer of its code
PROBLEM: Json = {
    "RPS": 3,
    "maxBatchSize": 48,
    "avgInputTokens": 128,
    "avgOutputTokens": 512,
    "alpha": 12,
    "beta": 0.05,
    "gamma": 0.0005,
    "maxQueueSize": 128,
}
TARGETS = {"targetTTFT": 60, "targetITL": 20}
ANSWER_KEYS = {
    "concurrency", "throughput", "avgRespTime", "avgWaitTime", "avgNumInServ", "avgTTFT", "avgITL", "maxRPS",
    "M_ITL", "M_TPF", "oracleCalls", "feasible",
}  # fmt: skip


def posted(route: str, body: Json) -> Any:
    answer = wire_client(stateful=False).post(f"/queue{route}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def throughput(batch: int, **changes: Any) -> float:
    """Return what sizing gives at a batch limit."""
    problem = QueueProblem.model_validate(PROBLEM | changes | {"maxBatchSize": batch})
    return problem.size().throughput_rps


def test_queues_are_analysed_and_sized_as_on_the_command_line() -> None:
    """The reference's recorded answers to this example are those of ``tests/compat``."""
    analysed = QueueProblem.model_validate(PROBLEM).analyze()
    assert posted("/solve", PROBLEM) == analysed.model_dump(by_alias=True)
    sized = QueueProblem.model_validate(PROBLEM | TARGETS).size()
    assert posted("/target", PROBLEM | TARGETS) == sized.model_dump(by_alias=True)


@pytest.mark.slow
def test_the_best_batch_is_the_smallest_near_the_largest_rate() -> None:
    answer = posted("/optimize", PROBLEM | TARGETS | {"maxBatchSize": 256})
    assert answer.keys() == ANSWER_KEYS
    enough = 0.99 * throughput(256, **TARGETS)
    best = next(batch for batch in range(1, 257) if throughput(batch, **TARGETS) >= enough)
    assert answer["concurrency"] == best
    assert answer["throughput"] == pytest.approx(throughput(best, **TARGETS))
    # the reference's bisection stops at 49
    assert best <= 49
    assert (answer["M_ITL"], answer["M_TPF"], answer["feasible"]) == (31, 164, True)


@pytest.mark.parametrize("targets", mostly_slow([{}, {"targetITL": 20}, {"targetTTFT": 60}], 1))
def test_a_target_that_is_not_set_binds_nothing(targets: Json) -> None:
    answer = posted("/optimize", PROBLEM | targets | {"maxBatchSize": 64})
    enough = 0.99 * throughput(64, **targets)
    assert answer["concurrency"] == next(b for b in range(1, 65) if throughput(b, **targets) >= enough)
    assert answer["throughput"] >= enough
    assert answer["M_TPF"] == 64 or "targetTTFT" in targets
    assert answer["M_ITL"] == 64 or "targetITL" in targets


def test_an_unreachable_target_is_refused_only_for_a_given_batch() -> None:
    hopeless = PROBLEM | {"targetITL": 1}
    answer = posted("/optimize", hopeless)
    assert (answer["feasible"], answer["concurrency"], answer["throughput"]) == (False, 1, 0)
    assert answer.keys() == ANSWER_KEYS
    refused = wire_client(stateful=False).post("/queue/target", json=hopeless)
    assert refused.status_code == 400
    assert "ITL" in refused.json()["message"]


def test_without_a_batch_limit_up_to_256_are_tried() -> None:
    given = posted("/optimize", PROBLEM | TARGETS | {"maxBatchSize": 256})
    bare = {key: value for key, value in PROBLEM.items() if key != "maxBatchSize"}
    assert posted("/optimize", bare | TARGETS) == given
    assert posted("/optimize", PROBLEM | TARGETS | {"maxBatchSize": 0}) == given


def test_keys_match_in_any_case_and_unknown_ones_are_ignored() -> None:
    shouted = {key.upper(): value for key, value in PROBLEM.items()} | {"colour": "red", "TARGETTTFT": None}
    assert posted("/solve", shouted) == posted("/solve", PROBLEM)


@pytest.mark.parametrize("route", ["/solve", "/target", "/optimize"])
@pytest.mark.parametrize(
    "bad",
    [
        {"alpha": -1},
        {"avgInputTokens": "many"},
        {"maxBatchSize": -1},
        {"maxBatchSize": 10**7},
        {"alpha": 0, "beta": 0, "gamma": 0},
    ],
)
def test_bad_input_is_refused_with_a_message(route: str, bad: Json) -> None:
    answer = wire_client(stateful=False).post(f"/queue{route}", json=PROBLEM | bad)
    assert answer.status_code == 400
    assert set(answer.json()) == {"message"}


def test_a_queue_without_arrivals_or_a_batch_is_not_analysed() -> None:
    for bad in ({"RPS": 0}, {"maxBatchSize": 0}):
        assert wire_client(stateful=False).post("/queue/solve", json=PROBLEM | bad).status_code == 400


def test_more_batches_than_can_be_tried_are_refused() -> None:
    answer = wire_client(stateful=False).post("/queue/optimize", json=PROBLEM | {"maxBatchSize": 2049})
    assert "2,048" in answer.json()["message"]


@pytest.mark.parametrize("every", [20, pytest.param(1, marks=pytest.mark.slow)])
def test_the_recorded_best_batches_are_near_the_largest_rate(reference: Path, every: int) -> None:
    """The reference's search stops early, and it goes astray where a target is not set."""
    rows = json.loads((reference / "queueing" / "iteration_law.json").read_text(encoding="utf-8"))
    names = {
        "maxBatchSize": "N", "maxQueueSize": "Q", "alpha": "A", "beta": "B", "gamma": "G",
        "avgInputTokens": "In", "avgOutputTokens": "Out",
    }  # fmt: skip
    compared = 0
    for row in rows:
        if row["Op"] != "concurrency" or not (row["Target"]["TargetTTFT"] and row["Target"]["TargetITL"]):
            continue
        theirs, problem = row["Conc"], {key: row[theirs] for key, theirs in names.items()}
        if not theirs["Feasible"]:
            continue
        compared += 1
        if compared % every:
            continue
        problem |= {"targetTTFT": row["Target"]["TargetTTFT"], "targetITL": row["Target"]["TargetITL"]}
        found = best_concurrency(QueueProblem.model_validate(problem)).model_dump(by_alias=True)
        assert found["feasible"]
        assert found["concurrency"] <= theirs["Concurrency"]
        assert found["throughput"] >= 0.98 * theirs["AnchorThroughput"]
        assert (found["M_ITL"], found["M_TPF"]) == (theirs["MITL"], theirs["MTPF"])
    assert compared > 50


@pytest.mark.parametrize("route", ["solve", "target", "optimize"])
def test_every_route_keeps_to_the_batch_limit_of_the_service(route: str) -> None:
    here = wire_client(max_batch=40)
    refused = here.post(f"/queue/{route}", json=PROBLEM)
    assert refused.status_code == 400
    assert "must be at most 40 on this service, not 48" in refused.json()["message"]
    assert here.post(f"/queue/{route}", json=PROBLEM | {"maxBatchSize": 40}).status_code == 200
