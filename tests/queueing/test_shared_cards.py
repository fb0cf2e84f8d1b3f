"""Batch servers that share a card in time: the approximation against the simulator, limits, and refusals."""

import json
from typing import Any

import numpy as np
import pytest

from optimizer.compat.queue_service import read_problems
from optimizer.compat.row_types import kind_of_row
from optimizer.errors import AnalysisError, SpecError
from optimizer.kinds.batch_servers.rows import BatchRow
from optimizer.kinds.batch_servers.shared_rows import SharedAnswer, SharedRow, SharedSimulation
from optimizer.kinds.rows import OverloadedReplica, UnstableReplica
from optimizer.simulation.replicas import Effort


def server(
    rate_rps: float, size: int = 5, base: float = 20.0, slope: float = 2.5, **more: Any
) -> dict[str, Any]:
    parms = {"base": base, "slope": slope}
    return {"RPS": rate_rps, "maxBatchSize": size, "window": 10, "batchParms": parms} | more


def card(*servers: dict[str, Any]) -> SharedRow:
    return SharedRow.model_validate({"shared": servers})


def drawn(rng: np.random.Generator, load: float) -> SharedRow:
    """Two to four servers with batches of 4, 5 or 8, and shares of a load on full batches."""
    weights = rng.uniform(0.3, 1, rng.integers(2, 5))
    servers = []
    for share in load * weights / weights.sum():
        size, base, slope = int(rng.choice([4, 5, 8])), rng.choice([10, 20, 37.5]), rng.choice([1, 2.5])
        servers.append(server(1000 * share * size / (base + slope * size), size, float(base), float(slope)))
    return card(*servers)


def test_approximation_is_near_the_simulator() -> None:
    # 8 cards at loads of 0.3 to 0.7, seed 5, 60,000 requests each: half-widths of p99 are below 4 %.
    rng = np.random.default_rng(5)
    errors: dict[str, list[float]] = {"mean_ms": [], "p99_ms": []}
    for load in np.linspace(0.3, 0.7, 8):
        row = drawn(rng, load)
        found = row.analyze()
        if isinstance(found, UnstableReplica):
            continue
        simulated = row.simulate(Effort(requests=60_000))
        assert isinstance(found, SharedAnswer)
        assert isinstance(simulated, SharedSimulation)
        for one, other in zip(found.shared, simulated.shared, strict=True):
            for name, into in errors.items():
                into.append(abs(getattr(one, name) / getattr(other, name) - 1))
    assert len(errors["mean_ms"]) >= 16
    assert np.quantile(errors["mean_ms"], 0.8) < 0.10
    assert np.quantile(errors["p99_ms"], 0.8) < 0.25


@pytest.mark.slow
def test_unstable_cards_are_refused_and_grow_when_simulated() -> None:
    # Each is stable by its utilisation; the fill is at least 1.2, so that queues visibly grow.
    rng, refused = np.random.default_rng(11), 0
    while refused < 10:
        row = drawn(rng, rng.uniform(0.6, 0.95))
        found = row.analyze()
        if not isinstance(found, UnstableReplica) or found.offered_rps < 1.2 * found.stable_rate_rps:
            continue
        refused += 1
        assert "no steady state" in found.message
        assert isinstance(row.simulate(Effort(requests=100_000)), OverloadedReplica)


def test_a_server_alone_or_beside_idle_ones_is_the_plain_server() -> None:
    plain = BatchRow.model_validate(server(100)).analyze()
    alone = card(server(100)).analyze()
    beside = card(server(100), server(1e-7, base=37.5)).analyze()
    assert isinstance(alone, SharedAnswer)
    assert isinstance(beside, SharedAnswer)
    for name in ("mean_ms", "p50_ms", "p99_ms", "p999_ms", "mean_batch"):
        assert getattr(alone.shared[0], name) == pytest.approx(getattr(plain, name), rel=1e-12)
        assert getattr(beside.shared[0], name) == pytest.approx(getattr(plain, name), rel=1e-5)


def test_order_of_servers_does_not_matter() -> None:
    servers = server(20, 8), server(40, base=10), server(15, 4, slope=1)
    one, two = card(*servers).analyze(), card(*servers[::-1]).analyze()
    assert isinstance(one, SharedAnswer)
    assert isinstance(two, SharedAnswer)
    for left, right in zip(one.shared, two.shared[::-1], strict=True):
        assert left.mean_ms == pytest.approx(right.mean_ms, rel=1e-6)


def test_maximum_stable_rate_separates_stable_from_refused() -> None:
    found = card(server(20), server(20, base=37.5)).analyze()
    assert isinstance(found, SharedAnswer)
    factor = found.stable_rate_rps / found.offered_rps
    for share, kind in ((factor * 0.9999, SharedAnswer), (factor * 1.0001, UnstableReplica)):
        assert isinstance(card(server(20 * share), server(20 * share, base=37.5)).analyze(), kind)


def test_sizing_keeps_the_proportions_and_the_margin() -> None:
    target: dict[str, Any] = {"latency": [{"percentile": 99, "ms": 150}, {"ms": 80}]}
    sized = card(server(2, **target), server(4, base=37.5, **target)).size()
    assert max(max(1.25 * one.p99_ms / 150, one.mean_ms / 80) for one in sized.shared) == pytest.approx(
        1, rel=1e-5
    )
    more = sized.offered_rps * 1.001
    beyond = card(server(more / 3), server(more * 2 / 3, base=37.5)).analyze()
    assert isinstance(beyond, SharedAnswer)
    assert max(max(1.25 * one.p99_ms / 150, one.mean_ms / 80) for one in beyond.shared) > 1
    with pytest.raises(AnalysisError, match="no rates in these proportions"):
        card(server(2, latency=[{"ms": 20}])).size()


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"shared": [server(1, trigger="gap")]}, "shared[0].trigger: not supported"),
        ({"shared": [server(1), server(1, maxQueueSize=9)]}, "shared[1].maxQueueSize: not supported"),
        ({"shared": [server(1)], "RPS": 3}, "RPS: the servers in shared give their rates"),
        ({"shared": []}, "shared"),
    ],
)
def test_unsupported_rows_are_refused_with_the_place(row: dict[str, Any], text: str) -> None:
    (found,) = read_problems([json.dumps(row)], kind_of_row)
    assert isinstance(found, SpecError)
    assert text in str(found)


def test_a_server_without_load_is_named() -> None:
    with pytest.raises(AnalysisError, match=r"shared\[1\]\.RPS"):
        card(server(1), server(0)).analyze()
