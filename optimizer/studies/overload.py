"""Options that serve more load of an overloaded fleet: a saturation policy, mixed plans, or both.

By default, a server is served in full on one accelerator, or not at all. So cards can be idle although load
is unserved. In this case, an `Overload` lists options that would serve more. With a policy, full service
comes first, which can serve less load than partial service alone; the `Overload` states the difference.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import not_
from typing import Any

import numpy as np
from pydantic import Field

from optimizer.arrays import BoolArray, IntArray
from optimizer.candidates import Candidates, find_candidates
from optimizer.documents import OutputDocument, is_none
from optimizer.errors import SolverError
from optimizer.features.length_pools.decision import decided
from optimizer.features.table import FEATURES
from optimizer.pipeline import solve_problem
from optimizer.plan import Plan, make_plan, verify
from optimizer.plan.placements import rows_of
from optimizer.plan.unneeded import unneeded_replicas
from optimizer.schema import SaturationPolicy
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.most_load import most_load_rps
from optimizer.solvers.problem import Problem, build_problem
from optimizer.spec.system import System
from optimizer.studies.service import PriorityService, service_by_priority
from optimizer.tolerances import ROUNDING
from optimizer.units import SECONDS_PER_MINUTE

LIMIT_S = 10.0
"""Time limit for solving with all options together [s]."""
POLICY: SaturationPolicy = "PriorityExhaustive"
"""Saturation policy that is tried: it serves higher priorities first, as far as cards suffice."""
IN_PART_SHARE = 0.3
"""Fraction of the remaining time for finding the load that full service first costs."""
MIN_IN_PART = 1e-3
"""Minimum gain of load by partial service that is reported, as a fraction of the priority's load."""


class OtherOptions(OutputDocument):
    """Optimizer options that differ from the plan's, and the service of the plan with them."""

    saturation_policy: SaturationPolicy | None = None
    """Saturation policy; null if unchanged."""
    heterogeneous: bool | None = None
    """True for a mixed plan; null if unchanged."""
    service: tuple[PriorityService, ...] | None = Field(None, strict=False)
    """Service of each priority with these options, the highest first; null if not solved in time."""
    lacks_reserve: tuple[str, ...] = Field((), exclude_if=not_, strict=False)
    """Servers that lack the reserve they require with these options; absent if there are none."""
    total_cost_cents_per_h: float | None = None
    """Total cost of the plan with these options [cents/h]; null if not solved in time."""

    @property
    def changes(self) -> dict[str, object]:
        """Return the options by Python name, as arguments of `System.with_options`."""
        changes = {"saturation_policy": self.saturation_policy, "heterogeneous": self.heterogeneous}
        return {name: value for name, value in changes.items() if value is not None}


class InPart(OutputDocument):
    """Load that the cards of a plan could carry if servers were served in part instead of in full first."""

    priority: int
    """Highest priority that is not served in full."""
    served_rpm: float
    """Load of this priority that the plan serves [requests/min]."""
    possible_rpm: float
    """Load of this priority that the same cards could carry in addition to servers of higher priority
    [requests/min].
    """


class Overload(OutputDocument):
    """Unserved load of a plan although cards remain, and options that serve more of it."""

    cards_left: dict[str, int]
    """Number of unused cards by accelerator type."""
    service: tuple[PriorityService, ...] = Field(strict=False)
    """Service of each priority in the plan, the highest first."""
    options: tuple[OtherOptions, ...] = Field(strict=False)
    """Options that serve more load, with their service; also options that were not solved in time."""
    in_part: InPart | None = Field(None, exclude_if=is_none)
    """Load that full service first costs under a saturation policy; absent if there is none."""


def find_overload(system: System, plan: Plan) -> Overload | None:
    """Return options that would serve more load of a plan.

    None if all load is served, or if neither options nor partial service would serve more.

    Args:
        system: the fleet.
        plan: the plan of the system with its own options.

    Raises:
        SolverError: the solver failed, or a plan does not pass verification.
    """
    if not _lacks_cards(plan):
        return None
    limit_s = min(LIMIT_S, system.options.time_limit_s)
    system = system.with_rate_factors(plan.factor_of_pair)  # a repaired plan has reduced rates
    candidates, possible = find_candidates(plan.planned_in(system)), system.with_all_pools()
    if possible is not system:
        candidates = replace(candidates, of_all_pools=find_candidates(possible))
    return overload_of_candidates(candidates, plan, Deadline.after(limit_s))


def _lacks_cards(plan: Plan) -> bool:
    """Return whether load is unserved because of too few cards."""
    return any(item.reason == "capacity" for item in plan.unserved)


def overload_of_candidates(candidates: Candidates, plan: Plan, deadline: Deadline) -> Overload | None:
    """Return the result of `find_overload` for the candidates of a system, by a deadline."""
    now, in_part = service_by_priority(plan, candidates.system), in_part_first(candidates, plan, deadline)
    other_options: list[OtherOptions] = []
    cards_left = _cards_left(plan)
    for changes in _ways(candidates.system) if _lacks_cards(plan) and cards_left else ():
        if other_options and _is_complete(other_options[-1].service):
            break
        item = _planned(candidates, changes, deadline)
        than = [now, *(each.service for each in other_options if each.service and len(changes) > 1)]
        if item.service is None or all(_serves_more(item.service, each) for each in than):
            other_options.append(item)
    if not other_options and in_part is None:
        return None
    return Overload(cards_left=cards_left, service=now, options=tuple(other_options), in_part=in_part)


def in_part_first(candidates: Candidates, plan: Plan, deadline: Deadline) -> InPart | None:
    """Return the load that the cards could carry without full service first; None if it is not more.

    It concerns the highest priority that is not served in full. Servers of higher priorities keep their
    accelerators. With ``delayedBestEffort``, all servers of other priorities that are served in full keep
    them.

    Raises:
        SolverError: the solver failed.
    """
    options = candidates.system.options
    names, partly = candidates.arrays.server_names, {item.server: item for item in plan.unserved}
    if options.saturation_policy == "None" or not partly.keys() & {*names} or deadline.passed:
        return None
    problem = build_problem(candidates).without_reserves
    if problem.leaves_members:
        return None  # the servers of a queue have several priorities
    shares = np.array([partly[name].served_fraction if name in partly else 1.0 for name in names])
    first = int(problem.priority[[name in partly for name in names]].min())
    mine = problem.priority == first
    if not (mine & (shares == 1) & (problem.load_rps > 0)).any():
        return None  # no server of this priority is served in full
    comes_before = ~mine if options.delayed_best_effort else problem.priority < first
    rest = problem.after(_replicas_of(plan, candidates, problem, comes_before & (shares == 1)))
    served = float((problem.load_rps * shares)[mine].sum())
    possible = most_load_rps(rest, mine, deadline.left_s * IN_PART_SHARE)
    if possible is None or possible - served <= MIN_IN_PART * problem.load_rps[mine].sum():
        return None
    minute = SECONDS_PER_MINUTE
    return InPart(priority=first, served_rpm=served * minute, possible_rpm=possible * minute)


def _replicas_of(plan: Plan, candidates: Candidates, problem: Problem, servers: BoolArray) -> IntArray:
    """Return the replicas of some servers in a plan, for each candidate without reserve, shape (C,)."""
    names, placed, numbers = candidates.arrays.accelerator_names, rows_of(plan), dict[tuple[int, int], int]()
    place_of = {name: a for a, name in enumerate(names)}
    for s in np.flatnonzero(servers).tolist():
        rows, least = placed.get(candidates.arrays.server_names[s], ()), int(problem.min_replicas[s])
        pools = [row.pool for row in rows if row.pool is not None and row.mode == "own"]
        load_rpm = sum(pool.arrival_rate_rpm for pool in pools)
        unneeded = unneeded_replicas(pools, load_rpm, least) if load_rpm else {}
        for pool in pools:
            number = pool.num_replicas - unneeded.get(pool.accelerator, 0)
            numbers[s, place_of[pool.accelerator]] = number
        if any(row.mode == "external" for row in rows):
            numbers[s, len(names)] = max(least, 1)  # the index of external services
    # The first candidate of a pair has the replicas.
    return np.array([numbers.pop(pair, 0) for pair in problem.table.pairs()], np.int64)


def _cards_left(plan: Plan) -> dict[str, int]:
    left = {use.type: use.limit - use.used for use in plan.capacity if use.limit is not None}
    return {name: count for name, count in left.items() if count > 0}


def _ways(system: System) -> Iterator[dict[str, Any]]:
    """Yield the options to try, by Python name.

    Partial service is omitted if a feature does not support it.
    """
    options = system.options
    used = (feature for feature in FEATURES if feature.name in system.features)
    in_full = any("saturation_policy" in feature.refused_options for feature in used)
    none = options.saturation_policy == "None" and not in_full
    policy = {"saturation_policy": POLICY} if none else {}
    mixed = {} if options.heterogeneous else {"heterogeneous": True}
    yield from (way for way in (policy, mixed) if way)
    if policy and mixed:
        yield policy | mixed


def _planned(candidates: Candidates, changes: dict[str, Any], deadline: Deadline) -> OtherOptions:
    """Return the service with other options, which do not change candidates; null if not solved in time.

    Results of an interrupted solve are not used, because they are not reproducible. Pools by length or role
    are chosen anew.
    """
    if deadline.passed:
        return OtherOptions(**changes)
    # Only the exact solver supports mixed plans.
    exact = {"milp_solver": True} if changes.get("heterogeneous") else {}
    every = candidates.of_all_pools or candidates
    system, possible = (each.system.with_options(**changes, **exact) for each in (candidates, every))
    every = replace(every, system=possible)
    problem = build_problem(every)
    solution = solve_problem(problem, deadline=deadline)
    other, problem, solution = decided(system, every, problem, solution, find_candidates, ())
    plan = make_plan(other, problem, solution)
    if plan.status == "feasible":
        return OtherOptions(**changes)
    wrong = verify(plan, other.system, other)
    if wrong:
        raise SolverError(f"the plan failed verification: {wrong[0]}; please report this with the input")
    return OtherOptions(
        **changes,
        service=service_by_priority(plan, other.system),
        lacks_reserve=plan.lacks_reserve,
        total_cost_cents_per_h=plan.total_cost_cents_per_h,
    )


def _is_complete(service: Sequence[PriorityService] | None) -> bool:
    return service is not None and all(item.served_in_full == item.servers for item in service)


def _serves_more(service: Sequence[PriorityService], than: Sequence[PriorityService]) -> bool:
    """Return whether more load is served than in another plan, at the highest priority that differs."""
    for mine, other in zip(service, than, strict=True):
        more = mine.served_rpm - other.served_rpm
        if abs(more) > ROUNDING * mine.load_rpm:
            return more > 0
    return False
