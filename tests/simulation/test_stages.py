"""Lines of stages around a batch server in the engine: against closed forms, and others' simulations."""

import numpy as np
import pytest

from optimizer.simulation.arrivals import arrival_times_ms
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.machine.passing import run_line, stage_times_ms
from optimizer.simulation.tandem import Station, Tandem

COUNT = 100_000
BEFORE, AFTER = True, False
NOTHING = BatchServer(1, 0.0, 1e-9, 0.0)
"""A server that takes no time."""


def passed_ms(line: Tandem, rate_rps: float, seed: int = 1, count: int = COUNT) -> np.ndarray:
    """Return the times that the middle of some requests take."""
    rng = np.random.default_rng(seed)
    come = arrival_times_ms(rate_rps, count, rng)
    start, last = np.empty(count), np.empty(count)
    run_line(line, come, stage_times_ms(line.stations, count, rng), start, last)
    return (last - come)[count // 20 : -count // 20]


def throughput_rps(line: Tandem, count: int = COUNT) -> float:
    """Return what a line carries where there are always jobs to take."""
    start, last = np.empty(count), np.empty(count)
    times = stage_times_ms(line.stations, count, np.random.default_rng(1))
    run_line(line, np.zeros(count), times, start, last)
    return 1000 * count / float(last.max())


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0])
def test_single_worker_matches_pollaczek_khinchine(cv: float) -> None:
    line = Tandem(NOTHING, (Station(BEFORE, 10.0, cv, 1),))
    waits = 0.6 * 10 * (1 + cv * cv) / (2 * 0.4)
    assert passed_ms(line, 60.0).mean() == pytest.approx(10 + waits, rel=0.03)


def test_many_workers_cause_no_queueing() -> None:
    line = Tandem(NOTHING, (Station(AFTER, 300.0, 0.0, 60),))
    assert passed_ms(line, 80.0).mean() == pytest.approx(300, rel=1e-3)


def test_batch_members_queue_at_the_next_stage() -> None:
    # At a rate at which every batch is full and no batch meets the one before: on average (8 - 1)/2 services.
    line = Tandem(BatchServer(8, 1e6, 10.0, 0.0), (Station(AFTER, 5.0, 0.0, 1),))
    alone = Tandem(line.server)
    with_stage, without = passed_ms(line, 20.0), passed_ms(alone, 20.0)
    assert (with_stage - without).mean() == pytest.approx(5 + 7 / 2 * 5, rel=1e-4)


def test_rejected_requests_skip_later_stages() -> None:
    line = Tandem(BatchServer(1, 0.0, 10.0, 0.0, queue_limit=0), (Station(AFTER, 5.0, 0.0, 9),))
    times = passed_ms(line, 50.0)
    assert np.isnan(times).mean() == pytest.approx(0.5 / 1.5, abs=0.01)  # offered load over one more
    assert times[~np.isnan(times)] == pytest.approx(15)


# Of the reference's workloads_node.json: stages [ms, workers], CV, jobs, and jobs/s simulated there.
NODES = [
    ([(4000, 4), (500, 1), (1000, 1), (300, 1), (1500, 1)], 1.0, 6, 0.55503),
    ([(1000, 4), (500, 1), (2000, 1), (300, 1), (1500, 1)], 0.3, 12, 0.50101),
    ([(1000, 1), (500, 1), (2000, 1), (300, 1), (1500, 4)], 0.3, 2, 0.36022),
]


@pytest.mark.parametrize(("stages", "cv", "jobs", "expected_rps"), NODES)
def test_job_limit_throughput_matches_reference_simulation(
    stages: list[tuple[float, int]], cv: float, jobs: int, expected_rps: float
) -> None:
    stations = tuple(Station(i < 2, float(ms), cv, workers) for i, (ms, workers) in enumerate(stages))
    assert throughput_rps(Tandem(NOTHING, stations, jobs)) == pytest.approx(expected_rps, rel=0.01)


def test_one_job_at_a_time_takes_the_sum_of_times() -> None:
    stations = (Station(BEFORE, 30.0, 0.0, 4), Station(AFTER, 50.0, 0.0, 1))
    line = Tandem(BatchServer(4, 0.0, 10.0, 10.0), stations, jobs=1)
    assert throughput_rps(line, 1000) == pytest.approx(10)


def test_jobs_arriving_during_a_batch_share_the_next() -> None:
    # Of four the first starts alone, as a free server waits for nobody; the other three follow together.
    line = Tandem(BatchServer(4, 0.0, 100.0, 0.0), jobs=4)
    assert throughput_rps(line, 4000) == pytest.approx(20, rel=1e-2)


@pytest.mark.slow
def test_large_job_limit_has_no_effect() -> None:
    stations = (Station(BEFORE, 30.0, 1.0, 4), Station(AFTER, 10.0, 0.5, 1))
    server = BatchServer(4, 0.0, 50.0, 5.0)
    assert passed_ms(Tandem(server, stations, jobs=COUNT), 40.0) == pytest.approx(
        passed_ms(Tandem(server, stations), 40.0)
    )
