"""What a program that knows emissions answers: run in a copy of the tree, by `test_a_new_limit`.

Takes the folder of samples, gives JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

import optimizer
from optimizer import System, explain, load_system, solve, verify
from optimizer.plan import Plan
from optimizer.studies.sweep.checkpoint import Checkpoint
from optimizer.studies.sweep.parameters import read_variations
from optimizer.studies.sweep.sweep import sweep

SAMPLES = ("shared-cards.yaml", "robust.yaml", "everything")


def with_carbon(path: Path, most: float) -> System:
    """Return a sample in which each accelerator emits something, and all together at most an amount."""
    document: dict[str, Any] = json.loads(load_system(path).to_spec().to_json())
    for i, item in enumerate(document["accelerators"]):
        item["carbon"] = 400.0 + 10 * i
    document["optimizer"] = document.get("optimizer", {}) | {"maxCarbon": most}
    return load_system(document)


def by_hand(plan: Plan, system: System) -> float:
    """Return the emissions of what a plan places."""
    total = 0.0
    for name, pools in plan.allocations.items():
        for pool in pools:
            profile = system.profiles[system.servers[name].model, pool.accelerator]
            grams = vars(system.accelerators[pool.accelerator])["carbon_g_per_h"]
            total += pool.num_replicas * profile.acc_count * grams
    for use in plan.shared_cards:
        total += use.num_cards * vars(system.accelerators[use.accelerator])["carbon_g_per_h"]
    return total


def answer(path: Path) -> dict[str, Any]:
    """Return the emissions of the best plan without a limit, and of one within less."""
    system = with_carbon(path, 1e9)
    free = solve(system)
    used = next(use.used for use in free.limits if use.limit == "carbon")
    tight = system.with_options(max_carbon=0.9 * used)
    plan = solve(tight)
    return {
        "used": used,
        "hand": by_hand(free, system),
        "tight": [0.9 * used, by_hand(plan, system)],
        "said": next(use.used for use in plan.limits if use.limit == "carbon"),
        "problems": [*verify(free, system), *verify(plan, tight)],
        "cards": len(free.shared_cards),
        "rented": len(free.rented),
        "reserves": len(free.reserves),
    }


def main(samples: Path) -> None:
    system = with_carbon(samples / "robust.yaml", 6000.0)
    explained = json.loads(explain(system).to_json())
    swept = sweep(system, read_variations(system, ["maxCarbon=4000,6000"]), Checkpoint())
    answers = {
        "home": str(Path(optimizer.__file__).parent),
        "samples": {name: answer(samples / name) for name in SAMPLES},
        "explained": [item for item in explained["limits"] if item["limit"] == "carbon"],
        "swept": json.loads(swept.to_json()),
    }
    print(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
