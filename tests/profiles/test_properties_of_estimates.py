"""What must hold for every model on every accelerator of the catalogue, whatever the constants."""

from itertools import pairwise
from typing import Any

import pytest
from slow_cases import mostly_slow

from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.efficiency import Efficiency
from optimizer.profiles.estimate import ProfileEstimate
from optimizer.profiles.facts import AcceleratorFacts
from optimizer.profiles.iterations import Iterations
from optimizer.profiles.layers import ModelFacts

CATALOGUE = load_catalogue()
BATCHES = (1, 2, 7, 32, 128, 1000)
NEAR = 1 + 1e-12


def estimate(model: ModelFacts, accelerator: AcceleratorFacts, **settings: Any) -> ProfileEstimate:
    """Return the estimate whether or not the model fits."""
    return ProfileEstimate(Iterations(model, accelerator, Deployment(**settings), Efficiency()), 1)


def coefficients(found: ProfileEstimate) -> list[float]:
    alphas = [found.alpha_at(batch).value for batch in BATCHES]
    return [*alphas, found.beta_ms.value, found.gamma_ms.value]


NAMES = sorted(CATALOGUE.models, key=lambda name: name[::-1])  # families mixed


@pytest.fixture(params=mostly_slow(NAMES, 20))
def model(request: pytest.FixtureRequest) -> ModelFacts:
    return CATALOGUE.model(request.param)


@pytest.mark.few(8)
def test_alpha_is_never_below_the_roofline_of_the_full_bandwidth(model: ModelFacts) -> None:
    for accelerator in CATALOGUE.accelerators.values():
        for tp in (1, 8):
            found = estimate(model, accelerator, tp=tp)
            weights = found.iterations.format
            for batch in BATCHES:
                share = 0.0
                if model.experts and model.experts.per_token:
                    share = 1 - (1 - model.experts.per_token / model.experts.count) ** batch
                size = weights.bytes_of("dense", "head") + share * weights.bytes_of("routed")
                roofline = size / tp / (accelerator.device_bandwidth_gb_per_s * 1e6)
                assert found.alpha_at(batch).value > roofline


@pytest.mark.slow
def test_more_bandwidth_or_arithmetic_never_raises_a_coefficient(model: ModelFacts) -> None:
    for accelerator in CATALOGUE.accelerators.values():
        faster = [accelerator.model_copy(update={"bandwidth_gb_per_s": accelerator.bandwidth_gb_per_s * 1.3})]
        for name in ("bf16", "fp8", "int8", "fp4"):
            rate = getattr(accelerator.dense_tflops, name)
            for times in (1.05, 1.4, 2.0) if rate else ():
                rates = accelerator.dense_tflops.model_copy(update={name: rate * times})
                faster.append(accelerator.model_copy(update={"dense_tflops": rates}))
        for weights in ("bf16", "fp8", "fp4"):
            before = coefficients(estimate(model, accelerator, tp=2, weights=weights))
            for other in faster:
                after = coefficients(estimate(model, other, tp=2, weights=weights))
                assert all(new <= old * NEAR for new, old in zip(after, before, strict=True))


@pytest.mark.few(2)
def test_fp8_weights_never_raise_alpha_or_beta(model: ModelFacts) -> None:
    for accelerator in CATALOGUE.accelerators.values():
        for tp in (1, 8):
            sixteen, eight = (
                coefficients(estimate(model, accelerator, tp=tp, weights=form)) for form in ("bf16", "fp8")
            )
            assert all(new <= old * NEAR for new, old in zip(eight, sixteen, strict=True))


@pytest.mark.few(8)
def test_gamma_does_not_grow_with_tp_or_an_fp8_cache(model: ModelFacts) -> None:
    for accelerator in CATALOGUE.accelerators.values():
        gammas = [estimate(model, accelerator, tp=tp).gamma_ms.value for tp in (1, 2, 3, 4, 8, 16)]
        assert all(after <= before * NEAR for before, after in pairwise(gammas))
        assert estimate(model, accelerator, cache="fp8").gamma_ms.value <= gammas[0]


def test_alpha_grows_with_the_batch_only_for_mixtures(model: ModelFacts) -> None:
    for accelerator in CATALOGUE.accelerators.values():
        found = estimate(model, accelerator)
        alphas = [found.alpha_at(batch).value for batch in BATCHES]
        assert all(after >= before for before, after in pairwise(alphas))
        assert (alphas[-1] > alphas[0]) == (model.experts is not None)


@pytest.mark.few(1)
def test_no_interval_is_wider_than_twice_and_half(model: ModelFacts) -> None:
    for accelerator in CATALOGUE.accelerators.values():
        for tp in (1, 8):
            found = estimate(model, accelerator, tp=tp)
            for value in (found.alpha_at(8), found.beta_ms, found.gamma_ms, found.kv_tokens):
                assert value.value / 2 * (1 - 1e-12) <= value.low <= value.value <= value.high
                assert value.high <= value.value * 2 * NEAR
