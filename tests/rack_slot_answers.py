"""What a program that knows rack slots answers: run in a copy of the tree, by `test_a_new_limit`.

Takes the number of random systems, gives JSON.
"""

import io
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from builders import accelerator, document, random_document, server, service_class
from mixed_oracles import mixed_brute_force, random_mixed_document
from oracles import Case, Levels, Option, brute_force, read_case

import optimizer
from optimizer import System, explain, find_candidates, load_system, solve, verify
from optimizer.plan import Plan
from optimizer.plan.proof import check_proof, prove
from optimizer.render.explanation_sections import explanation_sections
from optimizer.render.plan_sections import plan_sections
from optimizer.render.terminal import show
from optimizer.section import Section
from optimizer.solvers.branch_and_price.solve import solve_patterns
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.problem import build_problem

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


def differences(levels: Mapping[str, float], best: Levels) -> list[str]:
    """Return the levels that are not the best ones."""
    return [
        f"{name}: {levels[name]} for {float(value)}"
        for name, value in best.items()
        if abs(levels[name] - float(value)) > 1e-6 * max(1.0, abs(float(value)))
    ]


def faults(seed: int) -> list[str]:
    """Return what is wrong with the plans of random systems, by brute force and verification."""
    found = []
    for mixed in (False, True):
        system = system_with_racks(seed, mixed=mixed)
        slots = vars(system.options)["rack_slots"]
        case = read_case(system)
        best = (
            mixed_brute_force(system, slots=slots)
            if mixed
            else brute_force(Racked(case.choices, case.units, slots))
        )
        plan = solve(system)
        found += differences({level.name: level.value for level in plan.levels}, best)
        found += [] if plan.status == "optimal" else [plan.status]
        found += verify(plan, system)
        candidates = find_candidates(system)
        by_patterns = solve_patterns(build_problem(candidates))
        found += differences({level.name: level.value for level in by_patterns.levels}, best)
        found += check_proof(plan, system, prove(plan, candidates, Deadline.after(5.0)))[0]
        greedy = system.with_options(milp_solver=False, saturation_policy="RoundRobin")
        found += verify(solve(greedy), greedy)
    return [f"{seed}: {line}" for line in found]


def example(**options: Any) -> System:
    """Return three servers that need three slots each, where there are eight and more cards than that."""
    classes = [service_class("gold", 1, itl=40), service_class("silver", 2, itl=40)]
    servers = [server("a", 1500), server("b", 1500), server("c", 1500, service="silver")]
    cards = [accelerator("A"), accelerator("B", cost=31, multiplicity=2)]
    return load_system(document(servers, cards, {"A": 30, "B": 30}, classes=classes, rackSlots=8, **options))


def lies(plan: Plan, system: System) -> dict[str, list[str]]:
    """Return what verification says of each false field."""
    said = {}
    for name, value in LIES.items():
        false = json.loads(plan.to_json())
        false["limits"][0][name] = value
        said[name] = verify(Plan.model_validate(false), system)
    return said


def text(sections: Sequence[Section]) -> str:
    """Return sections as text."""
    out = io.StringIO()
    show(sections, out)
    return out.getvalue()


def main(systems: int) -> None:
    """Print the answers."""
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
        "faults": [line for seed in range(systems) for line in faults(seed)],
    }
    print(json.dumps(answers))


if __name__ == "__main__":
    main(int(sys.argv[1]))
