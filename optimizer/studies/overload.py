"""Options that serve more load of an overloaded fleet: a saturation policy, mixed plans, or both.

A server is served in full, on one accelerator, or not at all unless the options say otherwise. So cards can
stay idle while load waits. Takes candidates and their plan, gives an `Overload` if that is so and other
options help.
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

LIMIT_S = 10.0
"""Time for all ways together [s]."""
POLICY: SaturationPolicy = "PriorityExhaustive"
"""The policy that is tried: it serves the highest priority as far as cards go."""
MIN_CHANGE = 1e-9
"""Smaller differences of a served share are rounding."""


class OtherOptions(Document):
    """Options of the optimizer that differ from those of the plan, and what the plan with them serves."""

    saturation_policy: SaturationPolicy | None = Field(None, alias="saturationPolicy")
    """The saturation policy; None: as it is."""
    heterogeneous: bool | None = None
    """True for a mixed plan; None: as it is."""
    service: tuple[PriorityService, ...] | None = Field(None, strict=False)
    """Service of each priority, the highest first; None if the solver was stopped first."""
    total_cost_cents_per_h: float | None = Field(None, alias="totalCost")
    """Total cost of the plan [cents/h]; None like the service."""

    @property
    def changes(self) -> dict[str, object]:
        """The options by their Python names, as `System.with_options` takes them."""
        changes = {"saturation_policy": self.saturation_policy, "heterogeneous": self.heterogeneous}
        return {name: value for name, value in changes.items() if value is not None}


class Overload(Document):
    """Load that is not served although cards are left, and options that serve more of it."""

    cards_left: dict[str, int] = Field(alias="cardsLeft")
    """Cards that the plan leaves, by accelerator type."""
    service: tuple[PriorityService, ...] = Field(strict=False)
    """Service of each priority in the plan, the highest first."""
    options: tuple[OtherOptions, ...] = Field(strict=False)
    """Options that serve more, each with what the plan is then; and those that were not solved in time."""


def find_overload(system: System, plan: Plan) -> Overload | None:
    """Return the options that would serve more load; None if all is served, no card is free, or none helps.

    Args:
        system: the fleet.
        plan: its plan, with the options of the system.

    Raises:
        SolverError: the solver failed, or a plan does not pass verification.
    """
    if not is_overloaded(plan):
        return None
    limit_s = min(LIMIT_S, system.options.time_limit_s)
    system = system.with_rate_factors(plan.factor_of_pair)  # of a plan that was repaired
    return overload_of(find_candidates(system), plan, Deadline.after(limit_s))


def is_overloaded(plan: Plan) -> bool:
    """Return whether servers wait for cards while cards are left."""
    return any(item.reason == "capacity" for item in plan.unserved) and bool(_cards_left(plan))


def overload_of(candidates: Candidates, plan: Plan, deadline: Deadline) -> Overload | None:
    """Return the same as `find_overload` from the candidates of the system, by a deadline."""
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
    """Yield options to try, by their Python names; routes and shared cards have no partial service."""
    options = system.options
    in_full = bool(system.routes) or any(server.shared_card for server in system.servers.values())
    none = options.saturation_policy == "None" and not in_full
    policy = {"saturation_policy": POLICY} if none else {}
    mixed = {} if options.heterogeneous else {"heterogeneous": True}
    yield from (way for way in (policy, mixed) if way)
    if policy and mixed:
        yield policy | mixed


def _planned(candidates: Candidates, changes: dict[str, Any], deadline: Deadline) -> OtherOptions:
    """Return the plan with other options, which change no candidate; without it if the time does not suffice.

    A plan of a solver that was stopped would not be the same the next time.
    """
    if deadline.passed:
        return OtherOptions(**changes)
    exact = {"milp_solver": True} if changes.get("heterogeneous") else {}  # only it makes mixed plans
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
    """Return whether more load is served of the highest priority that differs."""
    for mine, other in zip(service, than, strict=True):
        more = mine.served_rpm - other.served_rpm
        if abs(more) > MIN_CHANGE * mine.load_rpm:
            return more > 0
    return False
