"""Stages around a batch server, and replicas of so many jobs: against simulations of others, and our own."""

import numpy as np
import pytest

from optimizer.errors import AnalysisError
from optimizer.queueing.bulk.model import BatchingPolicy, BulkQueues
from optimizer.queueing.bulk.simulated import saturation_rate, simulate_steady_state
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.sizing import largest_rate
from optimizer.queueing.targets import Targets
from optimizer.simulation.arrivals import arrival_times_ms
from optimizer.simulation.batches import GAP, BatchServer
from optimizer.simulation.machine.passing import run_line, stage_times_ms
from optimizer.simulation.tandem import Station, Tandem, station_table

BEFORE, AFTER = True, False
Stages = list[tuple[float, float, int]]
# Of the reference's workloads_tandem.json: stages before and after [ms, CV, workers]; B, W, base, slope;
# requests/s; then mean and p95 [ms], simulated there.
TANDEMS: list[tuple[Stages, Stages, tuple[int, float, float, float], float, float, float]] = [
    ([(300, 1, 41), (7.6, 0.3, 1)], [(6.65, 0.3, 1), (100, 1, 41)], (8, 100, 60, 2), 84.2105, 567.8, 1118.8),
    ([(300, 1, 37), (9.5, 0.3, 1)], [(8.31, 0.3, 1), (100, 1, 37)], (4, 10, 37.5, 2.5), 75.7895, 549.2, 1114),
    ([(100, 1, 3), (28, 0.3, 1)], [(24.5, 0.3, 1), (100, 1, 3)], (4, 100, 100, 10), 17.1429, 535.7, 839.6),
    ([(100, 1, 16), (13, 0.3, 1)], [(11.38, 0.3, 1), (200, 1, 16)], (16, 50, 100, 10), 49.23, 707.3, 1117.8),
]  # fmt: skip


def line_of(before: Stages, after: Stages, server: tuple[int, float, float, float], jobs: int = 0) -> Tandem:
    stations = [Station(BEFORE, *stage) for stage in before] + [Station(AFTER, *stage) for stage in after]
    size, window, base, slope = server
    batches = BatchServer(size, float(window), float(base), float(slope))
    return Tandem(batches, tuple(stations), jobs)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(TANDEMS)))
def test_tandems_match_the_reference_simulation(number: int) -> None:
    before, after, server, rate_rps, mean_ms, p95_ms = TANDEMS[number]
    found = simulate_steady_state(line_of(before, after, server), rate_rps / 1000, 1.0)
    assert found.mean_ms == pytest.approx(mean_ms, rel=0.005)
    assert found.quantile_ms(0.95) == pytest.approx(p95_ms, rel=0.025)
    assert found.late_share(found.quantile_ms(0.95)) == pytest.approx(0.05, rel=1e-3)


AFTER_STAGES = (Station(AFTER, 18.0, 0.5, 3), Station(AFTER, 43.0, 1.0, 2))
LINES = {
    "jobs": (Tandem(BatchServer(16, 0.0, 27.0, 1.0), AFTER_STAGES, 4), 0.024, 1.0),
    "stages": (Tandem(BatchServer(16, 20.0, 27.0, 1.0), AFTER_STAGES), 0.035, 1.0),
    "gap": (Tandem(BatchServer(16, 5.0, 27.0, 1.0, trigger=GAP)), 0.3, 1.0),
    "bursts": (Tandem(BatchServer(16, 50.0, 100.0, 5.0)), 0.06, 1.5),
}
"""Servers that are simulated, each with a rate [1/ms] and a CV of arrivals."""


@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
def test_figures_match_other_random_requests(name: str) -> None:
    line, rate, cv = LINES[name]
    found, count, rng = simulate_steady_state(line, rate, cv), 4_000_000, np.random.default_rng(3)
    come = arrival_times_ms(1000 * rate, count, rng, cv)
    start, last = np.empty(count), np.empty(count)
    run_line(line, come, stage_times_ms(line.stations, count, rng), start, last)
    latency = (last - come)[count // 20 : -count // 20]
    assert found.mean_ms == pytest.approx(latency.mean(), rel=0.01)
    assert found.quantile_ms(0.99) == pytest.approx(np.quantile(latency, 0.99), rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
def test_sizing_meets_the_targets_and_leaves_little(name: str) -> None:
    line, rate, cv = LINES[name]
    policy = BatchingPolicy.of_lines([line])
    numbers = (line.server.base_ms, line.server.slope_ms, line.server.size, cv)
    base_ms, slope_ms, size, arrival_cv = (np.array([number]) for number in numbers)
    queues, measure = BulkQueues(base_ms, slope_ms, size, arrival_cv, policy), TargetMeasure("e2e", 95)
    limit_ms = simulate_steady_state(line, rate, cv).quantile_ms(0.95)
    targets = Targets.of_limits([{measure: limit_ms}], np.zeros(1, np.bool_))
    (found_rps,) = largest_rate(queues, targets).max_rate_rps.tolist()
    assert queues.row_at(0, found_rps).late_share(limit_ms) <= 0.05
    assert 0.98 <= found_rps / (1000 * rate) <= 1.0 + 1e-9


@pytest.mark.few(1)
@pytest.mark.parametrize(("cv", "load"), [(0.0, 0.5), (0.4, 0.8), (1.0, 0.6)])
def test_single_worker_stage_matches_pollaczek_khinchine(cv: float, load: float) -> None:
    line = Tandem(BatchServer(1, 0.0, 1e-6, 0.0), (Station(BEFORE, 10.0, cv, 1),))
    mean_ms = 10 + load * 10 * (1 + cv * cv) / (2 * (1 - load))
    assert simulate_steady_state(line, load / 10, 1.0).mean_ms == pytest.approx(mean_ms, rel=0.01)


# Of the reference's workloads_node.json: the batch server is the third of five stages; jobs/s simulated. Its
# times vary there, so throughputs are compared where they vary little.
NODES = [
    ([(1000, 4), (500, 1), (1000, 1), (300, 1), (1500, 1)], 4, 0.66235),
    ([(1000, 1), (500, 1), (2000, 1), (300, 1), (1500, 4)], 2, 0.36022),
]


@pytest.mark.parametrize(("stages", "jobs", "simulated_rps"), NODES)
def test_capacity_with_jobs_is_near_the_reference_simulation(
    stages: list[tuple[float, int]], jobs: int, simulated_rps: float
) -> None:
    given = [(ms, 0.3, workers) for ms, workers in stages]
    line = line_of(given[:2], given[3:], (1, 0, stages[2][0], 0), jobs)
    assert 0.97 * simulated_rps <= 1000 * saturation_rate(line) <= 1.01 * simulated_rps


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(6))
def test_capacity_with_jobs_is_at_most_that_of_other_requests(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, size, jobs = 100_000, int(rng.choice([1, 4, 8])), int(rng.integers(1, 16))
    stages = [(float(rng.uniform(10, 80)), float(rng.choice([0, 0.3, 1, 2])), int(rng.integers(1, 4)))
              for _ in range(4)]  # fmt: skip
    line = line_of(stages[:2], stages[2:], (size, 0, 40, 5), jobs)
    start, last = np.empty(count), np.empty(count)
    run_line(line, np.zeros(count), stage_times_ms(line.stations, count, rng), start, last)
    # Over 100,000 jobs the bottleneck's times vary by 2/√100,000 at most: 0.6 %.
    assert 0.98 <= saturation_rate(line) * last.max() / count <= 1.005


def test_one_job_limit_matches_m_g_1() -> None:
    line = line_of([(30, 0.5, 1)], [], (1, 0, 1e-9, 0), 1)
    found = simulate_steady_state(line, 0.02, 1.0)
    assert saturation_rate(line) == pytest.approx(0.99 / 30, rel=2e-3)
    assert found.mean_ms == pytest.approx(30 + 0.6 * 30 * 1.25 / (2 * 0.4), rel=0.01)
    with pytest.raises(AnalysisError, match="raise jobs"):
        simulate_steady_state(line, 0.034, 1.0)


def test_capacity_grows_with_jobs_up_to_the_bottleneck() -> None:
    lines = [line_of([(30, 1, 2)], [(25, 0.5, 1)], (4, 0, 40, 5), jobs) for jobs in (1, 2, 4, 8, 40)]
    rates = [saturation_rate(line) for line in lines]
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(0.99 / 25, rel=0.01)
    assert lines[0].slowest == 1
    assert station_table([lines[0].stations, ()])[1].sum() == 0
