"""The highest rates between which batch servers keep their targets, against looking at many rates."""

from collections.abc import Iterator

import numpy as np
import pytest

from optimizer.kinds.batch_servers.rows import BatchRow
from optimizer.queueing.bulk.simulated import is_simulated
from optimizer.queueing.bulk.steady import server_steady_state
from optimizer.queueing.bulk.sure import surely_met_below
from optimizer.queueing.measures import LOSS, TargetMeasure
from optimizer.queueing.sizing import largest_rate
from optimizer.simulation.batches import CLOCK, TRIGGERS, BatchServer
from optimizer.simulation.limits import UNLIMITED
from optimizer.simulation.tandem import Tandem

Case = tuple[BatchServer, dict[TargetMeasure, float]]


def cases(count: int, seed: int) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    for i in range(count):
        trigger, size = i % len(TRIGGERS), int(rng.choice([1, 2, 4, 8, 16]))
        base, slope = float(rng.choice([5, 20, 60])), float(rng.choice([0, 0.5, 5]))
        full = base + slope * size
        window = float(rng.choice([0, 5, 50, 200])) if size > 1 else 0.0
        if trigger == CLOCK:
            window = float(np.ceil(full * rng.uniform(1, 2)))
        room = int(size * rng.choice([2, 4])) + size if rng.random() < 0.5 else UNLIMITED
        server = BatchServer(
            size, window, base, slope, room, bool(trigger != CLOCK and rng.random() < 0.5), trigger
        )
        last = float(rng.uniform(0.8, 3) * (window + full))
        limits = {
            TargetMeasure("e2e", 99.0): last,
            TargetMeasure("e2e", 50.0): float(rng.uniform(0.5, 1) * last),
        }
        if room < UNLIMITED:
            limits[LOSS] = float(rng.choice([1e-3, 0.05]))
        if not is_simulated(Tandem(server), 1.0):
            yield server, dict([*limits.items()][: int(rng.integers(1, 4))])


def excess(server: BatchServer, limits: dict[TargetMeasure, float], rate: float) -> float:
    found = server_steady_state(server, rate)
    shares = {
        measure: found.rejected / limit - 1
        if measure == LOSS
        else found.late_share(limit) / (1 - float(measure.percentile or 0) / 100) - 1
        for measure, limit in limits.items()
    }
    return max(shares.values())


def row_of(server: BatchServer, limits: dict[TargetMeasure, float]) -> BatchRow:
    row = {
        "batchParms": {"base": server.base_ms, "slope": server.slope_ms},
        "maxBatchSize": server.size,
        "window": server.window_ms,
        "trigger": TRIGGERS[server.trigger],
        "queueCounts": "system" if server.counts_system else "waiting",
        "latency": [
            {"percentile": measure.percentile, "ms": limit}
            for measure, limit in limits.items()
            if measure != LOSS
        ],
    }
    row |= {"maxQueueSize": server.queue_limit} if server.queue_limit < UNLIMITED else {}
    return BatchRow.model_validate(row | ({"maxRejected": limits[LOSS]} if LOSS in limits else {}))


def test_all_targets_hold_up_to_the_safe_rate() -> None:
    known = 0
    for server, limits in cases(60, 3):
        sure = surely_met_below(server, limits)
        known += sure > 0
        for rate in sure * np.geomspace(1e-3, 1, 6) if sure > 0 else ():
            assert excess(server, limits, rate) <= 0, (server, limits, rate)
    assert known > 20


def test_safe_rate_of_a_single_server_is_below_its_limit() -> None:
    # Whoever finds one before it waits longer than 15 ms: of Poisson arrivals to one worker at a load of 0.1.
    server, limits = BatchServer(1, 0.0, 10.0, 0.0), {TargetMeasure("e2e", 99.0): 30.0}
    sure = surely_met_below(server, limits)
    assert 0.005 < sure < 0.1
    assert server_steady_state(server, sure).late_share(30.0) < 0.01


@pytest.mark.parametrize(
    "case", list(cases(20, 8)), ids=lambda case: f"{TRIGGERS[case[0].trigger]}-{case[0].size}"
)
def test_highest_interval_matches_a_scan_of_rates(case: Case) -> None:
    server, limits = case
    row = row_of(server, limits)
    queues = row.queues()
    sizing = largest_rate(queues, row.targets())
    top, low = float(sizing.max_rate_rps[0]) / 1000, float(sizing.lowest_rate_rps[0]) / 1000
    ends = float(queues.stable_rate_rps[0]) / 1000, float(queues.least_rate_rps[0]) / 1000
    rates = np.geomspace(*ends, 24)
    if np.isnan(top):
        assert all(excess(server, limits, rate) > 0 for rate in rates)
        return
    # The rates at which a scan looks; one that holds above the largest would be the answer.
    assert all(excess(server, limits, rate) > 0 for rate in rates if rate > top * (1 + 1e-9))
    assert all(excess(server, limits, rate) <= 1e-9 for rate in rates if low <= rate <= top)
    assert excess(server, limits, top) <= 1e-9
    assert top == pytest.approx(ends[0], rel=1e-12) or excess(server, limits, top * (1 + 3e-7)) > 0
    if server.window_ms > 0:
        assert excess(server, limits, low) <= 1e-9
        assert low == pytest.approx(ends[1], rel=1e-9) or excess(server, limits, low * (1 - 3e-7)) > 0


@pytest.mark.parametrize("case", list(cases(12, 9)))
def test_stated_largest_rate_is_returned_only_if_it_is_true(case: Case) -> None:
    row = row_of(*case)
    queues, targets = row.queues(), row.targets()
    true_rps = largest_rate(queues, targets).max_rate_rps
    for factor in (1.0, 1 + 1e-8, 1 - 1e-5, 1 + 1e-5, 0.5, 2.0):
        found_rps = largest_rate(queues, targets, factor * true_rps).max_rate_rps
        np.testing.assert_allclose(found_rps, true_rps, rtol=3e-7)
