"""Measure repairs: ``python tests/benchmarks/repair.py [--plans N] [--tightness T]``.

Random fleets are planned, simulated and repaired: with the linear law, and with the iteration law under
either queue model, held to means or to 95th percentiles, with Poisson and with bursty arrivals. Unlimited,
and with units as scarce as asked (``--tightness``). Printed: servers that lost a target, repairs, and the
cost of the repaired plans over that of the others.
"""

import argparse
import statistics
import time
from typing import Any

from optimizer.generate import generate_document
from optimizer.jobs.effort import EffortOptions
from optimizer.jobs.simulating import repair_plan
from optimizer.plan import verify
from optimizer.spec.system import System, load_system

SERVERS, ACCELERATORS, TYPES = 6, 8, 3
KINDS: dict[str, dict[str, Any]] = {
    "linear, means": {"queue_model": None},
    "reference, means": {"queue_model": "reference"},
    "continuous, means": {"queue_model": "continuous"},
    "continuous, p95": {"queue_model": "continuous", "percentile": 95},
    "continuous, p95, arrivalCV 2": {"queue_model": "continuous", "percentile": 95, "arrival_cv": 2.0},
}


def random_system(
    seed: int,
    *,
    queue_model: str | None = None,
    percentile: float | None = None,
    arrival_cv: float | None = None,
    tightness: float = 1.0,
) -> System:
    """Make a small fleet; with a queue model its profiles follow the iteration law."""
    document = generate_document(SERVERS, ACCELERATORS, TYPES, seed, tightness)
    if queue_model is not None:
        for profile in document["models"]:
            decode, prefill = profile.pop("decodeParms"), profile.pop("prefillParms")
            profile["queueModel"] = queue_model
            profile["perfParms"] = {
                "alpha": decode["alpha"],
                "beta": 2 * prefill["delta"],
                "gamma": decode["beta"] / profile["atTokens"],
            }
    if percentile is not None:
        for target in (item for owner in document["serviceClasses"] for item in owner["modelTargets"]):
            target["percentile"] = percentile
    if arrival_cv is not None:
        for server in document["servers"]:
            server["currentAlloc"]["load"]["arrivalCV"] = arrival_cv
    return load_system(document)


def measure(name: str, plans: int, tightness: float, *, unlimited: bool) -> None:
    """Repair the plans of one kind, and print what came of it."""
    begin, costs, repairs, held, lost = time.perf_counter(), [], 0, 0, 0
    for seed in range(plans):
        system = random_system(seed, tightness=tightness, **KINDS[name]).with_options(unlimited=unlimited)
        found = repair_plan(system, EffortOptions())
        assert verify(found.plan, system) == []
        assert found.holds == (not found.lost)
        assert all(pool.holds for pool in found.simulation.pools)
        if found.cost_before_cents_per_h:
            costs.append(found.cost_after_cents_per_h / found.cost_before_cents_per_h)
        repairs += len(found.repairs)
        held += found.holds
        lost += len(found.lost)
    seconds = time.perf_counter() - begin
    units = "unlimited" if unlimited else f"tightness {tightness:g}"
    print(
        f"{name:30}{units:14} {held:3} of {plans} hold, {lost:3} servers lost, {repairs:3} repairs, cost x "
        f"{statistics.median(costs):.3f} median, {statistics.fmean(costs):.3f} mean, {max(costs):.3f} most, "
        f"{seconds:.1f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--plans", type=int, default=30, help="plans of each kind (30)")
    parser.add_argument("--tightness", type=float, default=1.5, help="how scarce units are (1.5)")
    parser.add_argument("--kind", choices=KINDS, action="append", help="of these only")
    arguments = parser.parse_args()
    for name in arguments.kind or KINDS:
        measure(name, arguments.plans, arguments.tightness, unlimited=True)
        measure(name, arguments.plans, arguments.tightness, unlimited=False)


if __name__ == "__main__":
    main()
