"""Completion time of a plan's offline work (math.md section 28)."""

from collections.abc import Mapping, Sequence

from optimizer.features.external.uses import Rented
from optimizer.features.offline.uses import DeadlineUse
from optimizer.schema import OfflineWork
from optimizer.schema.pools import Pool
from optimizer.spec.system import System
from optimizer.tolerances import SAME
from optimizer.units import MINUTES_PER_HOUR


def deadline_uses(
    system: System, pools: Mapping[str, Sequence[Pool]], rented: Mapping[str, Rented]
) -> tuple[DeadlineUse, ...]:
    """Return the completion time of every server's offline work."""
    uses = []
    for name, server in system.servers.items():
        if server.deadline is not None:
            capacity = sum(pool.max_arrival_rate_rpm for pool in pools.get(name, ()))
            capacity += rented[name].arrival_rate_rpm if name in rented else 0.0
            uses.append(_use(name, server.deadline, capacity))
    return tuple(uses)


def _use(name: str, work: OfflineWork, capacity_rpm: float) -> DeadlineUse:
    """Return the completion time of offline work, given the capacity of its pools (eq. 201, 202)."""
    per_hour = capacity_rpm * MINUTES_PER_HOUR
    finishes = work.requests / per_hour if per_hour else None
    in_time = finishes is not None and finishes <= work.hours * (1 + SAME)
    return DeadlineUse(
        server=name,
        requests=work.requests,
        hours=work.hours,
        capacity_rpm=capacity_rpm,
        finishes_h=finishes,
        done_in_time=min(work.requests, per_hour * work.hours),
        in_time=in_time or not work.requests,
    )
