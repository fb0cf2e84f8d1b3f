"""The simulator of prefill and decode pools against a second engine, which works one event at a time."""

from typing import Any

import numpy as np
import pytest
from plain_pools import Job, Pools

from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.lengths import LengthDistribution, Lengths
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.pools import PooledReplicas, PooledRun, Transfer, decode_coefficients
from optimizer.simulation.requests import Requests
from optimizer.simulation.workload import OpenLoad, ShapeLengths

LLAMA_8B = IterationCoefficients(
    base_ms=6.83,
    compute_per_token_ms=0.0224,
    kv_read_per_token_ms=4.36e-5,
    per_sequence_ms=0.0189,
    prompt_attention_ms=1.04e-6,
    weight_read_ms=4.3,
)
PROMPTS = Lengths(LengthDistribution.LOGNORMAL, 900, 1.0)
ANSWERS = Lengths(LengthDistribution.LOGNORMAL, 30, 1.0, 1)


def pools(**changes: Any) -> PooledReplicas:
    """Return two prefill and three decode replicas with changed fields."""
    given: dict[str, Any] = {
        "times": LLAMA_8B,
        "decode_times": decode_coefficients(LLAMA_8B),
        "budget": 1024,
        "prefill_kv_tokens": UNLIMITED,
        "limits": Limits(16, 32),
        "prefill_replicas": 2,
        "decode_replicas": 3,
        "round_robin": False,
        "seeded": False,
        "transfer": Transfer(10.0, 131072, 1, 5.0),
    }
    return PooledReplicas(**{**given, **changes})


def run(both: PooledReplicas, rate_rps: float, count: int = 400) -> tuple[PooledRun, list[Job]]:
    """Return the results of both engines for the same requests; half of them find 300 cached tokens."""
    load = OpenLoad(rate_rps, PROMPTS, ANSWERS, 2.0, (ShapeLengths(1.0, PROMPTS, ANSWERS, 300, 0.5),))
    seed = np.random.SeedSequence(5)
    requests = both.with_chances(load.draw(count, seed), seed)
    assert requests.arrival_ms is not None
    assert requests.cached_tokens is not None
    assert requests.assigned is not None
    jobs = [
        Job(at, tokens - cached, cached, answer, (first, second))
        for at, tokens, cached, answer, first, second in zip(
            requests.arrival_ms.tolist(),
            requests.in_tokens.tolist(),
            requests.cached_tokens.tolist(),
            requests.out_tokens.tolist(),
            *requests.assigned.tolist(),
            strict=True,
        )
    ]
    Pools(both).run(jobs)
    return both.run(requests), jobs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "rate_rps"),
    [
        ({}, 40.0),
        ({"round_robin": True, "transfer": Transfer(10.0, 131072, 32, 0.0)}, 60.0),
        ({"seeded": True}, 60.0),
        ({"prefill_kv_tokens": 12_000, "limits": Limits(4, 8), "decode_replicas": 1}, 20.0),
        ({"prefill_kv_tokens": 9_000, "limits": Limits(2, 4), "decode_replicas": 2}, 20.0),
    ],
)
def test_both_engines_agree(changes: dict[str, Any], rate_rps: float) -> None:
    """Every time of every request is equal up to rounding, also when decode replicas hold prefills back."""
    both = pools(**changes)
    simulated, jobs = run(both, rate_rps)
    for name in ("prefilled_ms", "received_ms", "first_ms", "last_ms"):
        plain = np.array([getattr(job, name) for job in jobs])
        np.testing.assert_allclose(getattr(simulated, name), plain, rtol=1e-9, err_msg=name)


def test_full_decode_replicas_hold_prefills_back() -> None:
    """With little memory, prefills end later than with unlimited memory, because their KV caches are held."""
    little = pools(prefill_kv_tokens=12_000, limits=Limits(4, 8), decode_replicas=1)
    unlimited = pools(limits=Limits(4, 8), decode_replicas=1)
    held, free = run(little, 20.0)[0], run(unlimited, 20.0)[0]
    assert held.prefill_ms.mean() > 1.5 * free.prefill_ms.mean()


def test_a_request_too_long_for_decode_replicas_frees_its_cache() -> None:
    """It is rejected after the handover, and later prompts get its memory; they waited for it forever."""
    both = pools(prefill_kv_tokens=1000, limits=Limits(4, 8, 800), prefill_replicas=1, decode_replicas=1)
    requests = Requests(
        np.array([700, 700, 700]), np.array([10, 200, 10]), np.array([0.0, 100.0, 200.0]),
        assigned=np.zeros((2, 3), np.int64),
    )  # fmt: skip
    run = both.run(requests)
    assert run.rejected.tolist() == [False, True, False]
    assert run.prefilled_ms[2] >= run.received_ms[1] > run.prefilled_ms[1]
