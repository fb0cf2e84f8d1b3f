"""The levels of service: what the unserved servers of a priority weigh, in whole numbers.

Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
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

    def steps(self, left: BoolArray) -> float:
        """Return the integer level of a solution that leaves some servers, shape (S,), unserved."""
        return float(self.weight[left].sum())

    def value(self, left: BoolArray) -> float:
        """Return the same as it is reported."""
        return float(self.measure[left].sum())

    def reported(self, steps: float, left: BoolArray) -> float:
        """Return a bound in steps as it is reported with the value of an answer (eq. 136).

        Levels are compared as whole numbers, so a bound that is equal to an answer's steps is its value,
        and the gap between bound and value is that of the steps.
        """
        whole, value = self.steps(left), self.value(left)
        if not whole:
            return steps * self.unit
        return value if steps == whole else value * steps / whole

    def steps_of(self, bound: float, left: BoolArray) -> float:
        """Return the steps of a bound that is reported with the value of an answer."""
        value = self.value(left)
        return float(np.round(bound / value * self.steps(left))) if value > 0 else 0.0


def service_levels(priority: IntArray, load_rps: FloatArray, to_serve: BoolArray) -> tuple[ServiceLevel, ...]:
    """Return the levels of service, in their order (eq. 34, 35).

    Args:
        priority: of each server, shape (S,), as are the next two.
        load_rps: its load.
        to_serve: whether it is unserved without an allocation.
    """
    levels = []
    for p in np.unique(priority):
        here = to_serve & (priority == p)
        load, count = np.where(here, load_rps * SECONDS_PER_MINUTE, 0.0), here.astype(np.float64)
        weight, unit = _whole_rates(load)
        levels += [
            ServiceLevel(f"priority {p}: unserved rate", weight, unit, load),
            ServiceLevel(f"priority {p}: unserved servers", count, 1.0, count),
        ]
    return tuple(levels)


def _whole_rates(load_rpm: FloatArray) -> tuple[FloatArray, float]:
    """Return loads as integer multiples of a unit, and the unit; a load too small for it counts one."""
    unit = max(RATE_UNIT_RPM, float(load_rpm.max(initial=0)) / MAX_WHOLE_RATE)
    multiples = np.where(load_rpm > 0, np.maximum(np.round(load_rpm / unit), 1), 0).astype(np.int64)
    divisor = int(np.gcd.reduce(multiples)) or 1
    return (multiples // divisor).astype(np.float64), unit * divisor
