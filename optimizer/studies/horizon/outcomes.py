"""Outcome of a policy: cost with the best reservations, transitions, and service."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from optimizer.plan import Plan, Pool
from optimizer.spec.system import System
from optimizer.studies.horizon.document import Policy
from optimizer.studies.horizon.hours import Hour
from optimizer.studies.horizon.reservations import Taken, cost_with, used_by
from optimizer.studies.service import service_by_priority
from optimizer.units import MINUTES_PER_HOUR

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Outcome:
    """Plans of all hours, and what is reserved."""

    hours: tuple[Hour, ...]
    plans: tuple[Plan, ...]
    taken: Taken
    unserved: tuple[float, ...]
    """Requests that are not served, by priority, the highest first."""
    cost: float
    """Cost of all hours [hundredths of the currency]."""
    transition_cost: float
    """Price of moving servers between hours [the same]."""

    @property
    def key(self) -> tuple[float, ...]:
        """Service by priority, then all costs: the smaller, the better."""
        return (*(round(requests, 3) for requests in self.unserved), self.cost + self.transition_cost)

    def beats(self, other: "Outcome") -> bool:
        """Return whether this serves more, or the same for less."""
        *service, cost = self.key
        *others, price = other.key
        return (service, cost) < (others, price - ROUNDING * max(1.0, abs(price)))

    def policy(self, name: str) -> Policy:
        """Return the outcome as a row of a document."""
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
        )


def outcome_of(hours: tuple[Hour, ...], plans: Sequence[Plan], taken: Taken) -> Outcome:
    """Return the cost and service of hourly plans with the best reservations."""
    system = hours[0].system
    spans = [hour.hours for hour in hours]
    costs = [cost_with(plan, system, taken) for plan in plans]
    unserved = defaultdict[int, float](float)
    for hour, plan in zip(hours, plans, strict=True):
        for item in service_by_priority(plan, hour.system):
            unserved[item.priority] += (item.load_rpm - item.served_rpm) * MINUTES_PER_HOUR * hour.hours
    penalty = system.options.transition_penalty
    moved = sum(moved_cents_per_h(before, after, system) for before, after in pairwise(plans))
    return Outcome(
        hours=hours,
        plans=tuple(plans),
        taken=taken,
        unserved=tuple(unserved[priority] for priority in sorted(unserved)),
        cost=sum(cost * span for cost, span in zip(costs, spans, strict=True)),
        transition_cost=penalty * moved,
    )


def moved_cents_per_h(before: Plan, after: Plan, system: System) -> float:
    """Return the cost of what moves between two plans, old and new, at list price (eq. 31 to 33)."""
    total = 0.0
    for name in sorted(before.allocations.keys() | after.allocations.keys()):
        old, new = _list_costs(before, name, system), _list_costs(after, name, system)
        total += sum(cost for accelerator, cost in new.items() if accelerator not in old)
        total += 0.0 if old.keys() & new.keys() else sum(old.values())
    return total


def _list_costs(plan: Plan, name: str, system: System) -> dict[str, float]:
    """Return the cost of a server's pools at list price [cents/h], by accelerator."""
    model = system.servers[name].model
    return {
        pool.accelerator: pool.num_replicas
        * system.profiles[model, pool.accelerator].acc_count
        * system.accelerators[pool.accelerator].cost_cents_per_h
        for pool in plan.allocations.get(name, ())
    }


def transitions(before: Plan, after: Plan) -> int:
    """Return the number of servers that move to an accelerator on which they did not run."""
    return sum(
        bool(pools) and bool(_places(after.allocations.get(name, ())) - _places(pools))
        for name, pools in before.allocations.items()
    )


def started(before: Plan, after: Plan) -> int:
    """Return the number of replicas that start between two plans."""
    old, new = _replicas(before), _replicas(after)
    return sum(max(count - old.get(place, 0), 0) for place, count in new.items())


def _replicas(plan: Plan) -> Mapping[tuple[str, str], int]:
    return {
        (name, pool.accelerator): pool.num_replicas
        for name, pools in plan.allocations.items()
        for pool in pools
    }


def _places(pools: Sequence[Pool]) -> set[str]:
    return {pool.accelerator for pool in pools}


def same_plan_for(system: System, plan: Plan) -> Plan:
    """Return a complete plan of larger loads as one of a system: its pools serve all that comes."""
    pools = {
        name: tuple(
            pool.model_copy(
                update={"arrival_rate_rpm": system.servers[name].current.load.arrival_rate_rpm / len(mine)}
            )
            for pool in mine
        )
        for name, mine in plan.allocations.items()
    }
    return plan.model_copy(update={"allocations": pools})
