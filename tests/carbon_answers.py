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
from rest_server.settings import Settings
from rest_server.web.changes import Changes
from rest_server.web.work import open_text

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


def swept(system: System, text: str) -> dict[str, Any]:
    """Return a sweep, and the plans of documents with its values."""
    found = sweep(system, read_variations(system, [text]), Checkpoint())
    name, item = (text.partition("=")[0] + ":").split(":")[:2]
    costs = []
    for value in found.axes[0].values:
        document: dict[str, Any] = json.loads(system.to_spec().to_json())
        kinds = {each["name"]: each for each in document["accelerators"]}
        kinds.get(item, document["optimizer"])[name] = value
        costs.append(solve(load_system(document)).total_cost_cents_per_h)
    return {"sweep": json.loads(found.to_json()), "costs": costs}


def on_the_page(system: System) -> dict[str, Any]:
    """Return the numbers that the page shows, and those after changes of both options."""
    opened = open_text(system.to_spec().to_json(), Settings(solver_processes=0))
    assert opened.controls is not None
    changed = Changes(given={"maxCarbon": "5000", "carbonMargin": "25%"}).applied_to(system)
    return {
        "shown": {item.name: [item.unit, item.original] for item in opened.controls.numbers},
        "changed": json.loads(changed.to_spec().to_json())["optimizer"],
    }


def main(samples: Path) -> None:
    system = with_carbon(samples / "robust.yaml", 6000.0).with_options(carbon_margin=0.1)
    explained = json.loads(explain(system).to_json())
    cost = solve(system).total_cost_cents_per_h
    removed = {"maxCarbon": system.with_options(max_carbon=None)}
    removed["carbonMargin"] = system.with_options(carbon_margin=0.0)
    answers = {
        "home": str(Path(optimizer.__file__).parent),
        "samples": {name: answer(samples / name) for name in SAMPLES},
        "explained": [item for item in explained["limits"] if item["limit"] == "carbon"],
        "wishes": {item["option"]: item["without"]["costChange"] for item in explained["wishes"]},
        "removed": {name: solve(other).total_cost_cents_per_h - cost for name, other in removed.items()},
        "swept": [
            swept(system, text)
            for text in ("maxCarbon=4000,6000", "carbonMargin=0%,20%", "carbon:H100=100,900")
        ],
        "page": on_the_page(system),
    }
    print(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
