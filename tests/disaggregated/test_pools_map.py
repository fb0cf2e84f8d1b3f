"""The map of the costs of prefill and decode pools: two cells against the simulation of both sides."""

import runpy
from pathlib import Path

import pytest

MAP = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "pools_map.py"))


@pytest.mark.parametrize(("prompt", "itl_ms", "ratio"), [(1024, 10.5, 0.6), (512, 35, 1.05)])
def test_the_simulation_is_on_the_same_side(prompt: int, itl_ms: float, ratio: float) -> None:
    (rates,) = MAP["closed_rates"]([(prompt, itl_ms)])
    assert rates.ratio == pytest.approx(ratio, abs=0.02)
    simulated = MAP["simulated_ratio"](prompt, itl_ms, rates, 1000)
    assert simulated == pytest.approx(rates.ratio, rel=0.12)
    assert (simulated > 1) == (rates.ratio > 1)
