"""Runs as a benchmark would measure them on a server of a known law."""

import math
from dataclasses import replace

import numpy as np

from optimizer.fitting.replay import MANY_REQUESTS, BenchmarkReplay, RunMetrics
from optimizer.fitting.runs import Arrivals, BenchmarkRun, RunMeasurements, TokenCounts
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import Limits

UNIFORM_50 = 0.5 / math.sqrt(3)
LIMITS = Limits(1024, 8192)
FULL = IterationCoefficients(
    6.8, 0.0224, 4.4e-5, 0.019, 1e-6, weight_read_ms=4.3, client_offset_ms=7.4, pipeline_depth=0.5,
    front_end_lag=0.002, per_prompt_ms=0.2,
)  # fmt: skip
"""Near that of Llama-3.1-8B on an H100 (docs/fidelity.md), which needs about 0.2 ms for each prompt."""
REFERENCE = IterationCoefficients(7.0, 0.021, 6e-5)
SHAPES = ((64, 256), (256, 64), (1024, 256), (4096, 128), (256, 1024))
RATES = {
    (64, 256): 50.0, (256, 64): 80.0, (1024, 256): 15.0, (4096, 128): 6.0, (256, 1024): 10.0, (16, 16): 300.0,
}  # fmt: skip
"""About three quarters of what these shapes can reach [requests/s]."""


def run(
    shape: tuple[int, int], rate_rps: float | None, duration_s: float, users: int | None = None
) -> BenchmarkRun:
    return BenchmarkRun(
        TokenCounts(shape[0], UNIFORM_50),
        TokenCounts(shape[1], UNIFORM_50),
        Arrivals.CLOSED if rate_rps is None else Arrivals.CONSTANT,
        rate_rps=rate_rps,
        duration_s=duration_s,
        max_in_flight=users or 512,
        source=f"{shape[0]}/{shape[1]}",
    )


def sweep(
    law: IterationCoefficients,
    shapes: tuple[tuple[int, int], ...] = SHAPES,
    noise: float = 0.0,
    seed: int = 5,
) -> list[BenchmarkRun]:
    """Measure one request at a time and three rates of each shape, with errors of a relative size."""
    planned = [run(shape, None, 20.0, users=1) for shape in shapes]
    planned += [run(shape, share * RATES[shape], 20.0) for shape in shapes for share in (0.3, 0.7, 1.0)]
    rng = np.random.default_rng(seed)
    return [measured(one, law, rng, noise) for one in planned]


def measured(
    one: BenchmarkRun, law: IterationCoefficients, rng: np.random.Generator, noise: float
) -> BenchmarkRun:
    found = expected(one, law)
    times = np.array([found.ttft_ms, found.itl_ms, found.throughput_rps])
    times[:2] *= np.exp(rng.normal(0, noise, 2))
    return replace(one, measured=RunMeasurements(*map(float, times)), completed=found.completed)


def expected(one: BenchmarkRun, law: IterationCoefficients) -> RunMetrics:
    """Return the metrics of a run over many draws; near saturation one draw of 20 s is 6 % off."""
    return BenchmarkReplay.of(one, LIMITS, MANY_REQUESTS).simulate(law)
