"""Table of the router's steps, in the order in which requests pass through them."""

from collections.abc import Sequence

from optimizer.plan import Plan
from optimizer.spec.system import System
from optimizer.units import MINUTES_PER_HOUR, SECONDS_PER_MINUTE
from rest_server.emulator.backend import Backend
from rest_server.emulator.settings import FleetSettings
from rest_server.emulator.steps.cache_step import Caches
from rest_server.emulator.steps.forwarded import RouterStep
from rest_server.emulator.steps.gateway import Gateway
from rest_server.emulator.steps.jobs import JobQueue
from rest_server.emulator.steps.queues import SharedQueues
from rest_server.emulator.steps.role_step import PoolsByRole
from rest_server.emulator.steps.route_step import Routes
from rest_server.emulator.steps.version_step import Versions


def steps_of(
    system: System, plan: Plan, settings: FleetSettings, backends: Sequence[Backend]
) -> tuple[RouterStep, ...]:
    """Return the steps that the fleet of a plan needs.

    Args:
        system: the planned system.
        backends: replicas of the fleet; the sequence can change later.
    """
    deadlines_s = {
        name: server.deadline.hours * MINUTES_PER_HOUR * SECONDS_PER_MINUTE
        for name, server in system.documented.items()
        if server.deadline is not None
    }
    queues = SharedQueues(system, plan, settings, backends)
    return (
        JobQueue(settings, deadlines_s),
        Routes(system, plan, settings),
        Versions(plan, settings),
        Caches(plan, settings, backends),
        Gateway(backends, queues),
        queues,
        PoolsByRole(plan),
    )
