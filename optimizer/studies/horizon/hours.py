"""Intervals of a load trace, each as a system with its loads, and their plans."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from optimizer.candidates import SizingMemo
from optimizer.features.offline.streams import without_past_deadlines
from optimizer.parallel import as_done
from optimizer.pipeline import solve
from optimizer.plan import Plan
from optimizer.schema import AllocationData
from optimizer.spec.load_traces import LoadStep, with_step
from optimizer.spec.loads import rate_rpm, stated_loads
from optimizer.spec.streams import planned_names, with_allocations
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_HOUR

BATCH = 6
"""Number of intervals that one worker plans in sequence, so that they share sizings."""


@dataclass(frozen=True, slots=True)
class Hour:
    """An interval of a load trace."""

    time_s: float
    hours: float
    """Length of the interval [h]."""
    system: System
    """System with the loads of the interval."""


def hours_of(system: System, steps: Sequence[LoadStep]) -> tuple[Hour, ...]:
    """Return the intervals of a load trace; each load applies from its time until the next time.

    The last interval is as long as the one before it. A server without a load at a time keeps its previous
    load. Offline work is done just in time: its rate applies until its deadline, counted from the first time.
    """
    times = [step.time_s for step in steps]
    lengths = [after - before for before, after in pairwise(times)]
    hours = []
    for step, length in zip(steps, [*lengths, lengths[-1]], strict=True):
        system = with_step(system, step)
        passed_h = (step.time_s - times[0]) / SECONDS_PER_HOUR
        system = system.with_items(*without_past_deadlines(system.spec.servers, passed_h))
        hours.append(Hour(step.time_s, length / SECONDS_PER_HOUR, system))
    return tuple(hours)


def peak_of(hours: Sequence[Hour]) -> System:
    """Return the system in which each server and route has its maximum load over all intervals."""
    loads = zip(*(stated_loads(hour.system) for hour in hours), strict=True)
    return hours[0].system.with_items(*(max(each, key=rate_rpm) for each in loads))


def from_nothing(system: System) -> System:
    """Return a copy of a system without current allocations, so that the transition cost equals the cost."""
    nothing = AllocationData()
    return system.with_items(
        *(
            with_allocations(server, dict.fromkeys(planned_names(server), nothing))
            for server in system.spec.servers
        )
    )


def chained(systems: Sequence[System]) -> list[Plan]:
    """Return the plan of each system, with the plan of the previous one as the current allocation.

    Raises:
        SolverError: the solver failed.
    """
    memo, plans = SizingMemo(), list[Plan]()
    for system in systems:
        plans.append(solve(plans[-1].applied_to(system) if plans else system, memo=memo))
    return plans


def alone(systems: Sequence[System]) -> list[Plan]:
    """Return the plan of each system, solved in parallel and without current allocations.

    Raises:
        SolverError: the solver failed.
    """
    batches = [[*map(from_nothing, systems[i : i + BATCH])] for i in range(0, len(systems), BATCH)]
    return [plan for plans in as_done(_each, batches) for plan in plans]


def _each(systems: Sequence[System]) -> list[Plan]:
    memo = SizingMemo()
    return [solve(system, memo=memo) for system in systems]
