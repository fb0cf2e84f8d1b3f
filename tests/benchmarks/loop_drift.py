"""Error of predicted token times by utilisation: ``python tests/benchmarks/loop_drift.py [SEEDS]``.

It prints the table of docs/loop.md: the mean inter-token latency of simulated replicas over the prediction
that the drift check compares it with, for one replica and for several behind a router that takes the least
loaded one. Arrivals are Poisson; the profile is exact. Each run measures 900 s.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "loop")]

from simulated_fleet import DISCOVERY, SimulatedFleet, between, chat_system, poisson  # noqa: E402

from optimizer import solve  # noqa: E402
from rest_server.loop import drift  # noqa: E402
from rest_server.loop.loads import EstimatedLoad, with_measured_loads  # noqa: E402
from rest_server.loop.scrape import ScrapeReader  # noqa: E402
from rest_server.loop.window import Window  # noqa: E402

BEGIN_S, END_S = 100, 1000
REPLICAS = (1, 2, 4)
RATES_RPS = (1.0, 2.0, 3.0, 3.5, 4.0)
"""Arrival rates of each replica."""
drift.MAX_UTILISATION = 1.0


def run(replicas: int, rate_rps: float, seed: int) -> tuple[float, float]:
    """Return the predicted utilisation, and the measured over the predicted token time."""
    jobs = poisson(lambda _: rate_rps, END_S, np.random.default_rng(seed), rate_rps)
    fleet = SimulatedFleet(chat_system(), replicas)
    reader = ScrapeReader(fleet.fetch, DISCOVERY, END_S - BEGIN_S)
    for begin_s, end_s in ((0, BEGIN_S), (BEGIN_S, END_S)):
        fleet.advance(end_s, between(jobs, begin_s, end_s))
        reading = reader.read(chat_system(), end_s)["talk"]
    assert isinstance(reading, Window)
    given: dict[str, Any] = {"in_tokens": 60.0, "out_tokens": 30.0, "in_tokens_cv": 0.5, "out_tokens_cv": 1.0}
    load = EstimatedLoad(rate_rps, rate_rps, 0.0, **given)
    system = with_measured_loads(chat_system(), {"talk": load}, variation=True)
    (pool,) = solve(system).allocations["talk"]
    most = {"max_arrival_rate_rpm": float("inf")}
    there = pool.model_copy(update=most), replicas
    found = drift._Prediction.of(system, "talk", there, load, is_random=False)
    assert found is not None
    measured_ms = 1000 * reading.counts.itl_s / reading.counts.tokens
    return found.times["utilization"], measured_ms / found.times["itl_ms"]


def main(seeds: int) -> None:
    """Print the table."""
    print(f"| requests/s of each replica | utilisation | {' | '.join(f'{m} replicas' for m in REPLICAS)} |")
    print(f"|---:|---:|{'---:|' * len(REPLICAS)}")
    for rate_rps in RATES_RPS:
        found = [
            np.mean([run(m, m * rate_rps, seed) for seed in range(1, seeds + 1)], axis=0) for m in REPLICAS
        ]
        ratios = " | ".join(f"{ratio:.3f}" for _, ratio in found)
        print(f"| {rate_rps:g} | {found[0][0]:.0%} | {ratios} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
