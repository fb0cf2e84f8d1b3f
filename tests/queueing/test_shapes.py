"""Mixes of request shapes in the queue model `continuous`: one shape, mixtures, prefixes, long prompts."""

from typing import Any

import numpy as np
import pytest

from optimizer.errors import SpecError
from optimizer.kinds.replicas import (
    LatencyTargets,
    Replica,
    ReplicaSizing,
    analyze_replicas,
    queues_of,
    size_replicas,
)
from optimizer.kinds.simulated import simulate_replica
from optimizer.queueing.continuous.latencies import Latencies
from optimizer.queueing.shapes import shape_number
from optimizer.schema.messages import validated
from optimizer.simulation.replicas import Effort
from optimizer.timing import PerfParms

LAW = PerfParms(base_ms=7.33, compute_per_token_ms=0.021, kv_read_per_token_ms=4.6e-5)
KNEE = PerfParms(
    base_ms=6.83,
    compute_per_token_ms=0.0224,
    kv_read_per_token_ms=4.36e-5,
    per_sequence_ms=0.0189,
    prompt_attention_ms=1.04e-6,
    weight_read_ms=4.3,
)


def shape(name: str, share: float, prompt: float, answer: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "share": share, "avgInTokens": prompt, "avgOutTokens": answer, **more}


def replica(*shapes: dict[str, Any], law: PerfParms = LAW, **more: Any) -> Replica:
    fields = {"maxBatch": 256, "perfParms": law.model_dump(by_alias=True), "kvCapacity": 448_733}
    return validated(Replica, {**fields, "shapes": list(shapes), **more})


def latencies(item: Replica, rate_rps: float) -> Latencies:
    ((_, queues),) = queues_of([item])
    found: Any = queues.analyze(np.array([rate_rps]))
    return found.latencies  # type: ignore[no-any-return]


MIX = (shape("chat", 0.9, 500, 200, outTokensCV=0), shape("docs", 0.1, 30_000, 300, outTokensCV=0))


@pytest.mark.parametrize("prompt", [700.0, 30_000.0])
@pytest.mark.parametrize("scheduler", ["chunked", "prefill-first"])
def test_one_shape_equals_its_mean_and_coefficient(prompt: float, scheduler: str) -> None:
    lengths = {"inTokens": prompt, "outTokens": 150, "inTokensCV": 0.5, "outTokensCV": 1.2}
    fields = {"maxBatch": 64, "perfParms": KNEE.model_dump(by_alias=True), "scheduler": scheduler}
    of_means = validated(Replica, fields | lengths)
    one = replica(
        shape("one", 1, prompt, 150, inTokensCV=0.5, outTokensCV=1.2),
        law=KNEE, maxBatch=64, scheduler=scheduler, kvCapacity=10**9,
    )  # fmt: skip
    rate = 0.6 * analyze_replicas([of_means], [1.0])[0].stable_rate_rps
    assert one.out_tokens_cv == pytest.approx(1.2)
    found, expected = (analyze_replicas([item], [rate])[0].model_dump() for item in (one, of_means))
    assert _close(found, expected)


def _close(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether nested figures are equal to 1e-12."""
    return all(
        _close(found[key], value)
        if isinstance(value, dict)
        else found[key] == pytest.approx(value, rel=1e-12)
        for key, value in expected.items()
    )


def test_equal_shapes_are_one() -> None:
    half = replica(shape("a", 0.5, 30_000, 300), shape("b", 0.5, 30_000, 300))
    one = replica(shape("a", 1, 30_000, 300))
    assert _close(*(analyze_replicas([item], [0.4])[0].model_dump() for item in (half, one)))


def test_means_and_percentiles_are_those_of_the_mixture() -> None:
    found = latencies(replica(*MIX), 3.0)
    chat, docs = (found.of_shape(shape_number(name)) for name in ("chat", "docs"))
    assert found.ttft_ms == pytest.approx(0.9 * chat.ttft_ms + 0.1 * docs.ttft_ms, rel=1e-9)
    assert found.itl_ms == pytest.approx(0.9 * chat.itl_ms + 0.1 * docs.itl_ms, rel=1e-9)
    for metric in ("ttft", "itl", "e2e"):
        limit = found.quantile(metric, 0.95)
        parts = [one.survival(metric, limit)[0] for one in (chat, docs)]
        assert 0.9 * parts[0] + 0.1 * parts[1] == pytest.approx(0.05, rel=1e-6)
        assert min(parts) < 0.05 < max(parts)


def test_figures_do_not_depend_on_replicas_beside_them() -> None:
    items = [replica(*MIX), replica(shape("a", 1, 600, 100)), replica(*MIX, shape("c", 0, 50, 20))]
    together = analyze_replicas(items, [4.0] * 3)
    for item, found in zip(items, together, strict=True):
        assert analyze_replicas([item], [4.0])[0] == found


@pytest.mark.parametrize(
    ("cards", "p95_ttft_ms", "p95_itl_ms"),
    # Simulated with 8 × 60,000 requests: p95 TTFT ± 11 and 3, p95 ITL ± 1.6, 0.6 and 0.3.
    [(2, None, 53.0), (3, 755.0, 27.4), (4, 704.0, 20.7)],
)
def test_rare_long_prompts_match_simulation(cards: int, p95_ttft_ms: float | None, p95_itl_ms: float) -> None:
    found = latencies(replica(*MIX), 10 / cards)
    assert found.quantile("itl", 0.95)[0] == pytest.approx(p95_itl_ms, rel=0.08)
    if p95_ttft_ms is not None:
        assert found.quantile("ttft", 0.95)[0] == pytest.approx(p95_ttft_ms, rel=0.12)


def test_prefix_hits_match_the_project_s_simulator() -> None:
    item = replica(shape("a", 1, 8000, 200, outTokensCV=0, prefixTokens=7000, prefixHitRate=0.9), maxBatch=54)
    rate = 5.0
    closed = latencies(item, rate)
    found: Any = simulate_replica(item, rate, Effort(requests=20_000))
    assert closed.ttft_ms[0] == pytest.approx(found.ttft_ms, rel=0.1)
    assert closed.quantile("ttft", 0.95)[0] == pytest.approx(found.p95_ttft_ms, rel=0.1)
    assert closed.quantile("itl", 0.95)[0] == pytest.approx(found.p95_itl_ms, rel=0.12)


@pytest.mark.slow
def test_hits_and_stored_once_raise_the_rate() -> None:
    def largest(**prefix: Any) -> float:
        item = replica(shape("a", 1, 8000, 200, **prefix))
        (found,) = size_replicas([item], [LatencyTargets(ttft_ms=1000, itl_ms=50, percentile=95)])
        assert isinstance(found, ReplicaSizing)
        return found.max_rate_rps

    each = {"prefixTokens": 7000, "prefixHitRate": 0.9}
    rates = largest(), largest(**each), largest(**each, prefixStored="once")
    assert rates[0] < 0.5 * rates[1]
    assert rates[1] < 0.97 * rates[2]
    assert largest(prefixTokens=7000) == pytest.approx(rates[0], rel=1e-12)


@pytest.mark.parametrize(
    ("shapes", "problem"),
    [
        ((shape("a", 0.5, 10, 10),), "the shares sum to 0.5, which must be 1"),
        ((shape("a", 0.5, 10, 10), shape("a", 0.5, 20, 10)), "the name 'a' occurs twice"),
        ((shape("a", 1, 10, 10, prefixTokens=10),), "must be at most the mean input length minus 1"),
        ((shape("a", 1, 10, 10, prefixHitRate=0.5),), "prefixHitRate: needs prefixTokens"),
        ((shape("a", 1, 10, 10), {"name": "b", "avgInTokens": 1, "avgOutTokens": 1}), "either its share or"),
    ],
)
def test_inconsistent_shapes_are_refused(shapes: tuple[dict[str, Any], ...], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        replica(*shapes)


def test_means_beside_shapes_and_other_queue_models_are_refused() -> None:
    with pytest.raises(SpecError, match="inTokens: follows from shapes; remove it"):
        replica(shape("a", 1, 10, 10), inTokens=10)
    with pytest.raises(SpecError, match="'reference' computes with one mean request, without shapes"):
        replica(shape("a", 1, 10, 10), queueModel="reference")


def test_rates_of_shapes_are_shares() -> None:
    rates = [
        {"name": name, "arrivalRate": rate, "avgInTokens": 9, "avgOutTokens": 9}
        for name, rate in (("a", 30), ("b", 90))
    ]
    found = replica(*rates).shapes
    assert [item.share for item in found] == [0.25, 0.75]
