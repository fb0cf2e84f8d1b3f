"""A fit gives back the law that runs were made with, says what it cannot know, and how far it is off."""

from functools import cache

import pytest
from synthetic import FULL, LIMITS, REFERENCE, SHAPES, sweep

from optimizer.errors import FitError
from optimizer.fitting.fit import errors_of, fit
from optimizer.fitting.options import FitOptions, MeasuredSetup, ServerSettings
from optimizer.fitting.parameters import BY_NAME, REFERENCE_LAW
from optimizer.fitting.profile import FittedProfile
from optimizer.fitting.readers.report import Benchmark
from optimizer.fitting.replay import BenchmarkReplay
from optimizer.fitting.runs import BenchmarkRun
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
@pytest.mark.parametrize("noise", [pytest.param(0.0, marks=pytest.mark.slow), 0.02])
def test_full_model_is_recovered_within_its_errors(noise: float) -> None:
    profile = fitted(FULL, noise)
    errors = profile.fit.standard_errors
    for name in BY_NAME:
        true, found, error = getattr(FULL, name), getattr(profile.iteration, name), getattr(errors, name)
        if BY_NAME[name].key in profile.fit.fitted_terms:
            assert abs(found - true) <= 3 * error, f"{name}: {found:g} ± {error:g} for {true:g}"
            assert error < true, name
    for name in REFERENCE_LAW:
        assert getattr(profile.iteration, name) == pytest.approx(getattr(FULL, name), rel=0.1), name


@pytest.mark.slow
def test_reference_model_is_recovered() -> None:
    profile = fitted(REFERENCE, 0.01)
    for name in REFERENCE_LAW:
        error = getattr(profile.fit.standard_errors, name)
        assert abs(getattr(profile.iteration, name) - getattr(REFERENCE, name)) <= 3 * error, name
        assert getattr(profile.iteration, name) == pytest.approx(getattr(REFERENCE, name), rel=0.06), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "shapes"), [(REFERENCE, SHAPES[:3]), pytest.param(FULL, SHAPES, marks=pytest.mark.slow)]
)
def test_per_prompt_term_is_found_only_if_present(
    law: IterationCoefficients, shapes: tuple[tuple[int, int], ...]
) -> None:
    options = FitOptions(settings=ServerSettings(10**7, 1024), leave_out=False)
    found = fit([benchmark(sweep(law._replace(per_prompt_ms=0.9), shapes, noise=0.01))], options)
    assert "perPrompt" in found.fit.fitted_terms
    assert found.iteration.per_prompt_ms == pytest.approx(
        0.9, abs=3 * found.fit.standard_errors.per_prompt_ms
    )
    assert found.fit.standard_errors.per_prompt_ms < 0.2
    assert "perPrompt" not in fitted(FULL, 0.02).fit.fitted_terms


@pytest.mark.slow
def test_prediction_errors_match_the_noise() -> None:
    errors = fitted(FULL, 0.02).fit.errors
    assert 0.005 < errors.itl < 0.03
    assert errors.runs == 4 * len(SHAPES)
    found = IterationCoefficients(**{name: getattr(fitted(FULL, 0.02).iteration, name) for name in BY_NAME})
    true = sweep(FULL)
    assert errors_of([(run, BenchmarkReplay.of(run, LIMITS).simulate(found)) for run in true]).itl < 0.01


@pytest.mark.slow
def test_noiseless_runs_are_predicted_nearly_exactly() -> None:
    # The runs are one draw of their requests; what a profile predicts is the mean over several.
    exact = fitted(FULL, 0.0)
    runs = [point.run() for point in exact.points]
    law = IterationCoefficients(**{name: getattr(exact.iteration, name) for name in BY_NAME})
    assert errors_of([(run, BenchmarkReplay.of(run, LIMITS).simulate(law)) for run in runs]).itl < 0.006


@pytest.mark.slow
def test_omitted_shapes_are_predicted_from_the_others() -> None:
    left_out = fitted(FULL, 0.02).fit.left_out
    assert len(left_out) == len(SHAPES)
    assert max(one.itl for one in left_out.values()) < 0.08


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
    assert any("left out" in warning for warning in profile.fit.warnings)
    assert profile.fit.errors.itl < 0.05


@pytest.mark.slow
def test_highest_rates_are_held_out() -> None:
    options = FitOptions(hold_out=1, settings=ServerSettings(10**7, 1024), leave_out=False)
    profile = fit([benchmark(sweep(REFERENCE, SHAPES[:2]))], options)
    assert {point.rate_rps for point in profile.points if not point.fitted} == {50.0, 80.0}
    assert profile.fit.held_out is not None
    assert profile.fit.held_out.runs == 2
    assert profile.fit.held_out.itl < 0.05


def test_reports_of_two_models_are_rejected() -> None:
    runs = sweep(REFERENCE, SHAPES[:1])
    with pytest.raises(FitError, match="several models, a, b; fit each one separately"):
        fit([benchmark(runs, "a"), benchmark(runs, "b")], FitOptions())


def test_too_few_measurements_are_rejected() -> None:
    with pytest.raises(FitError, match="too few to fit anything; measure 3 or more"):
        fit([benchmark(sweep(REFERENCE, SHAPES[:1])[:1])], FitOptions())


def test_profile_round_trip() -> None:
    profile = fitted(FULL, 0.02)
    again = FittedProfile.model_validate(profile.document())
    assert again == profile
    assert [point.run().shape for point in again.points[:2]] == [(64, 256), (256, 64)]
