"""What the engine promises beside its numbers: live use, what it refuses, what it says of a run."""

import subprocess
import sys

import numpy as np
import pytest

from optimizer.errors import AnalysisError
from optimizer.simulation.engine import advance, simulate
from optimizer.simulation.law import Coefficients, IterationCoefficients, ProcessorSharingCoefficients
from optimizer.simulation.lengths import LengthDistribution, Lengths
from optimizer.simulation.limits import Limits
from optimizer.simulation.machine.state import initial_state
from optimizer.simulation.replicas import Effort, TokenReplica, run_replica
from optimizer.simulation.requests import Requests
from optimizer.simulation.summary import summarise
from optimizer.simulation.workload import OpenLoad

LAW = IterationCoefficients(6.83, 0.0224, 4.36e-5, 0.0189, 1.04e-6, 0.0, 4.3)
LINEAR = ProcessorSharingCoefficients(7.0, 0.08, 10.0, 0.0002)
LIMITS = Limits(64, 2048)
LOAD = OpenLoad(
    8.0,
    Lengths(LengthDistribution.UNIFORM, 256, 0.5),
    Lengths(LengthDistribution.UNIFORM, 128, 0.5, least=1),
)


@pytest.mark.parametrize("times", [LAW, LINEAR])
def test_stepwise_run_equals_a_single_run(times: Coefficients) -> None:
    requests = LOAD.draw(300, np.random.SeedSequence(3))
    whole = simulate(requests, times, LIMITS)
    machine = initial_state(requests, LIMITS)
    now_ms, rng = 0.0, np.random.default_rng(4)
    while np.isnan(machine.rows["last_ms"]).any():
        now_ms += rng.exponential(20)
        advance(machine, times, LIMITS, now_ms)
    np.testing.assert_allclose(machine.rows["first_ms"], whole.first_ms, rtol=1e-12)
    np.testing.assert_allclose(machine.rows["last_ms"], whole.last_ms, rtol=1e-12)


@pytest.mark.parametrize("times", [LAW, LINEAR])
def test_runs_depend_only_on_the_seed(times: Coefficients) -> None:
    effort = Effort(requests=600)
    first, again = (run_replica(LOAD, TokenReplica(times, LIMITS), effort)[0] for _ in range(2))
    other = run_replica(LOAD, TokenReplica(times, LIMITS), Effort(requests=600, seed=2))[0]
    sibling = run_replica(LOAD, TokenReplica(times, LIMITS), effort, stream=1)[0]
    assert first.last_ms.tobytes() == again.last_ms.tobytes()
    assert first.last_ms.tobytes() not in {other.last_ms.tobytes(), sibling.last_ms.tobytes()}


def test_reference_model_is_linear_in_tokens_and_context() -> None:
    requests = Requests(np.array([100]), np.array([3]), np.array([5.0]))
    run = simulate(requests, IterationCoefficients(2.0, 0.1, 0.01), Limits(4, 64))
    chunks_ms = (2 + 6.4) + (2 + 3.6)
    assert run.ttft_ms[0] == pytest.approx(chunks_ms)
    assert run.last_ms[0] - run.first_ms[0] == pytest.approx(2 * 2.1 + 0.01 * (101 + 102))


def test_lone_request_under_processor_sharing() -> None:
    requests = Requests(np.array([100, 0]), np.array([11, 1]), np.array([0.0, 10_000.0]))
    run = simulate(requests, ProcessorSharingCoefficients(5.0, 0.5, 20.0, 0.1), Limits(4, 1))
    assert run.ttft_ms == pytest.approx([30.0, 0.0])
    assert run.e2e_ms == pytest.approx([30 + 10 * 5.5, 0.0])


def test_zero_times_are_rejected() -> None:
    with pytest.raises(AnalysisError, match="not positive"):
        simulate(LOAD.draw(10, np.random.SeedSequence(1)), IterationCoefficients(), LIMITS)


def test_request_larger_than_kv_cache_is_rejected() -> None:
    requests = Requests(np.array([10, 10]), np.array([10, 12]), np.array([0.0, 1.0]))
    run = simulate(requests, LAW, Limits(4, 64, kv_tokens=20))
    assert run.rejected.tolist() == [False, True]


def test_client_with_one_in_flight_sends_after_completion() -> None:
    requests = Requests(np.full(5, 10), np.full(5, 4), np.zeros(5))
    run = simulate(requests, LAW, Limits(4, 64, max_in_flight=1))
    assert run.sent_ms[1:].tolist() == run.last_ms[:-1].tolist()
    assert np.ptp(run.e2e_ms) == pytest.approx(0, abs=1e-9)


def test_littles_law_holds_for_closed_load() -> None:
    rng, count = np.random.default_rng(1), 20_000
    think_ms, wakes_ms = rng.exponential(2000.0, count), np.sort(rng.exponential(2000.0, 40))
    requests = Requests(np.full(count, 256), np.full(count, 128), think_ms=think_ms, wakes_ms=wakes_ms)
    found = summarise([simulate(requests, LAW, LIMITS)])
    users = found.throughput_rps.value * (found.e2e.mean.value + 2000.0) / 1000
    assert users == pytest.approx(40, rel=0.02)
    assert found.overload is None


@pytest.mark.parametrize("cv", [0.0, 1.0, 3.0])
def test_only_overload_is_reported(cv: float) -> None:
    lengths = Lengths(LengthDistribution.FIXED, 256), Lengths(LengthDistribution.FIXED, 128)
    saturated = simulate(Requests(np.full(4000, 256), np.full(4000, 128), np.zeros(4000)), LAW, LIMITS)
    largest_rps = 4000 / saturated.last_ms.max() * 1000
    for share, overloaded in ((0.9, False), (1.1, True)):
        load = OpenLoad(share * largest_rps, *lengths, arrival_cv=cv)
        found = summarise(run_replica(load, TokenReplica(LAW, LIMITS), Effort()))
        assert (found.overload is not None) == overloaded, (share, found.overload)
        if found.overload:
            assert f"{found.throughput_rps.value:.2g}"[:1] in found.overload
            assert "the queue grows without bound" in found.overload


@pytest.mark.slow
def test_confidence_interval_coverage() -> None:
    """200 M/M/1 queues of 4,000 requests at load 0.5: 95 % of intervals hold the mean wait, within noise."""
    held = 0
    runs = 200
    for seed in np.random.SeedSequence(11).spawn(runs):
        rng = np.random.default_rng(seed)
        arrivals = np.cumsum(rng.exponential(2000, 4000))
        requests = Requests(np.ones(4000, np.int64), rng.geometric(1 / 1000, 4000), arrivals)
        found = summarise([simulate(requests, IterationCoefficients(1.0), Limits(1, 1))])
        held += abs(found.ttft.mean.value - (1000 + 1)) <= found.ttft.mean.half_width
    assert 0.88 <= held / runs <= 0.99


@pytest.mark.slow
def test_import_does_not_load_the_compiler() -> None:
    code = (
        "import sys, optimizer, optimizer.cli.main, optimizer.simulation; "
        "from optimizer.jobs import simulating, sweeping; from optimizer.simulation import engine; "
        "print([name for name in ('numba', 'llvmlite', 'joblib') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_lengths_have_the_requested_moments() -> None:
    rng = np.random.default_rng(5)
    uniform = Lengths(LengthDistribution.UNIFORM, 100, 0.5).draw(100_000, rng)
    assert (uniform.min(), uniform.max()) == (50, 150)
    assert uniform.mean() == pytest.approx(100, rel=0.01)
    lognormal = Lengths.with_cv(200, 1.0).draw(200_000, rng)
    assert lognormal.mean() == pytest.approx(200, rel=0.01)
    assert lognormal.std() / lognormal.mean() == pytest.approx(1.0, rel=0.03)
    assert lognormal.max() <= 16 * 200
    between = Lengths.with_cv(10.25, 0.0).draw(100_000, rng)
    assert set(between.tolist()) == {10, 11}
    assert between.mean() == pytest.approx(10.25, rel=0.01)
    assert Lengths.with_cv(0.0, 1.0).draw(3, rng).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("cv", "squared"), [(0.0, 0.0), (1.0, 1.0), (2.0, 4.0)])
def test_arrivals_have_the_requested_cv(cv: float, squared: float) -> None:
    load = OpenLoad(50.0, Lengths(LengthDistribution.FIXED, 1), Lengths(LengthDistribution.FIXED, 1), cv)
    arrivals = load.draw(200_000, np.random.SeedSequence(6)).arrival_ms
    assert arrivals is not None
    gaps = np.diff(arrivals)
    assert gaps.mean() == pytest.approx(20.0, rel=0.02)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(squared, rel=0.05, abs=1e-9)


def test_too_small_effort_is_rejected() -> None:
    for effort, text in (
        ({"requests": 10}, "500 or more"),
        ({"runs": 0}, "1 or more"),
        ({"seed": -1}, "0 or"),
    ):
        with pytest.raises(AnalysisError, match=text):
            Effort(**effort)
