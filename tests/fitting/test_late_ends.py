"""Closed loops whose last users end late are not taken for loops with think time.

A run of few requests for each user, with outputs of very different lengths, has fewer requests in flight on
average than users. A sweep with such a run must give the law of the sweep without it.
"""

from dataclasses import replace

import numpy as np
import pytest
from synthetic import LIMITS
from test_small_sets import between

from optimizer.arrays import IntArray
from optimizer.fitting import replay
from optimizer.fitting.fit import fit
from optimizer.fitting.loads import as_replayed
from optimizer.fitting.options import FitOptions, Stated
from optimizer.fitting.profile import FittedProfile
from optimizer.fitting.readers.report import Benchmark
from optimizer.fitting.record import RunRecord, TokenStats
from optimizer.fitting.replay import BenchmarkReplay
from optimizer.fitting.runs import Arrivals, BenchmarkRun, TokenCounts
from optimizer.simulation.engine import simulate
from optimizer.simulation.law import IterationCoefficients


def reported(users: int, requests: int, law: IterationCoefficients, rng: np.random.Generator) -> BenchmarkRun:
    """Simulate a closed loop with random requests, and convert what its report would state of them."""
    lengths = TokenCounts.of(300.0, 150.0), TokenCounts.of(120.0, 120.0)
    run = BenchmarkRun(*lengths, Arrivals.CLOSED, requests=requests, max_in_flight=users)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "SEED", int(rng.integers(1000, 10**6)))
        drawn = BenchmarkReplay.of(run, LIMITS).draws[0]
    true = simulate(drawn, law, LIMITS)
    record = RunRecord(
        f"c{users}.json", prompt=stated(drawn.in_tokens), output=stated(drawn.out_tokens), users=float(users),
        throughput_rps=1000 * requests / true.last_ms.max(), ttft_ms=true.ttft_ms.mean(),
        ttft_median_ms=float(np.median(true.ttft_ms)),
        itl_ms=(true.last_ms - true.first_ms).sum() / (drawn.out_tokens - 1).sum(), exact_itl=True,
        latency_ms=true.e2e_ms.mean(), requested=float(requests), completed=float(requests),
    )  # fmt: skip
    found = as_replayed(record, Stated())
    assert found.run is not None
    assert (found.run.max_in_flight, found.run.think_ms) == (users, 0.0), found.notes
    return found.run


def stated(tokens: IntArray) -> TokenStats:
    return TokenStats(float(tokens.mean()), float(tokens.std()))


def iteration_ms(profile: FittedProfile, batch: float) -> float:
    law, context = profile.iteration, 360.0
    compute = np.hypot(law.weight_read_ms, law.compute_per_token_ms * batch) - law.weight_read_ms
    return float(law.base_ms + compute + batch * (law.per_sequence_ms + context * law.kv_read_per_token_ms))


def drawn_loops(seed: int) -> tuple[list[BenchmarkRun], BenchmarkRun, int]:
    """Return loops of many requests, one with a late end, and the largest number of users."""
    rng = np.random.default_rng(seed)
    law = IterationCoefficients(between(rng, 3, 25), between(rng, 0.01, 0.06), between(rng, 1e-5, 1e-4))
    most = int(rng.integers(16, 49))
    runs = [reported(users, 20 * users, law, rng) for users in (1, 4, most // 2, most)]
    late = reported(most, int(most * rng.uniform(2, 8)), law, rng)
    return runs, replace(late, source="late.json"), most


def check_loop(seed: int) -> None:
    runs, late, most = drawn_loops(seed)
    fits = [
        fit([Benchmark(tuple(chosen), "drawn", "m")], FitOptions(leave_out=False))
        for chosen in (runs, [*runs, late])
    ]
    for batch in (1, most / 2, most):
        without, with_late = (iteration_ms(profile, batch) for profile in fits)
        assert with_late == pytest.approx(without, rel=0.05), (seed, batch)


@pytest.mark.slow
def test_late_ends_are_not_taken_for_fewer_users() -> None:
    """`reported` checks it; with few requests a user, fewer may be in flight by chance alone."""
    for seed in range(20):
        assert drawn_loops(seed)


@pytest.mark.slow
def test_late_ends_of_closed_loops_give_the_same_iteration_times() -> None:
    for seed in range(300):
        check_loop(seed)


@pytest.mark.slow
def test_a_loop_with_a_late_end_gives_the_same_iteration_times() -> None:
    check_loop(1)
