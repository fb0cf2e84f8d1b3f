"""The levels of a problem, in their order, as objectives to minimise.

The order is: for each priority from the highest down, the unserved request rate and the number of unserved
servers, in integer steps; the goals, which are missing reserves and load off preferred accelerators; the
transition value; the number of changed servers. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates import CandidateTable
from optimizer.candidates.arrays import MemberArrays
from optimizer.schema import priority_name
from optimizer.tolerances import ROUNDING, SAME, value_slack
from optimizer.units import SECONDS_PER_MINUTE

VALUE = "value"
CHANGES = "changes"
OFF_PREFERRED = "load off preferred accelerators"
RATE_UNIT_RPM = 1e-3
"""Loads are rounded to integer multiples of this unit [requests/min]."""
MAX_WHOLE_RATE = 1e9
"""Maximum integer for a load; a coarser unit is used if one would exceed it."""
INTEGER_SLACK = 0.5
"""Slack of the constraint on an integer level: half a step, far above solver tolerances."""
STEP_SLACK = 1e-4
"""Fraction of a step by which a bound must exceed an integer to exclude it."""


def reserve_level(priority: int) -> str:
    """Return the name of the level of a priority's reserves."""
    return f"reserve of {priority_name(priority)}: load without it"


def proved_within(
    name: str, value: float, bound: float, gap: float, constants: float = 0.0, *, is_service: bool = False
) -> bool:
    """Return whether a level counts as proved: its value and bound differ by a gap, or by rounding.

    The gap is relative to the solver's objective, which omits constants in the levels of value and changes.

    Args:
        name: the level.
        value: its value.
        bound: its bound.
        gap: the relative gap.
        constants: largest sum of the omitted constants.
        is_service: whether it is a service level, whose weights are integers.
    """
    scale = abs(value) + constants
    if is_service:
        return value - bound <= (gap + ROUNDING) * scale
    return value - bound <= (gap + SAME) * scale + (value_slack(scale) if name == VALUE else SAME)


@dataclass(frozen=True, slots=True, eq=False)
class LevelObjective:
    """One level: a sum over servers and candidates."""

    name: str
    on_unserved: FloatArray
    """Cost of leaving each server unserved; integers, shape (S,)."""
    active: BoolArray
    """Servers that can have an allocation; the others come later; shape (S,)."""
    on_value: float = 0.0
    on_changes: float = 0.0
    on_unreserved: FloatArray | None = None
    """Cost of serving each server without its reserve [requests/min], shape (S,); None if 0."""
    on_off_preferred: float = 0.0
    """1 if the level counts the load off preferred accelerators, else 0."""
    on_columns: FloatArray | None = None
    """Cost of the members that each candidate leaves unserved, shape (C,); None if all candidates serve
    all.
    """
    unit: float = 1.0
    """Size of one step of a service level in its reported unit (requests/min, or servers)."""
    measure: FloatArray | None = None
    """Reported value of each unserved server before rounding, shape (S,); None if not a service level."""
    column_measure: FloatArray | None = None
    """Reported value of the members that each candidate leaves unserved, shape (C,)."""
    outside: float = 0.0
    """Contribution of commitments and of servers without a candidate, the same for any solution."""

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
        """Smallest difference of two values; 0 if any difference is possible."""
        return 0.0 if self.on_value or self.is_goal else 1.0

    def slack(self, value: float) -> float:
        """Return the amount by which later solutions can exceed the reached value."""
        return INTEGER_SLACK if self.step else value_slack(value)

    def tolerance(self, value: float, gap: float) -> float:
        """Return the difference of value and bound at which the level counts as proved, for a gap."""
        inside = abs(value - self.outside)
        return max(gap * inside, self.step * (1 - STEP_SLACK), ROUNDING * max(1.0, inside))

    def steps(self, left: BoolArray, taken: BoolArray | None = None) -> float:
        """Return the value of a service level for a solution, in integer steps.

        Args:
            left: servers without an allocation, shape (S,).
            taken: mask of the chosen candidates, shape (C,); None if none leaves members unserved.
        """
        return _sum(self.on_unserved, left, self.on_columns, taken)

    def reported(self, steps: float, left: BoolArray, taken: BoolArray | None = None) -> float:
        """Return a bound in steps as reported with the value of a solution (eq. 136).

        Levels are compared as integers, so a bound equal to the solution's steps is reported as its value,
        and the gap is that of the steps.
        """
        if self.measure is None:
            return steps
        whole, value = self.steps(left, taken), _sum(self.measure, left, self.column_measure, taken)
        if not whole:
            return steps * self.unit
        return value if steps == whole else value * steps / whole

    def steps_of(self, bound: float, left: BoolArray, taken: BoolArray | None = None) -> float:
        """Return the steps of a bound that is reported with the value of a solution."""
        if self.measure is None:
            return bound
        value = _sum(self.measure, left, self.column_measure, taken)
        return float(np.round(bound / value * self.steps(left, taken))) if value > 0 else 0.0


@dataclass(frozen=True, slots=True)
class LevelConstraint:
    """A fixed level: later solutions must not exceed the value reached."""

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
        members: members of the servers.
        table: the candidates.
        to_serve: whether a server without an allocation counts as unserved, shape (S,).
        min_replicas: minimum replicas of each server.
        priority: priority of each server.
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
    """Return loads as integer multiples of a unit, at least 1 if positive, and the unit."""
    unit = max(RATE_UNIT_RPM, float(load_rpm.max(initial=0)) / MAX_WHOLE_RATE)
    multiples = np.where(load_rpm > 0, np.maximum(np.round(load_rpm / unit), 1), 0).astype(np.int64)
    divisor = int(np.gcd.reduce(multiples)) or 1
    return (multiples // divisor).astype(np.float64), unit * divisor


def later_objectives(
    priority: IntArray, load_rps: FloatArray, wants_reserve: BoolArray, *, preference: bool
) -> Iterator[LevelObjective]:
    """Yield the levels after service: goals (eq. 143, 144), value (eq. 31-33) and changes.

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
