"""The engine against the second one: the same times for the same requests, to rounding."""

from dataclasses import replace

import numpy as np
import pytest
from second_engine import SecondEngine

from optimizer.simulation.engine import simulate
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.requests import Requests

FULL_LAW = IterationCoefficients(
    base_ms=5.1,
    compute_per_token_ms=0.0224,
    kv_read_per_token_ms=4.36e-4,
    per_sequence_ms=0.0189,
    prompt_attention_ms=1.04e-5,
    prompt_base_ms=-0.1,
    weight_read_ms=4.3,
    batch_base_ms=0.7,
    per_prompt_ms=0.6,
    expert_read_ms=9.0,
    expert_share=0.0625,
)
REFERENCE_LAW = IterationCoefficients(6.958, 0.0421, 3.4e-4)
CASES = 120


def requests_of(rng: np.random.Generator, count: int) -> Requests:
    """Return short or long requests, from clients at a rate or from users."""
    prompt, answer = int(rng.choice([3, 40, 300])), int(rng.choice([1, 3, 20, 80]))
    prompts, answers = rng.integers(0, 2 * prompt + 1, count), rng.integers(1, 2 * answer + 1, count)
    if rng.random() < 0.3:
        users = int(rng.integers(1, 30))
        thinking = rng.exponential(50, count) + 1e-3
        return Requests(prompts, answers, think_ms=thinking, wakes_ms=np.sort(rng.exponential(50, users)))
    gap_ms = float(rng.choice([1, 20, 200]))
    return Requests(prompts, answers, np.cumsum(rng.exponential(gap_ms, count)))


def limits_of(rng: np.random.Generator, requests: Requests) -> Limits:
    """Return limits that matter in one case and not in another."""
    batch = int(rng.choice([1, 3, 16, 64]))
    largest = int((requests.in_tokens + requests.out_tokens).max())
    return Limits(
        max_batch=batch,
        max_num_tokens=max(int(rng.choice([16, 64, 512])), batch),
        kv_tokens=UNLIMITED if rng.random() < 0.4 else int(largest * rng.choice([0.9, 1.0, 1.5, 4])),
        max_queue=UNLIMITED if rng.random() < 0.6 else int(rng.integers(0, 20)),
        max_in_flight=UNLIMITED if rng.random() < 0.6 else int(rng.integers(1, 30)),
        prefill_first=bool(rng.random() < 0.5),
    )


def with_prefixes(requests: Requests, rng: np.random.Generator) -> Requests:
    """Return requests that find a part of their prompts in a prefix cache, half of it stored once."""
    cached = (requests.in_tokens * rng.random(len(requests)) * (rng.random(len(requests)) < 0.7)).astype(int)
    return replace(requests, cached_tokens=cached, shared_tokens=cached * (rng.random(len(cached)) < 0.5))


@pytest.mark.slow
@pytest.mark.parametrize(("levels", "prefixes"), [(None, False), (3, False), (None, True), (3, True)])
def test_both_engines_agree(levels: int | None, *, prefixes: bool) -> None:
    preemptions = rejected = 0
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        requests = requests_of(rng, int(rng.integers(5, 120)))
        limits = limits_of(rng, requests)
        law = FULL_LAW if rng.random() < 0.7 else REFERENCE_LAW
        if levels is not None:
            requests = replace(requests, priority=10 * rng.integers(1, levels + 1, len(requests)))
        if prefixes:
            requests = with_prefixes(requests, rng)
        run = simulate(requests, law, limits)
        times = np.full((3, len(requests)), np.nan)
        losses = np.zeros(len(requests), np.int64)
        second = SecondEngine(law, limits, requests)
        for job in second.run():
            times[:, job.row] = job.sent, job.first, job.last
            losses[job.row] = job.losses
        for mine, theirs in zip((run.sent_ms, run.first_ms, run.last_ms), times, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-8, err_msg=f"seed {seed}: {limits}")
        np.testing.assert_array_equal(run.preemptions, losses, err_msg=f"seed {seed}: {limits}")
        assert run.iterations == second.iterations
        preemptions += int(losses.sum())
        rejected += int(run.rejected.sum())
    assert preemptions > 500
    assert rejected > 300


@pytest.mark.parametrize("budget", [16, 64])
def test_long_prompts_are_chunked(budget: int) -> None:
    requests = Requests(np.array([100]), np.array([1]), np.array([0.0]))
    run = simulate(requests, IterationCoefficients(base_ms=1.0), Limits(1, budget))
    assert run.iterations == -(-100 // budget)
    assert run.ttft_ms[0] == run.iterations
