"""Measure how well planned prefill and decode pools hold their targets when both are simulated together.

Every plan is one server that requires pools, with random lengths, targets, links, handovers and laws. Printed
for each: replicas, worst simulated target over its limit, and the same after a repair.

With --small-memory, the KV cache of a prefill replica holds few prompts, and plans are not repaired.

Run: python tests/benchmarks/pools_kept.py [--plans N] [--requests N] [--small-memory]
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
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
MOST = 80
"""Replicas of a pool up to which it is simulated."""
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


def small_memory_source(seed: int) -> dict[str, Any]:
    """Return a server whose prefill replicas have memory for few prompts, and decode replicas for many."""
    source, rng = random_source(seed), random.Random(f"memory {seed}")
    places = rng.choice([1.5, 2, 3, 4, 6, 8, 12])
    load = source["servers"][0]["currentAlloc"]["load"]
    load |= {
        "avgInTokens": rng.choice([2000, 4000, 8000]),
        "inTokensCV": rng.choice([0, 0.3, 0.6]),
        "arrivalRate": f"{rng.choice([20, 40])}/s",
        "avgOutTokens": rng.choice([60, 150, 300]),
    }
    source["servers"][0]["firstToken"] = rng.choice(["decode", "prefill"])
    card, model = source["accelerators"][0], source["models"][0]
    links = {"D": card["linkBandwidth"]}
    source["accelerators"] = [
        card | {"name": "P", "type": "P", "linkBandwidth": 0, "links": links},
        card | {"name": "D", "type": "D", "linkBandwidth": 0},
    ]
    capacity = int(places * load["avgInTokens"])
    source["models"] = [
        model | {"acc": "P", "kvCapacity": capacity},
        model | {"acc": "D", "kvCapacity": 450_000},
    ]
    return source


def worst_ratio(simulation: Simulation) -> tuple[float, str]:
    """Return the largest simulated value over its limit, with the name of the target; inf if overloaded."""
    found = [
        (float("inf") if pool.overload else check.simulated.value / check.limit, check.target)
        for pool in simulation.pools
        for check in pool.targets
    ]
    return max(found)


def planned(count: int, source: Callable[[int], dict[str, Any]]) -> list[tuple[int, System]]:
    """Return the first systems whose server can have pools of at most 80 replicas, with their seeds."""
    found: list[tuple[int, System]] = []
    seed = 0
    while len(found) < count:
        system = load_system(source(seed))
        plan = solve(system)
        if plan.complete and all(pool.num_replicas <= MOST for (pool,) in plan.allocations.values()):
            found.append((seed, system))
        seed += 1
    return found


def main() -> None:
    """Print the worst target of every plan, before and after its repair."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=30)
    parser.add_argument("--requests", type=int, default=20_000, help="simulated requests for each replica")
    parser.add_argument("--small-memory", action="store_true", help="prefill replicas hold few prompts")
    options = parser.parse_args()
    source = small_memory_source if options.small_memory else random_source
    before, after, costs = [], [], []
    for seed, system in planned(options.plans, source):
        begin, plan = time.process_time(), solve(system)
        assert verify(plan, system) == []
        ratio, target = worst_ratio(simulate_pools(system, plan, Effort(options.requests)))
        if options.small_memory:
            before.append(ratio)
            sys.stdout.write(f"{seed:3d} {ratio:6.3f} ({target})\n")
            continue
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
        f"{max(before):.3f} most; beyond 0 / 2 / 10 %: {lost}\n"
    )
    if after:
        cost = f"cost x {statistics.fmean(costs):.3f} mean, {max(costs):.3f} most"
        sys.stdout.write(f"repaired: {max(after):.3f} most, {cost}\n")


if __name__ == "__main__":
    main()
