"""What users of one replica see: worked cases, closed forms, and the walk over the states."""

import time

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from queue_builders import GROWING_ITERATION, ITERATION, LINEAR, analyzed, queues_of
from queue_oracles import Iteration, Linear, Machine

MACHINES = st.builds(Machine, st.one_of(LINEAR, ITERATION), st.integers(1, 64), st.integers(0, 300))


# --- worked cases -----------------------------------------------------------------------------------------

CASE_A = Machine(Linear(19, 1, 0, 0, 0, 1025), 32, 168)  # reference/README.md, worked case A


def test_worked_case_a() -> None:
    found = analyzed(CASE_A, 30 / 60)
    assert round(found["in_service"] + found["in_queue"], 2) == 21.24  # this and the next: worked case A
    assert round(found["in_service"], 2) == 20.90
    assert round(found["in_queue"], 2) == 0.34
    assert round(found["utilization"], 3) == 0.653
    assert round(found["response_ms"]) == 42_481
    assert round(found["service_ms"]) == 41_808
    assert round(found["wait_ms"]) == 674
    assert round(found["itl_ms"], 1) == 40.8
    assert f"{found['p_empty']:.4e}" == "5.7982e-07"
    assert f"{found['p_full']:.4e}" == "2.0382e-17"


def test_newest_reference_example() -> None:
    found = analyzed(Machine(Iteration(12, 0.05, 0.0005, 128, 512), 48, 128), 3)
    assert round(found["response_ms"], 3) == 10_348.367  # this and the next: the reference's answer, recorded
    assert round(found["wait_ms"], 3) == 21.405
    assert round(found["in_service"], 3) == 30.981
    assert round(found["ttft_ms"], 3) == 67.615
    assert round(found["itl_ms"], 4) == 20.1189


def test_loss_is_reported_without_a_queue() -> None:
    # the reference's example of a loss that it hides: offered 13.79, served 12.94 req/s, 6.2 % lost
    found = analyzed(Machine(Iteration(6.7, 0.024, 5e-5, 1024, 256), 64, 0), 13.79)
    assert found["throughput_rps"] == pytest.approx(12.94, abs=0.005)
    assert found["loss"] == pytest.approx(0.062, abs=5e-4)
    assert found["wait_ms"] == 0


# --- against the walk -------------------------------------------------------------------------------------


def agree(found: dict[str, float], machine: Machine, rate: float) -> None:
    seen = machine.see(rate)
    assert found["throughput_rps"] == pytest.approx(seen.throughput, rel=1e-9)
    assert found["in_service"] == pytest.approx(seen.in_service, rel=1e-9)
    assert found["service_ms"] == pytest.approx(seen.service, rel=1e-9)
    assert found["wait_ms"] == pytest.approx(seen.wait, rel=1e-8, abs=1e-9 * seen.service)
    assert found["prefill_ms"] == pytest.approx(seen.prefill, rel=1e-7, abs=1e-9)
    assert found["itl_ms"] == pytest.approx(seen.itl, rel=1e-7)
    assert found["ttft_ms"] == pytest.approx(seen.ttft, rel=1e-7, abs=1e-9)
    assert found["utilization"] == pytest.approx(seen.in_service / machine.batch, rel=1e-9)
    assert found["response_ms"] == pytest.approx(seen.wait + seen.service, rel=1e-8)
    assert found["offered_rps"] == rate


@given(machine=MACHINES, load=st.floats(1e-4, 5))
def test_means_match_a_walk_over_the_states(machine: Machine, load: float) -> None:
    rate = load * machine.stable()
    if isinstance(machine.law, Iteration):  # rounding decides the chunks at half a request
        assume(abs(machine.see(rate).in_service % 1 - 0.5) > 1e-6)
    agree(analyzed(machine, rate), machine, rate)


@given(
    machine=st.builds(Machine, st.one_of(LINEAR, GROWING_ITERATION), st.integers(2, 64), st.integers(0, 300)),
    load=st.floats(1e-3, 1.5),
    growth=st.floats(1e-3, 1),
)
def test_latencies_grow_with_the_rate_without_chunk_jumps(
    machine: Machine, load: float, growth: float
) -> None:
    rate = load * machine.stable()
    less, more = analyzed(machine, rate), analyzed(machine, rate * (1 + growth))
    for name in ("ttft_ms", "itl_ms", "wait_ms", "service_ms", "in_service", "throughput_rps"):
        assert more[name] >= less[name] * (1 - 1e-10) - 1e-12, name


# --- rates ------------------------------------------------------------------------------------------------


@given(machine=st.builds(Machine, st.one_of(LINEAR, ITERATION), st.integers(1, 64), st.just(0)))
def test_rate_range_matches_the_reference(machine: Machine) -> None:
    queues = queues_of([machine])
    departures = [rate * 1000 for rate in machine.departures()]
    assert queues.single_rate_rps[0] == pytest.approx(departures[0], rel=1e-12)
    assert queues.full_rate_rps[0] == pytest.approx(departures[-1], rel=1e-12)
    assert queues.stable_rate_rps[0] == pytest.approx(0.999 * departures[-1], rel=1e-12)
    assert queues.least_rate_rps[0] == pytest.approx(0.001 * min(departures[0], departures[-1]), rel=1e-12)


@pytest.mark.few(3)
@pytest.mark.parametrize("rate", [1e-9 / 60, 1e-9, 1.0, 1e9 / 60, 1e9])
@pytest.mark.parametrize("tokens", [(0, 1), (1, 1), (1, 2), (100_000, 1), (100_000, 100_000)])
@pytest.mark.parametrize("batch", [1, 100_000])
def test_extreme_inputs_are_analysed_quickly(rate: float, tokens: tuple[int, int], batch: int) -> None:
    started = time.process_time()
    machines = [Machine(Iteration(6.7, 0.024, 5e-5, *tokens), batch, 10 * batch)]
    if tokens != (0, 1):
        machines.append(Machine(Linear(6.7, 0.24, 5, 0.001, *tokens), batch, 10 * batch))
    for machine in machines:
        found = analyzed(machine, rate)
        assert all(np.isfinite(value) for value in found.values())
        assert 0 < found["throughput_rps"] <= rate * (1 + 1e-9)
        assert found["itl_ms"] > 0
        assert found["ttft_ms"] >= 0
    assert time.process_time() - started < 10
