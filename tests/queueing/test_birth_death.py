"""The stationary distribution against a walk over the states in 40 digits, and where it is extreme."""

import time
from collections.abc import Sequence
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from queue_oracles import DIGITS, mm1k, walk

from optimizer.queueing.birth_death import BirthDeathQueue, Stationary

LOADS = st.one_of(
    st.floats(-6, 6).map(lambda exponent: 10.0**exponent),
    st.sampled_from([1e-6, 1.0, 1 - 1e-12, 1 + 1e-12, 1 - 1e-15, 1 + 1e-9, 1e6]),
)
DEPARTURES = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=60)


def queues(departures: Sequence[Sequence[float]], room: Sequence[int]) -> BirthDeathQueue:
    return BirthDeathQueue.from_rates(
        np.log(np.concatenate([np.asarray(row) for row in departures])),
        np.array([len(row) for row in departures]),
        np.array(room),
    )


def solve(departures: Sequence[float], room: int, rate: float) -> Stationary:
    return queues([departures], [room]).solve(np.log(np.array([rate])))


@given(departures=DEPARTURES, room=st.integers(0, 600), load=LOADS)
def test_means_match_a_walk_over_states(departures: list[float], room: int, load: float) -> None:
    rate = load * departures[-1]
    found, walked = solve(departures, room, rate), walk(rate, departures, room)
    assert found.in_service[0] == pytest.approx(walked.in_service, rel=1e-10)
    assert found.in_queue[0] == pytest.approx(walked.in_queue, rel=1e-9, abs=1e-250)
    assert found.acceptance[0] == pytest.approx(walked.acceptance, rel=1e-10)
    assert found.log_p_full[0] == pytest.approx(walked.log_p_full, rel=1e-11, abs=1e-10)


@given(departures=DEPARTURES, room=st.integers(0, 600), load=LOADS)
def test_probabilities_sum_to_one(departures: list[float], room: int, load: float) -> None:
    rate = load * departures[-1]
    found = solve(departures, room, rate)
    with localcontext(DIGITS):
        total = probability = Decimal(float(found.log_p_empty[0])).exp()
        for state in range(1, len(departures) + room + 1):
            probability *= Decimal(rate) / Decimal(departures[min(state, len(departures)) - 1])
            total += probability
        last = probability.ln()
    assert float(total) == pytest.approx(1, rel=1e-10)
    assert found.log_p_full[0] == pytest.approx(float(last), rel=1e-11, abs=1e-10)


@given(departure=st.floats(1e-3, 1e3), batch=st.integers(1, 30), room=st.integers(0, 60), load=LOADS)
def test_constant_rate_matches_m_m_1_k(departure: float, batch: int, room: int, load: float) -> None:
    rate = load * departure
    found = solve([departure] * batch, room, rate)
    in_system, blocked = mm1k(rate, departure, batch + room)
    assert found.in_service[0] + found.in_queue[0] == pytest.approx(float(in_system), rel=1e-10)
    assert found.acceptance[0] == pytest.approx(float(1 - blocked), rel=1e-10)


@pytest.mark.parametrize("room", [0, 1, 600, 100_000, 10**9])
@pytest.mark.parametrize("load", [1e3, 1e6, 1e9])
def test_overload_admits_the_full_rate_to_full_precision(room: int, load: float) -> None:
    departures = [0.5 * n / (n + 4) for n in range(1, 65)]
    rate = load * departures[-1]
    accepted = rate * solve(departures, room, rate).acceptance[0]
    # In a queue of 600 and more the states below a full batch have a share of less than 1e-1000.
    expected = walk(rate, departures, room).throughput if room < 600 else departures[-1]
    assert accepted == pytest.approx(expected, rel=1e-12)


@pytest.mark.few(12)
@pytest.mark.parametrize("load", [1e-300, 1e-20, 1e-6, 1 - 1e-12, 1.0, 1 + 1e-12, 2.0, 1e9, 1e300])
@pytest.mark.parametrize(("batch", "room"), [(100_000, 10**9), (100_000, 0), (1, 10**9), (1, 0), (7, 3)])
def test_largest_queues_stay_within_bounds(batch: int, room: int, load: float) -> None:
    n = np.arange(1, batch + 1)
    departures = n / (1000.0 + n)
    started = time.process_time()
    found = solve(list(departures), room, load * float(departures[-1]))
    assert time.process_time() - started < 10
    slack = 1 + 1e-9
    assert 0 <= found.in_service[0] <= batch * slack
    assert -1e-15 <= found.in_queue[0] <= room * slack
    assert 0 < found.acceptance[0] <= slack
    assert np.isfinite(found.log_p_empty[0])
    assert np.isfinite(found.log_p_full[0])


def test_100000_states_match_the_walk() -> None:
    departures = [n / (1000.0 + n) for n in range(1, 100_001)]
    rate = departures[-1] * 0.999
    found, walked = solve(departures, 50_000, rate), walk(rate, departures, 50_000)
    assert found.in_service[0] == pytest.approx(walked.in_service, rel=1e-7)
    assert found.in_queue[0] == pytest.approx(walked.in_queue, rel=1e-6)


@given(
    rows=st.lists(st.tuples(DEPARTURES, st.integers(0, 600), st.floats(-3, 3)), min_size=2, max_size=6),
    data=st.data(),
)
def test_rows_are_bitwise_independent_of_their_neighbours(
    rows: list[tuple[list[float], int, float]], data: st.DataObject
) -> None:
    together = queues([row[0] for row in rows], [row[1] for row in rows])
    log_rates = np.log([row[0][-1] * 10.0 ** row[2] for row in rows])
    order = np.array(data.draw(st.permutations(range(len(rows)))))
    joint, shuffled = together.solve(log_rates), together.take(order).solve(log_rates[order])
    for name in Stationary.__slots__:
        for place, row in enumerate(order):
            alone = queues([rows[row][0]], [rows[row][1]]).solve(log_rates[[row]])
            assert getattr(joint, name)[row] == getattr(alone, name)[0]
            assert getattr(shuffled, name)[place] == getattr(alone, name)[0]
