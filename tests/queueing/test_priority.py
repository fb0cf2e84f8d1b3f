"""Classes with priorities in one queue, against closed forms, an inversion and simulated waiting times.

``data/priority_waits.json`` holds mean and 95th percentile of waiting times with 95 % half-widths, from runs
of an event simulation written for this table only: random S(n) = base + slope·n, three classes, and work that
is exponential, fixed, uniform or lognormal.
"""

import json
from itertools import pairwise
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.arrays import FloatArray
from optimizer.features.shared_queues.streams import mixed_load
from optimizer.queueing.continuous.model import ContinuousQueues
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.performance import ReplicaLimits, Variability
from optimizer.queueing.priority.delays import PriorityDelays
from optimizer.queueing.priority.model import (
    UNLIMITED_QUEUE,
    ClassMix,
    ClassPerformance,
    PriorityQueues,
)
from optimizer.queueing.reference import ReplicaQueues
from optimizer.queueing.sizing import largest_rate
from optimizer.queueing.targets import Targets
from optimizer.schema import Load
from optimizer.timing.iteration import IterationLaw
from optimizer.timing.law import RequestShapes
from optimizer.timing.linear import LinearLaw

POINTS = json.loads((Path(__file__).parents[1] / "data" / "priority_waits.json").read_text("utf-8"))["points"]
P95 = TargetMeasure("ttft", 95.0)


def linear_queues(count: int, batch: int, base: float, slope: float) -> ReplicaQueues:
    """Return equal queues with service times base + slope·n, as two output tokens without a prompt."""
    one = np.ones(count)
    law = LinearLaw.of_rows(
        np.array([[base], [slope], [0.0], [0.0]]) * one, RequestShapes(0 * one, 2 * one, one)
    )
    room = ReplicaLimits(np.full(count, batch), np.full(count, UNLIMITED_QUEUE), np.inf * one)
    return ReplicaQueues.of_law(law, room, Variability(one, one, one))


def token_queues(count: int, arrival_cv: float = 1.0) -> ContinuousQueues:
    one = np.ones(count)
    law = IterationLaw.of_rows(
        np.array([[6.0], [0.02], [0.0005], [8192.0]]) * one,
        RequestShapes(128 * one, 256 * one, one),
    )
    room = ReplicaLimits(np.full(count, 16), np.full(count, UNLIMITED_QUEUE), np.inf * one)
    return ContinuousQueues.of_law(law, room, Variability(arrival_cv * one, one, one))


def classes_of(
    point: dict[str, Any] | None = None,
    *,
    batch: int = 1,
    base: float = 100.0,
    slope: float = 0.0,
    rates: list[float] | None = None,
    priorities: list[int] | None = None,
    cv: float = 1.0,
) -> ClassPerformance:
    """Return the performance of classes in order of priority."""
    if point is not None:
        batch, base, slope = point["batch"], point["serviceBase"], point["serviceSlope"]
        rates, cv = point["ratesRps"], point["workCV2"] ** 0.5
    assert rates is not None
    one = np.ones(len(rates))
    mix = ClassMix.of(rates, priorities or range(1, len(rates) + 1))
    queues = PriorityQueues.of(linear_queues(len(rates), batch, base, slope), [mix], cv * one)
    return queues.analyze(sum(rates) * one)


# --- closed forms ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("square", [0.0, 0.25, 1.0, 2.25, 9.0])
def test_one_slot_waits_as_cobham_says(square: float) -> None:
    rates = [2.0, 3.0, 4.0]
    found = classes_of(rates=rates, cv=square**0.5)
    residual_ms = 0.9 * 100 * (1 + square) / 2
    loads = np.concatenate(([0.0], np.cumsum(rates) * 0.1))
    expected = [residual_ms / ((1 - above) * (1 - upto)) for above, upto in pairwise(loads)]
    np.testing.assert_allclose(found.wait_ms, expected, rtol=1e-12)


def inverted(delays: PriorityDelays, time_ms: float) -> float:
    """Return P(wait > time) of one class by Euler's method for Laplace transforms (Abate and Whitt)."""
    above, upto = float(delays.above[0]), float(delays.upto[0])
    rate = 1 / ((1 - above) * (1 - upto) * float(delays.mean_ms[0]))
    arrivals, start = above * rate, rate * (1 - upto)

    def tail(s: complex) -> complex:
        both = arrivals + rate + s
        busy = 2 * rate / (both + np.sqrt(both**2 - 4 * arrivals * rate))
        return complex((1 - start / (start + s + arrivals * (1 - busy))) / s)

    size, first, last = 18.4, 40, 14
    total = np.exp(size / 2) / (2 * time_ms) * tail(complex(size / (2 * time_ms))).real
    sums = []
    for k in range(1, first + last + 1):
        place = complex(size / (2 * time_ms), k * np.pi / time_ms)
        total += np.exp(size / 2) / time_ms * (-1) ** k * tail(place).real
        sums.append(total)
    return float(sum(comb(last, k) * sums[first - 1 + k] for k in range(last + 1)) / 2**last)


@given(upto=st.floats(1e-6, 0.999), share=st.floats(0, 1), mean=st.floats(0.01, 1e5), at=st.floats(0.05, 8))
def test_delays_are_the_inverse_of_the_transform(upto: float, share: float, mean: float, at: float) -> None:
    delays = PriorityDelays(np.array([mean]), np.array([upto * share]), np.array([upto]))
    assert delays.survival(np.array([at * mean]))[0] == pytest.approx(inverted(delays, at * mean), abs=1e-6)


@pytest.mark.slow
def test_delays_have_their_mean_variance_and_quantiles() -> None:
    above = np.array([0.0, 0.3, 0.25, 0.64, 0.9, 0.998, 1e-9, 0.5, 0.0])
    upto = np.array([0.7, 0.5, 0.5, 0.8, 0.95, 0.999, 1e-8, 0.5, 0.0])  # σ² below, at and above σ′
    delays = PriorityDelays(np.full(len(above), 20.0), above, upto)
    times = np.concatenate((np.linspace(0, 0.02, 50)[:-1], np.geomspace(0.02, 6e4, 8000)))
    tails = np.array([delays.survival(np.full(len(above), time)) for time in times])
    np.testing.assert_allclose(np.trapezoid(tails, times, axis=0), 20, rtol=1e-5)
    square = np.trapezoid(2 * tails * times[:, None], times, axis=0)
    np.testing.assert_allclose(square - 400, delays.variance, rtol=1e-4)
    assert (np.diff(tails, axis=0) <= 0).all()
    for one_in in (1.0, 2.0, 20.0, 1e6):
        found = delays.quantile(np.full(len(above), one_in))
        np.testing.assert_allclose(delays.survival(found), 1 / one_in, rtol=1e-9)


# --- properties --------------------------------------------------------------------------------------------


def test_one_class_is_the_queue_without_classes() -> None:
    rates = np.array([0.01, 1.0, 8.0, 9.9])
    one = np.ones(4)
    for inner in (linear_queues(4, 1, 90.0, 10.0), token_queues(4), token_queues(4, 3.0)):
        rate = rates * inner.stable_rate_rps / 10
        plain = inner.analyze(rate)
        found = PriorityQueues.of(inner, [ClassMix.of([7.0], [5])] * 4, one).analyze(rate)
        names = ("wait_ms", "ttft_ms", "itl_ms", "response_ms", "in_queue", "in_service", "offered_rps")
        for name in names:
            np.testing.assert_array_equal(getattr(found, name), getattr(plain, name))
        if plain.knows_percentiles:
            for metric in ("ttft", "itl", "e2e"):
                for percent in (50.0, 99.0):
                    measure = TargetMeasure(metric, percent)
                    np.testing.assert_allclose(found.figure(measure), plain.figure(measure), rtol=1e-9)


@given(
    rates=st.lists(st.floats(0, 5), min_size=1, max_size=20).filter(lambda some: sum(some) > 0.01),
    load=st.floats(1e-6, 0.998),
    batch=st.integers(1, 64),
)
def test_priorities_only_redistribute_waiting(rates: list[float], load: float, batch: int) -> None:
    shares = np.array(rates) / sum(rates)
    inner = linear_queues(len(rates), batch, 100.0, 5.0)
    total = load * inner.full_rate_rps
    mix = ClassMix.of(rates, range(1, len(rates) + 1))
    found = PriorityQueues.of(inner, [mix], np.ones(len(rates))).analyze(total)
    np.testing.assert_allclose(shares @ found.wait_ms, inner.analyze(total).wait_ms[0], rtol=1e-9, atol=1e-12)
    assert (np.diff(found.wait_ms) >= -1e-9 * found.wait_ms[:-1]).all()
    assert (np.diff(found.wait_quantile(0.999)) >= -1e-6 * found.wait_quantile(0.999)[:-1]).all()


def test_equal_priorities_are_one_class_in_any_order() -> None:
    apart = classes_of(batch=4, slope=5.0, rates=[4.0, 10.0, 6.0], priorities=[7, 2, 7])
    joint = classes_of(batch=4, slope=5.0, rates=[10.0, 10.0])
    np.testing.assert_allclose(apart.wait_ms, joint.wait_ms[[1, 0, 1]], rtol=1e-12)
    np.testing.assert_allclose(apart.offered_rps, [4, 10, 6], rtol=1e-12)


@pytest.mark.few(5)
@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 1.5, 5.0])
@pytest.mark.parametrize("batch", [1, 2, 64])
def test_extreme_loads_give_ordered_finite_waits(cv: float, batch: int) -> None:
    full_rps = batch / 0.1
    for load in (1e-12, 1e-3, 0.5, 0.99, 0.999):
        rates = [0.0, *np.full(18, load * full_rps / 18).tolist(), 0.0]
        found = classes_of(batch=batch, rates=rates, cv=cv)
        assert np.isfinite(found.wait_ms).all()
        assert (np.diff(found.wait_ms) >= 0).all()
        assert (np.diff(found.wait_quantile(0.95)) >= 0).all()
        assert (found.wait_quantile(0.99) >= found.wait_quantile(0.5)).all()
        assert (found.figure(TargetMeasure("e2e", 99.0)) > 0).all()


def test_percentiles_of_all_requests_are_a_mixture() -> None:
    found = classes_of(batch=4, rates=[10.0, 20.0, 6.0])
    at = found.quantile_of_all("ttft", 95.0)
    beyond = found.latencies.survival("ttft", np.full(3, at))
    assert (found.offered_rps / 36) @ beyond == pytest.approx(0.05)
    assert found.figure(P95)[0] < at < found.figure(P95)[2]


def test_lengths_of_a_mix_are_those_of_the_merged_requests() -> None:
    rates, means, cvs = (1.0, 3.0), (100.0, 20.0), (0.0, 1.0)
    loads = [
        Load(arrival_rate_rpm=rate, out_tokens=mean, out_tokens_cv=cv)
        for rate, mean, cv in zip(rates, means, cvs, strict=True)
    ]
    found = mixed_load(loads)
    assert found.out_tokens == pytest.approx(40)
    assert found.out_tokens_cv**2 == pytest.approx((0.25 * 100**2 + 0.75 * 2 * 20**2) / 40**2 - 1)


def test_largest_rate_keeps_the_mix_and_meets_every_class() -> None:
    inner = linear_queues(2, 4, 100.0, 5.0)
    queues = PriorityQueues.of(inner, [ClassMix.of([1.0, 2.0], [1, 2])], np.ones(2))
    targets = Targets.of_limits([{P95: 120.0}, {P95: 400.0}], np.zeros(2, np.bool_))
    total = largest_rate(queues, targets).max_rate_rps
    alone = largest_rate(inner, Targets.of_limits([{}, {}], np.zeros(2, np.bool_))).max_rate_rps
    assert (total < alone).all()
    least = np.full(2, total.min())
    assert targets.met(queues.analyze(least)).all()
    assert not targets.met(queues.analyze(least * 1.001)).all()


def test_iterations_give_higher_classes_shorter_waits() -> None:
    inner = token_queues(3)
    queues = PriorityQueues.of(inner, [ClassMix.of([1.0, 1.0, 1.0], [1, 2, 3])], np.ones(3))
    rate: FloatArray = 0.95 * inner.stable_rate_rps
    found, plain = queues.analyze(rate), inner.analyze(rate)
    assert (np.diff(found.ttft_ms) > 0).all()
    np.testing.assert_allclose(found.itl_ms, plain.itl_ms)
    assert found.ttft_ms.mean() == pytest.approx(plain.ttft_ms[0], rel=1e-9)
    assert found.wait_quantile(0.95)[0] < found.figure(P95)[0] < plain.figure(P95)[0] < found.figure(P95)[2]


# --- simulated waiting times -------------------------------------------------------------------------------


def errors(name: str) -> FloatArray:
    """Return the relative errors of all classes whose simulated value is known to 10 %."""
    found = []
    for point in POINTS:
        performance = classes_of(point)
        mine = performance.wait_ms if name == "meanWait" else performance.wait_quantile(0.95)
        for value, one in zip(mine, point["classes"], strict=True):
            true, half_width = one[name]
            if half_width < 0.1 * true:
                found.append(value / true - 1)
    return np.array(found)


@pytest.mark.parametrize(("name", "share"), [("meanWait", 0.85), ("p95Wait", 0.8)])
def test_simulated_waits_are_within_a_tenth(name: str, share: float) -> None:
    off = np.abs(errors(name))
    assert len(off) > 60
    assert np.median(off) < 0.03
    assert (off <= 0.1).mean() > share
