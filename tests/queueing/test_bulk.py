"""The bulk-service queue: against simulations of others, closed forms, and the project's own engine."""

import numpy as np
import pytest

from optimizer.errors import AnalysisError
from optimizer.kinds.batch_servers.rows import BatchRow
from optimizer.kinds.simulated import open_load
from optimizer.queueing.bulk.limits import line_problem
from optimizer.queueing.bulk.model import SteadyState
from optimizer.queueing.bulk.simulated import is_simulated, simulate_steady_state
from optimizer.queueing.bulk.steady import server_steady_state
from optimizer.schema import Load
from optimizer.simulation.arrivals import arrival_times_ms
from optimizer.simulation.batches import TRIGGERS, BatchServer
from optimizer.simulation.limits import UNLIMITED
from optimizer.simulation.machine.collecting import run_batches
from optimizer.simulation.replicas import Effort, LineReplica, run_replica
from optimizer.simulation.tandem import Tandem

Row = tuple[int, float, float, float, int | None, bool, str, float, float, float, float]
# Rows of the reference's workloads_batch.json: B, W, base, slope, K, whether it counts those in service,
# trigger, requests/s; then mean, p99 [ms] and the share turned away, simulated there in 10 runs.
SIMULATED: list[Row] = [
    (2, 20, 100, 0, 6, True, "oldest", 17, 186.680, 297.727, 0.06936),
    (12, 400, 20, 1, 14, False, "oldest", 225, 56.752, 105.673, 0.00112),
    (16, 2, 60, 0.5, 48, False, "oldest", 223.529, 130.263, 240.910, 0.00124),
    (2, 5, 100, 0, 20, False, "oldest", 22.8, 905.748, 1097.053, 0.12336),
    (100, 20, 5, 5, None, False, "collect", 19.802, 31.948, 49.970, 0.0),
    (2, 5, 100, 0, 4, True, "collect", 10, 143.284, 245.733, 0.04578),
    (12, 100, 5, 5, None, False, "gap", 147.692, 107.683, 179.421, 0.0),
    (3, 0, 100, 0, 6, True, "gap", 28.5, 160.720, 251.841, 0.17915),
    (12, 50, 5, 5, 14, False, "interval", 44.3077, 61.677, 116.895, 0.0),
    (1, 50, 5, 5, 3, True, "interval", 20, 11.208, 23.571, 0.00156),
    (64, 100, 100, 0, 192, False, "clock", 320, 149.992, 198.996, 0.0),
    (1, 150, 100, 0, 2, False, "clock", 6.33333, 257.534, 396.936, 0.19621),
]


def server_of(row: Row) -> BatchServer:
    size, window, base, slope, room, counts_system, trigger = row[:7]
    places = UNLIMITED if room is None else room
    return BatchServer(
        size, float(window), float(base), float(slope), places, counts_system, TRIGGERS.index(trigger)
    )


def steady_state(server: BatchServer, rate: float) -> SteadyState:
    if is_simulated(Tandem(server), 1.0):
        return simulate_steady_state(Tandem(server), rate, 1.0)
    return server_steady_state(server, rate)


@pytest.mark.few(6)
@pytest.mark.parametrize("row", SIMULATED, ids=[f"{row[6]}-{row[0]}-{row[1]:g}" for row in SIMULATED])
def test_metrics_match_the_reference_simulation(row: Row) -> None:
    *_, rate_rps, mean_ms, p99_ms, rejected = row
    found = steady_state(server_of(row), rate_rps / 1000)
    assert found.mean_ms == pytest.approx(mean_ms, rel=5e-3)
    assert found.quantile_ms(0.99) == pytest.approx(p99_ms, rel=1e-2)
    assert found.rejected == pytest.approx(rejected, abs=5e-4)


@pytest.mark.parametrize("row", [SIMULATED[1], SIMULATED[7], SIMULATED[8]], ids=lambda row: row[6])
def test_engine_matches_within_confidence_intervals(row: Row) -> None:
    count, runs, server, rate = 100_000, 8, server_of(row), row[7] / 1000
    start, last, queue = np.empty(count), np.empty(count), np.empty(count, np.int64)
    means, beyond, lost = [], [], []
    found = server_steady_state(server, rate)
    limit_ms = found.quantile_ms(0.95)
    for seed in range(runs):
        come = arrival_times_ms(row[7], count, np.random.default_rng(seed))
        run_batches(server, come, start, last, queue)
        latency = (last - come)[count // 10 : -count // 10]
        lost.append(np.isnan(latency).mean())
        latency = latency[~np.isnan(latency)]
        means.append(latency.mean())
        beyond.append((latency > limit_ms).mean())
    # Eight runs: 4.5 standard errors of t with 7 degrees of freedom are exceeded once in 400 figures.
    for figures, exact in ((means, found.mean_ms), (beyond, 0.05), (lost, found.rejected)):
        error = np.std(figures, ddof=1) / np.sqrt(runs)
        assert abs(np.mean(figures) - exact) <= 4.5 * error + 1e-6


@pytest.mark.parametrize("load", [0.3, 0.9])
def test_single_request_batches_match_pollaczek_khinchine(load: float) -> None:
    found = server_steady_state(BatchServer(1, 0.0, 10.0, 0.0), load / 10)
    assert found.mean_ms == pytest.approx(10 + load * 10 / (2 * (1 - load)), rel=1e-9)
    assert found.busy == pytest.approx(load, rel=1e-9)


def test_loss_without_a_queue_matches_erlang_b() -> None:
    found = server_steady_state(BatchServer(1, 0.0, 10.0, 0.0, queue_limit=0), 0.05)
    assert found.rejected == pytest.approx(0.5 / 1.5, rel=1e-12)  # offered load over one more
    assert found.mean_ms == pytest.approx(10, rel=1e-12)


def test_lone_request_waits_for_the_entire_window() -> None:
    for trigger, window in (("oldest", 50.0), ("collect", 50.0), ("interval", 25.0)):
        found = server_steady_state(BatchServer(8, 50.0, 10.0, 1.0, trigger=TRIGGERS.index(trigger)), 1e-7)
        assert found.mean_ms == pytest.approx(11 + window, rel=1e-4)  # somewhere in an interval


@pytest.mark.parametrize("row", SIMULATED[1:10:2], ids=lambda row: row[6])
def test_late_shares_fall_and_integrate_to_the_mean(row: Row) -> None:
    found = server_steady_state(server_of(row), row[7] / 1000)
    limits = np.linspace(0, found.quantile_ms(0.9999), 241)
    shares = np.array([found.late_share(limit) for limit in limits])
    assert shares[0] == pytest.approx(1, abs=1e-5)
    assert (np.diff(shares) <= 1e-5).all()
    assert np.trapezoid(shares, limits) == pytest.approx(found.mean_ms, rel=1e-2)


@pytest.mark.parametrize("load", [3.5, 4.14, 6.0, 40.0])
@pytest.mark.parametrize("size", [2, 16])
def test_overloaded_short_queue_serves_full_batches(size: int, load: float) -> None:
    # States that are next to never taken are many powers of ten rarer than the usual ones.
    server = BatchServer(size, 50.0, 20.0, 1.0, 11 * size, counts_system=True)
    found = server_steady_state(server, load * server.full_rate)
    assert found.mean_batch == pytest.approx(size, rel=1e-6)
    assert found.rejected == pytest.approx(1 - 1 / load, rel=1e-6)


@pytest.mark.few(5)
@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize(("size", "room"), [(8, 140), (100, 350), (256, 580)])
def test_long_bounded_queue_matches_unlimited_queue(size: int, room: int, trigger: str) -> None:
    # With so little room all states are looked at; without a limit the last stands for all beyond it.
    server = BatchServer(size, 1.5 * (20 + size), 20.0, 1.0, trigger=TRIGGERS.index(trigger))
    free, full = (
        server_steady_state(each, 0.8 * server.full_rate)
        for each in (server, server._replace(queue_limit=room))
    )
    assert len(full.starts) == room + 1 != len(free.starts)
    assert full.mean_ms == pytest.approx(free.mean_ms, rel=1e-10)
    for limit in (0.7, 1.5, 2.5):
        expected = free.late_share(limit * server.window_ms)
        assert full.late_share(limit * server.window_ms) == pytest.approx(expected, rel=1e-8, abs=1e-14)


def test_unstable_queue_has_no_steady_state() -> None:
    with pytest.raises(AnalysisError, match="grows without bound"):
        server_steady_state(BatchServer(4, 0.0, 10.0, 0.0), 0.4)


@pytest.mark.parametrize(
    ("server", "cv", "part"),
    [
        (BatchServer(8, 5.0, 10.0, 0.0, queue_limit=7), 1.0, "maxQueueSize"),
        (BatchServer(8, 5.0, 10.0, 0.0, trigger=TRIGGERS.index("clock")), 1.0, "window"),
        (BatchServer(10_000, 0.0, 10.0, 0.0), 1.0, "maxBatchSize"),
        (BatchServer(8, 0.0, 10.0, 0.0, queue_limit=0, counts_system=True), 1.0, "maxQueueSize"),
        (BatchServer(8, 0.0, 10.0, 0.0), 3.5, "arrivalCV"),
    ],
)
def test_unsupported_servers_are_rejected(server: BatchServer, cv: float, part: str) -> None:
    problem = line_problem(Tandem(server), cv, "window", "arrivalCV")
    assert problem is not None
    assert problem[0] == part


GAP_RATE_RPS = 10 / 12
GAP_ROW = {
    "RPS": GAP_RATE_RPS,
    "batchParms": {"base": 2000},
    "maxBatchSize": 4,
    "trigger": "gap",
    "window": 1000,
    "maxQueueSize": 8,
    "queueCounts": "system",
}


def test_gap_late_shares_match_simulation() -> None:
    """At every share of the requests and not in the tail alone."""
    row = BatchRow.model_validate(GAP_ROW)
    found = row.queues().row_at(0, GAP_RATE_RPS)
    load = open_load(Load(arrival_rate_rpm=60 * GAP_RATE_RPS), GAP_RATE_RPS)
    (run,) = run_replica(load, LineReplica(row.line()), Effort(requests=400_000), 1)
    simulated = run.e2e_ms[~np.isnan(run.e2e_ms)]
    for limit_ms in map(float, (2500, 3050, 3300, 3450, 3550, 3800, 4200, 4450, 4600, 5000, 5400)):
        # 400,000 requests in batches of three: two standard errors are some 0.3 percentage points.
        assert found.late_share(limit_ms) == pytest.approx((simulated > limit_ms).mean(), abs=0.004), limit_ms
