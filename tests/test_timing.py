"""The laws of the two latency models against their plain formulas, and the chunks against counting."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_oracles import Iteration, Linear, chunks_fit, count_chunks

from optimizer.timing.iteration import IterationLaw
from optimizer.timing.linear import LinearLaw

MANY = settings(derandomize=True, deadline=None, max_examples=300)


def linear(*rows: Linear) -> LinearLaw:
    fields = ("alpha", "beta", "gamma", "delta", "tokens_in", "tokens_out")
    return LinearLaw(*(np.array([float(getattr(row, name)) for row in rows]) for name in fields))


def iteration(*rows: Iteration) -> IterationLaw:
    fields = ("alpha", "beta", "gamma", "tokens_in", "tokens_out", "budget")
    return IterationLaw(*(np.array([float(getattr(row, name)) for row in rows]) for name in fields))


def chunks_of(cases: list[tuple[int, int, int, int]]) -> list[int]:
    """Return the project's chunk counts for cases of (in, out, budget, batch)."""
    law = iteration(*(Iteration(1, 1, 1, n, m, budget) for n, m, budget, _ in cases))
    found = law.chunks(np.array([float(batch) for *_, batch in cases]))
    assert np.array_equal(found, np.round(found))
    return [int(k) for k in found]


LINEAR = st.builds(
    Linear,
    alpha=st.floats(0.1, 100),
    beta=st.one_of(st.just(0.0), st.floats(1e-4, 5)),
    gamma=st.floats(0, 500),
    delta=st.one_of(st.just(0.0), st.floats(1e-4, 0.2)),
    tokens_in=st.one_of(st.just(0), st.integers(1, 100_000)),
    tokens_out=st.integers(2, 5000),
)
ITERATION = st.builds(
    Iteration,
    alpha=st.floats(0.1, 100),
    beta=st.floats(0, 0.5),
    gamma=st.floats(0, 2e-3),
    tokens_in=st.one_of(st.just(0), st.integers(1, 20_000)),
    tokens_out=st.integers(1, 5000),
    budget=st.sampled_from([512, 2048, 8192]),
)


# --- linear law -------------------------------------------------------------------------------------------


@pytest.mark.slow
@MANY
@given(law=LINEAR, batch=st.integers(1, 512))
def test_linear_service_time_is_prefill_plus_decode(law: Linear, batch: int) -> None:
    prefill = law.gamma + law.delta * law.tokens_in * batch if law.tokens_in else 0
    expected = prefill + (law.tokens_out - 1) * (law.alpha + law.beta * batch)
    assert linear(law).service_time_ms(np.array([float(batch)]))[0] == pytest.approx(expected, rel=1e-13)


@pytest.mark.slow
@MANY
@given(law=LINEAR, batch=st.integers(1, 512))
def test_linear_phases_at_a_constant_batch(law: Linear, batch: int) -> None:
    n = np.array([float(batch)])
    times = linear(law).token_times(linear(law).service_time_ms(n), n, np.array([512]))
    assert times.prefill_ms[0] == pytest.approx(law.prefill(batch), rel=1e-9, abs=1e-12)
    assert times.itl_ms[0] == pytest.approx(law.decode(batch), rel=1e-9)
    assert times.first_token_ms[0] == times.prefill_ms[0]


def test_no_prompt_means_no_prefill_and_no_gamma() -> None:
    # The reference subtracts γ from a service time that has none (reference/README.md, defects).
    law = Linear(alpha=20, beta=1, gamma=300, delta=0.1, tokens_in=0, tokens_out=11)
    times = linear(law).token_times(np.array([10 * (20 + 8.0)]), np.array([8.0]), np.array([64]))
    assert (times.prefill_ms[0], times.first_token_ms[0]) == (0, 0)
    assert times.itl_ms[0] == pytest.approx(28, rel=1e-14)


def test_constant_linear_service_time_has_constant_phases() -> None:
    # The reference divides by zero here.
    flat = Linear(alpha=20, beta=0, gamma=300, delta=0, tokens_in=100, tokens_out=11)
    one = Linear(alpha=20, beta=2, gamma=0, delta=0, tokens_in=0, tokens_out=1)
    times = linear(flat, one).token_times(np.array([500.0, 0.0]), np.array([3.0, 3.0]), np.array([8, 8]))
    assert list(times.prefill_ms) == [300, 0]
    assert list(times.itl_ms) == [20, 26]


def test_linear_effective_batch_is_within_bounds() -> None:
    law = Linear(alpha=10, beta=2, gamma=5, delta=0.01, tokens_in=100, tokens_out=3)
    times = linear(law, law).token_times(np.array([0.0, 1e9]), np.array([1.0, 1.0]), np.array([8, 8]))
    assert list(times.itl_ms) == [10, 26]
    assert list(times.prefill_ms) == pytest.approx([5, 13], rel=1e-14)


def test_idle_linear_times_match_the_reference() -> None:
    # case00.json, Class0-llama_13b on AIU2: ITL 210, TTFT 1610.6719, 1356.5802 req/min at batch 51.
    law = Linear(alpha=201.32, beta=8.68, gamma=1610.56, delta=0.1119, tokens_in=2048, tokens_out=512)
    times, turnaround = linear(law).idle_times(np.array([51]))
    assert times.itl_ms[0] == pytest.approx(201.32 + 8.68, rel=1e-14)
    assert times.first_token_ms[0] == pytest.approx(1610.56 + 0.1119, rel=1e-14)
    assert turnaround[0] == pytest.approx(1610.56 + 0.1119 + 201.32 + 8.68 * 51, rel=1e-14)


# --- iteration law ----------------------------------------------------------------------------------------


@pytest.mark.slow
@MANY
@given(law=ITERATION, batch=st.integers(1, 256))
def test_iteration_service_time_sums_its_iterations(law: Iteration, batch: int) -> None:
    found = iteration(law).service_time_ms(np.array([float(batch)]))[0]
    assert found == pytest.approx(law.service(batch), rel=1e-12)


@pytest.mark.slow
@MANY
@given(law=ITERATION, batch=st.integers(1, 256))
def test_prefill_and_decode_sum_to_the_service_time(law: Iteration, batch: int) -> None:
    # an identity of the law: prefill(B) + m·itl(B) = τ(B)
    n = np.array([float(batch)])
    times = iteration(law).token_times(iteration(law).service_time_ms(n), n, np.array([256]))
    assert times.prefill_ms[0] == pytest.approx(law.prefill(batch, 256), rel=1e-12)
    assert times.itl_ms[0] == pytest.approx(law.itl(batch), rel=1e-9)
    total = times.prefill_ms[0] + law.tokens_out * law.itl(batch)
    assert total == pytest.approx(law.service(batch), rel=1e-9)
    assert times.first_token_ms[0] == pytest.approx(times.prefill_ms[0] + times.itl_ms[0], rel=1e-14)


@pytest.mark.parametrize(
    ("mean", "limit", "rounded"),
    [(0.0, 64, 1), (0.4, 64, 1), (30.5, 64, 31), (30.49, 64, 30), (63.9, 64, 64), (64.6, 64, 64)],
)
def test_chunks_use_the_rounded_mean_batch(mean: float, limit: int, rounded: int) -> None:
    law = Iteration(10, 0.05, 5e-4, 4000, 20, 512)
    chunks = law.chunks(rounded)
    prefill = chunks * max(0.0, 10 + (mean - 1) * law.per_iteration(chunks)) + law.own_work(chunks)[0]
    times = iteration(law).token_times(np.array([1e4]), np.array([mean]), np.array([limit]))
    assert times.prefill_ms[0] == pytest.approx(prefill, rel=1e-12)


def test_prefill_is_not_reduced_by_fractional_batches() -> None:
    law = Iteration(alpha=0.5, beta=0.05, gamma=5e-4, tokens_in=2048, tokens_out=1)
    times = iteration(law).token_times(np.array([500.0]), np.array([0.001]), np.array([8]))
    assert law.per_iteration(1) > 0.5
    assert times.prefill_ms[0] == pytest.approx(law.own_work(1)[0], rel=1e-14)


def test_idle_iteration_times_match_the_reference() -> None:
    law = iteration(Iteration(10, 0.05, 5e-4, 1000, 100))  # the reference's zeroLoadAllocation
    times, turnaround = law.idle_times(np.array([64]))
    assert times.itl_ms[0] == pytest.approx(10 + 0.05, rel=1e-14)
    assert times.first_token_ms[0] == pytest.approx(10 + 0.05 + 5e-4 * 64, rel=1e-14)
    assert turnaround[0] == pytest.approx(10 + 0.05 + 5e-4 * 64 + 10 + 0.05 * 64, rel=1e-14)


# --- chunks -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_chunks_match_counting_for_random_requests() -> None:
    rng = random.Random(20)
    cases = [
        (
            rng.choice([0, 1, rng.randint(0, 200), rng.randint(0, 8192), rng.randint(0, 100_000)]),
            rng.choice([1, 2, rng.randint(1, 50), rng.randint(50, 5000)]),
            rng.choice([512, 2048, 8192, rng.randint(100, 9000)]),
            rng.randint(1, 48),
        )
        for _ in range(5000)
    ]
    found = chunks_of(cases)
    wrong = [
        (case, k)
        for case, k in zip(cases, found, strict=True)
        if not chunks_fit(k, *case) or (k > 1 and chunks_fit(k - 1, *case))
    ]
    assert wrong == []
    assert max(found) > 1000  # huge prompts are among them
    short = [(case, k) for case, k in zip(cases, found, strict=True) if k < 3000]
    assert len(short) > 4000
    assert [(case, k) for case, k in short if count_chunks(*case) != k] == []


def whole_roots(count: int) -> list[tuple[int, int, int, int]]:
    """Return cases in which k chunks fit exactly: (k + m)(M - n/k) = B(n + m) with whole numbers."""
    rng = random.Random(1)
    cases: list[tuple[int, int, int, int]] = []
    while len(cases) < count:
        k, m = rng.randint(1, 40), rng.choice([1, 2, 3, 5, 7, rng.randint(1, 300)])
        n, batch = rng.randint(1, 5000), rng.randint(1, 300)
        budget, rest = divmod(batch * (n + m) * k + n * (k + m), k * (k + m))
        if not rest:
            cases.append((n, m, budget, batch))
    return cases


@pytest.mark.slow
def test_chunks_match_counting_for_exact_fits() -> None:
    cases = whole_roots(3000)
    wrong = [(case, k) for case, k in zip(cases, chunks_of(cases), strict=True) if k != count_chunks(*case)]
    assert wrong == []


def test_chunks_are_monotone_in_the_batch() -> None:
    law = iteration(*[Iteration(1, 1, 1, 30_000, 40, 2048)] * 300)
    chunks = law.chunks(np.arange(1.0, 301.0))
    assert (np.diff(chunks) >= 0).all()
    assert chunks[-1] > chunks[0] >= 15  # 30,000 / 2,048 tokens


# --- both -------------------------------------------------------------------------------------------------
