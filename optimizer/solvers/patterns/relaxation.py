"""The relaxation of a level over all patterns: few columns, more by price, and a bound from its multipliers.

Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.highs import GrowingLp
from optimizer.solvers.model import Outcome
from optimizer.solvers.patterns.bounds import bound_of
from optimizer.solvers.patterns.options import Cheapest, Options, patterns
from optimizer.solvers.patterns.parts import Parts
from optimizer.solvers.patterns.program import Program
from optimizer.solvers.patterns.search import Cases, search
from optimizer.solvers.problem import Problem

EACH_ROUND = 3
"""Columns that a server gets at most in one round."""
ROUNDING = 1e-9
"""Part of the largest weight of an option that counts as nothing."""
MISSING = 10.0
"""Price of a server that takes nothing where it must not, in parts of the largest weight."""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """What the relaxation of a level says."""

    prices: FloatArray
    """Multipliers of the shared rows, not below zero."""
    bound: float
    """What they prove: no answer is less."""
    reduced_cost: FloatArray
    """By how much an answer that takes an option is above the bound at least; by option of the pool."""
    used: BoolArray
    """Options that the relaxation takes in part or whole, by option of the pool."""
    finished: bool
    """Whether no option could lower the relaxation any further."""
    served: bool
    """Whether the relaxation serves all that must be served."""
    value: float = np.inf
    """Optimum of the relaxation over the columns that it has."""


class Pool:
    """The options that are known so far, and the search that finds others."""

    def __init__(self, problem: Problem, parts: Parts, options: Options, cases: Cases) -> None:
        self.problem, self.parts, self.options, self.cases = problem, parts, options, cases
        self.gone = np.zeros(len(options), np.bool_)
        """Options that no answer of the levels settled so far can take."""
        self.cheapest = Cheapest.of(options, len(problem.priority))
        self.exclusions: tuple[Exclusion, ...] = ()
        rng = np.random.default_rng(0)
        self._marks = rng.integers(1, 2**63, len(parts.row) + len(problem.priority), np.uint64)
        self._keys = self._key(options)

    def _key(self, options: Options) -> npt.NDArray[np.uint64]:
        """Return a number for each option that tells patterns apart, in whatever order their parts stand."""
        own = np.where(options.part >= 0, self._marks[options.part], 0).astype(np.uint64)
        key = (own * options.count.astype(np.uint64)).sum(axis=1, dtype=np.uint64)
        return np.where(options.served, key, self._marks[len(self.parts.row) + options.server])

    def add(self, found: Options) -> IntArray:
        """Take in more options, those that are known left out; return where all of them now stand."""
        key = self._key(found)
        new = np.flatnonzero(~np.isin(key, self._keys))
        _, first = np.unique(key[new], return_index=True)
        new = new[np.sort(first)]
        if len(new):
            self.options = self.options.joined(found.take(new))
            self.gone = np.concatenate([self.gone, np.zeros(len(new), np.bool_)])
            self._keys = np.concatenate([self._keys, key[new]])
        order = np.argsort(self._keys, kind="stable")
        return order[np.searchsorted(self._keys[order], key)]

    def settle(self, exclusion: "Exclusion", gone: BoolArray) -> None:
        """Leave out for good what no answer can take that holds a settled level."""
        self.exclusions = (*self.exclusions, exclusion)
        self.gone |= gone

    def reset(self) -> None:
        """Bring back all that was left out."""
        self.exclusions = ()
        self.gone[:] = False

    def below(self, program: Program, prices: FloatArray, limit: FloatArray) -> "Below":
        """Return the patterns whose reduced cost is at most a limit by server, shape (S,).

        Those that settled levels exclude are left out. Servers with too many patterns below the limit are
        searched for what a settled level leaves of theirs.
        """
        limit = np.where(program.in_play, limit, -np.inf)
        found, cut, floor = self._searched(program, prices, limit)
        for settled in self.exclusions[::-1]:
            if not cut.any():
                break
            least = np.where(cut & settled.program.in_play, settled.most, -np.inf)
            more, still, _ = self._searched(settled.program, settled.prices, least)
            found, cut = found.joined(more), still | (cut & ~settled.program.in_play)
        for settled in self.exclusions:
            cost = reduced_costs(settled.program, found, settled.prices)
            found = found.take(cost <= settled.most[found.server])
        if self.exclusions and len(found):
            found = found.take(reduced_costs(program, found, prices) <= limit[found.server])
        return Below(found, np.where(cut, floor, np.inf))

    def _searched(
        self, program: Program, prices: FloatArray, limit: FloatArray
    ) -> tuple[Options, BoolArray, FloatArray]:
        value, changes = price_of_sums(program, prices)
        parts, cases = self.parts, self.cases
        units = prices[: len(parts.limit)]
        if program.measure.on_units is not None:
            units = units + program.measure.on_units
        weight = value * parts.cost + (units / parts.divisor)[parts.kind] * parts.units
        limits = limit[cases.server] - value * cases.value - changes
        found = search(parts, cases, weight, limits)
        cut = np.zeros(len(self.problem.priority), np.bool_)
        cut[cases.server[found.cut]] = True
        options = patterns(self.problem, parts, found.part, found.count)
        least = np.full(len(self.problem.priority), np.inf)
        np.minimum.at(least, cases.server, found.least + value * cases.value + changes)
        return options.take(~self.cheapest.beats(options)), cut, least


@dataclass(frozen=True, slots=True)
class Below:
    """What a search for patterns below limits gives."""

    options: Options
    floor: FloatArray
    """Of servers with too many, the least that any pattern of theirs costs, else infinity; shape (S,)."""

    @property
    def complete(self) -> bool:
        """Whether no server has too many."""
        return not np.isfinite(self.floor).any()


@dataclass(frozen=True, slots=True)
class Exclusion:
    """What a settled level says: options of more than some reduced cost are in no answer that holds it."""

    program: Program
    prices: FloatArray
    most: FloatArray
    """By server, shape (S,); infinity where the level says nothing."""


def price_of_sums(program: Program, prices: FloatArray) -> tuple[float, float]:
    """Return what a cent of value and a change weigh under prices, of the level itself and of its pins."""
    pinned = list(zip(program.pins, prices[len(program.parts.limit) :].tolist(), strict=True))
    value = program.measure.on_value + sum(pin.measure.on_value * price for pin, price in pinned)
    changes = program.measure.on_changes + sum(pin.measure.on_changes * price for pin, price in pinned)
    return value, changes


def reduced_costs(program: Program, options: Options, prices: FloatArray) -> FloatArray:
    """Return the weight of options with what they take at prices, shape (P,)."""
    cost: FloatArray = program.measure.of(options) + program.shared(options) @ prices
    return cost


def relax(program: Program, pool: Pool, start: IntArray, deadline: Deadline) -> Relaxed | None:
    """Solve the relaxation of a level over all patterns; those found on the way are added to the pool.

    Args:
        program: the level.
        pool: the options.
        start: options to begin with.
        deadline: when to stop; what the multipliers at hand prove then is the bound.

    Returns:
        None if the time did not suffice for any multipliers.

    Raises:
        SolverError: the solver failed.
    """
    return _Relaxation(program, pool, start, deadline).run()


class _Relaxation:
    """A linear model over a few options of each server, which grows."""

    def __init__(self, program: Program, pool: Pool, start: IntArray, deadline: Deadline) -> None:
        self.program, self.pool, self.deadline = program, pool, deadline
        self.servers = program.servers
        self.weight = program.measure.of(pool.options)
        self.allowed = program.allowed(pool.options) & ~pool.gone
        largest = float(np.abs(self.weight[self.allowed]).max(initial=0.0))
        self.tolerance = ROUNDING * max(largest, 1e-9)
        limits, count = program.limits, len(self.servers)
        self.lp = GrowingLp(
            np.concatenate([np.ones(count), np.full(len(limits), -np.inf)]),
            np.concatenate([np.ones(count), limits]),
        )
        price = MISSING * max(largest, 1.0)
        every = np.arange(count)
        self.lp.add(np.full(count, price), every, every, np.ones(count))
        self.columns = np.zeros(0, np.int64)
        self._add(np.unique(start[self.allowed[start]]))

    def _add(self, options: IntArray) -> None:
        start, row, value = self.program.columns(self.pool.options.take(options))
        self.lp.add(self.weight[options], start[:-1], row, value)
        self.columns = np.concatenate([self.columns, options])

    def run(self) -> Relaxed | None:
        """Solve, price and grow until nothing is gained any more."""
        best: Relaxed | None = None
        while not self.deadline.passed:
            result = self.lp.minimise(self.deadline.left_s)
            if result.outcome is not Outcome.optimal or result.row_price is None or result.x is None:
                break
            count = len(self.servers)
            prices = np.maximum(-result.row_price[count:], 0.0)
            dual = np.full(len(self.pool.problem.priority), -np.inf)
            dual[self.servers] = result.row_price[:count]
            if self._grown(prices, dual):
                continue
            least, gained = self._least_of_all(prices, dual)
            bound = bound_of(self.program, prices, least[self.servers])
            done = not gained or result.bound - bound <= self.tolerance
            if best is None or bound > best.bound or done:
                best = self._relaxed(prices, bound, result.x, result.bound, finished=done)
            if done:
                break
        return best

    def _grown(self, prices: FloatArray, dual: FloatArray) -> bool:
        """Add the options of the pool that lower the relaxation most; return whether there were any."""
        reduced = self._reduced(prices) - dual[self.pool.options.server]
        better = np.flatnonzero(self.allowed & (reduced < -self.tolerance))
        if not len(better):
            return False
        self._add(_best_of_each(self.pool.options.server[better], reduced[better], better))
        return True

    def _reduced(self, prices: FloatArray) -> FloatArray:
        reduced: FloatArray = self.weight + self.program.shared(self.pool.options) @ prices
        return reduced

    def _least_of_all(self, prices: FloatArray, dual: FloatArray) -> tuple[FloatArray, bool]:
        """Return the least reduced cost of each server over all patterns, and whether new ones were added."""
        reduced = np.where(self.allowed, self._reduced(prices), np.inf)
        least = np.full(len(dual), np.inf)
        np.minimum.at(least, self.pool.options.server, reduced)
        if not len(self.pool.cases.server):
            return least, False
        limit = np.where(np.isfinite(least), least, 0.0)
        limit = np.where(np.isfinite(least), limit - self.tolerance, np.inf)
        below = self.pool.below(self.program, prices, limit)
        found, least = below.options, np.minimum(least, below.floor)
        if not len(found):
            return least, False
        cost = reduced_costs(self.program, found, prices)
        np.minimum.at(least, found.server, cost)
        chosen = _best_of_each(found.server, cost, np.arange(len(found)))
        before = len(self.pool.options)
        self.pool.add(found.take(chosen))
        if len(self.pool.options) == before:
            return least, False
        new = self.pool.options.take(np.arange(before, len(self.pool.options)))
        self.weight = np.concatenate([self.weight, self.program.measure.of(new)])
        self.allowed = np.concatenate([self.allowed, self.program.allowed(new)])
        self._add(np.arange(before, len(self.pool.options)))
        return least, True

    def _relaxed(
        self, prices: FloatArray, bound: float, x: FloatArray, value: float, *, finished: bool
    ) -> Relaxed:
        reduced = np.where(self.allowed, self._reduced(prices), np.inf)
        least = np.full(len(self.pool.problem.priority), np.inf)
        np.minimum.at(least, self.pool.options.server, reduced)
        used = np.zeros(len(reduced), np.bool_)
        count = len(self.servers)
        used[self.columns[: len(x) - count][x[count:] > ROUNDING]] = True
        over = reduced - np.where(np.isfinite(least), least, 0.0)[self.pool.options.server]
        return Relaxed(
            prices=prices,
            bound=bound,
            reduced_cost=np.maximum(over, 0.0),
            used=used,
            finished=finished,
            served=bool(x[:count].max(initial=0.0) <= ROUNDING),
            value=value,
        )


def _best_of_each(server: IntArray, cost: FloatArray, items: IntArray) -> IntArray:
    """Return the items of least cost of each server, a few of them."""
    order = np.lexsort((cost, server))
    ordered = server[order]
    first = np.searchsorted(ordered, ordered)
    return items[order[np.arange(len(order)) - first < EACH_ROUND]]
