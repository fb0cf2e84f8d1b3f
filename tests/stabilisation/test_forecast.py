"""Forecasts of arrival rates: level, trend, daily season."""

import math

import numpy as np
import pytest

from optimizer.stabilisation.forecast import DAY_S, ForecastSettings, RateForecast

SETTINGS = ForecastSettings()
STEP_S = 60.0


def day_rps(time_s: float) -> float:
    """Return the rate of a day between 15 and 100 requests/s."""
    return 57.5 - 42.5 * math.cos(2 * math.pi * time_s / DAY_S)


def test_a_constant_rate_is_forecast() -> None:
    found = RateForecast()
    for k in range(30):
        found = found.after(7.0, STEP_S * k, SETTINGS)
    assert found.at(300.0) == pytest.approx(7.0)


def test_a_trend_is_continued_within_twice_the_level() -> None:
    found = RateForecast()
    for k in range(60):
        found = found.after(10.0 + 0.5 * k, STEP_S * k, SETTINGS)
    assert found.at(300.0) == pytest.approx(10.0 + 0.5 * 64, rel=0.1)
    assert found.at(1e6) == pytest.approx(2 * found.level_rps)


def test_the_second_day_is_known() -> None:
    """Poisson counts of a minute, seed 4; on the second day errors 10 minutes ahead are below 4 %."""
    rng, found = np.random.default_rng(4), RateForecast()
    errors: dict[int, list[float]] = {0: [], 1: [], 2: []}
    for k in range(3 * 1440):
        now_s = STEP_S * k
        found = found.after(rng.poisson(day_rps(now_s) * STEP_S) / STEP_S, now_s, SETTINGS)
        true_rps = day_rps(now_s + 600)
        errors[k // 1440].append(abs(found.at(600.0) - true_rps) / true_rps)
    assert np.mean(errors[2]) < 0.04
    assert np.mean(errors[2]) < 0.7 * np.mean(errors[0][60:])


def test_a_day_with_more_traffic_is_scaled() -> None:
    found, errors = RateForecast(), []
    for k in range(2 * 1440):
        now_s = STEP_S * k
        found = found.after(day_rps(now_s) * (1.3 if now_s > DAY_S else 1.0), now_s, SETTINGS)
        if now_s > 1.3 * DAY_S:
            errors.append(abs(found.at(600.0) / (1.3 * day_rps(now_s + 600)) - 1))
    assert np.mean(errors) < 0.04
    assert max(errors) < 0.1


def test_gaps_and_repeated_times_do_no_harm() -> None:
    found = RateForecast().after(5.0, 0.0, SETTINGS).after(9.0, 0.0, SETTINGS).after(6.0, 90_000.0, SETTINGS)
    assert 0 <= found.at(600.0) <= 2 * found.level_rps
    assert RateForecast().at(60.0) == 0.0
