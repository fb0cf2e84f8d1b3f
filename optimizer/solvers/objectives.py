"""Lexicographic levels of a problem as objectives to minimise, in their order.

For each priority, from the highest down, there are two service levels: the unserved request rate and the
number of unserved servers, both in integer steps. Then follow the goals (missing reserves, and load off
preferred accelerators), the transition cost, and the number of changed servers. Equation numbers refer to
``docs/math.md``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates import CandidateTable
from optimizer.candidates.arrays import MemberArrays
from optimizer.schema.classes import priority_name
from optimizer.tolerances import ROUNDING, SAME, value_slack
from optimizer.units import SECONDS_PER_MINUTE

VALUE = "value"
CHANGES = "changes"


def unit_of_level(name: str) -> str:
    """Return the unit of the values of a level."""
    if name == VALUE:
        return "cents/h"
    return "servers" if name == CHANGES or name.endswith("servers") else "requests/min"


OFF_PREFERRED = "load off preferred accelerators"
RATE_UNIT_RPM = 1e-3
"""Unit of loads in service levels, to which they are rounded [requests/min]."""
MAX_WHOLE_RATE = 1e9
"""Maximum integer that represents a load; a coarser unit is used if a load would exceed it."""
INTEGER_SLACK = 0.5
"""Slack of the constraint on an integer level: half a step, which is far above solver tolerances."""
STEP_SLACK = 1e-4
"""Fraction of a step by which a bound must exceed an integer to exclude this integer."""


def reserve_level(priority: int) -> str:
    """Return the name of the level for the reserves of a priority."""
    return f"reserve of {priority_name(priority)}: load without it"


def proved_within(
    name: str, value: float, bound: float, gap: float, constants: float = 0.0, *, is_service: bool = False
) -> bool:
    """Return whether a level counts as proved: its value and bound differ at most by the gap, or by rounding.

    The gap is relative to the objective of the solver, which omits constants in the levels of value and
    changes.

    Args:
        name: name of the level.
        value: value of the level.
        bound: bound of the level.
        gap: the relative gap.
        constants: largest sum of the omitted constants.
        is_service: whether this is a service level, whose weights are integers.
    """
    scale = abs(value) + constants
    if is_service:
        return value - bound <= (gap + ROUNDING) * scale
    return value - bound <= (gap + SAME) * scale + (value_slack(scale) if name == VALUE else SAME)


@dataclass(frozen=True, slots=True, eq=False)
class LevelObjective:
    """Objective of one level: a sum over servers and candidates."""

    name: str
    on_unserved: FloatArray
    """Cost of leaving each server unserved, as an integer, shape (S,)."""
    active: BoolArray
    """Mask of the servers that can have an allocation, shape (S,); other servers are added at later levels.
    """
    on_value: float = 0.0
    on_changes: float = 0.0
    on_unreserved: FloatArray | None = None
    """Cost of serving each server without its reserve [requests/min], shape (S,); None if there is no cost.
    """
    on_off_preferred: float = 0.0
    """1 if the level counts load off preferred accelerators, else 0."""
    on_columns: FloatArray | None = None
    """Cost of the queue members that each candidate leaves unserved, shape (C,); None if all candidates serve
    all members.
    """
    unit: float = 1.0
    """Size of one step of a service level, in its reported unit: requests/min, or servers."""
    measure: FloatArray | None = None
    """Reported value of leaving each server unserved, before rounding, shape (S,); None for other levels than
    service.
    """
    column_measure: FloatArray | None = None
    """Reported value of the queue members that each candidate leaves unserved, shape (C,)."""
    outside: float = 0.0
    """Contribution of commitments and of servers without a candidate, which is the same for any solution."""

    @property
    def is_service(self) -> bool:
        """Whether this is a service level."""
        return self.measure is not None

    @property
    def is_goal(self) -> bool:
        """Whether this is a level between service and value."""
        return self.on_unreserved is not None or self.on_off_preferred > 0

    @property
    def step(self) -> float:
        """Smallest possible difference of two values; 0 if any difference is possible."""
        return 0.0 if self.on_value or self.is_goal else 1.0

    def slack(self, value: float) -> float:
        """Return the amount by which solutions of later levels can exceed a value reached."""
        return INTEGER_SLACK if self.step else value_slack(value)

    def tolerance(self, value: float, gap: float) -> float:
        """Return the difference of value and bound at which the level counts as proved for a relative gap."""
        inside = abs(value - self.outside)
        return max(gap * inside, self.step * (1 - STEP_SLACK), ROUNDING * max(1.0, inside))

    def steps(self, left: BoolArray, taken: BoolArray | None = None) -> float:
        """Return the value of a service level for a solution, in integer steps.

        Args:
            left: mask of the servers without an allocation, shape (S,).
            taken: mask of the chosen candidates, shape (C,); None if no candidate leaves members unserved.
        """
        return _sum(self.on_unserved, left, self.on_columns, taken)

    def reported(self, steps: float, left: BoolArray, taken: BoolArray | None = None) -> float:
        """Convert a bound in steps to the unit in which a solution's value is reported (eq. 136).

        136).

        Levels are compared as integers. So a bound that equals the solution's steps is reported as the
        solution's value, and the gap is that of the steps.

        Args:
            steps: the bound in steps.
            left: mask of the servers without an allocation, shape (S,).
            taken: mask of the chosen candidates, shape (C,); None if no candidate leaves members unserved.
        """
        if self.measure is None:
            return steps
        whole, value = self.steps(left, taken), _sum(self.measure, left, self.column_measure, taken)
        if not whole:
            return steps * self.unit
        return value if steps == whole else value * steps / whole

    def steps_of(self, bound: float, left: BoolArray, taken: BoolArray | None = None) -> float:
        """Convert a bound, reported with the value of a solution, to integer steps.

        Args:
            bound: the bound in the reported unit.
            left: mask of the servers without an allocation, shape (S,).
            taken: mask of the chosen candidates, shape (C,); None if no candidate leaves members unserved.
        """
        if self.measure is None:
            return bound
        value = _sum(self.measure, left, self.column_measure, taken)
        return float(np.round(bound / value * self.steps(left, taken))) if value > 0 else 0.0


@dataclass(frozen=True, slots=True)
class LevelConstraint:
    """Constraint of a level: later solutions must not exceed the value reached."""

    objective: LevelObjective
    most: float


def _sum(
    on_servers: FloatArray, left: BoolArray, on_columns: FloatArray | None, taken: BoolArray | None
) -> float:
    parts = 0.0 if on_columns is None or taken is None else on_columns[taken].sum()
    return float(on_servers[left].sum() + parts)


def service_objectives(
    members: MemberArrays,
    table: CandidateTable,
    to_serve: BoolArray,
    min_replicas: IntArray,
    priority: IntArray,
) -> Iterator[LevelObjective]:
    """Yield the service levels in order (eq. 34, 35, 179).

    Args:
        members: members of the servers: the servers themselves, or the servers of a shared queue.
        to_serve: whether a server without an allocation counts as unserved, shape (S,).
        min_replicas: minimum number of replicas of each server, shape (S,).
        priority: priority of each server, shape (S,).
    """
    wanted = to_serve[members.server]
    wanted = wanted & ((members.load_rps > 0) | (min_replicas[members.server] > 0))
    for p in np.unique(members.priority):
        here = wanted & (members.priority == p)
        load, count = np.where(here, members.load_rps * SECONDS_PER_MINUTE, 0.0), here.astype(np.float64)
        weight, unit = _whole_rates(load)
        for what, each, step, measure in (("rate", weight, unit, load), ("servers", count, 1.0, count)):
            left, reported = (
                np.bincount(members.server, part, len(to_serve)).astype(np.float64)
                for part in (each, measure)
            )
            parts: tuple[FloatArray | None, ...] = (None, None)
            if not members.are_servers:
                parts = tuple(members.missing(table.server, table.members, part) for part in (each, measure))
            yield LevelObjective(
                f"{priority_name(p)}: unserved {what}",
                left,
                priority <= priority[reported > 0].max(initial=-1),
                on_columns=parts[0],
                unit=step,
                measure=reported,
                column_measure=parts[1],
            )


def _whole_rates(load_rpm: FloatArray) -> tuple[FloatArray, float]:
    """Return loads as integer multiples of a unit, and the unit [requests/min].

    A positive load is at least 1 unit.
    """
    unit = max(RATE_UNIT_RPM, float(load_rpm.max(initial=0)) / MAX_WHOLE_RATE)
    multiples = np.where(load_rpm > 0, np.maximum(np.round(load_rpm / unit), 1), 0).astype(np.int64)
    divisor = int(np.gcd.reduce(multiples)) or 1
    return (multiples // divisor).astype(np.float64), unit * divisor


def later_objectives(
    priority: IntArray, load_rps: FloatArray, wants_reserve: BoolArray, *, preference: bool
) -> Iterator[LevelObjective]:
    """Yield the levels after service: goals (eq. 143, 144), transition cost (eq. 31-33) and changes.

    Args:
        priority: priority of each server, shape (S,).
        load_rps: load of each server, shape (S,).
        wants_reserve: whether each server requires a reserve, shape (S,).
        preference: whether a server prefers accelerators.
    """
    nothing, everyone = np.zeros(len(priority)), np.ones(len(priority), np.bool_)
    load = np.where(wants_reserve, load_rps * SECONDS_PER_MINUTE, 0.0)
    for p in np.unique(priority[wants_reserve]).tolist():
        without = np.where(priority == p, load, 0.0)
        yield LevelObjective(reserve_level(p), nothing, everyone, on_unreserved=without)
    if preference:
        yield LevelObjective(OFF_PREFERRED, nothing, everyone, on_off_preferred=1.0)
    yield LevelObjective(VALUE, nothing, everyone, on_value=1.0)
    yield LevelObjective(CHANGES, nothing, everyone, on_changes=1.0)
