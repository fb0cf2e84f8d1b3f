"""Repairs a plan by simulation: pools that miss targets get less load, and the system is planned again.

If a pool misses a target, the maximum rate of its server on its accelerator is reduced to one that meets the
targets in simulation, and the system is solved again. Other rates are not reduced. Random streams belong to a
server and an accelerator, so they are the same in all rounds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from optimizer.errors import SpecError
from optimizer.features.disaggregation.fields import Role
from optimizer.parallel import Progress, as_done
from optimizer.plan import Plan
from optimizer.queueing.roots import smallest_integer
from optimizer.simulation.replicas import Effort
from optimizer.spec.system import System
from optimizer.studies.simulation.plans import simulation_from
from optimizer.studies.simulation.pools import PoolRun, pool_runs, simulate_together, together
from optimizer.studies.simulation.simulation_document import (
    LostServer,
    PoolDerating,
    RepairedPlan,
    SimulatedPool,
)
from optimizer.units import SECONDS_PER_MINUTE

LENGTHENING = 4
"""Factor on the number of requests if the confidence interval of a metric contains its limit."""
MAX_LENGTHENING = 16
"""Maximum factor on the number of requests; beyond it, the simulated value decides."""
MOST_GROWTH = 4
"""Largest factor on the replicas of a prefill or decode pool."""
FINEST = 32
"""Number of load steps of a replica, if load can be split in other ways than by adding replicas."""
MIN_SHARE = 1 / 64
"""Smallest fraction of its load that is tried for a replica that misses targets."""
MAX_ROUNDS = 64
"""Maximum number of plans; servers whose pools still miss targets are then listed as lost."""

Solve = Callable[[System], Plan]
"""Function that plans a system."""


@dataclass(slots=True)
class _RepairState:
    """State of a repair: the plan, simulated pools, reduced rates and repairs so far."""

    system: System
    plan: Plan
    known: dict[tuple[object, ...], SimulatedPool] = field(default_factory=dict)
    """Simulated pools by server, accelerator, number of replicas, load per replica, and the other pool."""
    repairs: list[PoolDerating] = field(default_factory=list)

    def simulated(self, runs: list[PoolRun], effort: Effort, progress: Progress) -> list[SimulatedPool]:
        """Return the simulation of each pool; pools with an unchanged load are not simulated again."""
        new = [group for group in together(runs) if any(_key(run) not in self.known for run in group)]
        pools = as_done(partial(judged_pools, effort=effort), new, progress)
        for group, found in zip(new, pools, strict=True):
            self.known |= zip(map(_key, group), found, strict=True)
        return [self.known[_key(run)] for run in runs]


def solve_and_repair(system: System, solve: Solve, effort: Effort, progress: Progress) -> RepairedPlan:
    """Plan and simulate repeatedly, reducing rates that miss targets, until all served load meets them.

    Args:
        system: the system to plan.
        solve: function that plans a system.
        effort: minimum amount of simulation.
        progress: called after each finished pool of each plan.
    """
    if any(server.shared_card for server in system.servers.values()):
        raise SpecError("repair: shared cards cannot be tightened; simulate the plan, or remove sharedCard")
    first = solve(system)
    state = _RepairState(system, first)
    for round_number in range(MAX_ROUNDS):
        runs = pool_runs(state.system, state.plan)
        pools = state.simulated(runs, effort, progress)
        missing = [
            group for group in together(runs) if not all(_keeps(state.known[_key(run)]) for run in group)
        ]
        if not missing or round_number == MAX_ROUNDS - 1:
            break
        _tighten(state, missing, effort)
        state.plan = solve(state.system)
    simulation = simulation_from(runs, pools, effort)
    lost = _lost(first, state, pools)
    return RepairedPlan(
        plan=state.plan,
        simulation=simulation,
        holds=simulation.holds and not lost,
        cost_before_cents_per_h=first.total_cost_cents_per_h,
        cost_after_cents_per_h=state.plan.total_cost_cents_per_h,
        repairs=tuple(state.repairs),
        lost=lost,
    )


def judged_pool(run: PoolRun, effort: Effort) -> SimulatedPool:
    """Simulate a pool, with more requests as long as the interval of a metric contains its limit."""
    return judged_pools([run], effort)[0]


def judged_pools(runs: Sequence[PoolRun], effort: Effort) -> list[SimulatedPool]:
    """Simulate the pools of a group, with more requests as long as it is not decided whether all hold."""
    most, requests = effort.requests * MAX_LENGTHENING, effort.requests
    pools = simulate_together(runs, effort)
    while _is_close(pools) and requests < most:
        requests *= LENGTHENING
        pools = simulate_together(runs, replace(effort, requests=requests))
    if requests == effort.requests:
        return pools
    return [pool.model_copy(update={"requests": requests}) for pool in pools]


def _is_close(pools: Sequence[SimulatedPool]) -> bool:
    verdicts = {pool.verdict for pool in pools}
    return "close" in verdicts and "missed" not in verdicts


def _keeps(pool: SimulatedPool) -> bool:
    """Return whether every metric is within its limit.

    If it is too close to call, the simulated value decides.
    """
    return pool.overload is None and not pool.beyond


def _key(run: PoolRun) -> tuple[object, ...]:
    return run.server, run.pool.accelerator, run.pool.num_replicas, run.rate_rps, run.both


# --- tightening ----------------------------------------------------------------------------------------


def _tighten(state: _RepairState, missing: list[list[PoolRun]], effort: Effort) -> None:
    """Reduce the maximum rates of pools that miss targets to rates that meet them, and record the repairs."""
    alone = {group[0].planned: _is_alone(state.plan, group[0].planned) for group in missing}
    wanted = [
        _Missing(
            tuple(group),
            tuple(state.known[_key(run)] for run in group),
            group[0].pool.num_replicas if alone[group[0].planned] else FINEST,
        )
        for group in missing
    ]
    before, cuts = state.system.rate_factors, set[tuple[str, str]]()
    factors = dict(state.system.rate_factors)
    found = as_done(partial(_shares_that_hold, effort=effort), wanted)
    for run, share in (each for group in found for each in group):
        most_rps = run.pool.max_arrival_rate_rpm / SECONDS_PER_MINUTE / run.pool.num_replicas
        pair = run.planned, run.pool.accelerator
        cut = before.get(pair, 1.0) * share * run.replica_rps / most_rps
        factors[pair] = min(cut, factors[pair]) if pair in cuts else cut
        cuts.add(pair)
        state.repairs.append(_repair(run, share, factors[pair], state.known[_key(run)]))
    state.system = state.system.with_rate_factors(factors)


def _is_alone(plan: Plan, server: str) -> bool:
    """Return whether a single pool serves a server in full, so that only entire replicas can be added."""
    return len(plan.allocations[server]) == 1 and all(item.server != server for item in plan.unserved)


class _Missing(NamedTuple):
    """Pools that are simulated together, of which some miss targets."""

    runs: tuple[PoolRun, ...]
    pools: tuple[SimulatedPool, ...]
    """The simulated pools."""
    steps: int
    """Number of load steps of a replica."""


def _shares_that_hold(missing: _Missing, effort: Effort) -> list[tuple[PoolRun, float]]:
    """Return the pools that need less load, with the fraction of a replica's load that meets the targets."""
    if missing.runs[0].both is None:
        return [(run, _share_that_holds(run, missing.steps, effort)) for run in missing.runs]
    return _with_more_replicas(missing, effort)


def _with_more_replicas(missing: _Missing, effort: Effort) -> list[tuple[PoolRun, float]]:
    """Return the prefill or decode pools that need more replicas, with the fractions of their loads.

    Replicas are added one by one to the pool whose part of the latencies exceeds the plan most. If this does
    not meet the targets, the fraction is 0.
    """
    runs = {run.both.role: run for run in missing.runs if run.both is not None}
    replicas, pools = {role: run.pool.num_replicas for role, run in runs.items()}, missing.pools
    while not all(map(_keeps, pools)):
        role = _role_to_blame(dict(zip(runs, pools, strict=True)))
        replicas[role] += max(1, replicas[role] // FINEST)
        if replicas[role] > MOST_GROWTH * runs[role].pool.num_replicas:
            return [(runs[role], 0.0)]
        grown = [replace(run, both=run.both and run.both.with_replicas(replicas)) for run in missing.runs]
        pools = tuple(judged_pools(grown, effort))
    shares = [(run, run.pool.num_replicas / replicas[role]) for role, run in runs.items()]
    return [(run, share) for run, share in shares if share < 1]


def _role_to_blame(pools: Mapping[Role, SimulatedPool]) -> Role:
    """Return the role of the pool whose part of the latencies exceeds the plan most."""
    prefill, decode = pools["prefill"], pools["decode"]
    if decode.overload or decode.beyond:
        return "decode"
    if prefill.ttft is None or decode.ttft is None:
        return "prefill"
    total, first_step = (
        ttft.mean.value - (ttft.predicted_mean or 0.0) for ttft in (prefill.ttft, decode.ttft)
    )
    return "decode" if first_step > total - first_step else "prefill"


def _share_that_holds(run: PoolRun, steps: int, effort: Effort) -> float:
    """Return the largest fraction steps/(steps + k) of a replica's load that meets the targets.

    The fraction is 0 if none does.
    """

    def holds(k: int) -> bool:
        return _keeps(judged_pool(run.at_share(steps / (steps + k)), effort))

    most = math.ceil(steps / MIN_SHARE) - steps
    below, above = 0, 1
    while not holds(above):
        if above == most:
            return 0.0
        below, above = above, min(2 * above, most)
    return steps / (steps + smallest_integer(holds, below, above))


def _repair(run: PoolRun, share: float, factor: float, simulated_pool: SimulatedPool) -> PoolDerating:
    before, pool = run.pool.num_replicas, run.pool
    after = math.ceil(before / share * (1 - 1e-9)) if share > 0 else None
    return PoolDerating(
        server=run.server,
        accelerator=pool.accelerator,
        rate_factor=factor,
        replicas_before=before,
        replicas_after=after,
        cost_before_cents_per_h=pool.cost_cents_per_h,
        cost_after_cents_per_h=None if after is None else pool.cost_cents_per_h / before * after,
        overload=simulated_pool.overload,
        missed=simulated_pool.beyond,
    )


# --- what is lost --------------------------------------------------------------------------------------


def _lost(first: Plan, state: _RepairState, pools: list[SimulatedPool]) -> tuple[LostServer, ...]:
    """Return the servers that get less than in the first plan, and those that still miss targets."""
    promised = {item.server: item.served_fraction for item in first.unserved}
    missed = {repair.server: repair.missed for repair in state.repairs}  # later ones take precedence
    lost = [
        LostServer.taken_from(item, missed=missed.get(item.server, ()))
        for item in state.plan.unserved
        if item.served_fraction < promised.get(item.server, 1.0)
    ]
    named = {item.server for item in lost}
    lost += [_still_missing(pool) for pool in pools if not _keeps(pool) and pool.server not in named]
    return tuple(lost)


def _still_missing(pool: SimulatedPool) -> LostServer:
    detail = pool.overload or f"targets are missed on {pool.accelerator} after {MAX_ROUNDS} plans"
    return LostServer(
        server=pool.server, served_fraction=1.0, reason="simulation_missed", detail=detail, missed=pool.beyond
    )
