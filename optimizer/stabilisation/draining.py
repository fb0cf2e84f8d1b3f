"""Plans with replicas for backlogs, in addition to those that the demands need.

They get cards that the plan for the demands leaves free, by priority. So a queue never takes the replicas
that another server needs for its arrivals.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

import numpy as np

from optimizer.candidates.measuring import stable_rates_of
from optimizer.candidates.pairs import arrays_of
from optimizer.plan import Plan
from optimizer.plan.rows import pool_pairs
from optimizer.schema import Server
from optimizer.spec.system import System
from optimizer.stabilisation.backlog import Queue, ReplicaCapacity
from optimizer.stabilisation.decisions import Decisions
from optimizer.stabilisation.keeping import left_by
from optimizer.units import SECONDS_PER_MINUTE


def with_capacities(system: System, plan: Plan, queues: Mapping[str, Queue]) -> dict[str, Queue]:
    """Return the queues of the servers that have pools in a plan, with the mean capacity of their replicas.

    Args:
        system: the planned system.
        plan: its plan for the demands.
        queues: queues by server; their desired replicas become at least the planned ones.
    """
    pools = [(name, pool) for name in queues for pool in plan.serving_pools_of(name) if pool.num_replicas]
    if not pools:
        return {}
    arrays = arrays_of(system)
    sums = {name: np.zeros(4) for name, _ in pools}
    for (name, pool), most_rps in zip(
        pools, stable_rates_of(arrays, pool_pairs(arrays, pools)[0]).tolist(), strict=True
    ):
        within_rps = pool.max_arrival_rate_rpm / SECONDS_PER_MINUTE
        mine = np.array([1.0, within_rps / pool.num_replicas, most_rps, pool.max_batch]) * pool.num_replicas
        sums[name] += mine
    return {
        name: replace(
            queues[name],
            desired=max(int(values[0]), queues[name].desired),
            capacity=ReplicaCapacity(*(values[1:] / values[0]).tolist()),
        )
        for name, values in sums.items()
        if values[1] > 0
    }


def with_backlogs(
    system: System, plan: Plan, queues: Mapping[str, Queue], kept: Mapping[str, int], now_s: float
) -> dict[str, Server]:
    """Return servers with a minimum number of replicas that includes those for backlogs.

    Args:
        system: the planned system.
        plan: its plan for the demands.
        queues: the queues; their desired replicas stay while a queue is long.
        kept: replicas that servers keep without a backlog.
        now_s: time [s since the epoch].
    """
    changed, cards = {}, left_by(system, plan, dict(plan.kept_replicas))
    for name in sorted(queues, key=lambda name: (system.priority(system.servers[name]), name)):
        queue, server = queues[name], system.servers[name]
        extra = queue.replicas(now_s)
        if not extra and not (queue.is_long and queue.desired > kept.get(name, 0)):
            continue
        pools = [pool for pool in plan.serving_pools_of(name) if pool.num_replicas]
        planned = sum(pool.num_replicas for pool in pools)
        wanted = min(queue.desired + extra, server.max_num_replicas or queue.desired + extra)
        cheapest = min(pools, key=lambda pool: pool.cost_cents_per_h / (pool.max_arrival_rate_rpm or inf))
        on = cheapest.accelerator
        more = cards.fitting(name, on, wanted - planned)
        if more > 0:
            cards.take(name, on, more)
            changed[name] = server.model_copy(update={"min_num_replicas": planned + more})
    return changed


def with_recommendations(decisions: Decisions, others: Decisions) -> Decisions:
    """Return decisions that remember the recommendations of other decisions.

    So replicas for a backlog do not count as recommended, and leave as soon as the queue is short.
    """
    changed = dict(decisions.servers)
    for name, other in others.servers.items():
        mine = changed.get(name)
        if mine is not None and mine.past and other.past:
            last = replace(mine.past[-1], recommended=other.past[-1].recommended)
            changed[name] = replace(mine, past=(*mine.past[:-1], last))
    return replace(decisions, servers=changed)
