"""Rates from counts of single periods: means, lines, jumps and dispersion, with independent computations."""

import math

import numpy as np
import pytest

from optimizer.stabilisation.arrivals import JUMP, ArrivalCount, CountHistory
from optimizer.stabilisation.demand import DemandMemory
from optimizer.stabilisation.forecast import ForecastSettings

STARTUP_S = 150.0


def history_of(numbers: list[float], span_s: float = 15.0) -> CountHistory:
    found = CountHistory()
    for k, number in enumerate(numbers, 1):
        found = found.after(ArrivalCount(k * span_s, span_s, number), STARTUP_S)
    return found


def test_the_rate_is_the_mean_weighted_by_time_spans() -> None:
    history = CountHistory()
    for end_s, span_s, number in ((10.0, 10.0, 52.0), (35.0, 25.0, 120.0), (40.0, 5.0, 24.0)):
        history = history.after(ArrivalCount(end_s, span_s, number), STARTUP_S)
    assert history.at(40.0).rate_rps == pytest.approx((52 + 120 + 24) / 40)
    assert history.mean_rps(20.0) == pytest.approx((120 + 24) / 30)


@pytest.mark.parametrize("spans", [[15.0] * 12, [5.0, 15.0, 30.0, 10.0, 20.0, 15.0, 15.0, 5.0, 40.0, 15.0]])
def test_a_significant_slope_is_that_of_weighted_least_squares(spans: list[float]) -> None:
    """Counts of a rate of 20 + 0.1 t; numpy's fit, whose weights are square roots of the time spans."""
    ends = np.cumsum(spans)
    rates = 20 + 0.1 * (ends - np.array(spans) / 2)
    history = CountHistory()
    for end_s, span_s, rate in zip(ends.tolist(), spans, rates.tolist(), strict=True):
        history = history.after(ArrivalCount(end_s, span_s, rate * span_s), STARTUP_S)
    kept = history.counts
    slope, base = np.polyfit(
        [item.middle_s for item in kept], [item.rate_rps for item in kept], 1,
        w=np.sqrt([item.span_s for item in kept]),
    )  # fmt: skip
    found = history.at(float(ends[-1]))
    assert not history.jumped
    assert found.slope_rps_per_s == pytest.approx(slope)
    assert found.rate_rps == pytest.approx(base + slope * ends[-1])
    assert slope == pytest.approx(0.1)


def test_a_jump_makes_the_rate_that_of_the_last_count() -> None:
    history = history_of([150.0] * 20)
    edge = 2 * math.sqrt(150) + JUMP * math.sqrt(1 + 1 / 20)
    for number, jumps in (((edge / 2) ** 2 - 1, False), ((edge / 2) ** 2 + 1, True)):
        found = history.after(ArrivalCount(315.0, 15.0, number), STARTUP_S)
        assert found.jumped is jumps
        assert (found.at(315.0).rate_rps == number / 15.0) is jumps
    fallen = history.after(ArrivalCount(315.0, 15.0, 60.0), STARTUP_S)
    assert fallen.jumped
    assert fallen.at(315.0).rate_rps == 4.0


def test_a_count_with_a_hole_is_never_a_jump() -> None:
    history = history_of([150.0] * 10)
    found = history.after(ArrivalCount(165.0, 15.0, 900.0, has_hole=True), STARTUP_S)
    assert found.counts == history.counts
    near = history.after(ArrivalCount(165.0, 15.0, 155.0, has_hole=True), STARTUP_S)
    assert len(near.counts) == len(history.counts) + 1


def test_counts_leave_after_two_start_up_times() -> None:
    assert len(history_of([10.0] * 100).counts) == 300 / 15
    assert len(history_of([3.0] * 500, span_s=1.0).counts) == 60


@pytest.mark.slow
def test_poisson_counts_seldom_jump_and_have_dispersion_one() -> None:
    """n = 20 days of counts of 15 s at 2/s, seed 1.

    A deviation of 5 has a probability of 6e-7 for a normal distribution; the skewness of small counts and the
    wide beginning of the dispersion allow a few. A Poisson process has a dispersion of 1, which is its bound.
    """
    rng, jumps = np.random.default_rng(1), 0
    dispersions = []
    for _ in range(20):
        history = CountHistory()
        for k, number in enumerate(rng.poisson(30.0, 5760).tolist(), 1):
            history = history.after(ArrivalCount(15.0 * k, 15.0, number), STARTUP_S)
            jumps += history.jumped
        dispersions.append(history.dispersion)
    assert jumps <= 2
    assert np.mean(dispersions) == pytest.approx(1.0, abs=0.15)


@pytest.mark.slow
def test_the_dispersion_of_batches_is_that_of_their_sizes() -> None:
    """Compound Poisson counts with batches of 1 to 9 requests, also over unequal time spans; n = 2000."""
    rng = np.random.default_rng(2)
    sizes = np.arange(1, 10)
    true = (sizes**2).mean() / sizes.mean()
    for spans in ([15.0], [5.0, 15.0, 30.0]):
        history, end_s, seen = CountHistory(), 0.0, []
        for k in range(2000):
            span_s = spans[k % len(spans)]
            end_s += span_s
            number = float(rng.choice(sizes, rng.poisson(4.0 * span_s)).sum())
            history = history.after(ArrivalCount(end_s, span_s, number), STARTUP_S)
            seen.append(history.dispersion)
        assert np.mean(seen[500:]) == pytest.approx(true, rel=0.1)


def test_a_jump_sets_the_level_of_the_forecast() -> None:
    memory, settings = DemandMemory(), ForecastSettings()
    for k in range(1, 41):
        number = 60.0 if k <= 39 else 300.0
        memory = memory.after(ArrivalCount(15.0 * k, 15.0, number), STARTUP_S, settings)
    assert memory.history.jumped
    assert memory.forecast.level_rps == 20.0
    demand = memory.at(165.0, settings)
    assert 20.0 <= demand.rate_rps <= 40.0
    assert demand.at_most_rps > demand.now.rate_rps == 20.0


def test_plans_are_for_the_line_up_to_twice_the_rate() -> None:
    memory = DemandMemory()
    for k in range(1, 21):
        memory = memory.after(ArrivalCount(15.0 * k, 15.0, 15.0 * (5 + 0.05 * 15 * k)), 30.0, None)
    now = memory.history.at(300.0)
    assert memory.at(45.0, None).rate_rps == pytest.approx(now.rate_rps + 45 * now.slope_rps_per_s)
    assert memory.at(9000.0, None).rate_rps == pytest.approx(2 * now.rate_rps)
