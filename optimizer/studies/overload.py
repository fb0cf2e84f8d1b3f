"""Options that serve more load of an overloaded fleet: a saturation policy, mixed plans, or both.

By default, a server is served in full on one accelerator, or not at all, so cards can be idle although load
is unserved. In this case, an `Overload` lists other options that help.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from optimizer.candidates import Candidates, find_candidates
from optimizer.documents import Document
from optimizer.errors import SolverError
from optimizer.pipeline import choose
from optimizer.plan import Plan, make_plan, verify
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.problem import build_problem
from optimizer.spec.schema import SaturationPolicy
from optimizer.spec.system import System
from optimizer.studies.service import PriorityService, service_by_priority
from optimizer.tolerances import ROUNDING

LIMIT_S = 10.0
"""Time limit for all options together [s]."""
POLICY: SaturationPolicy = "PriorityExhaustive"
"""Policy that is tried: it serves higher priorities first, as far as cards suffice."""


class OtherOptions(Document):
    """Optimizer options that differ from the plan's, and the service of the plan with them."""

    saturation_policy: SaturationPolicy | None = Field(None, alias="saturationPolicy")
    """The saturation policy; None if unchanged."""
    heterogeneous: bool | None = None
    """True for a mixed plan; None if unchanged."""
    service: tuple[PriorityService, ...] | None = Field(None, strict=False)
    """Service of each priority, the highest first; None if the solver was stopped before."""
    total_cost_cents_per_h: float | None = Field(None, alias="totalCost")
    """Total cost of the plan [cents/h]; None if the solver was stopped before."""

    @property
    def changes(self) -> dict[str, object]:
        """Return the options by Python name, for `System.with_options`."""
        changes = {"saturation_policy": self.saturation_policy, "heterogeneous": self.heterogeneous}
        return {name: value for name, value in changes.items() if value is not None}


class Overload(Document):
    """Unserved load although cards remain, and options that serve more of it."""

    cards_left: dict[str, int] = Field(alias="cardsLeft")
    """Unused cards by accelerator type."""
    service: tuple[PriorityService, ...] = Field(strict=False)
    """Service of each priority in the plan, the highest first."""
    options: tuple[OtherOptions, ...] = Field(strict=False)
    """Options that serve more load, each with its service; and options not solved in time."""


def find_overload(system: System, plan: Plan) -> Overload | None:
    """Return options that would serve more load; None if all is served, no card is free, or none helps.

    Args:
        system: the fleet.
        plan: the plan of the system with its own options.

    Raises:
        SolverError: the solver failed, or a plan does not pass verification.
    """
    if not is_overloaded(plan):
        return None
    limit_s = min(LIMIT_S, system.options.time_limit_s)
    system = system.with_rate_factors(plan.factor_of_pair)  # in a repaired plan
    return overload_of(find_candidates(system), plan, Deadline.after(limit_s))


def is_overloaded(plan: Plan) -> bool:
    """Return whether load is unserved for lack of cards although cards remain."""
    return any(item.reason == "capacity" for item in plan.unserved) and bool(_cards_left(plan))


def overload_of(candidates: Candidates, plan: Plan, deadline: Deadline) -> Overload | None:
    """Return the result of `find_overload`, given the candidates of the system and a deadline."""
    if not is_overloaded(plan):
        return None
    now = service_by_priority(plan, candidates.system)
    found: list[OtherOptions] = []
    for changes in _ways(candidates.system):
        if found and _is_complete(found[-1].service):
            break
        item = _planned(candidates, changes, deadline)
        than = [now, *(each.service for each in found if each.service and len(changes) > 1)]
        if item.service is None or all(_serves_more(item.service, each) for each in than):
            found.append(item)
    return Overload(cards_left=_cards_left(plan), service=now, options=tuple(found)) if found else None


def _cards_left(plan: Plan) -> dict[str, int]:
    left = {use.type: use.limit - use.used for use in plan.capacity if use.limit is not None}
    return {name: count for name, count in left.items() if count > 0}


def _ways(system: System) -> Iterator[dict[str, Any]]:
    """Yield options to try, by Python name; routes and shared cards do not support partial service."""
    options = system.options
    in_full = bool(system.routes) or any(server.shared_card for server in system.servers.values())
    none = options.saturation_policy == "None" and not in_full
    policy = {"saturation_policy": POLICY} if none else {}
    mixed = {} if options.heterogeneous else {"heterogeneous": True}
    yield from (way for way in (policy, mixed) if way)
    if policy and mixed:
        yield policy | mixed


def _planned(candidates: Candidates, changes: dict[str, Any], deadline: Deadline) -> OtherOptions:
    """Return the service with other options, which change no candidates; without it if time runs out.

    Results of an interrupted solve are not used, because they are not reproducible.
    """
    if deadline.passed:
        return OtherOptions(**changes)
    # Only the exact solver supports mixed plans.
    exact = {"milp_solver": True} if changes.get("heterogeneous") else {}
    system = candidates.system.with_options(**changes, **exact)
    other = replace(candidates, system=system)
    problem = build_problem(other)
    plan = make_plan(other, problem, choose(problem, deadline=deadline))
    if plan.status == "feasible":
        return OtherOptions(**changes)
    wrong = verify(plan, system, other)
    if wrong:
        raise SolverError(f"the plan does not hold: {wrong[0]}; please report this with the input")
    return OtherOptions(
        **changes,
        service=service_by_priority(plan, system),
        total_cost_cents_per_h=plan.total_cost_cents_per_h,
    )


def _is_complete(service: Sequence[PriorityService] | None) -> bool:
    return service is not None and all(item.served_in_full == item.servers for item in service)


def _serves_more(service: Sequence[PriorityService], than: Sequence[PriorityService]) -> bool:
    """Return whether more load is served at the highest priority that differs."""
    for mine, other in zip(service, than, strict=True):
        more = mine.served_rpm - other.served_rpm
        if abs(more) > ROUNDING * mine.load_rpm:
            return more > 0
    return False
