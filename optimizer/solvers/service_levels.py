"""The levels of service: what the unserved servers of a priority weigh, in whole numbers.

Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates import CandidateTable
from optimizer.candidates.arrays import MemberArrays
from optimizer.spec.offline import priority_name
from optimizer.units import SECONDS_PER_MINUTE

RATE_UNIT_RPM = 1e-3
"""Loads are rounded to integer multiples of this unit [requests/min]."""
MAX_WHOLE_RATE = 1e9
"""Largest integer that a load may become; a coarser unit is taken where one would exceed it."""


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """Cost of leaving each server unserved at one level."""

    name: str
    weight: FloatArray
    """Integers, shape (S,); 0 for servers that do not count at this level."""
    unit: float
    """One step of the integer level, in what the level is reported in (requests/min, or servers)."""
    measure: FloatArray
    """Reported value, before rounding to integers; shape (S,)."""

    on_columns: FloatArray | None = None
    """Cost of the members that a candidate does not serve, shape (C,); None if all serve all."""
    column_measure: FloatArray | None = None
    """Their reported value."""

    def steps(self, left: BoolArray, taken: BoolArray | None = None) -> float:
        """Return the integer level of a solution.

        Args:
            left: servers without an allocation, shape (S,).
            taken: the candidates that are chosen, shape (C,); None: none that leaves members unserved.
        """
        parts = 0.0 if self.on_columns is None or taken is None else self.on_columns[taken].sum()
        return float(self.weight[left].sum() + parts)

    def value(self, left: BoolArray, taken: BoolArray | None = None) -> float:
        """Return the same as it is reported."""
        parts = 0.0 if self.column_measure is None or taken is None else self.column_measure[taken].sum()
        return float(self.measure[left].sum() + parts)

    def reported(self, steps: float, left: BoolArray, taken: BoolArray | None = None) -> float:
        """Return a bound in steps as it is reported with the value of an answer (eq. 136).

        Levels are compared as whole numbers, so a bound that is equal to an answer's steps is its value,
        and the gap between bound and value is that of the steps.
        """
        whole, value = self.steps(left, taken), self.value(left, taken)
        if not whole:
            return steps * self.unit
        return value if steps == whole else value * steps / whole

    def steps_of(self, bound: float, left: BoolArray, taken: BoolArray | None = None) -> float:
        """Return the steps of a bound that is reported with the value of an answer."""
        value = self.value(left, taken)
        return float(np.round(bound / value * self.steps(left, taken))) if value > 0 else 0.0


def service_levels(
    members: MemberArrays, table: CandidateTable, to_serve: BoolArray, min_replicas: IntArray
) -> tuple[ServiceLevel, ...]:
    """Return the levels of service, in their order (eq. 34, 35, 179).

    Args:
        members: what servers stand for.
        table: the candidates.
        to_serve: whether a server is unserved without an allocation, shape (S,).
        min_replicas: its minimum replicas.
    """
    levels = []
    wanted = to_serve[members.server]
    wanted = wanted & ((members.load_rps > 0) | (min_replicas[members.server] > 0))
    for p in np.unique(members.priority):
        here = wanted & (members.priority == p)
        load, count = np.where(here, members.load_rps * SECONDS_PER_MINUTE, 0.0), here.astype(np.float64)
        weight, unit = _whole_rates(load)
        levels += [
            _level(members, table, len(to_serve), f"{priority_name(p)}: unserved rate", weight, unit, load),
            _level(members, table, len(to_serve), f"{priority_name(p)}: unserved servers", count, 1.0, count),
        ]
    return tuple(levels)


def _level(
    members: MemberArrays,
    table: CandidateTable,
    servers: int,
    name: str,
    weight: FloatArray,
    unit: float,
    measure: FloatArray,
) -> ServiceLevel:
    """Return a level of service from the weight and the measure of each member, shapes (M,)."""
    if members.are_servers:
        weight, measure = (np.append(part, np.zeros(servers - len(part))) for part in (weight, measure))
        return ServiceLevel(name, weight, unit, measure)
    left, reported = (
        np.bincount(members.server, part, servers).astype(np.float64) for part in (weight, measure)
    )
    parts = (members.missing(table.server, table.members, part) for part in (weight, measure))
    return ServiceLevel(name, left, unit, reported, *parts)


def _whole_rates(load_rpm: FloatArray) -> tuple[FloatArray, float]:
    """Return loads as integer multiples of a unit, and the unit; a load too small for it counts one."""
    unit = max(RATE_UNIT_RPM, float(load_rpm.max(initial=0)) / MAX_WHOLE_RATE)
    multiples = np.where(load_rpm > 0, np.maximum(np.round(load_rpm / unit), 1), 0).astype(np.int64)
    divisor = int(np.gcd.reduce(multiples)) or 1
    return (multiples // divisor).astype(np.float64), unit * divisor
