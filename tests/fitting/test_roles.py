"""Fits of engines that only compute prompts, or only decode prompts that are in their cache."""

import math
from dataclasses import replace

import numpy as np
import pytest
from synthetic import FULL, LIMITS, measured, run

from optimizer.errors import FitError
from optimizer.fitting.fit import fit
from optimizer.fitting.options import FitOptions
from optimizer.fitting.profile import FittedProfile, MeasuredPoint
from optimizer.fitting.readers.report import Benchmark
from optimizer.fitting.readers.table import parse_benchmark
from optimizer.fitting.replay import BenchmarkReplay
from optimizer.fitting.runs import BenchmarkRun, RunMeasurements, TokenCounts
from optimizer.fitting.selection import check_enough
from optimizer.render.fit_sections import verdict

CACHED = "in_tokens,out_tokens,arrivals,rate_rps,duration_s,itl_ms,cached_share\n"


def swept(shapes: dict[tuple[int, int], float], cached_share: float = 0.0) -> list[BenchmarkRun]:
    """Measure one request at a time and three rates of each shape, with errors of 2 %."""
    rng, runs = np.random.default_rng(5), []
    for shape, most_rps in shapes.items():
        for share in (0.0, 0.3, 0.7, 1.0):
            one = run(shape, share * most_rps, 20.0) if share else run(shape, None, 20.0, users=1)
            one = replace(one, cached_share=cached_share)
            one = replace(one, answers=TokenCounts(1)) if shape[1] == 1 else one
            found = measured(one, FULL, rng, 0.02)
            times = (None if value is None or math.isnan(value) else value for value in found.measured)
            runs.append(replace(found, measured=RunMeasurements(*times)))
    return runs


def prefill_runs() -> list[BenchmarkRun]:
    return swept({(500, 1): 55.0, (2000, 1): 16.0, (6000, 1): 5.0})


def decode_runs() -> list[BenchmarkRun]:
    return swept({(2000, 512): 15.0, (4000, 128): 40.0, (8000, 256): 15.0}, cached_share=1.0)


def fitted(*sweeps: list[BenchmarkRun]) -> FittedProfile:
    benchmarks = [Benchmark(tuple(runs), "synthetic", "m", "2026-01-02") for runs in sweeps]
    return fit(benchmarks, FitOptions(leave_out=False))


@pytest.mark.slow
def test_runs_of_one_token_give_a_profile_of_prefill_replicas() -> None:
    profile = fitted(prefill_runs())
    assert profile.coefficients.compute_per_token_ms == pytest.approx(FULL.compute_per_token_ms, rel=0.1)
    assert "prefill replicas" in verdict(profile)
    assert "ITL" not in verdict(profile)


@pytest.mark.slow
def test_both_engines_give_one_law() -> None:
    """Cached prompts are not computed; without their share, β would be near 0."""
    law = fitted(prefill_runs(), decode_runs()).coefficients
    for name, rel in (("base_ms", 0.05), ("compute_per_token_ms", 0.1), ("kv_read_per_token_ms", 0.1)):
        assert getattr(law, name) == pytest.approx(getattr(FULL, name), rel=rel), name
    wrong = fitted([replace(one, cached_share=0.0) for one in decode_runs()]).coefficients
    assert wrong.compute_per_token_ms < 0.1 * FULL.compute_per_token_ms


def test_a_cached_prompt_computes_its_last_token() -> None:
    alone = run((4000, 64), None, 10.0, users=1)
    ttft = [
        BenchmarkReplay.of(one, LIMITS).simulate(FULL).ttft_ms
        for one in (alone, replace(alone, cached_share=1.0), replace(alone, prompts=TokenCounts(1)))
    ]
    assert ttft[1] < 0.2 * ttft[0]
    assert ttft[1] == pytest.approx(ttft[2], rel=0.1)


def test_the_share_is_read_and_kept() -> None:
    (one,) = parse_benchmark("p.csv", f"{CACHED}4000,128,constant,5,60,9,0.75\n").runs
    assert one.cached_share == 0.75
    assert MeasuredPoint.of(one).run().cached_share == 0.75
    for row in ("4000,128,constant,5,60,9,1.5", "4000,128,constant,5,,9,1"):
        with pytest.raises(FitError, match="line 2: cached_share must be 0 to 1, of a run with duration_s"):
            parse_benchmark("p.csv", f"{CACHED}{row}\n")


def test_itl_is_needed_only_for_answers_of_several_tokens() -> None:
    times = RunMeasurements(50.0, None, 5.0)
    runs = [replace(run((500, 1), 5.0 + i, 20.0), measured=times, answers=TokenCounts(1)) for i in range(4)]
    check_enough(runs, 0, ())
    with pytest.raises(FitError, match="no run has a measured ITL"):
        check_enough([*runs, replace(runs[0], answers=TokenCounts(2))], 0, ())
