"""Cautious and typical cost of a plan with estimated token times, and the servers to measure first.

Plans use the slow end of the intervals of estimated profiles (cautious), because missing a target is worse
than an unneeded replica. The plan at their middle (typical) shows whether measuring pays.
"""

from dataclasses import replace
from operator import not_

import numpy as np
from pydantic import Field

from optimizer.candidates import SizingMemo, find_candidates
from optimizer.documents import OutputDocument
from optimizer.pipeline import solve
from optimizer.plan import Plan
from optimizer.schema import EstimateEnd
from optimizer.solvers.deadline import Deadline, OutOfTimeError
from optimizer.solvers.solution import Status
from optimizer.spec.system import System

LIMIT_S = 10.0
"""Time limit for planning at the middle of the estimates [s]."""
SLOW: EstimateEnd = "upper"
MIDDLE: EstimateEnd = "middle"
MAX_TRIED = 3
"""Maximum number of servers whose saving by measuring is computed."""
MIN_SAVING_SHARE = 1e-4
"""Smallest saving that counts, as a fraction of the cost of the plan; smaller ones are within the gap."""


class PlanAtEnd(OutputDocument):
    """Size of a plan at one point of the intervals of estimated token times."""

    estimates: EstimateEnd
    """Point of the intervals: `upper` (the slow end) or `middle`."""
    served_in_full: int
    """Number of servers served in full."""
    cards: int
    """Number of cards that the plan uses."""
    total_cost_cents_per_h: float
    """Total cost of the plan [cents/h]."""


class MeasuringGain(OutputDocument):
    """Saving if the token times of one server are in the middle of their estimates."""

    server: str
    """Name of the server, as planned."""
    saving_cents_per_h: float
    """Cost that the plan saves, with at least the same service [cents/h]."""


class EstimatePrice(OutputDocument):
    """Sizes of the plan at the slow end of the estimates, and of the plan at their middle."""

    servers: int
    """Number of servers in the system."""
    upper: PlanAtEnd
    """The actual plan, at the slow end of the estimates."""
    middle: PlanAtEnd | None = None
    """The plan at the middle of the estimates; null if it was not solved in time."""
    measure_first: tuple[MeasuringGain, ...] = Field((), exclude_if=not_, strict=False)
    """Servers whose measurement can save most, the largest saving first; absent if there are none, or if they
    were not found in time.
    """

    @property
    def same_service(self) -> bool:
        """Whether both plans serve the same number of servers in full, so that their costs are comparable."""
        return self.middle is not None and self.middle.served_in_full == self.upper.served_in_full


def price_of_estimates(
    system: System, plan: Plan, *, limit_s: float = LIMIT_S, memo: SizingMemo | None = None
) -> EstimatePrice | None:
    """Return the sizes of the plan and of a plan at the middle of the estimates.

    None if the plan does not use the slow end of the estimates.

    Args:
        limit_s: time limit of the second plan [s].
        memo: cache of sizings.

    Raises:
        SolverError: the solver failed, or a plan does not pass verification.
    """
    if system.options.estimates != SLOW or not _is_estimated(system):
        return None
    deadline = Deadline.after(min(limit_s, system.options.time_limit_s))
    other = system.with_options(estimates=MIDDLE).with_rate_factors(plan.factor_of_pair)
    typical = solve(other, deadline=deadline, memo=memo)
    # An interrupted solve is not reproducible, so its result is not used.
    middle = None if typical.status == "feasible" else _size(typical, MIDDLE)
    price = EstimatePrice(servers=len(plan.documented), upper=_size(plan, SLOW), middle=middle)
    if not price.same_service:
        return price
    gains = _measuring_gains(system, plan, typical, deadline, memo)
    return price.model_copy(update={"measure_first": gains})


def _measuring_gains(
    system: System, plan: Plan, typical: Plan, deadline: Deadline, memo: SizingMemo | None
) -> tuple[MeasuringGain, ...]:
    """Return the savings by measuring single servers, the largest first; empty if the time does not suffice.

    Only the `MAX_TRIED` servers whose costs differ most between both plans are planned again.
    """
    from optimizer.studies.explanation.outcome import PlanOutcome
    from optimizer.studies.explanation.resolving import solved, with_targets_of

    names = _most_different(plan, typical)
    planned = plan.planned_in(system).with_rate_factors(plan.factor_of_pair)
    if deadline.passed or not names:
        return ()
    candidates, before = find_candidates(planned, memo), PlanOutcome.of_plan(plan)
    middle, gains = planned.with_options(estimates=MIDDLE), list[MeasuringGain]()
    for name in names:
        measured = np.array([server == name for server in planned.servers])
        one = replace(with_targets_of(candidates, middle, measured), system=planned)
        try:
            after = solved(one, deadline)
        except OutOfTimeError:
            return ()
        if after.status is Status.feasible:
            return ()
        saving = before.total_cost_cents_per_h - after.total_cost_cents_per_h
        if (
            saving > MIN_SAVING_SHARE * before.total_cost_cents_per_h
            and before.served_fraction == after.served_fraction
        ):
            gains.append(MeasuringGain(server=name, saving_cents_per_h=saving))
    return tuple(sorted(gains, key=lambda gain: (-gain.saving_cents_per_h, gain.server)))


def _most_different(plan: Plan, typical: Plan) -> list[str]:
    """Return the servers with estimated token times whose costs differ most between two plans."""
    costs = [
        {name: sum(pool.cost_cents_per_h for pool in pools) for name, pools in one.allocations.items()}
        for one in (plan, typical)
    ]
    saved = {
        name: cost - costs[1].get(name, 0.0)
        for name, cost in costs[0].items()
        if any(pool.estimated is not None for pool in plan.allocations[name])
    }
    positive = [name for name, saving in saved.items() if saving > 0]
    return sorted(positive, key=lambda name: (-saved[name], name))[:MAX_TRIED]


def _is_estimated(system: System) -> bool:
    """Return whether any server can run with estimated token times."""
    models = {server.model for server in system.servers.values()}
    return any(profile.is_estimated for (model, _), profile in system.profiles.items() if model in models)


def _size(plan: Plan, end: EstimateEnd) -> PlanAtEnd:
    served, cards = len(plan.documented - plan.short_servers), sum(use.used for use in plan.capacity)
    return PlanAtEnd.taken_from(plan, estimates=end, served_in_full=served, cards=cards)
