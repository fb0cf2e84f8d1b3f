"""Measure how well planned prefill and decode pools hold their targets when both are simulated together.

Every plan is one server that requires pools, with random lengths, targets, links, handovers and laws. Printed
for each: replicas, worst simulated target over its limit, and the same after a repair.

Run: python tests/benchmarks/pools_kept.py [--plans N] [--requests N]
"""

import argparse
import random
import statistics
import sys
import time
from typing import Any

from optimizer import load_system, solve, verify
from optimizer.jobs.effort import EffortOptions
from optimizer.jobs.simulating import repair_plan
from optimizer.simulation.replicas import Effort
from optimizer.spec.system import System
from optimizer.studies.simulation.plans import simulate_pools
from optimizer.studies.simulation.simulation_document import Simulation

LAWS = {
    "H100": {"alpha": 6.83, "beta": 0.0224, "gamma": 4.36e-5, "perSequence": 0.0189,
             "promptAttention": 1.04e-6, "weightRead": 4.3},
    "A100": {"alpha": 10.5, "beta": 0.062, "gamma": 7.2e-5, "perSequence": 0.025, "promptAttention": 2.9e-6,
             "weightRead": 6.8},
}  # fmt: skip
COSTS = {"H100": 300.0, "A100": 150.0}


def random_source(seed: int) -> dict[str, Any]:
    """Return a server that requires prefill and decode pools on one or two types of cards."""
    rng = random.Random(f"kept pools {seed}")
    load = {
        "arrivalRate": f"{rng.choice([2, 5, 10, 20, 40])}/s",
        "avgInTokens": rng.choice([500, 1000, 2000, 4000, 8000]),
        "avgOutTokens": rng.choice([60, 150, 300, 600]),
        "inTokensCV": rng.choice([0, 0.5, 1]),
        "outTokensCV": rng.choice([0, 0.5, 1]),
        "arrivalCV": rng.choice([1, 1, 1, 2]),
    }
    target = {
        "model": "m",
        "slo-itl": rng.choice([14, 18, 25, 40]),
        "slo-ttft": rng.choice([700, 1500, 3000]),
    }
    target |= {} if rng.random() < 0.25 else {"percentile": rng.choice([90, 95, 95, 99])}
    names = rng.choice([["H100"], ["H100", "A100"]])
    capacity = rng.choice([60_000, 150_000, 450_000])
    return {
        "accelerators": [
            {"name": name, "type": name, "cost": COSTS[name], "linkBandwidth": rng.choice([5, 12, 25, 50])}
            for name in names
        ],
        "models": [
            {"name": "m", "acc": name, "maxBatchSize": rng.choice([64, 256]), "kvCapacity": capacity,
             "perfParms": LAWS[name], "kvBytesPerToken": 131_072}
            for name in names
        ],
        "serviceClasses": [{"name": "c", "modelTargets": [target]}],
        "servers": [
            {"name": "s", "class": "c", "model": "m", "disaggregation": "required",
             "firstToken": rng.choice(["decode", "decode", "prefill"]), "currentAlloc": {"load": load}}
        ],
        "optimizer": {
            "unlimited": True,
            "handover": {"fixedMs": rng.choice([0, 30, 150]), "layerwise": rng.random() < 0.5},
        },
    }  # fmt: skip


def worst_ratio(simulation: Simulation) -> tuple[float, str]:
    """Return the largest simulated value over its limit, with the name of the target; inf if overloaded."""
    found = [
        (float("inf") if pool.overload else check.simulated.value / check.limit, check.target)
        for pool in simulation.pools
        for check in pool.targets
    ]
    return max(found)


def planned(count: int) -> list[tuple[int, System]]:
    """Return the first systems whose server can have pools, with their seeds."""
    found: list[tuple[int, System]] = []
    seed = 0
    while len(found) < count:
        system = load_system(random_source(seed))
        if solve(system).complete:
            found.append((seed, system))
        seed += 1
    return found


def main() -> None:
    """Print the worst target of every plan, before and after its repair."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=30)
    parser.add_argument("--requests", type=int, default=20_000, help="simulated requests for each replica")
    options = parser.parse_args()
    before, after, costs = [], [], []
    for seed, system in planned(options.plans):
        begin, plan = time.process_time(), solve(system)
        assert verify(plan, system) == []
        ratio, target = worst_ratio(simulate_pools(system, plan, Effort(options.requests)))
        mended = repair_plan(system, EffortOptions(requests=options.requests))
        assert verify(mended.plan, system) == []
        last = worst_ratio(mended.simulation)[0]
        before.append(ratio)
        after.append(last)
        costs.append(mended.cost_after_cents_per_h / mended.cost_before_cents_per_h)
        pools = " + ".join(
            f"{pool.num_replicas} {name.split('(')[-1].rstrip(')')} {pool.accelerator}"
            for name, rows in sorted(plan.allocations.items(), reverse=True)
            for pool in rows
        )
        sys.stdout.write(
            f"{seed:3d} {pools:40} {ratio:6.3f} ({target}) -> {last:6.3f}, cost x {costs[-1]:.3f}, "
            f"{len(mended.repairs)} repairs, {time.process_time() - begin:.0f} s\n"
        )
        sys.stdout.flush()
    lost = [sum(ratio > 1 + share for ratio in before) for share in (0.0, 0.02, 0.1)]
    sys.stdout.write(
        f"{len(before)} plans: worst target / limit {statistics.median(before):.3f} median, "
        f"{max(before):.3f} most; beyond 0 / 2 / 10 %: {lost}; repaired: {max(after):.3f} most, cost x "
        f"{statistics.fmean(costs):.3f} mean, {max(costs):.3f} most\n"
    )


if __name__ == "__main__":
    main()
