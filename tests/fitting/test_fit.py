"""A fit gives back the law that runs were made with, says what it cannot know, and how far it is off."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from synthetic import FULL, LIMITS, REFERENCE, SHAPES, expected, measured, sweep

from optimizer.errors import FitError
from optimizer.fitting.fit import errors_of, fit
from optimizer.fitting.notes import LEFT_OUT, Note
from optimizer.fitting.options import FitOptions, MeasuredSetup, ServerSettings
from optimizer.fitting.parameters import BY_NAME, REFERENCE_LAW
from optimizer.fitting.profile import FittedProfile
from optimizer.fitting.readers.report import Benchmark
from optimizer.fitting.replay import BenchmarkReplay
from optimizer.fitting.runs import Arrivals, BenchmarkRun, RunMeasurements, TokenCounts
from optimizer.simulation.law import IterationCoefficients


def benchmark(runs: list[BenchmarkRun], model: str = "m") -> Benchmark:
    return Benchmark(tuple(runs), "synthetic", model, "2026-01-02")


@cache
def fitted(law: IterationCoefficients, noise: float) -> FittedProfile:
    leave_out = noise == 0.02  # where a test looks at it: it fits once more for each shape
    settings = ServerSettings(10**7, 1024)
    options = FitOptions(leave_out=leave_out, key=MeasuredSetup(accelerator="H100"), settings=settings)
    shapes = SHAPES[:3] if law is REFERENCE else SHAPES
    return fit([benchmark(sweep(law, shapes, noise))], options)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_full_model_is_recovered_within_its_intervals(noise: float) -> None:
    profile = fitted(FULL, noise)
    for name in BY_NAME:
        true, (low, high) = getattr(FULL, name), profile.fit.intervals.get(BY_NAME[name].key, (0.0, 0.0))
        assert low <= true * 1.02, name
        assert true <= high * 1.02, name
    for name in REFERENCE_LAW:
        assert getattr(profile.iteration, name) == pytest.approx(getattr(FULL, name), rel=0.15), name


@pytest.mark.slow
def test_reference_model_is_recovered() -> None:
    profile = fitted(REFERENCE, 0.01)
    for name, rel in zip(REFERENCE_LAW, (0.05, 0.1, 0.15), strict=True):
        assert getattr(profile.iteration, name) == pytest.approx(getattr(REFERENCE, name), rel=rel), name


@pytest.mark.slow
def test_per_prompt_term_is_found_only_if_present() -> None:
    options = FitOptions(settings=ServerSettings(10**7, 1024), leave_out=False)
    runs = sweep(FULL._replace(per_prompt_ms=0.9), (*SHAPES, (16, 16)), noise=0.01)
    found = fit([benchmark(runs)], options)
    assert "perPrompt" in found.fit.fitted_terms
    assert found.iteration.per_prompt_ms == pytest.approx(0.9, abs=0.3)
    assert fitted(FULL, 0.02).iteration.per_prompt_ms < 0.3


@pytest.mark.slow
def test_prediction_errors_match_the_noise() -> None:
    errors = fitted(FULL, 0.02).fit.errors
    assert 0.005 < errors.itl < 0.03
    assert errors.runs == 4 * len(SHAPES)
    found = IterationCoefficients(**{name: getattr(fitted(FULL, 0.02).iteration, name) for name in BY_NAME})
    true = sweep(FULL)
    assert errors_of([(run, expected(run, found)) for run in true]).itl < 0.01


@pytest.mark.slow
def test_noiseless_runs_are_predicted_nearly_exactly() -> None:
    exact = fitted(FULL, 0.0)
    runs = [point.run() for point in exact.points]
    law = IterationCoefficients(**{name: getattr(exact.iteration, name) for name in BY_NAME})
    assert errors_of([(run, expected(run, law)) for run in runs]).itl < 0.006


@pytest.mark.slow
def test_omitted_shapes_are_predicted_from_the_others() -> None:
    left_out = fitted(FULL, 0.02).fit.left_out
    assert len(left_out) == len(SHAPES)
    assert max(one.itl for one in left_out.values()) < 0.08


@pytest.mark.slow
def test_profile_domain() -> None:
    domain = fitted(FULL, 0.02).provenance.domain
    assert domain.in_tokens == (64, 4096)
    assert domain.out_tokens == (64, 1024)
    assert list(domain.misses(1000, 200, 10)) == []
    assert list(domain.misses(1000, 9000, 10)) == ["answers of 9,000 tokens, measured from 64 to 1,024"]
    assert len(list(domain.misses(10, 9000, 1e5))) == 3


@pytest.mark.slow
def test_one_shape_fits_a_simpler_model_with_warnings() -> None:
    runs = sweep(FULL, (SHAPES[2],), noise=0.01)
    profile = fit([benchmark(runs)], FitOptions(settings=ServerSettings(10**7, 1024)))
    assert len(profile.fit.fitted_terms) < len(BY_NAME)
    assert any("one shape only, 1024/256" in warning for warning in profile.fit.warnings)
    assert any(warning.startswith("not identified") for warning in profile.fit.warnings)
    assert profile.fit.errors.itl < 0.05


@pytest.mark.slow
def test_highest_rates_are_held_out() -> None:
    options = FitOptions(hold_out=1, settings=ServerSettings(10**7, 1024), leave_out=False)
    profile = fit([benchmark(sweep(FULL, SHAPES[:2]))], options)
    assert {point.rate_rps for point in profile.points if not point.fitted} == {50.0, 80.0}
    assert profile.fit.held_out is not None
    assert profile.fit.held_out.runs == 2
    assert profile.fit.held_out.itl < 0.05


def closed(users: int, requests: int, cv: float = 0.0) -> BenchmarkRun:
    """Measure users that always have one request in flight."""
    lengths = TokenCounts.of(500, 0.0), TokenCounts.of(100, 100 * cv)
    run = BenchmarkRun(
        *lengths, Arrivals.CLOSED, requests=requests, max_in_flight=users, source=f"c{users}.json"
    )
    return measured(run, REFERENCE, np.random.default_rng(users), 0.0)


@pytest.mark.slow
def test_the_same_report_twice_is_one_measurement() -> None:
    runs = [closed(1, 20), closed(8, 80)]
    options = FitOptions(leave_out=False)
    once = fit([benchmark(runs)], options)
    again = replace(runs[0], source="old/c1.json")
    twice = fit([benchmark([*runs, again])], options)
    assert (twice.iteration, twice.provenance.runs) == (once.iteration, 2)
    assert "old/c1.json is the same measurement as c1.json: it counts once" in twice.fit.warnings
    with pytest.raises(FitError, match="2 measured times are too few"):
        fit([benchmark([runs[0], again, again])], options)


def test_the_highest_number_of_users_is_held_out() -> None:
    runs = [closed(users, 10 * users) for users in (1, 4, 16)]
    profile = fit([benchmark(runs)], FitOptions(hold_out=1, leave_out=False))
    assert [point.max_in_flight for point in profile.points if not point.fitted] == [16]
    assert profile.fit.held_out_throughput is not None
    assert profile.fit.held_out_throughput < 0.1


@pytest.mark.slow
def test_a_run_that_spoils_the_others_is_named() -> None:
    runs = [closed(users, 10 * users) for users in (1, 2, 4, 8, 16)]
    wrong = runs[3].measured
    runs[3] = replace(runs[3], measured=wrong._replace(itl_ms=3 * (wrong.itl_ms or 0)))
    found = fit([benchmark(runs)], FitOptions(leave_out=False)).fit
    assert found.spoiled_by is None or "c8.json contradicts the other runs" in found.spoiled_by
    assert fit([benchmark([*runs[:3], runs[4]])], FitOptions(leave_out=False)).fit.spoiled_by is None


@pytest.mark.slow
def test_runs_show_a_limit_on_tokens_that_nobody_states() -> None:
    runs = []
    for users in (1, 8, 32):
        lengths = TokenCounts.of(3000, 0.0), TokenCounts.of(150, 0.0)
        run = BenchmarkRun(
            *lengths, Arrivals.CLOSED, requests=10 * users, max_in_flight=users, source=f"c{users}"
        )
        found = BenchmarkReplay.of(run, LIMITS._replace(max_num_tokens=512)).simulate(FULL)
        runs.append(replace(run, measured=RunMeasurements(*found[:3]), completed=found.completed))
    profile = fit([benchmark(runs)], FitOptions(leave_out=False))
    assert profile.max_num_tokens == 512
    assert any("512, because the runs contradict the usual 8,192" in text for text in profile.fit.warnings)


def fitted_mixture(*rows: tuple[int, int, float, float, float]) -> FittedProfile:
    """Fit users, requests, TTFT [ms], ITL [ms] and throughput [requests/s] of a mixture of experts."""
    lengths = TokenCounts.of(1000, 0.0), TokenCounts.of(800, 0.0)
    runs = [
        BenchmarkRun(
            *lengths, Arrivals.CLOSED, requests=requests, max_in_flight=users, source=f"c{users}",
            measured=RunMeasurements(ttft_ms, itl_ms, rate_rps),
        )
        for users, requests, ttft_ms, itl_ms, rate_rps in rows
    ]  # fmt: skip
    key = MeasuredSetup("qwen3-235b-a22b", "H200", 4, "fp8")
    return fit([benchmark(runs)], FitOptions(leave_out=False, key=key))


@pytest.mark.slow
def test_a_law_is_never_flat_where_runs_rise() -> None:
    """The ITL of a mixture grows less than linearly, as in published sweeps."""
    rows = ((1, 20, 96, 5.0, 0.244), (16, 96, 636, 16.0, 1.19), (64, 384, 2364, 18.0, 3.8))
    found = fitted_mixture(*rows)
    times = [point.predicted_itl_ms or 0.0 for point in found.points]
    assert times[0] < 0.6 * times[1] < 0.6 * times[2]
    assert times == pytest.approx([row[3] for row in rows], rel=0.02)
    assert [point.predicted_ttft_ms for point in found.points] == pytest.approx(
        [r[2] for r in rows], rel=0.02
    )
    assert found.max_num_tokens == 1 << 16
    assert any("65,536, because the runs contradict the usual 8,192" in text for text in found.fit.warnings)
    low, high = found.fit.intervals["expertShare"]
    assert low < 8 / 128 < high
    assert found.max_batch_size == 0
    assert "estimate of qwen3-235b-a22b" in found.fit.prior


@pytest.mark.slow
def test_the_ttft_of_lone_requests_can_be_the_longest() -> None:
    rows = ((1, 64, 520, 17.0, 0.0709), (8, 128, 300, 26.0, 0.3796), (64, 512, 560, 52.0, 1.5199))
    found = fitted_mixture(*rows)
    times = [(point.predicted_ttft_ms, point.predicted_itl_ms) for point in found.points]
    for (ttft_ms, itl_ms), (_, _, measured_ttft_ms, measured_itl_ms, _) in zip(times, rows, strict=True):
        assert ttft_ms == pytest.approx(measured_ttft_ms, rel=0.1)
        assert itl_ms == pytest.approx(measured_itl_ms, rel=0.05)
    assert found.iteration.idle_offset_ms > 100
    assert any("ms longer for their first token than others" in text for text in found.fit.warnings)


def test_reports_of_two_models_are_rejected() -> None:
    runs = sweep(REFERENCE, SHAPES[:1])
    with pytest.raises(FitError, match="several models, a, b; fit each one separately"):
        fit([benchmark(runs, "a"), benchmark(runs, "b")], FitOptions())


def test_too_few_measurements_are_rejected() -> None:
    with pytest.raises(FitError, match="too few to fit anything; measure 3 or more"):
        fit([benchmark(sweep(REFERENCE, SHAPES[:1])[:1])], FitOptions())
    lost = benchmark([closed(1, 20)])._replace(
        decisions=(Note("b.json", LEFT_OUT, "is left out: no tokens"),)
    )
    with pytest.raises(FitError, match=r"several rates; b\.json is left out: no tokens$"):
        fit([lost], FitOptions())


@pytest.mark.slow
def test_profile_round_trip() -> None:
    profile = fitted(FULL, 0.02)
    again = FittedProfile.model_validate(profile.document())
    assert again == profile
    assert [point.run().shape for point in again.points[:2]] == [(64, 256), (256, 64)]
