"""One level solved within its gap: over a core of options, then over all whose reduced cost leaves room for better.

An answer that takes an option of reduced cost r is above the relaxation's bound by r at least. So what is left
out of a model because its reduced cost is above some room cannot be part of an answer below bound plus room.
Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.highs import HighsSession
from optimizer.solvers.model import Outcome, RunResult
from optimizer.solvers.patterns.answers import Incumbent
from optimizer.solvers.patterns.program import Program
from optimizer.solvers.patterns.relaxation import Pool, Relaxed, reduced_costs

CORE_OPTIONS = 1_000
"""Options beside those that the relaxation uses."""
CORE_S = 4.0
"""Most time for the core [s]."""
ROOMS = (1 / 8, 0.3, 1.0)
"""Parts of the distance of answer and bound that are searched, one after the other."""
MOST_OPTIONS = 60_000
"""Options of a model at most."""


@dataclass(frozen=True, slots=True)
class Target:
    """How near a bound has to come."""

    gap: float
    """Relative."""
    step: float
    """By how much two answers differ at least; 0 for any."""

    def distance(self, value: float) -> float:
        """Return the distance of value and bound at which a level is proved."""
        return max(self.gap * abs(value), self.step * (1 - 1e-6), 1e-9 * max(1.0, abs(value)))


class Narrowing:
    """The search for one level: what is known of its answer and bound, and what to try next."""

    def __init__(
        self,
        program: Program,
        pool: Pool,
        relaxed: Relaxed,
        incumbent: Incumbent,
        target: Target,
    ) -> None:
        self.program, self.pool, self.relaxed = program, pool, relaxed
        self.incumbent, self.target = incumbent, target
        self.bound = relaxed.bound
        self.measured_before = -1
        self._extend()
        self.feasible = self._holds()
        self.value = self.incumbent.of_level(self.weight) if self.feasible else np.inf

    def _extend(self) -> None:
        """Bring weights and reduced costs up to what the pool has grown to."""
        options, program, pool = self.pool.options, self.program, self.pool
        self.weight = program.measure.of(options)
        allowed = program.allowed(options) & ~pool.gone
        reduced = np.where(allowed, reduced_costs(program, options, self.relaxed.prices), np.inf)
        least = np.full(len(pool.problem.priority), np.inf)
        np.minimum.at(least, options.server, reduced)
        over = reduced - np.where(np.isfinite(least), least, 0.0)[options.server]
        self.reduced: FloatArray = np.maximum(over, 0.0)
        self.least = least

    def _holds(self) -> bool:
        """Return whether the best answer keeps what the level requires."""
        chosen, program = self.incumbent.chosen, self.program
        options = self.pool.options.take(chosen)
        mine = program.in_play[options.server]
        fits = (program.shared(options)[mine].sum(axis=0) <= program.limits + 1e-9).all()
        return bool(fits and program.allowed(options)[mine].all())

    @property
    def proved(self) -> bool:
        """Whether value and bound are as near as they have to be."""
        return self.value - self.bound <= self.target.distance(self.value)

    def core(self, deadline: Deadline) -> None:
        """Solve over the options that the relaxation uses, and those that it nearly uses."""
        if self.proved or deadline.passed:
            return
        used = np.zeros(len(self.reduced), np.bool_)
        used[: len(self.relaxed.used)] = self.relaxed.used
        others = np.where(used, np.inf, self.reduced)
        near = np.argsort(others, kind="stable")[:CORE_OPTIONS]
        used[near[np.isfinite(others[near])]] = True
        self._solve(np.flatnonzero(used), min(deadline.left_s, CORE_S))

    def rooms(self, deadline: Deadline) -> None:
        """Solve over more and more options, until nothing better can be left out."""
        for part in ROOMS:
            if self.proved or deadline.passed or not np.isfinite(self.value):
                return
            wanted = self.value - self.target.distance(self.value) - self.relaxed.bound
            room = max(part * wanted, 0.0) * (1 + 1e-9) + 1e-12
            if not self._enumerate(room):
                return
            options = np.flatnonzero(self.reduced <= room)
            if len(options) > MOST_OPTIONS:
                return
            share = deadline.left_s / 2 if part < 1 else deadline.left_s
            result = self._solve(options, share)
            within = result.bound if result.outcome is not Outcome.infeasible else np.inf
            self.bound = max(self.bound, min(within, self.relaxed.bound + room, self.value))

    def _enumerate(self, room: float) -> bool:
        """Add every pattern of at most that reduced cost to the pool; return whether that was possible."""
        if not len(self.pool.cases.server):
            return True
        limit = np.where(np.isfinite(self.least), self.least + room, -np.inf)
        found, cut = self.pool.below(self.program, self.relaxed.prices, limit)
        if cut.any():
            return False
        self.pool.add(found)
        self._extend()
        return True

    def _solve(self, options: IntArray, time_s: float) -> RunResult:
        """Solve over some options and those of the best answer, and take over what is better."""
        start = None
        if self.feasible:
            mine = self.program.in_play[self.pool.options.server[self.incumbent.chosen]]
            own = self.incumbent.chosen[mine]
            options = np.union1d(options, own)
            start = np.isin(options, own).astype(np.float64)
        session = HighsSession(self.program.model(self.pool.options.take(options)))
        gap = self.target.gap / 2
        result = session.solve_at_once(self.weight[options], start, gap, time_s)
        if result.x is not None:
            self._offer(options[result.x > 0.5])
        return result

    def _offer(self, chosen: IntArray) -> None:
        value = float(self.weight[chosen].sum())
        if self.feasible and value >= self.value:
            return
        self.incumbent.offer(self.incumbent.completed(chosen))
        self._extend()
        self.feasible = self._holds()
        if self.feasible:
            self.value = self.incumbent.of_level(self.weight)
