"""Drain times compared: a step from 3 to 18 requests/s for ten minutes, on a simulated fleet.

Replicas start in 30 s and take 3.7 requests/s within the targets. ``python tests/benchmarks/loop_steps.py
[SEEDS]`` prints the table of docs/loop.md: the share of all requests whose first token came within 1.5 s,
that of the requests of the step, replica-hours, the most replicas, and the time from the step to an empty
queue.
"""

import sys
from itertools import product
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("", "loop")]

from simulated_fleet import between, poisson  # noqa: E402
from test_cycles import CONFIG, PERIOD_S, Loop  # noqa: E402

TARGET_S, BEGIN_S, STEP_S, BACK_S, END_S = 1.5, 150, 300, 900, 1500
WINDOWS_S = (30.0, 60.0)
DRAINS_S = (15.0, 30.0, 60.0, 90.0, 120.0, 180.0, 300.0)


def run(window_s: float, drain_s: float, seed: int) -> tuple[float, float, float, float, float]:
    """Return the figures of one run."""
    loop = Loop(CONFIG.model_copy(update={"drain_s": drain_s, "window_s": window_s}), replicas=2)
    jobs = poisson(lambda t: 18 if STEP_S <= t < BACK_S else 3, END_S, np.random.default_rng(seed), 30)
    most, empty_s = 0, np.nan
    for now_s in range(0, END_S + 1, PERIOD_S):
        if now_s == BEGIN_S:
            loop.fleet.replica_s = 0.0
        loop.fleet.advance(now_s, between(jobs, now_s - PERIOD_S, now_s))
        record = loop.controller.cycle(float(now_s))
        most = max(most, loop.fleet.desired)
        if now_s > STEP_S + 60 and record["loads"]["talk"]["backlog_rps"] * drain_s < 5 and np.isnan(empty_s):
            empty_s = now_s - STEP_S
    counted = between(jobs, BEGIN_S, END_S)
    within = np.array([job.first_ms - job.arrival_ms <= 1000 * TARGET_S for job in counted])
    of_step = np.array([STEP_S <= job.arrival_ms / 1000 < BACK_S for job in counted])
    return within.mean(), within[of_step].mean(), loop.fleet.replica_s / 3600, most, empty_s


def main(seeds: int) -> None:
    """Print the table."""
    print("| window | drain | within | step within | replica-hours | most replicas | queue gone after |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for window_s, drain_s in product(WINDOWS_S, DRAINS_S):
        found = np.array([run(window_s, drain_s, seed) for seed in range(1, seeds + 1)])
        all_, step, hours, most, empty_s = found.mean(axis=0)
        print(
            f"| {window_s:g} s | {drain_s:g} s | {all_:.1%} | {step:.1%} | {hours:.2f} | {most:.1f} | "
            f"{empty_s:.0f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
