"""What a program with a licence fee answers: run in a copy of the tree, by `test_a_new_cost`.

Takes the number of random systems, gives JSON.
"""

import json
import random
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

from builders import accelerator, document, random_document, server
from oracles import Levels, read_case
from plan_faults import plan_faults
from plan_search import joined

import optimizer
from optimizer import System, compare, load_system, solve, verify
from optimizer.plan import Plan

FEE, EACH = 500, 10


def best_levels(system: System) -> Levels:
    """Return the best value of every level, by all numbers of replicas; cards are unlimited."""
    case = read_case(system)
    names, groups = [*case.levels([choice.nothing for choice in case.choices])], []
    for choice in case.choices:
        ways = []
        for option in (*choice.options, choice.nothing):
            levels = dict.fromkeys(names, Fraction(0))
            if choice.to_serve and option is choice.nothing:
                levels[f"priority {choice.priority}: unserved rate"] = choice.load_rpm
                levels[f"priority {choice.priority}: unserved servers"] = Fraction(1)
            levels |= {"value": Fraction(option.value), "changes": Fraction(option.changed)}
            ways.append(((Fraction(option.replicas),), tuple(levels.values())))
        groups.append(ways)
    found, value = joined(groups, (1, len(names)), lambda _: True), names.index("value")
    every = []
    for (replicas,), reached in found.items():
        fee = -(-replicas // EACH) * FEE
        every.append(tuple(each + fee if i == value else each for i, each in enumerate(reached)))
    return dict(zip(names, min(every), strict=True))


def example(rate: float) -> System:
    """Return two servers on a small card or on a dearer one that carries four times the load."""
    cards = [accelerator("small", "S", 10), accelerator("large", "L", 60, 4)]
    return load_system(document([server("a", rate), server("b", rate)], cards, unlimited=True))


def answers(systems: int) -> dict[str, Any]:
    """Return the costs of two plans, false values that are found, and the faults of random plans."""
    few, many = solve(example(1500)), solve(example(6000))
    false = json.loads(many.to_json())
    false["costs"][0]["amount"] += 1
    faults = []
    for seed in range(systems):
        source = random_document(random.Random(seed))
        source["optimizer"] |= {"unlimited": True, "saturationPolicy": "None"}
        system = load_system(source)
        faults += plan_faults(system, best_levels(system))
    return {
        "home": str(Path(optimizer.__file__).parent),
        "few": [json.loads(each.model_dump_json(by_alias=True)) for each in few.costs],
        "many": [json.loads(each.model_dump_json(by_alias=True)) for each in many.costs],
        "total": many.total_cost_cents_per_h,
        "pools": sum(pool.cost_cents_per_h for pools in many.allocations.values() for pool in pools),
        "found": verify(Plan.model_validate(false), example(6000)),
        "same": compare(example(1500), example(6000)).same,
        "faults": faults,
    }


if __name__ == "__main__":
    print(json.dumps(answers(int(sys.argv[1]))))
