"""The options that are known of every server, and the search for those that are not. No solver is asked.

Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.patterns.options import Cheapest, Options, first_options, patterns
from optimizer.solvers.patterns.parts import Parts
from optimizer.solvers.patterns.program import Program
from optimizer.solvers.patterns.search import MOST_FOUND, Cases, cases_of, search
from optimizer.solvers.problem import Problem

MARGIN = 1e-12
"""Relative difference of two reduced costs that is rounding."""


class Pool:
    """The options that are known so far, and the search that finds others."""

    def __init__(
        self, problem: Problem, parts: Parts, options: Options, cases: Cases, due: Deadline | None = None
    ) -> None:
        self.problem, self.parts, self.options, self.cases = problem, parts, options, cases
        self.due = due
        """When to stop looking for more; none: at the end."""
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

    def add(self, found: Options) -> None:
        """Take in more options, those that are known left out."""
        if not len(found):
            return
        key = self._key(found)
        new = np.flatnonzero(~np.isin(key, self._keys))
        _, first = np.unique(key[new], return_index=True)
        new = new[np.sort(first)]
        if len(new):
            self.options = self.options.joined(found.take(new))
            self.gone = np.concatenate([self.gone, np.zeros(len(new), np.bool_)])
            self._keys = np.concatenate([self._keys, key[new]])

    def place_of(self, known: Options) -> IntArray:
        """Return where options stand that are in the pool, shape (P,)."""
        order = np.argsort(self._keys, kind="stable")
        return order[np.searchsorted(self._keys, self._key(known), sorter=order)]

    def only(self, rows: IntArray) -> "Pool":
        """Return a pool of some of the options, for which no others are looked for."""
        none = self.cases.take(np.zeros(0, np.int64))
        return Pool(self.problem, self.parts, self.options.take(rows), none, self.due)

    def with_only(self, rows: IntArray) -> tuple["Pool", IntArray]:
        """Return a pool in which a server has some options alone, and nothing, and is not searched for more.

        Args:
            rows: those options, all of one server.

        Returns:
            The pool; and the rows of this one that it was made of.
        """
        server = self.options.server[rows[0]]
        kept = (self.options.server != server) | ~self.options.served
        kept[rows] = True
        of = np.flatnonzero(kept)
        others = self.cases.take(np.flatnonzero(self.cases.server != server))
        pool = Pool(self.problem, self.parts, self.options.take(of), others, self.due)
        pool.gone, pool.exclusions = self.gone[of], self.exclusions
        return pool, of

    def settle(self, exclusion: "Exclusion", gone: BoolArray) -> None:
        """Leave out for good what no answer can take that holds a settled level."""
        self.exclusions = (*self.exclusions, exclusion)
        self.gone |= gone

    def reset(self) -> None:
        """Bring back all that was left out."""
        self.exclusions = ()
        self.gone[:] = False

    def below(
        self,
        program: Program,
        prices: FloatArray,
        limit: FloatArray,
        most: int = MOST_FOUND,
        enough: int | None = None,
    ) -> "Below":
        """Return the patterns whose reduced cost is at most a limit by server, shape (S,).

        Those that settled levels exclude are left out. Servers with too many patterns below the limit are
        searched for what a settled level leaves of theirs.

        Args:
            program: the level.
            prices: one for each row.
            limit: by server.
            most: patterns that are wanted at most.
            enough: patterns of a server from which on only better ones are looked for; none: all are.
        """
        limit = np.where(program.in_play & ~program.left_out, limit, -np.inf)
        found, cut, floor, best = self._searched(program, prices, limit, most, enough)
        for settled in self.exclusions[::-1]:
            if not cut.any():
                break
            least = np.where(cut & settled.program.in_play, settled.most, -np.inf)
            more, still, *_ = self._searched(settled.program, settled.prices, least, most)
            found, cut = found.joined(more), still | (cut & ~settled.program.in_play)
        for settled in self.exclusions:
            cost = reduced_costs(settled.program, found, settled.prices)
            found = found.take(cost <= settled.most[found.server])
        if self.exclusions and len(found):
            found = found.take(reduced_costs(program, found, prices) <= limit[found.server])
        return Below(found, np.minimum(np.where(cut, floor, np.inf), best))

    def _searched(
        self, program: Program, prices: FloatArray, limit: FloatArray, most: int, enough: int | None = None
    ) -> tuple[Options, BoolArray, FloatArray, FloatArray]:
        value, changes = price_of_sums(program, prices)
        parts, cases = self.parts, self.cases
        units = prices[: len(parts.limit)]
        if program.measure.on_units is not None:
            units = units + program.measure.on_units
        weight = value * parts.cost + (units / parts.divisor)[parts.kind] * parts.units
        limits = limit[cases.server] - value * cases.value - changes
        found = search(parts, cases, weight, limits, most, enough, self.due)
        cut = np.zeros(len(self.problem.priority), np.bool_)
        cut[cases.server[found.cut]] = True
        options = patterns(self.problem, parts, found.part, found.count)
        least, best = np.full((2, len(self.problem.priority)), np.inf)
        own = value * cases.value + changes
        np.minimum.at(least, cases.server, found.least + own)
        np.minimum.at(best, cases.server, found.best + own)
        return options.take(~self.cheapest.beats(options)), cut, least, best


@dataclass(frozen=True, slots=True)
class Below:
    """What a search for patterns below limits gives."""

    options: Options
    floor: FloatArray
    """What patterns cost at least of servers of which not all were looked for, else infinity; shape (S,)."""

    @property
    def complete(self) -> bool:
        """Whether all were looked for."""
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
    return priced(program.measure.of(options), program.shared(options), prices)


def priced(weight: FloatArray, shared: FloatArray, prices: FloatArray) -> FloatArray:
    """Return weights with what options take at prices, shape (P,).

    Args:
        weight: shape (P,).
        shared: what each takes of every shared row, shape (P, rows).
        prices: one for each row.
    """
    # A product by `@` of so many rows and so few columns takes several times as long.
    cost: FloatArray = weight + np.einsum("pr,r->p", shared, prices)
    return cost


def pool_of(problem: Problem, parts: Parts, due: Deadline | None = None) -> Pool:
    """Return the pool that a problem begins with."""
    return Pool(problem, parts, first_options(problem, parts), cases_of(problem, parts), due)


def least_of_servers(program: Program, pool: Pool, prices: FloatArray) -> FloatArray:
    """Return the least reduced cost of each server over all options that it has; infinity out of play."""
    options = pool.options
    allowed = program.allowed(options)
    least = np.full(len(pool.problem.priority), np.inf)
    np.minimum.at(least, options.server[allowed], reduced_costs(program, options, prices)[allowed])
    if not len(pool.cases.server):
        return least
    # What is no cheaper than by a rounding is not looked for, and taken off the least in its place.
    margin = np.where(np.isfinite(least), MARGIN * np.maximum(1.0, np.abs(least)), 0.0)
    below = pool.below(program, prices, least - margin)
    least = least - margin
    np.minimum.at(least, below.options.server, reduced_costs(program, below.options, prices))
    floored: FloatArray = np.minimum(least, below.floor)
    return floored
