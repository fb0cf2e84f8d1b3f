"""Points of a sweep: the system and its plan for one combination of parameter values."""

from collections.abc import Sequence

from optimizer.candidates import SizingMemo
from optimizer.pipeline import solve_in_full
from optimizer.spec.system import System
from optimizer.studies.service import lacking_fields, service_by_priority
from optimizer.studies.sweep.binding import blocking_limits
from optimizer.studies.sweep.parameters import Variation
from optimizer.studies.sweep.sweep_document import RoleCosts, ServedShare, SweepPoint, UnitsUsed

Values = tuple[float, ...]
"""Combination of values, one for each parameter."""


def solve_points(
    system: System, variations: tuple[Variation, ...], some: Sequence[Values]
) -> list[SweepPoint]:
    """Return the plan at each given combination of values, as points of a sweep.

    Raises:
        SpecError: a value is out of range.
        SolverError: the solver failed.
    """
    memo = SizingMemo()
    return [plan_point(applied(system, variations, values), values, memo) for values in some]


def applied(system: System, variations: Sequence[Variation], values: Values) -> System:
    """Return a copy of a system with one value for each parameter.

    Raises:
        SpecError: a value is out of range.
    """
    for variation, value in zip(variations, values, strict=True):
        system = variation.applied_to(system, value)
    return system


def plan_point(system: System, values: Values, memo: SizingMemo | None = None) -> SweepPoint:
    """Plan a system, and return the plan as a point of a sweep.

    Raises:
        SolverError: the solver failed.
    """
    solved = solve_in_full(system, memo=memo)
    plan = solved.plan
    return SweepPoint.taken_from(
        plan,
        values=values,
        value_cents_per_h=plan.objective,
        bound_cents_per_h=plan.bound,
        unserved=len(plan.unserved),
        **lacking_fields(plan),
        served=tuple(
            ServedShare(priority=item.priority, share=item.share)
            for item in service_by_priority(plan, system)
        ),
        units=tuple(UnitsUsed(type=item.type, used=item.used) for item in plan.capacity),
        binds=blocking_limits(solved),
        levels=tuple(level.value for level in plan.levels),
        disaggregation=RoleCosts.of_plan(plan),
    )
