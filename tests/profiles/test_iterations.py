"""Times of iterations: each piece against a count of its own, the whole against the published examples."""

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest

from optimizer.profiles.catalogue import load_catalogue
from optimizer.profiles.deployment import Deployment
from optimizer.profiles.efficiency import Efficiency
from optimizer.profiles.estimate import estimate_profile
from optimizer.profiles.iterations import Iterations, mean_seen

CATALOGUE = load_catalogue()
EXAMPLES = {
    ("llama-3.1-8b", "H100", 1): (7.33, 0.0207, 4.6e-5),
    ("llama-3.1-8b", "A100-80", 1): (10.72, 0.0602, 7.6e-5),
    ("llama-3.1-70b", "H100", 4): (18.82, 0.0723, 2.9e-5),
    ("qwen2.5-14b", "H100", 1): (12.77, 0.0381, 6.9e-5),
}
"""α, β, γ [ms] of prompts of 1024 and answers of 256 tokens, from the reference's estimate.md, section 4."""


def iterations(model: str, accelerator: str, **settings: Any) -> Iterations:
    return Iterations(CATALOGUE.model(model), CATALOGUE.accelerator(accelerator), Deployment(**settings))


@pytest.mark.parametrize("case", EXAMPLES)
def test_coefficients_are_those_of_the_worked_examples(case: tuple[str, str, int]) -> None:
    model, accelerator, tp = case
    found = estimate_profile(model, accelerator, Deployment(tp=tp))
    alpha, beta, gamma = EXAMPLES[case]
    assert found.alpha_ms.value == pytest.approx(alpha, abs=0.005)
    assert found.beta_ms.value == pytest.approx(beta, abs=6e-5)
    assert found.gamma_ms.value == pytest.approx(gamma, abs=6e-7)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v2-lite"])
@pytest.mark.parametrize("tp", [1, 2])
def test_the_coefficients_add_up_to_an_iteration(model: str, tp: int) -> None:
    """With answers only, α + β·n + γ·n·context is the decode iteration; no prompt shares it."""
    deployment = Deployment(tp=tp, in_tokens=1, out_tokens=1e8)
    found = estimate_profile(model, "H100", replace(deployment, out_tokens=4000))
    long = iterations(model, "H100", tp=tp, in_tokens=1, out_tokens=1e8)
    batch, context = 16, found.deployment.in_tokens + found.deployment.out_tokens / 2
    alpha = found.alpha_at(batch).value - found.iterations.experts_ms * (
        (1 - found.iterations.touched(batch)) * batch / found.deployment.out_tokens
    )
    each = found.beta_ms.value + found.gamma_ms.value * context
    assert alpha + batch * each == pytest.approx(long.decode_ms(batch, context), rel=1e-3)


def test_token_flops_match_the_matrices() -> None:
    """Llama-3.1-8B layer by layer: two operations for each number of each matrix."""
    hidden, ffn, queries, keys = 4096, 14336, 32 * 128, 8 * 128
    matrices = [(hidden, queries), (hidden, keys), (hidden, keys), (queries, hidden)]
    matrices += [(hidden, ffn), (hidden, ffn), (ffn, hidden)]
    operations = 32 * sum(2 * rows * columns for rows, columns in matrices)
    found = iterations("llama-3.1-8b", "H100")
    assert found.token_ms == pytest.approx(operations / (989e12 * 0.75) * 1e3, rel=1e-12)


def test_attention_over_a_prompt_is_the_sum_over_its_tokens() -> None:
    found = iterations("gemma-3-27b", "H100")
    prompt, window, heads, size = 5000, 1024, 32, 128
    seen = sum(10 * place + 52 * min(place, window) for place in range(prompt))
    operations = 4 * heads * size * seen
    time = operations / (989e12 * 0.5) * 1e3
    assert prompt * found.prompt_attention_ms(prompt / 2) == pytest.approx(time, rel=1e-3)


@pytest.mark.parametrize(("prompt", "limit"), [(1000, 2000), (1000, 1000), (1000, 400), (9, 2)])
def test_the_mean_of_what_tokens_see_is_that_of_the_tokens(prompt: int, limit: int) -> None:
    fine = 1000
    places = [(i + 0.5) / fine * prompt for i in range(fine)]
    assert mean_seen(prompt / 2, limit) == pytest.approx(sum(min(x, limit) for x in places) / fine, rel=1e-4)


@pytest.mark.parametrize(("count", "each", "tokens"), [(4, 2, 2), (4, 1, 3), (5, 3, 2)])
def test_experts_touched_are_those_of_all_possible_choices(count: int, each: int, tokens: int) -> None:
    model = CATALOGUE.model("mixtral-8x7b")
    assert model.experts is not None
    experts = replace(model.experts, count=count, per_token=each)
    layers = tuple(replace(layer, experts=experts) for layer in model.layers)
    found = Iterations(replace(model, layers=layers), CATALOGUE.accelerator("H100"), Deployment())
    choices = list(product(combinations(range(count), each), repeat=tokens))
    mean = sum(len({expert for chosen in choice for expert in chosen}) for choice in choices) / len(choices)
    assert found.touched(tokens) == pytest.approx(mean / count, rel=1e-12)


def test_a_loop_of_one_request_is_its_decode_iteration() -> None:
    found = iterations("llama-3.1-8b", "H100", in_tokens=500, out_tokens=1001)
    expected = found.decode_ms(1000 / 1001, 500 + 1001 / 2)
    assert found.loop_ms(1) == pytest.approx(expected, rel=1e-12)


def test_loop_time_is_total_work_over_iterations() -> None:
    """Counted the other way round: a cycle of O iterations does c prompts and c·(O − 1) further tokens."""
    found = iterations("llama-3.1-8b", "H100", in_tokens=800, out_tokens=201)
    requests, steps, context = 24, 200, 800 + 201 / 2
    prompts = requests * (800 * (found.token_ms + found.prompt_attention_ms(400)) + found.answer_ms)
    each = found.token_ms + found.answer_ms + context * found.cache_ms(context)
    cycle = 201 * (found.fixed_ms + found.weights_ms) + prompts + requests * steps * each
    own = prompts / requests + found.decode_ms(requests * steps / 201, context)
    assert found.loop_ms(requests) == pytest.approx((cycle - own) / steps, rel=1e-9)


def test_eager_engines_start_every_layer_from_the_host() -> None:
    captured, eager = (iterations("bloom-176b", "A100-80", tp=8, eager=eager) for eager in (False, True))
    assert eager.decode_ms(1, 576) - captured.decode_ms(1, 576) == pytest.approx(70 * (0.30 - 0.055))
    assert eager.decode_ms(1, 576) == pytest.approx(48.76, rel=0.1)  # splitwise-sim perf_model.csv (MIT)


def test_cards_of_two_devices_count_as_two() -> None:
    card, device = CATALOGUE.accelerator("MI250"), CATALOGUE.accelerator("MI210")
    assert card.device_memory_gib == pytest.approx(device.memory_gib, rel=1e-3)
    assert card.device_bandwidth_gb_per_s == pytest.approx(device.bandwidth_gb_per_s, rel=1e-3)
    on_card, on_device = (iterations("llama-3.1-8b", name) for name in ("MI250", "MI210"))
    assert on_card.weights_ms == pytest.approx(on_device.weights_ms, rel=1e-3)
    assert on_card.token_ms == pytest.approx(on_device.token_ms, rel=1e-3)


def test_no_share_of_a_peak_rate_exceeds_it() -> None:
    for accelerator in CATALOGUE.accelerators.values():
        assert max(Efficiency().shares(accelerator.generation).values()) <= 1
