"""Stages around a batch server, and replicas of so many jobs: against simulations of others, and our own."""

import numpy as np
import pytest
from scipy.special import ndtr
from slow_cases import mostly_slow

from optimizer.errors import AnalysisError
from optimizer.queueing.bulk.closed_network import (
    closed_network_steady_state,
    safe_capacity,
    solve_closed_network,
)
from optimizer.queueing.bulk.lattice import Lattice, lognormal_excess, residual_excess
from optimizer.queueing.bulk.stations import departures_scv, erlang_c, in_groups, one_by_one
from optimizer.queueing.bulk.tandem import TandemSteadyState, tandem_steady_state
from optimizer.simulation.arrivals import arrival_times_ms
from optimizer.simulation.batches import BatchServer
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


def found_of(number: int) -> tuple[TandemSteadyState, float, float]:
    before, after, server, rate_rps, mean_ms, p95_ms = TANDEMS[number]
    return tandem_steady_state(line_of(before, after, server), rate_rps / 1000), mean_ms, p95_ms


@pytest.mark.parametrize("number", range(len(TANDEMS)))
def test_tandems_match_the_reference_simulation(number: int) -> None:
    found, mean_ms, p95_ms = found_of(number)
    assert found.mean_ms == pytest.approx(mean_ms, rel=0.03)
    assert found.quantile_ms(0.95) == pytest.approx(p95_ms, rel=0.04)
    assert found.late_share(found.quantile_ms(0.95)) == pytest.approx(0.05, rel=1e-3)


def test_engine_matches_the_model() -> None:
    found, *_ = found_of(1)
    count, rng = 200_000, np.random.default_rng(3)
    come = arrival_times_ms(TANDEMS[1][3], count, rng)
    start, last = np.empty(count), np.empty(count)
    run_line(found.line, come, stage_times_ms(found.line.stations, count, rng), start, last)
    latency = (last - come)[count // 20 : -count // 20]
    assert latency.mean() == pytest.approx(found.mean_ms, rel=0.03)
    assert np.quantile(latency, 0.95) == pytest.approx(found.quantile_ms(0.95), rel=0.04)


@pytest.mark.parametrize(("cv", "load"), mostly_slow([(0.0, 0.5), (0.4, 0.8), (1.0, 0.6)], 1))
def test_single_worker_stage_matches_pollaczek_khinchine(cv: float, load: float) -> None:
    wait = one_by_one(Station(BEFORE, 10.0, cv, 1), load / 10, 1.0)
    assert wait.mean_ms == pytest.approx(10 + load * 10 * (1 + cv * cv) / (2 * (1 - load)))
    limits = np.linspace(0.5, 600, 1200)
    beyond = [1 - (lattice := Lattice(limit)).within(wait.law(lattice)) for limit in limits]
    assert np.trapezoid(beyond, limits) + 0.5 == pytest.approx(wait.mean_ms, rel=0.01)


def test_queueing_probability_matches_erlang_c() -> None:
    assert erlang_c(1, 0.7) == pytest.approx(0.7)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)  # M/M/2 at half its load
    assert erlang_c(400, 100.0) == pytest.approx(0, abs=1e-100)


def test_departures_of_m_m_1_are_poisson() -> None:
    assert departures_scv(Station(BEFORE, 10.0, 1.0, 1), 0.08, 1.0) == pytest.approx(1)


def test_mean_queue_within_a_group_of_eight() -> None:
    batches = np.zeros(9)
    batches[8] = 1.0
    wait = in_groups(Station(AFTER, 5.0, 0.0, 1), 0.02, batches, 0.0)
    assert wait.group_ms == pytest.approx(3.5 * 5)
    assert wait.before_ms == pytest.approx(0, abs=1e-6)  # groups come evenly, and far from each other


def test_lattice_preserves_means() -> None:
    lattice = Lattice(400.0)
    whole = lattice.law(lognormal_excess(10.0, 0.5)) * lattice.law(residual_excess(10.0, 0.5))
    # The residual of a time of mean 10 and CV 0.5 has the mean 10·(1 + 0.25)/2.
    shares = [
        Lattice(limit).within(Lattice(limit).law(lognormal_excess(10.0, 0.5))) for limit in (10.0, 30.0)
    ]
    spread = np.sqrt(np.log(1.25))

    assert shares == pytest.approx(ndtr(np.log([1, 3]) / spread + spread / 2), abs=2e-3)
    assert lattice.within(whole) == pytest.approx(1, abs=1e-6)


# Of the reference's workloads_node.json: the batch server is the third of five stages; jobs/s simulated.
NODES = [
    ([(4000, 4), (500, 1), (1000, 1), (300, 1), (1500, 1)], 1.0, 6, 0.55503),
    ([(1000, 1), (500, 1), (2000, 1), (300, 1), (1500, 4)], 1.0, 8, 0.49697),
    ([(1000, 4), (500, 1), (1000, 1), (300, 1), (1500, 1)], 0.3, 4, 0.66235),
    ([(1000, 1), (500, 1), (2000, 1), (300, 1), (1500, 4)], 0.3, 2, 0.36022),
]


@pytest.mark.parametrize(("stages", "cv", "jobs", "simulated_rps"), NODES)
def test_safe_capacity_is_below_the_reference_simulation(
    stages: list[tuple[float, int]], cv: float, jobs: int, simulated_rps: float
) -> None:
    given = [(ms, cv, workers) for ms, workers in stages]
    line = line_of(given[:2], given[3:], (1, 0, stages[2][0], 0), jobs)
    assert 0.75 * simulated_rps <= 1000 * safe_capacity(line) <= simulated_rps


@pytest.mark.parametrize("seed", range(6))
def test_safe_capacity_is_below_simulated_throughput(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, size, jobs = 20_000, int(rng.choice([1, 4, 8])), int(rng.integers(1, 16))
    stages = [(float(rng.uniform(10, 80)), float(rng.choice([0, 0.3, 1, 2])), int(rng.integers(1, 4)))
              for _ in range(4)]  # fmt: skip
    line = line_of(stages[:2], stages[2:], (size, 0, 40, 5), jobs)
    start, last = np.empty(count), np.empty(count)
    run_line(line, np.zeros(count), stage_times_ms(line.stations, count, rng), start, last)
    simulated = count / last.max()
    # Over 20,000 jobs the bottleneck's times vary by 2/√20,000 at most: 1.5 %.
    assert 0.6 * simulated <= safe_capacity(line) <= 1.015 * simulated


def test_one_job_limit_matches_m_m_1() -> None:
    line = line_of([(30, 1, 1)], [], (1, 0, 1e-9, 0), 1)  # exponential: M/M/1
    found = closed_network_steady_state(line, 0.02)
    assert solve_closed_network(line).rates == pytest.approx([1 / 30])
    assert found.mean_ms == pytest.approx(30 / (1 - 0.6))
    with pytest.raises(AnalysisError, match="raise jobs"):
        closed_network_steady_state(line, 0.034)


def test_capacity_grows_with_jobs_up_to_the_bottleneck() -> None:
    line = line_of([(30, 1, 2)], [(25, 0.5, 1)], (4, 0, 40, 5), 40)
    rates = solve_closed_network(line).rates
    assert (np.diff(rates) > 0).all()
    assert rates[-1] == pytest.approx(1 / 25, rel=0.01)
    assert line.slowest == 1
    assert station_table([line.stations, ()])[1].sum() == 0
