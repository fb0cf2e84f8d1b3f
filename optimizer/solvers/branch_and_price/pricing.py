"""Pricing problem: finds every pattern with a reduced cost below a limit, for all servers at once.

The weight of a pattern is a sum over its replicas. The candidates of a server are taken in the order of
weight per load, so the remaining load costs at least the weight per load of the next candidate. Servers are
rows of arrays. Each step chooses the number of replicas of the next candidate of every server. Equation
numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, RowArrays
from optimizer.solvers.branch_and_price.candidates import LOAD, PatternCandidates
from optimizer.solvers.branch_and_price.columns import needed
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.problem import Problem

MAX_FOUND = 100_000
"""Approximate maximum number of patterns that one enumeration returns."""


@dataclass(frozen=True, slots=True)
class PricingSubproblems(RowArrays):
    """Pricing subproblems: one per server, or one without and one with each of its current accelerators."""

    server: IntArray
    """Server of each subproblem, shape (Q,)."""
    first: IntArray
    """Candidate that has at least one replica in every pattern, -1 for none, shape (Q,)."""
    candidates: IntArray
    """Candidates that patterns can use, -1 after the last one, shape (Q, M)."""
    load: FloatArray
    """Share of the server's load that a pattern must carry, shape (Q,)."""
    least: FloatArray
    """Minimum number of replicas of a pattern, shape (Q,)."""
    most: FloatArray
    """Maximum number of replicas of a pattern, shape (Q,)."""
    value: FloatArray
    """Constant part of the transition cost of a subproblem's patterns, without their replicas' costs, shape
    (Q,).
    """
    unreserved: BoolArray
    """Whether the patterns count as lacking the reserve of their server, shape (Q,)."""

    def with_growth(self, growth: FloatArray) -> "PricingSubproblems":
        """Return the subproblems, plus a second one for each server whose load must be able to grow.

        Args:
            growth: load that must be carried, as a multiple of the load, shape (S,).
        """
        growing = np.flatnonzero(growth[self.server] > 1)
        rows = np.concatenate([np.arange(len(self.server)), growing])
        grown, first = self.take(rows), np.arange(len(rows)) < len(self.server)
        load = np.where(first, grown.load, grown.load * growth[grown.server])
        return replace(grown, load=load, unreserved=grown.unreserved & first)


@dataclass(frozen=True, slots=True)
class EnumeratedPatterns:
    """Patterns whose weights are within the limits of their subproblems."""

    subproblem: IntArray
    """Subproblem of each pattern, shape (P,)."""
    candidate: IntArray
    """Candidates of each pattern, -1 for unused entries, shape (P, W)."""
    count: IntArray
    """Number of replicas of each of these candidates, shape (P, W)."""
    cut: BoolArray
    """Mask of the subproblems whose enumeration was cut short, shape (Q,)."""
    least: FloatArray
    """Lower bound of the weight of each subproblem's patterns, shape (Q,)."""


def subproblems_of(problem: Problem, candidates: PatternCandidates) -> PricingSubproblems:
    """Return the pricing subproblems of every server that has a divisible candidate.

    If leaving the current accelerators costs something, patterns that keep a replica there save that cost.
    """
    own = np.flatnonzero(candidates.divisible)
    servers, begin, size = np.unique(candidates.server[own], return_index=True, return_counts=True)
    width = int(size.max(initial=0))
    place = np.arange(width)
    at = np.minimum(begin[:, None] + place, max(len(own) - 1, 0))
    table = np.where(place < size[:, None], own[at] if len(own) else -1, -1)
    # A server for which moving costs something has several subproblems. One excludes its current accelerators
    # and pays for moving. Each of the others keeps a replica on a current accelerator, and does not pay.
    move = problem.leaving_value[servers]
    here = np.where(table >= 0, candidates.here[table], False) & (move > 0)[:, None]  # noqa: FBT003
    keeps, at_place = np.nonzero(here)
    without = np.where(here, -1, table)
    first = np.concatenate([np.full(len(servers), -1), table[keeps, at_place]])
    server = np.concatenate([servers, servers[keeps]])
    load = np.where(problem.load_rps[server] > 0, LOAD, 0.0)
    pricing_subproblems = PricingSubproblems(
        server=server,
        first=first,
        candidates=np.concatenate([without, table[keeps]]),
        load=load,
        unreserved=problem.reserve.wanted[server],
        least=problem.min_replicas[server].astype(np.float64),
        most=problem.max_replicas[server].astype(np.float64),
        value=np.concatenate([move, np.zeros(len(keeps))]) - problem.current_cost[server],
    )
    return pricing_subproblems.with_growth(problem.reserve.growth)


def enumerate_patterns(
    candidates: PatternCandidates,
    subproblems: PricingSubproblems,
    weight: FloatArray,
    limit: FloatArray,
    most: int = MAX_FOUND,
    due: Deadline | None = None,
    *,
    only_best: bool = False,
) -> EnumeratedPatterns:
    """Return every minimal pattern whose weight is at most the limit of its subproblem.

    Each candidate alone respects the limits on cards, but several candidates together can exceed them.

    Args:
        subproblems: the Q subproblems.
        weight: weight of one replica of each candidate, at least 0, shape (n,).
        limit: maximum weight of a pattern, -inf for subproblems without any, shape (Q,).
        most: maximum number of patterns. If there are more, all subproblems are cut short, or with
            `only_best` those with the most patterns.
        due: deadline; subproblems that are not fully enumerated by then are cut short. None: no deadline.
        only_best: whether patterns heavier than another of their subproblem can be omitted.
    """
    return _Enumeration(candidates, subproblems, weight, limit, most, only_best=only_best).run(due)


@dataclass(frozen=True, slots=True)
class _Prefixes(RowArrays):
    """Incomplete patterns during enumeration; arrays have shape (B,), paths have shape (B, W)."""

    subproblem: IntArray
    missing: FloatArray
    """Share of the load that is not yet carried."""
    replicas: FloatArray
    weight: FloatArray
    candidate: IntArray
    count: IntArray

    def extended(
        self, candidate: IntArray, number: FloatArray, each: FloatArray, share: FloatArray
    ) -> "_Prefixes":
        """Return each prefix extended by a number of replicas, possibly 0, of a candidate.

        Args:
            candidate: the candidate for each prefix.
            number: number of its replicas.
            each: weight of one replica.
            share: share of the load that one replica carries.
        """
        taken = number > 0
        rows = np.flatnonzero(taken)
        place = (self.candidate[rows] >= 0).sum(axis=1)
        more = int((place == self.candidate.shape[1]).any())
        path, count = _wider(self.candidate, -1, more), _wider(self.count, 0, more)
        path[rows, place], count[rows, place] = candidate[rows], number[rows].astype(np.int64)
        return _Prefixes(
            self.subproblem,
            self.missing - np.where(taken, number * share, 0.0),
            self.replicas + number,
            self.weight + np.where(taken, number * np.where(taken, each, 0.0), 0.0),
            path,
            count,
        )


def _wider(paths: IntArray, fill: int, places: int) -> IntArray:
    """Return a copy of paths padded with unused entries.

    Args:
        paths: the paths, shape (B, W).
        fill: value of unused entries.
        places: new number of entries.
    """
    wider = np.full((len(paths), paths.shape[1] + places), fill, np.int64)
    wider[:, : paths.shape[1]] = paths
    return wider


class _Enumeration:
    """One enumeration: extends the prefixes that can stay within their limits, candidate by candidate."""

    def __init__(
        self,
        candidates: PatternCandidates,
        subproblems: PricingSubproblems,
        weight: FloatArray,
        limit: FloatArray,
        most: int,
        *,
        only_best: bool,
    ) -> None:
        self.candidates, self.subproblems, self.weight = candidates, subproblems, weight
        self.limit, self.most, self.only_best = limit.copy(), most, only_best
        there = subproblems.candidates >= 0
        share = np.where(there, candidates.share[subproblems.candidates], 1.0)
        each = np.where(there, weight[subproblems.candidates], np.inf)
        order = np.argsort(each / share, axis=1, kind="stable")
        self.candidate = np.take_along_axis(subproblems.candidates, order, axis=1)
        self.each = np.take_along_axis(each, order, axis=1)
        self.share = np.take_along_axis(share, order, axis=1)
        exist = candidates.most_replicas()
        self.cap = np.where(self.candidate >= 0, exist[self.candidate], 0.0)
        # The share of the load that all later candidates can carry; 0 after the last one.
        carried = np.cumsum((self.cap * self.share)[:, ::-1], axis=1)[:, ::-1]
        self.carried = np.hstack([carried, np.zeros((len(order), 1))])
        # The minimum weight per load, and per replica, of any later candidate; inf after the last one.
        beyond = np.full((len(order), 1), np.inf)
        self.per_load = np.hstack([self.each / self.share, beyond])
        least = np.minimum.accumulate(self.each[:, ::-1], axis=1)[:, ::-1]
        self.per_replica = np.hstack([least, beyond])
        self.cut = np.zeros(len(limit), np.bool_)
        self.least = np.full(len(limit), np.inf)
        self.found_of = np.zeros(len(limit), np.int64)
        self.paths: list[_Prefixes] = []

    def run(self, due: Deadline | None) -> EnumeratedPatterns:
        """Extend the prefixes by one candidate at a time until all are complete or the deadline passes."""
        prefixes = self._first()
        needs = prefixes.replicas < self.subproblems.least[prefixes.subproblem]
        done = (prefixes.missing <= 0) & ~needs & (prefixes.candidate[:, 0] >= 0)
        self._note(prefixes.take(done))
        prefixes = prefixes.take(~done)
        for rank in range(self.candidate.shape[1]):
            if not len(prefixes.subproblem):
                break
            if due is not None and due.passed:
                self.cut[prefixes.subproblem] = True
                break
            prefixes = self._step(prefixes, rank)
        return self._result()

    def _first(self) -> _Prefixes:
        """Return the initial prefix of every subproblem with a limit.

        It is empty, or has one replica on an accelerator that the server runs on now.
        """
        subproblem = np.flatnonzero(self.limit > -np.inf)
        first = self.subproblems.first[subproblem]
        one = (first >= 0).astype(np.float64)
        prefixes = _Prefixes(
            subproblem,
            self.subproblems.load[subproblem] - one * self.candidates.share[first],
            one,
            np.where(first >= 0, self.weight[first], 0.0),
            first[:, None],
            one.astype(np.int64)[:, None],
        )
        least = self._least_weight(prefixes, 0)
        self.least[subproblem] = least
        return prefixes.take(least <= self.limit[subproblem])

    def _step(self, prefixes: _Prefixes, rank: int) -> _Prefixes:
        """Complete each prefix with the candidate of a rank.

        Returns:
            The prefixes with fewer replicas of this candidate, which the next candidates must complete.
        """
        at = prefixes.subproblem, rank
        candidate, each, share, cap = self.candidate[at], self.each[at], self.share[at], self.cap[at]
        least = self.subproblems.least[prefixes.subproblem] - prefixes.replicas
        most = np.minimum(self.subproblems.most[prefixes.subproblem] - prefixes.replicas, cap)
        need = np.maximum(needed(prefixes.missing, share, least), 1.0)
        below = prefixes.weight + need * each <= self.limit[prefixes.subproblem]
        ends = np.flatnonzero(below & (need <= most))
        self._note(prefixes.take(ends).extended(candidate[ends], need[ends], each[ends], share[ends]))
        # With fewer replicas, the missing load costs at least the weight per load of the next candidate, so
        # the minimum weight is linear in the number of replicas.
        fewer = np.minimum(need - 1, most)
        fewest = self._fewest(prefixes, rank, fewer)
        numbers = np.maximum(fewer - fewest + 1, 0).astype(np.int64)
        if numbers.sum() > self.most:
            self._cut_largest(np.bincount(at[0], numbers, minlength=len(self.limit)), self.most)
            numbers[self.cut[prefixes.subproblem]] = 0
        row = np.repeat(np.arange(len(numbers)), numbers)
        number = fewest[row] + np.arange(len(row)) - (np.cumsum(numbers) - numbers)[row]
        longer = prefixes.take(row).extended(candidate[row], number, each[row], share[row])
        carries = longer.missing <= self.carried[longer.subproblem, rank + 1] * (1 + 1e-9)
        below = self._least_weight(longer, rank + 1) <= self.limit[longer.subproblem]
        return longer.take(carries & below)

    def _least_weight(self, prefixes: _Prefixes, rank: int) -> FloatArray:
        """Return the minimum weight of the patterns that start with each prefix (eq. 92).

        The rest of a pattern uses candidates from the given rank on.
        """
        at = prefixes.subproblem, rank
        more = self.subproblems.least[prefixes.subproblem] - prefixes.replicas
        least: FloatArray = prefixes.weight + np.maximum(
            _times(prefixes.missing, self.per_load[at]), _times(more, self.per_replica[at])
        )
        return least

    def _fewest(self, prefixes: _Prefixes, rank: int, most: FloatArray) -> FloatArray:
        """Return the fewest replicas of a candidate with which the minimum weight stays within the limit.

        Args:
            rank: rank of the candidate.
            most: maximum number of replicas for each prefix.
        """
        at = prefixes.subproblem, rank
        after = self.per_load[prefixes.subproblem, rank + 1]
        last = ~np.isfinite(after)
        after = np.where(last, 0.0, after)
        saved = self.share[at] * after - np.where(self.candidate[at] >= 0, self.each[at], 0.0)
        over = prefixes.weight + np.maximum(prefixes.missing, 0) * after - self.limit[prefixes.subproblem]
        fewest = np.ceil(np.divide(over, saved, out=np.zeros(len(over)), where=saved > 0) - 1e-9)
        # A prefix with missing load cannot be completed after the last candidate.
        fewest = np.where(last & (prefixes.missing > 0), most + 1, np.maximum(fewest, 0.0))
        return np.minimum(fewest, most + 1)

    def _note(self, complete: _Prefixes) -> None:
        """Store complete patterns; if there are too many, cut subproblems short."""
        if not len(complete.subproblem):
            return
        self.paths.append(complete)
        if self.only_best:
            use = self.candidates.used_by(complete.candidate, complete.count)
            fits = (use <= self.candidates.amount).all(axis=1)
            np.minimum.at(self.limit, complete.subproblem[fits], complete.weight[fits])
        self.found_of += np.bincount(complete.subproblem, minlength=len(self.limit))
        if self.found_of.sum() > self.most:
            self._cut_largest(self.found_of, self.most // 2)
            self.found_of[self.cut] = 0

    def _cut_largest(self, size: IntArray, most: int) -> None:
        """Cut the largest subproblems short until the others have at most `most` patterns, or cut all."""
        order = np.argsort(-size, kind="stable")
        left = size.sum() - np.cumsum(size[order])
        self.cut[order[: int((left > most).sum()) + 1] if self.only_best else order] = True
        self.limit = np.where(self.cut, -np.inf, self.limit)

    def _result(self) -> EnumeratedPatterns:
        none = np.zeros((0, 1), np.int64)
        paths = [(each.candidate, each.count) for each in self.paths] or [(none, none)]
        width = max(path.shape[1] for path, _ in paths)
        wide = [(_wider(p, -1, width - p.shape[1]), _wider(c, 0, width - p.shape[1])) for p, c in paths]
        return EnumeratedPatterns(
            np.concatenate([each.subproblem for each in self.paths] or [none[:, 0]]),
            np.concatenate([path for path, _ in wide]),
            np.concatenate([count for _, count in wide]),
            self.cut,
            self.least,
        )


def _times(amount: FloatArray, each: FloatArray) -> FloatArray:
    """Return `amount` times a weight that can be infinite; 0 if the amount is 0."""
    product: FloatArray = np.multiply(amount, each, out=np.zeros(len(amount)), where=amount > 0)
    return product
