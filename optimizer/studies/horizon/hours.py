"""Intervals of a trace, each a system with its loads, and plans of all of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

from optimizer.candidates import SizingMemo
from optimizer.parallel import as_done
from optimizer.pipeline import solve
from optimizer.plan import Plan
from optimizer.spec.load_traces import LoadStep, with_step
from optimizer.spec.loads import owners_of_load, rate_rpm, with_owners
from optimizer.spec.offline import without_past_deadlines
from optimizer.spec.schema import AllocationData, Server
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_HOUR

BATCH = 6
"""Intervals that one worker plans one after the other, so that they share what is sized."""


@dataclass(frozen=True, slots=True)
class Hour:
    """An interval of a trace."""

    time_s: float
    hours: float
    """Length [h]."""
    system: System
    """The system with the loads of the interval."""


def hours_of(system: System, steps: Sequence[LoadStep]) -> tuple[Hour, ...]:
    """Return the intervals of a trace; the loads of a time hold until the next time.

    The last interval is as long as the one before. A server that a time does not name keeps its load. Offline
    work is done just in time: it has its rate until its deadline, counted from the first time.
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
    """Return the system in which each server and each route has its largest load of all hours."""
    loads = zip(*(owners_of_load(hour.system) for hour in hours), strict=True)
    return with_owners(hours[0].system, [max(each, key=rate_rpm) for each in loads])


def from_nothing(system: System) -> System:
    """Return a system in which no server runs yet, so that its plan of least value is that of least cost."""
    return replace(
        system,
        servers=MappingProxyType({name: _stopped(server) for name, server in system.servers.items()}),
    )


def _stopped(server: Server) -> Server:
    return server.model_copy(update={"current": AllocationData(load=server.current.load)})


def chained(systems: Sequence[System]) -> list[Plan]:
    """Return the plan of each system; what the plan before runs is what runs.

    Raises:
        SolverError: the solver failed.
    """
    memo, plans = SizingMemo(), list[Plan]()
    for system in systems:
        plans.append(solve(plans[-1].applied_to(system) if plans else system, memo=memo))
    return plans


def alone(systems: Sequence[System]) -> list[Plan]:
    """Return the plan of each system, planned from nothing; several at once.

    Raises:
        SolverError: the solver failed.
    """
    batches = [[*map(from_nothing, systems[i : i + BATCH])] for i in range(0, len(systems), BATCH)]
    return [plan for plans in as_done(_each, batches) for plan in plans]


def _each(systems: Sequence[System]) -> list[Plan]:
    memo = SizingMemo()
    return [solve(system, memo=memo) for system in systems]
