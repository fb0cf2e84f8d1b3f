"""The queue model of prefill and decode pools against simulated tables, and its rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Run

from optimizer.arrays import FloatArray
from optimizer.compat.disaggregated_rows import DisaggregatedRow
from optimizer.errors import SpecError
from optimizer.kinds.replicas import queues_of
from optimizer.queueing.disaggregated.handover import Handover
from optimizer.queueing.disaggregated.model import (
    DisaggregatedPerformance,
    DisaggregatedQueues,
    PoolArrays,
)
from optimizer.queueing.measures import TargetMeasure
from optimizer.schema.messages import validated

TABLE = json.loads((Path(__file__).parent.parent / "data" / "disaggregated.json").read_text())
CV = {"fixed": 0.0, "uniform": 0.5 / 3**0.5, "lognormal": 1.0}
KEYS = {
    "a": "alpha", "d": "beta", "g": "gamma", "b": "perSequence", "q": "promptAttention", "e": "promptBase",
    "m": "weightRead", "s": "batchBase",
}  # fmt: skip
ALONE = {"O": 1, "N": 256, "gbs": 1, "layers": 1, "fixed": 0, "nP": 1, "nD": 1, "router": "random"}


def row_of(point: dict[str, Any], first: str, kv_bytes: float) -> dict[str, Any]:
    """Return a point of the tables as a row of `analyze --batch`."""
    row = {KEYS[name]: value for name, value in TABLE["laws"][point["law"]].items()}
    row |= {
        "RPS": point["lam"] * 1000,
        "avgInputTokens": point["I"] + point["C"],
        "avgOutputTokens": point["O"],
        "maxBatchSize": point["N"],
        "maxNumTokens": point["M"],
        "arrivalCV": point["cv"],
        "inTokensCV": CV[point["kind"]],
        "outTokensCV": CV[point["kind"]],
    }
    if point["C"]:
        row |= {"prefixTokens": point["C"], "prefixHitRate": 1}
    row["disaggregated"] = {
        "prefillReplicas": point["nP"],
        "decodeReplicas": point["nD"],
        "prefillRouter": point["router"],
        "linkBandwidth": point["gbs"],
        "kvBytesPerToken": kv_bytes,
        "layers": point["layers"],
        "fixedMs": point["fixed"],
        "firstToken": first,
    }
    return row


def analysed(values: list[dict[str, Any]]) -> DisaggregatedPerformance:
    """Return the performance of rows, analysed together."""
    rows = [validated(DisaggregatedRow, value) for value in values]
    pools = [row.disaggregated.arrays() for row in rows]
    columns = [np.concatenate(column) for column in zip(*(each.columns() for each in pools), strict=True)]
    prefill, decode, in_turn, seeded, *handover = columns
    own = PoolArrays(prefill, decode, in_turn, seeded, Handover(*handover))
    parts = queues_of([row.replica() for row in rows], DisaggregatedQueues, own)
    ((order, queues),) = parts
    assert (order == np.arange(len(rows))).all()
    assert isinstance(queues, DisaggregatedQueues)
    return queues.analyze(np.array([row.rate_rps for row in rows]))


def errors(found: DisaggregatedPerformance, metric: Any, expected: list[list[float]]) -> list[FloatArray]:
    """Return the relative errors of a mean and its 95th percentile."""
    means, percentiles = np.array(expected).T
    return [
        np.abs(found.figure(TargetMeasure(metric)) / means - 1),
        np.abs(found.figure(TargetMeasure(metric, 95.0)) / percentiles - 1),
    ]


def assert_within(error: FloatArray, median: float, quantile: float) -> None:
    assert np.median(error) <= median
    assert np.quantile(error, 0.8) <= quantile


def test_pools_agree_with_simulation() -> None:
    """Medians and 80th percentiles of the errors in 99 points are below the stated ones."""
    points = [dict(zip(TABLE["fields"], each, strict=True)) for each in TABLE["pools"]]
    sizes = TABLE["kvBytesPerToken"]
    found = analysed([row_of(point, "decode", sizes[point["law"]]) for point in points])
    means, percentiles = errors(found, "ttft", [point["ttft"] for point in points])
    assert_within(means, 0.05, 0.10)
    assert_within(percentiles, 0.08, 0.16)
    means, percentiles = errors(found, "itl", [point["itl"] for point in points])
    assert_within(means, 0.01, 0.03)
    assert_within(percentiles, 0.03, 0.09)
    parts = found.prefill_wait_ms + found.prefill_ms + found.transfer_ms + found.handover_ms
    np.testing.assert_allclose(parts + found.first_step_ms, found.ttft_ms)
    seeded = analysed([row_of(point, "prefill", sizes[point["law"]]) for point in points])
    means, percentiles = errors(seeded, "ttft", [point["seeded"] for point in points])
    assert_within(means, 0.06, 0.12)
    assert_within(percentiles, 0.09, 0.18)


def test_prefill_replicas_agree_with_simulation() -> None:
    """A row with outputs of one token, which the prefill replica sends, is a prefill replica alone."""
    points = [dict(zip(TABLE["prefillFields"], each, strict=True)) | ALONE for each in TABLE["prefill"]]
    found = analysed([row_of(point, "prefill", 0.0) for point in points])
    means, percentiles = errors(found, "ttft", [point["ttft"] for point in points])
    assert_within(means, 0.04, 0.10)
    assert_within(percentiles, 0.09, 0.16)
    np.testing.assert_allclose(found.ttft_ms, found.response_ms)


def test_rows_agree_with_their_simulation(run: Run, tmp_path: Path) -> None:
    """Rows of `analyze --batch --simulate` have both pools' latencies; `size` has those at the targets."""
    point = dict(zip(TABLE["fields"], TABLE["pools"][2], strict=True)) | {"kind": "lognormal"}
    row = row_of(point, "decode", 196608) | {"targetTTFT": 200, "targetITL": 20}
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, (row, row | {"RPS": 1e6}))))
    done = run("analyze", "--batch", str(path), "--simulate", "--requests", "4000")
    first, second = map(json.loads, done.out.splitlines())
    simulated = first["simulated"]
    for name, tolerance in (("avgTTFT", 0.2), ("p95TTFT", 0.3), ("avgITL", 0.03), ("p95ITL", 0.05)):
        assert first[name] == pytest.approx(simulated[name], rel=tolerance)
    assert first["avgTransfer"] + first["handover"] == pytest.approx(simulated["avgHandover"], rel=0.05)
    assert "no steady state" in second["message"]
    sized = json.loads(run("size", "--batch", str(path)).out.splitlines()[0])
    assert sized["avgTTFT"] == pytest.approx(200, rel=1e-6)
    assert sized["offeredRPS"] == pytest.approx(min(sized["RPSTargetTTFT"], sized["RPSTargetITL"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scheduler": "prefill-first"}, "scheduler: does not apply to disaggregated replicas; remove it"),
        ({"queueModel": "reference"}, "queueModel: 'reference' does not support disaggregated; remove it"),
        ({"maxQueueSize": 5}, "maxQueueSize: disaggregated replicas have unlimited queues; remove it"),
        ({"disaggregated": {"kvBytesPerToken": 1000}}, "linkBandwidth: 0 GB/s is no link"),
        ({"disaggregated": {"prefillRouter": "sticky"}}, "prefillRouter"),
    ],
)
def test_bad_rows_are_one_line(change: dict[str, Any], message: str) -> None:
    """Fields that do not apply are refused by name."""
    point = dict(zip(TABLE["fields"], TABLE["pools"][2], strict=True))
    with pytest.raises(SpecError) as error:
        validated(DisaggregatedRow, row_of(point, "decode", 196608) | change)
    assert message in str(error.value)


@pytest.mark.slow
def test_batches_are_the_limit_of_damped_rounds() -> None:
    """The fixed point of the prompts in an iteration is that of plain damped rounds, also near saturation."""
    points = [dict(zip(TABLE["prefillFields"], each, strict=True)) | ALONE for each in TABLE["prefill"][::6]]
    rows = [validated(DisaggregatedRow, row_of(point, "prefill", 0.0)) for point in points]
    for row, load in zip(rows, np.linspace(0.05, 0.97, len(rows)), strict=True):
        replicas, scv = row.queues().prefill, np.array([1.0 + 3 * (load > 0.5)])
        rate = load * replicas.largest_rate
        prompts, variance = np.ones(1), np.zeros(1)
        for _ in range(4000):
            mean, spread = replicas.moments_after(rate, scv, prompts, variance)
            prompts, variance = (prompts + mean) / 2, (variance + spread) / 2
        assert replicas.batches(rate, scv).prompts == pytest.approx(prompts, rel=1e-6)
