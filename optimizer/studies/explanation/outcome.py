"""Plans reduced to the data that answers compare: levels, cost, service and pools, without performance.

Computing the performance of every pool takes longer than solving most questions, and no answer shows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from optimizer.candidates import Candidates
from optimizer.candidates.table import Source
from optimizer.features.views import JointService
from optimizer.plan import Plan
from optimizer.plan.build import served_fraction
from optimizer.plan.placements import rows_of, services_of
from optimizer.solvers.levels import reserves_held, served_in_full
from optimizer.solvers.objectives import VALUE
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import Solution, SolvedLevel, Status
from optimizer.studies.explanation.explanation_document import ForcedPool
from optimizer.units import SECONDS_PER_MINUTE


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """Levels, cost, service and pools of a plan."""

    status: Status
    levels: tuple[SolvedLevel, ...]
    total_cost_cents_per_h: float
    served_fraction: Mapping[str, float]
    """Served share of the load of each server that is not served in full."""
    carried_rpm: Mapping[str, float]
    """Served load of each server [requests/min]; 0 if absent."""
    pools: Mapping[str, tuple[ForcedPool, ...]]
    """Pools of each server on its own cards."""
    rents: frozenset[str]
    """Servers whose requests external services serve."""
    has_reserve: frozenset[str]
    """Servers that have the reserve they require."""
    lacks_reserve: frozenset[str]
    """Servers that lack the reserve they require, served or not."""

    @property
    def complete(self) -> bool:
        """Whether every server is served in full."""
        return not self.served_fraction

    @property
    def value_cents_per_h(self) -> float:
        """Transition cost of the plan [cents/h], which plans minimise after service."""
        return next(level.value for level in self.levels if level.name == VALUE)

    def with_bounds(self, bounds: Mapping[str, float | None]) -> Self:
        """Return a copy with other bounds, by level name; a bound above its value is reduced to the value."""
        levels = (
            replace(level, bound=bound if bound is None else min(bound, level.value))
            for level in self.levels
            for bound in (bounds[level.name],)
        )
        return replace(self, levels=tuple(levels))

    @classmethod
    def of_plan(cls, plan: Plan) -> Self:
        """Return the outcome of a plan."""
        carried = dict.fromkeys(plan.allocations, 0.0)
        carried |= {name: sum(row.rate_rpm for row in rows) for name, rows in rows_of(plan).items()}
        for rates in plan.served_in_queues_rpm.values():
            carried |= rates
        # Pools by role all serve the requests of their server.
        of_roles = {name: use.pools[0].server for name, use in plan.disaggregation.items() if use.pools}
        carried |= {name: carried.get(pool, 0.0) for name, pool in of_roles.items()}
        return cls(
            status=Status(plan.status),
            levels=tuple(SolvedLevel(level.name, level.value, level.bound) for level in plan.levels),
            total_cost_cents_per_h=plan.total_cost_cents_per_h,
            served_fraction={item.server: item.served_fraction for item in plan.unserved},
            carried_rpm=carried,
            pools={
                name: tuple(map(ForcedPool.taken_from, pools))
                for name, pools in plan.allocations.items()
                if pools
            },
            rents=frozenset(services_of(plan)),
            has_reserve=frozenset(plan.requires_reserve).difference(plan.lacks_reserve),
            lacks_reserve=frozenset(plan.lacks_reserve),
        )

    @classmethod
    def of_solution(cls, candidates: Candidates, problem: Problem, solution: Solution) -> Self:
        """Return the outcome of a solution, equal to that of the plan built from it."""
        names, replicas, table = candidates.arrays.server_names, solution.replicas, problem.table
        joint = JointService.of(candidates, problem, solution)
        pools = _pools(candidates, problem, solution)
        load_rpm = dict(zip(names, (problem.load_rps * SECONDS_PER_MINUTE).tolist(), strict=False))
        served = joint.served_rpm(candidates.system, pools.keys())
        load_rpm |= {name: sum(rates.values()) for name, rates in served.items()}
        most = np.bincount(table.server, replicas * table.max_rate_rps, len(problem.priority))
        most_rpm = (most * SECONDS_PER_MINUTE).tolist()
        carried = {name: min(load_rpm[name], rate) for name, rate in zip(names, most_rpm, strict=False)}
        for queue, rates in joint.queues.items():
            carried |= {queue: sum(rates.values()), **rates}
        carried_rps = np.array([carried[name] for name in names]) / SECONDS_PER_MINUTE
        share = served_fraction(problem, replicas, carried_rps)
        full = served_in_full(problem, replicas)[: len(names)]
        short = {names[s]: float(share[s]) for s in np.flatnonzero(~full) if names[s] not in joint.queues}
        members = problem.members.names
        short |= {members[m]: part for _, m, part in joint.short(candidates, problem)}
        rents = (replicas > 0) & (table.source == Source.rental)
        required, has = reserves_held(problem, replicas)
        cost = float((replicas * table.cost_per_replica).sum())
        return cls(
            status=solution.status,
            levels=solution.levels,
            total_cost_cents_per_h=cost + problem.prices.difference(problem.limits.used(replicas)),
            served_fraction=short,
            carried_rpm=carried,
            pools=pools,
            rents=frozenset(names[s] for s in np.unique(table.server[rents])),
            has_reserve=frozenset(names[s] for s in np.flatnonzero(has)),
            lacks_reserve=frozenset(names[s] for s in np.flatnonzero(required & ~has)),
        )


def _pools(candidates: Candidates, problem: Problem, solution: Solution) -> dict[str, tuple[ForcedPool, ...]]:
    names, accelerators = candidates.arrays.server_names, candidates.arrays.accelerator_names
    table, replicas = problem.table, solution.replicas
    pools: dict[str, tuple[ForcedPool, ...]] = {}
    own = (replicas > 0) & table.is_pool
    for c in np.flatnonzero(own).tolist():
        pool = ForcedPool(
            accelerator=accelerators[table.accelerator[c]],
            num_replicas=int(replicas[c]),
            cost_cents_per_h=float(replicas[c] * table.cost_per_replica[c]),
        )
        name = names[table.server[c]]
        pools[name] = (*pools.get(name, ()), pool)
    return pools
