"""Computes the completion times of offline work in a plan (math.md section 28)."""

from collections.abc import Mapping, Sequence

from optimizer.features.offline.fields import OfflineWork
from optimizer.features.offline.uses import DeadlineUse
from optimizer.plan.placements import PlanRow
from optimizer.spec.system import System
from optimizer.tolerances import SAME
from optimizer.units import MINUTES_PER_HOUR


def deadline_uses(system: System, rows: Mapping[str, Sequence[PlanRow]]) -> tuple[DeadlineUse, ...]:
    """Return the offline work of every server that has any, with its completion time."""

    def capacity_rpm(name: str) -> float:
        return sum(row.max_rate_rpm for row in rows.get(name, ()) if row.mode != "shared")

    servers = system.servers.items()
    return tuple(_use(name, one.deadline, capacity_rpm(name)) for name, one in servers if one.deadline)


def _use(name: str, work: OfflineWork, capacity_rpm: float) -> DeadlineUse:
    """Return offline work with its completion time, given the maximum rate of its pools (eq. 201, 202)."""
    per_hour = capacity_rpm * MINUTES_PER_HOUR
    finishes = work.requests / per_hour if per_hour else None
    in_time = finishes is not None and finishes <= work.hours * (1 + SAME)
    return DeadlineUse.taken_from(
        work,
        server=name,
        capacity_rpm=capacity_rpm,
        finishes_h=finishes,
        done_in_time=min(work.requests, per_hour * work.hours),
        in_time=in_time or not work.requests,
    )
