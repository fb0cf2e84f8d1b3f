"""Intervals of a trace, each as a system with its loads, and their plans."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

from optimizer.candidates import SizingMemo
from optimizer.features.offline.streams import without_past_deadlines
from optimizer.parallel import as_done
from optimizer.pipeline import solve
from optimizer.plan import Plan
from optimizer.schema import AllocationData, Server
from optimizer.spec.load_traces import LoadStep, with_step
from optimizer.spec.loads import rate_rpm
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_HOUR

BATCH = 6
"""Number of intervals planned by one worker in sequence, so that they share sizings."""


@dataclass(frozen=True, slots=True)
class Hour:
    """An interval of a trace."""

    time_s: float
    hours: float
    """Length of the interval [h]."""
    system: System
    """The system with the loads of the interval."""


def hours_of(system: System, steps: Sequence[LoadStep]) -> tuple[Hour, ...]:
    """Return the intervals of a trace; loads apply from their time until the next.

    The last interval is as long as the one before. A server without a load at a time keeps its previous one.
    Offline work is done just in time: its rate applies until its deadline, counted from the first time.
    """
    times = [step.time_s for step in steps]
    lengths = [after - before for before, after in pairwise(times)]
    found = []
    for step, length in zip(steps, [*lengths, lengths[-1]], strict=True):
        system = with_step(system, step)
        passed_h = (step.time_s - times[0]) / SECONDS_PER_HOUR
        system = system.with_servers(without_past_deadlines(system.servers, passed_h))
        found.append(Hour(step.time_s, length / SECONDS_PER_HOUR, system))
    return tuple(found)


def peak_of(hours: Sequence[Hour]) -> System:
    """Return the system in which each server and route has its maximum load over all hours."""
    loads = zip(*(hour.system.owners for hour in hours), strict=True)
    return hours[0].system.with_owners(max(each, key=rate_rpm) for each in loads)


def from_nothing(system: System) -> System:
    """Return a system without current allocations, so that minimum value means minimum cost."""
    return replace(
        system,
        servers=MappingProxyType({name: _stopped(server) for name, server in system.servers.items()}),
    )


def _stopped(server: Server) -> Server:
    return server.model_copy(update={"current": AllocationData(load=server.current.load)})


def chained(systems: Sequence[System]) -> list[Plan]:
    """Return the plan of each system, with the previous plan as the current allocation.

    Raises:
        SolverError: the solver failed.
    """
    memo, plans = SizingMemo(), list[Plan]()
    for system in systems:
        plans.append(solve(plans[-1].applied_to(system) if plans else system, memo=memo))
    return plans


def alone(systems: Sequence[System]) -> list[Plan]:
    """Return the plan of each system without current allocations, solved in parallel.

    Raises:
        SolverError: the solver failed.
    """
    batches = [[*map(from_nothing, systems[i : i + BATCH])] for i in range(0, len(systems), BATCH)]
    return [plan for plans in as_done(_each, batches) for plan in plans]


def _each(systems: Sequence[System]) -> list[Plan]:
    memo = SizingMemo()
    return [solve(system, memo=memo) for system in systems]
