"""The options of servers: nothing, or a pattern, with the units that it takes and what it adds to each level.

Takes `Parts`, gives `Options` as arrays. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, pairs_of_equal
from optimizer.solvers.formulation import keepable
from optimizer.solvers.patterns.parts import LOAD, Parts
from optimizer.solvers.problem import Problem

COUNT_ROUNDING = 1e-12
"""Part of a replica that counts as rounding where replicas are counted up to a load."""
MOST_PAIRS = 400_000
"""Patterns of two candidates that are written down at once; beyond, they are found when they are wanted."""
MOST_COMPARED = 500
"""Patterns of the same types of one server that are compared, each with each; of more, all are kept."""


@dataclass(frozen=True, slots=True)
class Options:
    """What servers can take, one row each."""

    server: IntArray
    """Shape (P,)."""
    part: IntArray
    """Parts of the pattern, -1 in the places that it leaves free; shape (P, W)."""
    count: IntArray
    """Replicas of each of them, shape (P, W)."""
    units: FloatArray
    """Units by capacity row, in multiples of its divisor; shape (P, K)."""
    value: FloatArray
    """What the server then adds to the value [cents/h], shape (P,) (eq. 31-33)."""
    changed: FloatArray
    """One where that is not what the server has now, shape (P,)."""
    served: BoolArray
    """Whether the option is a pattern, shape (P,)."""

    def __len__(self) -> int:
        """Return the number of options P."""
        return len(self.server)

    def take(self, rows: IntArray | BoolArray) -> "Options":
        """Return some of the options."""
        return Options(*(getattr(self, field.name)[rows] for field in fields(self)))

    def joined(self, other: "Options") -> "Options":
        """Return these options and then the others."""
        width = max(self.part.shape[1], other.part.shape[1])
        first, second = self.widened(width), other.widened(width)
        pairs = [(getattr(first, field.name), getattr(second, field.name)) for field in fields(self)]
        return Options(*(np.concatenate(pair) for pair in pairs))

    def widened(self, width: int) -> "Options":
        """Return the options with room for more parts in a pattern."""
        if width == self.part.shape[1]:
            return self
        more = ((0, 0), (0, width - self.part.shape[1]))
        part = np.pad(self.part, more, constant_values=-1)
        return replace(self, part=part, count=np.pad(self.count, more))

    def replicas(self, chosen: IntArray, parts: Parts, rows: int) -> IntArray:
        """Return the replicas of each row of the candidate table if some options are taken."""
        replicas = np.zeros(rows, np.int64)
        part, count = self.part[chosen], self.count[chosen]
        used = part >= 0
        np.add.at(replicas, parts.row[part[used]], count[used])
        return replicas


def patterns(problem: Problem, parts: Parts, part: IntArray, count: IntArray) -> Options:
    """Return patterns as options: replicas by part, both of shape (P, W), with a part in the first place.

    Those that take more units of a type than exist are left out.
    """
    used, at = part >= 0, np.maximum(part, 0)
    server = parts.server[part[:, 0]] if len(part) else np.zeros(0, np.int64)
    units = np.zeros((len(part), len(parts.limit)))
    taken = np.where(used, count * parts.units[at], 0) / parts.divisor[parts.kind[at]]
    rows = np.arange(len(part))
    for place in range(part.shape[1]):
        units[rows, parts.kind[at[:, place]]] += taken[:, place]
    cost = np.where(used, count * parts.cost[at], 0.0).sum(axis=1)
    stays = (used & parts.here[at]).any(axis=1)
    kept = (used & parts.here[at] & (count == problem.current_replicas[server][:, None])).any(axis=1)
    kept &= used.sum(axis=1) == 1
    old, penalty = problem.current_cost[server], problem.options.transition_penalty
    value = cost - old + np.where(stays, 0.0, penalty * old)
    if not problem.options.heterogeneous:
        value[kept] = 0.0
    served = np.ones(len(part), np.bool_)
    options = Options(server, part, count, units, value, (~kept).astype(np.float64), served)
    there = np.asarray((units <= parts.limit).all(axis=1), np.bool_)
    return options if there.all() else options.take(there)


def nothing(problem: Problem, parts: Parts, servers: IntArray) -> Options:
    """Return the option of no allocation for some servers (eq. 32)."""
    none = np.full((len(servers), 1), -1, np.int64)
    return Options(
        server=servers,
        part=none,
        count=np.zeros_like(none),
        units=np.zeros((len(servers), len(parts.limit))),
        value=problem.none_value[servers],
        changed=problem.none_changed[servers].astype(np.float64),
        served=np.zeros(len(servers), np.bool_),
    )


def first_options(problem: Problem, parts: Parts) -> Options:
    """Return nothing, the patterns of one and two candidates, and what runs now, for every server."""
    found = nothing(problem, parts, parts.servers).joined(_of_one(problem, parts))
    if problem.options.heterogeneous:
        found = found.joined(_of_two(problem, parts))
        found = found.joined(_as_it_runs(problem, parts))
    return found.take(undominated_options(found, len(problem.priority)))


@dataclass(frozen=True, slots=True)
class Cheapest:
    """For each server and capacity row, the pattern of this type alone that takes the fewest units."""

    units: FloatArray
    """Infinity where there is none; shape (S, K)."""
    value: FloatArray
    """Shape (S, K)."""

    @classmethod
    def of(cls, options: Options, servers: int) -> "Cheapest":
        """Return them for some options; ties go to the lesser value."""
        shape = servers, options.units.shape[1]
        units, value = np.full(shape, np.inf), np.full(shape, np.inf)
        alone = np.flatnonzero(options.served & ((options.units > 0).sum(axis=1) == 1))
        if not len(alone):
            return cls(units, value)
        kind = options.units[alone].argmax(axis=1)
        taken = options.units[alone, kind]
        order = np.lexsort((options.value[alone], taken))[::-1]
        at = options.server[alone][order], kind[order]
        units[at], value[at] = taken[order], options.value[alone][order]
        return cls(units, value)

    def beats(self, options: Options) -> BoolArray:
        """Return which changed patterns take as many units of several types and have no less value."""
        units, value = self.units[options.server], self.value[options.server]
        several = ((options.units > 0).sum(axis=1) > 1) & (options.changed > 0)
        better = (units <= options.units) & (value <= options.value[:, None]) & (options.units > 0)
        beaten: BoolArray = several & better.any(axis=1)
        return beaten


def undominated_options(options: Options, servers: int) -> BoolArray:
    """Return the options that no other of the server matches in units, value and changes (section 18).

    Compared are patterns of the same types, and those of several types with those of one. An option that is
    kept without need costs time alone.
    """
    kept = ~Cheapest.of(options, servers).beats(options)
    rows = np.flatnonzero(kept & options.served)
    types = (options.units[rows] > 0) @ (2.0 ** np.arange(options.units.shape[1]))
    order = rows[np.lexsort((options.changed[rows], options.value[rows], types, options.server[rows]))]
    of_row = np.zeros(len(options))
    of_row[rows] = types
    step = (np.diff(options.server[order]) != 0) | (np.diff(of_row[order]) != 0)
    group = np.cumsum(np.concatenate([np.zeros(min(len(order), 1), np.int64), step]))
    few = np.bincount(group)[group] <= MOST_COMPARED
    order, group = order[few], group[few]
    before, after = pairs_of_equal(group)
    better, worse = order[before], order[after]
    fewer = np.ones(len(better), np.bool_)
    for kind in range(options.units.shape[1]):
        fewer &= options.units[better, kind] <= options.units[worse, kind]
    fewer &= options.changed[better] <= options.changed[worse]
    kept[worse[fewer]] = False
    return kept


def needed(missing: FloatArray, share: FloatArray, least: FloatArray) -> FloatArray:
    """Return the replicas that carry a missing share of a load, and are at least so many."""
    return np.maximum(np.ceil(np.maximum(missing, 0) / share - COUNT_ROUNDING), np.maximum(least, 0.0))


def _of_one(problem: Problem, parts: Parts) -> Options:
    least = problem.min_replicas[parts.server].astype(np.float64)
    load = np.where(problem.load_rps[parts.server] > 0, LOAD, 0.0)
    count = np.maximum(needed(load, parts.share, least), 1.0)
    count = np.where(parts.divisible, count, problem.table.num_replicas[parts.row])
    allowed = count <= problem.max_replicas[parts.server]
    part = np.flatnonzero(allowed)
    return patterns(problem, parts, part[:, None], count[part].astype(np.int64)[:, None])


def _as_it_runs(problem: Problem, parts: Parts) -> Options:
    """Return what runs now where that serves in full; where it is no least pattern it is one all the same."""
    part = np.flatnonzero(keepable(problem)[parts.row] & parts.divisible)
    count = problem.current_replicas[parts.server[part]]
    return patterns(problem, parts, part[:, None], count[:, None])


def _of_two(problem: Problem, parts: Parts) -> Options:
    """Return the patterns of replicas of two candidates, of which none can be left out."""
    first, second = _pairs(parts)
    server = parts.server[first]
    load = np.where(problem.load_rps[server] > 0, LOAD, 0.0)
    least, most = problem.min_replicas[server].astype(np.float64), problem.max_replicas[server]
    # The candidate that needs fewer replicas takes each number of them that does not suffice alone.
    alone = [needed(load, parts.share[part], least) for part in (first, second)]
    swap = alone[1] < alone[0]
    first, second = np.where(swap, second, first), np.where(swap, first, second)
    numbers = np.minimum(np.minimum(*alone) - 1, most).astype(np.int64)
    if numbers.sum() > MOST_PAIRS:
        return patterns(problem, parts, np.zeros((0, 1), np.int64), np.zeros((0, 1), np.int64))
    pair = np.repeat(np.arange(len(first)), numbers)
    start = np.cumsum(numbers) - numbers
    count = np.arange(len(pair)) - np.repeat(start, numbers) + 1
    a, b = first[pair], second[pair]
    other = needed(load[pair] - count * parts.share[a], parts.share[b], least[pair] - count)
    fits = count + other <= most[pair]
    a, b, count, other = a[fits], b[fits], count[fits], other[fits]
    both, counts = np.stack([a, b], axis=1), np.stack([count, other.astype(np.int64)], axis=1)
    return patterns(problem, parts, both, counts)


def _pairs(parts: Parts) -> tuple[IntArray, IntArray]:
    """Return every two divisible parts of one server."""
    divisible = np.flatnonzero(parts.divisible)
    first, second = pairs_of_equal(parts.server[divisible])
    return divisible[first], divisible[second]
