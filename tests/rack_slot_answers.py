"""What a program that knows rack slots answers: run in a copy of the tree, by `test_a_new_limit`.

Takes the number of random systems, gives JSON.
"""

import io
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from builders import accelerator, document, random_document, server, service_class
from mixed_oracles import mixed_brute_force, random_mixed_document
from oracles import Case, Option, brute_force, read_case
from plan_faults import plan_faults

import optimizer
from optimizer import System, explain, load_system, solve, verify
from optimizer.plan import Plan
from optimizer.render.explanation_sections import explanation_sections
from optimizer.render.plan_sections import plan_sections
from optimizer.render.terminal import show
from optimizer.section import Section
from optimizer.studies.sweep.checkpoint import Checkpoint
from optimizer.studies.sweep.parameters import read_variations
from optimizer.studies.sweep.sweep import sweep

LIES = {"limit": "cards", "item": "some racks", "amount": 9.0, "used": 1.0}
"""A false value of each field of what a plan says of a limit."""


@dataclass(frozen=True)
class Racked(Case):
    """A question of choice in which slots are limited as well."""

    slots: int = 0

    def fits(self, taken: Any) -> bool:
        """Return whether an answer is within cards and slots."""
        mine: list[Option] = [option for option in taken if option.replicas]
        used = sum(option.replicas * -(-option.units // option.replicas // 2) for option in mine)
        return super().fits(mine) and used <= self.slots


def system_with_racks(seed: int, *, mixed: bool) -> System:
    """Return a small random system with few slots; of some, cards are not limited."""
    rng = random.Random(f"racks {seed}")
    source = random_mixed_document(seed) if mixed else random_document(random.Random(seed))
    options = {"rackSlots": rng.choice([1, 2, 3, 5]), "heterogeneous": mixed, "unlimited": rng.random() < 0.2}
    return load_system(source | {"optimizer": source["optimizer"] | options})


def faults(seed: int) -> list[str]:
    """Return the faults in the plans of random systems, by brute force and verification."""
    found = []
    for mixed in (False, True):
        system = system_with_racks(seed, mixed=mixed)
        slots = vars(system.options)["rack_slots"]
        case = read_case(system)
        alone = Racked(case.choices, case.units, slots)
        best = mixed_brute_force(system, slots=slots) if mixed else brute_force(alone)
        found += plan_faults(system, best)
    return [f"{seed}: {line}" for line in found]


def example(**options: Any) -> System:
    """Return three servers that need three slots each, where there are eight and more cards than that."""
    classes = [service_class("gold", 1, itl=40), service_class("silver", 2, itl=40)]
    servers = [server("a", 1500), server("b", 1500), server("c", 1500, service="silver")]
    cards = [accelerator("A"), accelerator("B", cost=31, multiplicity=2)]
    return load_system(document(servers, cards, {"A": 30, "B": 30}, classes=classes, rackSlots=8, **options))


def lies(plan: Plan, system: System) -> dict[str, list[str]]:
    said = {}
    for name, value in LIES.items():
        false = json.loads(plan.to_json())
        false["limits"][0][name] = value
        said[name] = verify(Plan.model_validate(false), system)
    return said


def text(sections: Sequence[Section]) -> str:
    out = io.StringIO()
    show(sections, out)
    return out.getvalue()


def swept(last: int) -> list[list[Any]]:
    """Return the unserved servers with each number of slots: of an exact range, and of each plan."""
    system = example(transitionPenalty=0)
    found = sweep(system, read_variations(system, [f"rackSlots=0..{last}"]), Checkpoint())
    ranges: list[int] = []
    for point in found.points:
        ranges += [point.unserved] * int(1 + (point.until or 0) - point.values[0])
    systems = [system.with_options(rack_slots=slots) for slots in range(last + 1)]
    return [ranges, [len(solve(one).unserved) for one in systems]]


def main(systems: int) -> None:
    system = example()
    plan, explained = solve(system), explain(system)
    ample = replace(system, options=system.options.model_copy(update={"rack_slots": 9}))
    answers = {
        "home": str(Path(optimizer.__file__).parent),
        "plan": json.loads(plan.to_json()),
        "mixed": json.loads(solve(example(heterogeneous=True)).to_json()),
        "unlimited": json.loads(solve(example(), unlimited=True).to_json()),
        "greedy": json.loads(solve(example(milpSolver=False)).to_json()),
        "partial": json.loads(solve(example(saturationPolicy="PriorityExhaustive")).to_json()),
        "ample": json.loads(solve(ample).to_json()),
        "explanation": json.loads(explained.to_json()),
        "tables": text(plan_sections(plan, system)),
        "explained": text(explanation_sections(explained)),
        "lies": lies(plan, system),
        "swept": swept(12),
        "faults": [line for seed in range(systems) for line in faults(seed)],
    }
    print(json.dumps(answers))


if __name__ == "__main__":
    main(int(sys.argv[1]))
