"""Faults in the plans of a system: by the best levels of an oracle, by proof and by verification."""

from typing import Any

from oracles import Levels

from optimizer import System, find_candidates, solve, verify
from optimizer.plan.proof import check_proof, prove
from optimizer.solvers.branch_and_price.solve import solve_patterns
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.problem import build_problem


def plan_faults(system: System, best: Levels) -> list[str]:
    """Return the faults of the plan by default, the one of branch and price, and the greedy one."""
    plan, candidates = solve(system), find_candidates(system)
    found = differences("plan", plan.levels, best)
    found += [] if plan.status == "optimal" else [plan.status]
    found += verify(plan, system)
    found += differences("patterns", solve_patterns(build_problem(candidates)).levels, best)
    found += check_proof(plan, system, prove(plan, candidates, Deadline.after(5.0)))[0]
    greedy = system.with_options(milp_solver=False, saturation_policy="RoundRobin")
    return found + verify(solve(greedy), greedy)


def differences(what: str, levels: Any, best: Levels) -> list[str]:
    """Return the levels that are not the best ones."""
    reached: dict[str, float] = {level.name: level.value for level in levels}
    if [*reached] != [*best]:
        return [f"{what}: levels {[*reached]}, not {[*best]}"]
    return [
        f"{what}: {name} is {reached[name]}, the best is {float(value)}"
        for name, value in best.items()
        if abs(reached[name] - float(value)) > 1e-6 * max(1.0, abs(float(value)))
    ]
