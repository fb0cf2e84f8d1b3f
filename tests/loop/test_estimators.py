"""Loads estimated from replicas whose true load is known."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from simulated_fleet import DISCOVERY, SimulatedFleet, between, chat_system, poisson
from slow_cases import mostly_slow

from rest_server.loop.estimators import (
    LengthMemory,
    completions_rps,
    offered_rps,
    variation,
)
from rest_server.loop.metric_names import COUNTERS
from rest_server.loop.samples import EMPTY, ReplicaSample, counts_between
from rest_server.loop.scrape import ScrapeReader, sample_of
from rest_server.loop.window import Counts, Hold, HoldReason, Window

PERIOD_S, WINDOW_S = 5, 30
SYSTEM = chat_system()
Event = Callable[[SimulatedFleet], None]
CASES: Mapping[str, tuple[Callable[[float], float], Mapping[int, Event]]] = {
    "step into overload": (lambda t: 4 if t < 150 else 14, {}),
    "drain": (lambda t: 14 if t < 150 else 3, {}),
    "replica restart": (
        lambda _: 10,
        {150: lambda fleet: fleet.restart(0, 20), 250: lambda fleet: fleet.restart(1, 20)},
    ),
    "replicas appear and leave": (
        lambda _: 12,
        {
            100: lambda fleet: fleet.scale("", "", 3),
            200: lambda fleet: fleet.scale("", "", 5),
            300: lambda fleet: fleet.scale("", "", 2),
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", mostly_slow(CASES, 2))
def test_arrivals_are_found_and_completions_are_not(case: str) -> None:
    """Mean errors over 320 s of simulated Poisson arrivals, seed 3: at most 1.3 %, and 20 to 48 %."""
    rate_rps, events = CASES[case]
    jobs = poisson(rate_rps, 320, np.random.default_rng(3), 20)
    fleet, memory = SimulatedFleet(SYSTEM, 2), LengthMemory()
    reader = ScrapeReader(fleet.fetch, DISCOVERY, WINDOW_S)
    errors, of_completions, offered = [], [], []
    for now_s in range(0, 321, PERIOD_S):
        fleet.advance(now_s, between(jobs, now_s - PERIOD_S, now_s))
        if now_s in events:
            events[now_s](fleet)
        window = reader.read(SYSTEM, now_s)["talk"]
        if isinstance(window, Hold):
            assert now_s < WINDOW_S
            continue
        memory = memory.after(window, now_s)
        true_rps = len(between(jobs, now_s - WINDOW_S, now_s)) / WINDOW_S
        offered.append(true_rps)
        errors.append(abs(offered_rps(window) - true_rps))
        of_completions.append(abs(completions_rps(window) - true_rps))
    assert np.mean(errors) < 0.03 * np.mean(offered)
    assert np.mean(of_completions) > 0.15 * np.mean(offered)
    assert memory.in_tokens == pytest.approx(np.mean([job.prompt for job in jobs]), rel=0.03)
    assert memory.out_tokens == pytest.approx(np.mean([job.tokens for job in jobs]), rel=0.03)
    assert memory.in_tokens_cv == pytest.approx(0.5, abs=0.1)  # gamma with shape 4
    assert memory.out_tokens_cv == pytest.approx(1.0, abs=0.15)  # exponential


def test_a_gateway_counts_arrivals_itself() -> None:
    counts = Counts(span_s=10.0, first_tokens=20.0, arrived=50.0)
    assert offered_rps(Window(counts, 0, 0, 1)) == 5.0


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("family", ["gamma", "lognormal"])
def test_variation_is_found_from_wide_buckets(cv: float, family: str) -> None:
    """20,000 lengths, seed 2, in buckets of vLLM's bounds."""
    rng, mean = np.random.default_rng(2), 170.0
    sigma = math.sqrt(math.log1p(cv**2))
    values = (
        np.full(20_000, mean)
        if not cv
        else rng.gamma(cv**-2, mean * cv**2, 20_000)
        if family == "gamma"
        else rng.lognormal(math.log(mean) - sigma**2 / 2, sigma, 20_000)
    )
    bounds = [step * 10.0**power for power in range(6) for step in (1, 2, 5)] + [math.inf]
    counts = np.diff([(values <= bound).sum() for bound in bounds], prepend=0)
    found = variation(dict(zip(bounds, counts.tolist(), strict=True)), float(values.mean()))
    assert found == pytest.approx(cv, abs=0.1 + 0.1 * cv)


def test_few_lengths_give_no_mean() -> None:
    window = Window(Counts(span_s=10.0, prompts=5.0, prompt_tokens=50.0), 0, 0, 1)
    assert LengthMemory().after(window, 100.0).in_tokens is None


def test_old_lengths_lose_weight() -> None:
    memory = LengthMemory()
    for k, tokens in enumerate([100.0] * 40 + [200.0] * 40):
        counts = Counts(span_s=10.0, prompts=400.0, prompt_tokens=400.0 * tokens)
        memory = memory.after(Window(counts, 0, 0, 1), 10.0 * (k + 1))
    assert memory.in_tokens == pytest.approx(200.0, rel=0.03)


def test_overlapping_windows_count_once() -> None:
    window = Window(Counts(span_s=60.0, prompts=600.0, prompt_tokens=6000.0), 0, 0, 1)
    memory = LengthMemory().after(window, 1000.0).after(window, 1015.0)
    assert memory.counts.prompts == pytest.approx(600 + 150, rel=0.02)


# --- samples -------------------------------------------------------------------------------------------


def sample(first: float, waiting: float) -> ReplicaSample:
    return ReplicaSample({"first_tokens": first}, {}, {"waiting": waiting, "running": 0.0})


def test_a_restarted_replica_counts_from_zero() -> None:
    counts = counts_between(sample(100, 30), sample(4, 2))
    assert (counts.first_tokens, counts.waiting_growth) == (4, 2)
    assert counts_between(EMPTY, sample(7, 1)).first_tokens == 7


@pytest.mark.parametrize(
    "name", ["vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"]
)
def test_old_and_new_names_are_read(name: str) -> None:
    assert (name,) in COUNTERS["itl_s"]
    text = f"vllm:num_requests_waiting 0\nvllm:time_to_first_token_seconds_count 3\n{name} 1.5\n"
    assert sample_of(text).counters["itl_s"] == 1.5


def test_a_replica_without_a_queue_metric_is_an_error() -> None:
    fleet = SimulatedFleet(SYSTEM, 1)
    fleet.broken = lambda text: text.replace("vllm:num_requests_waiting", "vllm:other")
    reader = ScrapeReader(fleet.fetch, DISCOVERY, WINDOW_S)
    found = reader.read(SYSTEM, 0.0)["talk"]
    assert isinstance(found, Hold)
    assert found.reason is HoldReason.stale
    assert "no metric vllm:num_requests_waiting" in found.detail
