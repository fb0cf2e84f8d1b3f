"""Every pattern of a server whose weight is below a limit: a search, for all servers at once.

The weight of a pattern is a sum over its replicas, so that a server's candidates can be taken in the order of
weight per load: what is still missing then costs at least that of the next candidate. Servers are rows of
arrays; one step decides how many replicas all of them take of their next candidate. Equation numbers refer to
``docs/math.md``.
"""

from dataclasses import dataclass, fields

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.patterns.options import needed
from optimizer.solvers.patterns.parts import LOAD, Parts
from optimizer.solvers.problem import Problem

MOST_NODES = 100_000
"""Beginnings of patterns that are looked at beside each other at most."""
MOST_FOUND = 100_000
"""Patterns that one search gives at most, or little more."""


@dataclass(frozen=True, slots=True)
class Cases:
    """What a server is searched for: all its patterns, or those without and with a part where it runs now."""

    server: IntArray
    """Shape (Q,)."""
    first: IntArray
    """Part of which one replica is taken from the start, -1 for none; shape (Q,)."""
    parts: IntArray
    """Parts to choose from, -1 after the last; shape (Q, M)."""
    load: FloatArray
    """Share of the load to carry, shape (Q,)."""
    least: FloatArray
    """Replicas at least, shape (Q,)."""
    most: FloatArray
    """Replicas at most, shape (Q,)."""
    value: FloatArray
    """What all patterns of the case have of the value beside their parts' costs, shape (Q,)."""

    def take(self, cases: IntArray) -> "Cases":
        """Return some of the cases."""
        return Cases(*(getattr(self, field.name)[cases] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Found:
    """Patterns below their limits."""

    case: IntArray
    """Shape (P,)."""
    part: IntArray
    """Shape (P, W), -1 in the places that are left free."""
    count: IntArray
    """Shape (P, W)."""
    weight: FloatArray
    """Shape (P,)."""
    cut: BoolArray
    """Cases that were too large to be searched to the end, shape (Q,)."""
    best: FloatArray
    """The lightest pattern of cases of which only better ones were looked for, else infinity; shape (Q,)."""
    least: FloatArray
    """What any pattern of a case weighs at least, by plain arithmetic; shape (Q,)."""


def cases_of(problem: Problem, parts: Parts) -> Cases:
    """Return the cases of every server that has a divisible part.

    Where moving off what runs now costs something, a pattern that keeps a replica there saves that.
    """
    own = np.flatnonzero(parts.divisible)
    servers, begin, size = np.unique(parts.server[own], return_index=True, return_counts=True)
    width = int(size.max(initial=0))
    place = np.arange(width)
    at = np.minimum(begin[:, None] + place, max(len(own) - 1, 0))
    table = np.where(place < size[:, None], own[at] if len(own) else -1, -1)
    move = problem.options.transition_penalty * problem.current_cost[servers]
    here = np.full(len(problem.priority), -1)
    here[parts.server[own[parts.here[own]]]] = own[parts.here[own]]
    keeps = (here[servers] >= 0) & (move > 0)
    without = np.where(keeps[:, None] & (table == here[servers][:, None]), -1, table)
    first = np.concatenate([np.full(len(servers), -1), here[servers[keeps]]])
    server = np.concatenate([servers, servers[keeps]])
    load = np.where(problem.load_rps[server] > 0, LOAD, 0.0)
    return Cases(
        server=server,
        first=first,
        parts=np.concatenate([without, table[keeps]]),
        load=load,
        least=problem.min_replicas[server].astype(np.float64),
        most=problem.max_replicas[server].astype(np.float64),
        value=np.concatenate([move, np.zeros(int(keeps.sum()))]) - problem.current_cost[server],
    )


def search(
    parts: Parts,
    cases: Cases,
    weight: FloatArray,
    limit: FloatArray,
    most: int = MOST_FOUND,
    enough: int | None = None,
    due: Deadline | None = None,
) -> Found:
    """Return every least pattern whose parts weigh no more than its case's limit.

    No candidate is taken more often than its type has units for; several of one type together may be.

    Args:
        parts: what patterns are made of.
        cases: the cases, Q rows.
        weight: weight of one replica of each part, not below zero; shape (n,).
        limit: the largest weight of a pattern that is wanted, minus infinity for none; shape (Q,).
        most: patterns that are wanted at most; cases that have too many are cut.
        enough: patterns of a case from which on only lighter ones are looked for; none: all are.
        due: when to stop: cases that are not searched to the end by then are cut; none: at the end.
    """
    return _Search(parts, cases, weight, limit, most, enough).run(due)


class _Search:
    """One search: the beginnings of patterns that can still stay below their limits, step by step."""

    def __init__(
        self,
        parts: Parts,
        cases: Cases,
        weight: FloatArray,
        limit: FloatArray,
        most: int,
        enough: int | None,
    ) -> None:
        self.cases, self.limit, self.most, self.enough = cases, limit, most, enough
        self.lightest = np.full(len(limit), np.inf)
        there = cases.parts >= 0
        share = np.where(there, parts.share[cases.parts], 1.0)
        each = np.where(there, weight[cases.parts], np.inf)
        order = np.argsort(each / share, axis=1, kind="stable")
        self.part = np.take_along_axis(cases.parts, order, axis=1)
        self.each = np.take_along_axis(each, order, axis=1)
        self.share = np.take_along_axis(share, order, axis=1)
        exist = np.floor((parts.limit * parts.divisor)[parts.kind] / parts.units)
        self.cap = np.where(self.part >= 0, exist[self.part], 0.0)
        # The share of the load that the units of all later candidates can carry, after the last none.
        carried = np.cumsum((self.cap * self.share)[:, ::-1], axis=1)[:, ::-1]
        self.carried = np.hstack([carried, np.zeros((len(order), 1))])
        # Per load and per replica, the least that any later candidate costs; after the last, infinity.
        beyond = np.full((len(order), 1), np.inf)
        self.per_load = np.hstack([self.each / self.share, beyond])
        least = np.minimum.accumulate(self.each[:, ::-1], axis=1)[:, ::-1]
        self.per_count = np.hstack([least, beyond])
        self.cut = np.zeros(len(limit), np.bool_)
        self.count_found = np.zeros(len(limit), np.int64)
        self.found: list[tuple[IntArray, IntArray, IntArray, FloatArray]] = []
        self._start(parts, weight)

    def _start(self, parts: Parts, weight: FloatArray) -> None:
        cases, forced = self.cases, self.cases.first >= 0
        self.case = np.flatnonzero(self.limit > -np.inf)
        one = np.where(forced, 1.0, 0.0)[self.case]
        mine = cases.first[self.case]
        self.missing = cases.load[self.case] - one * parts.share[mine]
        self.count = one
        self.cost = np.where(forced[self.case], weight[mine], 0.0)
        self.path_part = mine[:, None]
        self.path_count = one.astype(np.int64)[:, None]
        self.least = np.full(len(self.limit), np.inf)
        self.least[self.case] = self._least(0)
        self._keep(self._below(0))

    def run(self, due: Deadline | None) -> Found:
        """Take the candidates one after the other, as long as there is time."""
        done = (self.missing <= 0) & (self.count >= self.cases.least[self.case]) & (self.path_part[:, 0] >= 0)
        self._note(np.flatnonzero(done), None, None)
        self._keep(~done)
        for rank in range(self.part.shape[1]):
            if not len(self.case):
                break
            if due is not None and due.passed:
                self.cut[self.case] = True
                break
            self._step(rank)
        if not self.found:
            none = np.zeros((0, 1), np.int64)
            return Found(np.zeros(0, np.int64), none, none, np.zeros(0), self.cut, self.best, self.least)
        width = max(part.shape[1] for _, part, _, _ in self.found)
        more = [width - part.shape[1] for _, part, _, _ in self.found]
        return Found(
            np.concatenate([case for case, *_ in self.found]),
            np.concatenate(
                [_wider(part, -1, w) for (_, part, _, _), w in zip(self.found, more, strict=True)]
            ),
            np.concatenate(
                [_wider(count, 0, w) for (_, _, count, _), w in zip(self.found, more, strict=True)]
            ),
            np.concatenate([weight for *_, weight in self.found]),
            self.cut,
            self.best,
            self.least,
        )

    def _below(self, rank: int) -> BoolArray:
        """Return which beginnings can stay below their limits with the candidates from a rank on."""
        return self._least(rank) <= self.limit[self.case]

    def _least(self, rank: int) -> FloatArray:
        """Return the least that patterns weigh that begin so and go on with candidates from a rank on."""
        case = self.case
        load = np.where(self.missing > 0, self.missing, 0.0)
        more = self.cases.least[case] - self.count
        by_load = np.multiply(load, self.per_load[case, rank], out=np.zeros(len(case)), where=load > 0)
        by_count = np.multiply(more, self.per_count[case, rank], out=np.zeros(len(case)), where=more > 0)
        least: FloatArray = self.cost + np.maximum(by_load, by_count)
        return least

    def _keep(self, rows: IntArray | BoolArray) -> None:
        self.case, self.missing = self.case[rows], self.missing[rows]
        self.count, self.cost = self.count[rows], self.cost[rows]
        self.path_part, self.path_count = self.path_part[rows], self.path_count[rows]

    def _note(self, rows: IntArray, part: IntArray | None, number: IntArray | None) -> None:
        """Note patterns that are complete, with the last candidate's replicas."""
        if not len(rows):
            return
        parts, counts, weight = self.path_part[rows], self.path_count[rows], self.cost[rows]
        if part is not None and number is not None:
            place = (parts >= 0).sum(axis=1)
            parts, counts = _wider(parts, -1), _wider(counts, 0)
            every = np.arange(len(rows))
            parts[every, place], counts[every, place] = part, number
        self.found.append((self.case[rows], parts, counts, weight))
        self.count_found += np.bincount(self.case[rows], minlength=len(self.limit))
        if self.enough is not None:
            self._look_for_lighter(self.case[rows], weight, self.enough)
        if self.count_found.sum() > self.most:
            self._cut_largest(self.count_found, self.most // 2)
            self.count_found[self.cut] = 0

    def _look_for_lighter(self, case: IntArray, weight: FloatArray, enough: int) -> None:
        """Look for nothing but lighter patterns in cases of which enough have been found."""
        np.minimum.at(self.lightest, case, weight)
        many = self.count_found > enough
        self.limit = np.where(many, np.minimum(self.limit, self.lightest), self.limit)

    @property
    def best(self) -> FloatArray:
        """The lightest pattern of cases of which only lighter ones were looked for, else infinity."""
        if self.enough is None:
            return self.lightest
        return np.where(self.count_found > self.enough, self.lightest, np.inf)

    def _step(self, rank: int) -> None:
        """Complete each beginning with the candidate of a rank, and go on with fewer of it, or none."""
        case = self.case
        part, each, share = self.part[case, rank], self.each[case, rank], self.share[case, rank]
        there = part >= 0
        least, most = self.cases.least[case], self.cases.most[case]
        cap = self.cap[case, rank]
        need = np.maximum(needed(self.missing, share, least - self.count), 1.0)
        total = self.cost + np.where(there, need * np.where(there, each, 0.0), np.inf)
        ends = np.flatnonzero(
            there & (total <= self.limit[case]) & (self.count + need <= most) & (need <= cap)
        )
        before = self.cost
        self.cost = total
        self._note(ends, part[ends], need[ends].astype(np.int64))
        self.cost = before
        # Fewer than that: what is missing then costs at least the next candidate's, a line in their number.
        fewer = np.minimum(np.minimum(need - 1, most - self.count), cap)
        self._go_on(rank, np.where(there, fewer, 0.0))

    def _go_on(self, rank: int, most: FloatArray) -> None:
        case = self.case
        fewest = self._fewest(rank, most)
        numbers = np.maximum(most - fewest + 1, 0).astype(np.int64)
        if numbers.sum() > MOST_NODES:
            self._cut_largest(np.bincount(case, numbers, minlength=len(self.limit)), MOST_NODES)
            numbers[self.cut[case]] = 0
        row = np.repeat(np.arange(len(case)), numbers)
        start = np.cumsum(numbers) - numbers
        number = fewest[row] + np.arange(len(row)) - start[row]
        taken = number > 0
        each, share = self.each[case[row], rank], self.share[case[row], rank]
        self._keep(row)
        self.missing = self.missing - np.where(taken, number * share, 0.0)
        self.count = self.count + number
        self.cost = self.cost + np.where(taken, number * np.where(taken, each, 0.0), 0.0)
        self._append(np.flatnonzero(taken), self.part[case[row], rank], number.astype(np.int64))
        enough = self.missing <= self.carried[self.case, rank + 1] * (1 + 1e-9)
        self._keep(self._below(rank + 1) & enough)

    def _cut_largest(self, size: IntArray, most: int) -> None:
        """Give up the cases that are largest until the sizes of the rest add up to no more than wanted."""
        order = np.argsort(-size, kind="stable")
        left = size.sum() - np.cumsum(size[order])
        self.cut[order[: int((left > most).sum()) + 1]] = True
        self.limit = np.where(self.cut, -np.inf, self.limit)

    def _append(self, rows: IntArray, part: IntArray, number: IntArray) -> None:
        """Write a candidate and its replicas into the first free place of some beginnings."""
        if not len(rows):
            return
        place = (self.path_part[rows] >= 0).sum(axis=1)
        if place.max() == self.path_part.shape[1]:
            self.path_part, self.path_count = _wider(self.path_part, -1), _wider(self.path_count, 0)
        self.path_part[rows, place] = part[rows]
        self.path_count[rows, place] = number[rows]

    def _fewest(self, rank: int, most: FloatArray) -> FloatArray:
        """Return the fewest replicas of a candidate with which the load's part stays below the limit."""
        case = self.case
        after = self.per_load[case, rank + 1]
        last = ~np.isfinite(after)
        after = np.where(last, 0.0, after)
        each = np.where(self.part[case, rank] >= 0, self.each[case, rank], 0.0)
        saved = self.share[case, rank] * after - each
        over = self.cost + np.maximum(self.missing, 0) * after - self.limit[case]
        fewest = np.ceil(np.divide(over, saved, out=np.zeros(len(case)), where=saved > 0) - 1e-9)
        # No beginning that lacks load goes on after the last candidate.
        fewest = np.where(last & (self.missing > 0), most + 1, np.maximum(fewest, 0.0))
        return np.minimum(fewest, most + 1)


def _wider(paths: IntArray, fill: int, places: int = 1) -> IntArray:
    """Return paths with more places, that hold nothing yet."""
    wide = np.full((len(paths), paths.shape[1] + places), fill)
    wide[:, : paths.shape[1]] = paths
    return wide
