"""Costs of late requests and periods compared: a step from 3 to 18 requests/s for ten minutes.

Replicas with own queues start in 30 s and take 3.7 requests/s within the targets. ``python
tests/benchmarks/loop_steps.py [SEEDS]`` prints the table of docs/loop.md: share of the requests whose first
token came within 1.5 s, that of the requests of the step, replica-hours, the most replicas, and the time from
the step to an empty queue.
"""

import sys
from itertools import product
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("", "loop")]

from simulated_fleet import between, poisson  # noqa: E402
from test_cycles import CONFIG, Loop  # noqa: E402

TARGET_S, BEGIN_S, STEP_S, BACK_S, END_S = 1.5, 150, 300, 900, 1500
PERIODS_S = (5, 15, 30)
LATE_COSTS = (0.0, 5.0, 20.0, 80.0)


def run(period_s: int, late_cost: float, seed: int) -> tuple[float, float, float, float, float]:
    """Return the figures of one run."""
    changes = {"late_cost": late_cost, "period_s": float(period_s)}
    loop = Loop(CONFIG.model_copy(update=changes), replicas=2)
    jobs = poisson(lambda t: 18 if STEP_S <= t < BACK_S else 3, END_S, np.random.default_rng(seed), 30)
    most, empty_s = 0, np.nan
    for now_s in range(0, END_S + 1, period_s):
        if now_s == BEGIN_S:
            loop.fleet.replica_s = 0.0
        loop.fleet.advance(now_s, between(jobs, now_s - period_s, now_s))
        record = loop.controller.cycle(float(now_s))
        most = max(most, loop.fleet.desired)
        if now_s > STEP_S + 60 and record["loads"]["talk"]["waiting"] < 5 and np.isnan(empty_s):
            empty_s = now_s - STEP_S
    counted = between(jobs, BEGIN_S, END_S)
    within = np.array([job.first_ms - job.arrival_ms <= 1000 * TARGET_S for job in counted])
    of_step = np.array([STEP_S <= job.arrival_ms / 1000 < BACK_S for job in counted])
    return within.mean(), within[of_step].mean(), loop.fleet.replica_s / 3600, most, empty_s


def main(seeds: int) -> None:
    """Print the table."""
    print("| period | lateCost | within | step within | replica-hours | most replicas | queue gone after |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for period_s, late_cost in product(PERIODS_S, LATE_COSTS):
        found = np.array([run(period_s, late_cost, seed) for seed in range(1, seeds + 1)])
        all_, step, hours, most, empty_s = found.mean(axis=0)
        print(
            f"| {period_s} s | {late_cost:g} | {all_:.1%} | {step:.1%} | {hours:.2f} | {most:.1f} | "
            f"{empty_s:.0f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
