"""Branches in which every server takes one pattern: what is open where servers are wholly served or left out.

Where units are few and servers take many of them, a relaxation mixes patterns in a way that no answer can. A
server of which only some patterns take units of a type takes none of it in one branch and some in the other;
then the units of a type, and the replicas of a candidate, are at most a number or at least the next. Every
pattern has to be known. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import replace

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.patterns.branching import WHOLE, Branch, Closed, Division, Tree
from optimizer.solvers.patterns.cuts import tightened
from optimizer.solvers.patterns.pool import Pool
from optimizer.solvers.patterns.program import Program, Rule
from optimizer.solvers.patterns.target import Target

ROUNDING = 1e-5
"""Distance of a sum of parts from a whole number that is rounding."""


class PackingTree(Tree):
    """The branches of a level over a pool that has every pattern that counts."""

    chosen: IntArray | None = None
    """The best answer found below the first cutoff, as options of the pool that its own were taken from."""

    def __init__(self, level: Closed, target: Target, value: float) -> None:
        """Begin with the whole level.

        Args:
            level: the level, with all options that count.
            target: how near the bound has to come.
            value: the best that is known.
        """
        self.level, self.target = level, target
        self.weight = level.root.program.measure.of(level.pool.options)
        self.shared = level.root.program.shared(level.pool.options)
        super().__init__(level.root, level.pool, level.start, target.cutoff(value), level.options)

    def division(self, branch: Branch) -> Division | None:
        """Return the branches by a server left out in part, or by what one takes in part."""
        by_server = super().division(branch)
        if by_server is not None or not branch.relaxed.served:
            return by_server
        mixed = branch.relaxed.part < 1 - WHOLE
        if not mixed.any():
            return None
        used, part = branch.relaxed.used[mixed], branch.relaxed.part[mixed]
        rule = self._by_units(used, part) or self._by_replicas(used, part)
        if rule is None:
            return None
        more = replace(rule, least=rule.most + 1, most=np.inf)
        return branch.program.ruled(rule), branch.program.ruled(more)

    def _by_units(self, used: IntArray, part: FloatArray) -> Rule | None:
        """Return a limit on the units of a type that a server takes, of those that take much of it the most.

        Args:
            used: options taken in part, shape (U,).
            part: how much of each, shape (U,).
        """
        options = self.pool.options
        servers, place = np.unique(options.server[used], return_inverse=True)
        units = options.units[used]
        taken, taking = np.zeros((2, len(servers), units.shape[1]))
        np.add.at(taken, place, part[:, None] * units)
        np.add.at(taking, place, part[:, None] * (units > 0))
        share = taken / np.maximum(self.relaxation.program.parts.limit, 1)
        for count, most in ((taking, np.zeros_like(taken)), (taken, np.floor(taken + ROUNDING))):
            open_share = np.where(np.abs(count - np.round(count)) > ROUNDING, share, 0.0)
            server, row = np.unravel_index(np.argmax(open_share), share.shape)
            if open_share[server, row] > 0:
                return Rule(int(servers[server]), most=float(most[server, row]), row=int(row))
        return None

    def _by_replicas(self, used: IntArray, part: FloatArray) -> Rule | None:
        """Return a limit on the replicas of the candidate of which they are the furthest from whole."""
        options, parts = self.pool.options, self.relaxation.program.parts
        taken = np.zeros(len(parts.row))
        each = options.part[used]
        np.add.at(taken, each[each >= 0], (part[:, None] * options.count[used])[each >= 0])
        distance = np.abs(taken - np.round(taken))
        most = int(np.argmax(distance))
        if distance[most] <= ROUNDING:
            return None
        return Rule(int(parts.server[most]), most=float(np.floor(taken[most])), part=most)

    def settle(self, branch: Branch) -> bool:
        """Take over a branch's patterns; of a mixture one that takes and weighs no more, if there is any.

        The branch is done with as its bound is then no better than the best answer by enough.
        """
        chosen = self._whole(branch) if branch.relaxed.served else None
        if chosen is None:
            return False
        cutoff = self.target.cutoff(float(self.weight[chosen].sum()))
        if cutoff < self.cutoff:
            self.chosen = self.level.options[chosen]
            self.lower(cutoff)
        return branch not in self.branches

    def _whole(self, branch: Branch) -> IntArray | None:
        """Return an option for each server of a branch that is not divided; none if that is no answer."""
        options, used, part = self.pool.options, branch.relaxed.used, branch.relaxed.part
        chosen = []
        for server in branch.program.servers:
            mine = options.server[used] == server
            rows, parts = used[mine], part[mine]
            weight = parts @ self.weight[rows] + ROUNDING * max(1.0, float(np.abs(self.weight[rows]).max()))
            shared = parts @ self.shared[rows] + ROUNDING
            could = np.flatnonzero((options.server == server) & (self.weight <= weight))
            could = could[(self.shared[could] <= shared).all(axis=1)]
            if not len(could):
                return None
            chosen.append(could[np.argmin(self.weight[could])])
        found = np.array(chosen, np.int64)
        fits = (self.shared[found].sum(axis=0) <= branch.program.limits + 1e-9).all()
        return found if fits else None


def packing_of(
    program: Program,
    pool: Pool,
    options: IntArray,
    target: Target,
    value: float,
    deadline: Deadline,
) -> PackingTree | None:
    """Return the tree of a level over some options, which are all that count, as far as cuts leave them.

    Args:
        program: the level.
        pool: all options.
        options: those that an answer can have that is better by enough.
        target: how near the bound has to come.
        value: the best that is known.
        deadline: when to stop.

    Returns:
        None if the time did not suffice for the first relaxation.
    """
    level = tightened(program, pool, options, target.cutoff(value), deadline)
    return None if level is None else PackingTree(level, target, value)
