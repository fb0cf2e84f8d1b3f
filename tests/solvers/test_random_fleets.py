"""Random mixed fleets with odd loads: every one has a plan that holds, the best one where that is known."""

from collections.abc import Sequence

import pytest
from builders import accelerator, server, service_class
from builders import system as build
from mixed_oracles import demands, mixed_brute_force, steps
from random_fleets import BATCHED, random_fleet_document
from slow_cases import mostly_slow

from optimizer import Plan, System, find_candidates, load_system, solve
from optimizer.plan.proof import check_proof, prove
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.objectives import VALUE

FAILED_ONCE = (0, 8, 27, 220, 295)
"""Seeds of which a bound was rounded and its value was not, or the number of servers was left unproved."""


def can_be_enumerated(system: System) -> bool:
    """Return whether the oracle knows all that the fleet asks for: no policies, batch servers or steps."""
    options, found = system.options, find_candidates(system)
    if any(server.model == BATCHED for server in system.servers.values()):
        return False
    divisible = all(t.meets_targets_below_max_rate.all() for t in (found.table, found.over_limit))
    exact = options.heterogeneous and options.milp_solver and not options.unlimited and not options.gap
    return exact and divisible and options.saturation_policy == "None"


def assert_is_best(system: System, plan: Plan) -> None:
    """Compare with all mixtures: service in whole steps, the value up to its slack, and the changes."""
    best, asked = mixed_brute_force(system, in_steps=True), demands(system)
    whole, unserved = steps(asked), {item.server for item in plan.unserved}
    for level in plan.levels:
        assert level.gap == pytest.approx(0, abs=1e-9)
        if level.name.endswith("unserved rate"):
            mine = [name for name in unserved if level.name.startswith(f"priority {asked[name].priority}:")]
            assert sum(whole[name] for name in mine) == best[level.name]
            assert level.value == pytest.approx(sum(float(asked[name].load_rpm) for name in mine))
        else:
            slack = 5e-9 if level.name == VALUE else 0.0  # eq. 50
            assert level.value == pytest.approx(float(best[level.name]), rel=slack, abs=5e-6), level.name


QUICK = [*FAILED_ONCE, *range(1005, 1008)]
HUNDREDS = [range(hundred, hundred + 100) for hundred in range(0, 4000, 100)]


@pytest.mark.few(3)
@pytest.mark.parametrize("seeds", mostly_slow([*((seed,) for seed in QUICK), *HUNDREDS], len(QUICK)), ids=str)
def test_a_random_fleet_has_a_plan_that_holds(seeds: Sequence[int]) -> None:
    """A plan that does not hold raises an error in `solve`."""
    for seed in seeds:
        system = load_system(random_fleet_document(seed))
        plan = solve(system)
        assert plan.status in {"optimal", "heuristic"}
        if can_be_enumerated(system):
            assert_is_best(system, plan)


# --- a load that is no multiple of 0.001 requests/min -----------------------------------------------------


def short_of(rate: float | str, **options: object) -> System:
    """Return one card for two servers of which one replica carries 540 requests/min; `b` stays out."""
    classes = [service_class("gold", itl=20.0)]
    servers = [server("a", 60.0), server("b", rate)]
    return build(servers, [accelerator("H")], {"H": 1}, classes=classes, **options)


@pytest.mark.few(2)
@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize(("rate", "rpm"), [("500/h", 500 / 60), ("500.02/h", 500.02 / 60), (1e-7, 1e-7)])
def test_a_fractional_unserved_rate_is_proved(rate: float | str, rpm: float, *, mixed: bool) -> None:
    system = short_of(rate, heterogeneous=mixed)
    plan = solve(system)
    assert [item.server for item in plan.unserved] == ["b"]
    assert plan.status == "optimal"
    assert plan.levels[0].value == pytest.approx(rpm)
    assert plan.levels[0].gap == 0
    # Multipliers prove it as well: 500.02/h, rounded up, were above the load itself.
    proof = prove(plan, find_candidates(system), Deadline.after(30))
    wrong, open_points = check_proof(plan, system, proof)
    assert wrong == []
    assert not [line for line in open_points if "unserved rate" in line]
