"""Outcome of a policy in a horizon study: cost with the best reservations, transitions, and service."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from optimizer.candidates.arrays import server_loads_rps
from optimizer.plan import Plan
from optimizer.plan.placements import PlanRow, rows_of
from optimizer.schema.allocations import PoolMode
from optimizer.spec.system import System
from optimizer.studies.horizon.horizon_document import Policy
from optimizer.studies.horizon.hours import Hour
from optimizer.studies.horizon.reservations import Taken, cost_with, used_by
from optimizer.studies.service import service_by_priority
from optimizer.tolerances import ROUNDING
from optimizer.units import MINUTES_PER_HOUR, SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Outcome:
    """Plans of all intervals under a policy, with their reservations, cost and service."""

    hours: tuple[Hour, ...]
    plans: tuple[Plan, ...]
    taken: Taken
    unserved: tuple[float, ...]
    """Number of unserved requests by priority, the highest priority first."""
    without_reserve: tuple[float, ...]
    """Number of requests of servers that lack their reserve, by priority, the highest priority first."""
    cost: float
    """Total cost of all intervals [hundredths of the currency]."""
    transition_cost: float
    """Penalty for moving servers between hours [hundredths of the currency]."""

    def beats(self, other: "Outcome") -> bool:
        """Return whether this outcome serves more, or the same with more reserves or at lower cost."""
        service, others = (
            [round(number, 3) for number in (*each.unserved, *each.without_reserve)] for each in (self, other)
        )
        cost, price = (each.cost + each.transition_cost for each in (self, other))
        return (service, cost) < (others, price - ROUNDING * max(1.0, abs(price)))

    def policy(self, name: str) -> Policy:
        """Return the outcome as a row of the document, with the name of its policy."""
        system = self.hours[0].system
        pairs = [*pairwise(self.plans)]
        units = [
            hour.hours
            * sum(n * system.accelerators[name].multiplicity for name, n in used_by(plan, system).items())
            for hour, plan in zip(self.hours, self.plans, strict=True)
        ]
        return Policy(
            name=name,
            total_cost=self.cost,
            transition_cost=self.transition_cost,
            unit_hours=sum(units),
            unserved=sum(self.unserved),
            transitions=sum(transitions(before, after) for before, after in pairs),
            startups=sum(started(before, after) for before, after in pairs),
            lack_reserve=self._lack_reserve,
        )

    @property
    def _lack_reserve(self) -> tuple[str, ...] | None:
        """Servers that lack their reserve in at least one interval; None if no server requires one."""
        if not any(plan.requires_reserve for plan in self.plans):
            return None
        return tuple(sorted({name for plan in self.plans for name in plan.lacks_reserve}))


def outcome_of(hours: tuple[Hour, ...], plans: Sequence[Plan], taken: Taken) -> Outcome:
    """Return the outcome of plans for all intervals with given reservations."""
    system = hours[0].system
    spans = [hour.hours for hour in hours]
    costs = [cost_with(plan, system, taken) for plan in plans]
    unserved, without_reserve = defaultdict[int, float](float), defaultdict[int, float](float)
    for hour, plan in zip(hours, plans, strict=True):
        for item in service_by_priority(plan, hour.system):
            unserved[item.priority] += (item.load_rpm - item.served_rpm) * MINUTES_PER_HOUR * hour.hours
        for name, load_rps in zip(hour.system.servers, server_loads_rps(hour.system).tolist(), strict=True):
            lacking = load_rps * SECONDS_PER_HOUR * hour.hours if name in plan.lacks_reserve else 0.0
            without_reserve[hour.system.priority(hour.system.servers[name])] += lacking
    penalty = system.options.transition_penalty
    moved = sum(moved_cents_per_h(before, after, system) for before, after in pairwise(plans))
    return Outcome(
        hours=hours,
        plans=tuple(plans),
        taken=taken,
        unserved=tuple(unserved[priority] for priority in sorted(unserved)),
        without_reserve=tuple(without_reserve[priority] for priority in sorted(without_reserve)),
        cost=sum(cost * span for cost, span in zip(costs, spans, strict=True)),
        transition_cost=penalty * moved,
    )


def moved_cents_per_h(before: Plan, after: Plan, system: System) -> float:
    """Return the cost of replicas that move between two plans [cents/h] (eq. 31 to 33).

    The list-price cost of new pools counts, and that of old pools if the server keeps none of them.
    """
    total, old, new = 0.0, _running(before), _running(after)
    for name in sorted(old.keys() | new.keys()):
        was, will = old.get(name, {}), new.get(name, {})
        moved = [row for place, rows in will.items() if place not in was for row in rows]
        moved += [] if was.keys() & will.keys() else [row for rows in was.values() for row in rows]
        total += sum(_list_cost_cents_per_h(row, system) for row in moved)
    return total


def transitions(before: Plan, after: Plan) -> int:
    """Return the number of servers that move to an accelerator on which they did not run before."""
    new = _running(after)
    return sum(bool(new.get(name, {}).keys() - places) for name, places in _running(before).items())


def started(before: Plan, after: Plan) -> int:
    """Return the number of replicas that start between two plans."""
    old, number = _running(before), 0
    for name, places in _running(after).items():
        for place, rows in places.items():
            ran = old.get(name, {}).get(place, ())
            number += max(sum(row.replicas for row in rows) - sum(row.replicas for row in ran), 0)
    return number


def _running(plan: Plan) -> dict[str, dict[tuple[str, PoolMode], list[PlanRow]]]:
    """Return the rows of each server with replicas, by accelerator and by whether its cards are shared."""
    running: dict[str, dict[tuple[str, PoolMode], list[PlanRow]]] = {}
    for row in (row for rows in rows_of(plan).values() for row in rows):
        if row.pool is not None:  # an external service has no replicas
            running.setdefault(row.server, {}).setdefault((row.pool.accelerator, row.mode), []).append(row)
    return running


def _list_cost_cents_per_h(row: PlanRow, system: System) -> float:
    if row.mode != "own":
        return row.cost_cents_per_h
    each = system.profiles[system.servers[row.server].model, row.spot.accelerator].acc_count
    return row.count * each * system.accelerators[row.spot.accelerator].cost_cents_per_h
