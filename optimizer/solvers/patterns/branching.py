"""A level divided into branches: a tree of relaxations, each of which is priced like the first.

A relaxation may leave out parts of servers, which no answer can. With a server that it divides served in one
branch and left out in the other, few branches bring the bound close to the best answer. Equation numbers
refer to ``docs/math.md``.
"""

from bisect import insort
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.patterns.pool import Pool, reduced_costs
from optimizer.solvers.patterns.program import Program
from optimizer.solvers.patterns.relaxation import Relaxation, Relaxed

START = 1_500
"""Options beside those that a relaxation uses that one like it begins with, at most..."""
START_EACH = 10
"""... and for each server: many make every step slower, and what is missing is found by its price."""
WHOLE = 1e-6
"""Part of a server that counts as none of it, or as all."""

Division = tuple[Program, Program]
"""Two branches of which every answer of a level is in one."""


class Bounded(Protocol):
    """A part of a level's answers."""

    @property
    def bound(self) -> float:
        """What they measure at least."""


Part = TypeVar("Part", bound=Bounded)


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """A part of a level's answers, and what its relaxation says."""

    program: Program
    relaxed: Relaxed
    bound: float
    """What its answers measure at least: as its relaxation says, or that of a branch before it."""
    depth: int = 0
    """How often the level was divided."""
    options: IntArray | None = None
    """Options of the pool that its relaxation was solved over, as no others count; none: all."""

    @classmethod
    def whole(cls, program: Program, relaxed: Relaxed) -> "Branch":
        """Return a level that is not divided."""
        return cls(program, relaxed, relaxed.bound)

    def among(self, options: IntArray) -> "Branch":
        """Return a branch of a pool of some options in the pool that these were taken from."""
        return replace(self.placed(options), options=options)

    def placed(self, place: IntArray) -> "Branch":
        """Return the branch with options that stand elsewhere, each in its place."""
        return replace(self, relaxed=replace(self.relaxed, used=place[self.relaxed.used]))


@dataclass(frozen=True, slots=True, eq=False)
class Closed:
    """A level over a pool of its own, with all options that count."""

    root: Branch
    pool: Pool
    options: IntArray
    """Where they stand in the pool that they were taken from."""

    @property
    def start(self) -> IntArray:
        """Options for another relaxation to begin with: those that this one uses, or nearly uses."""
        relaxed = self.root.relaxed
        reduced = reduced_costs(self.root.program, self.pool.options, relaxed.prices)
        others = min(START, START_EACH * len(self.root.program.servers))
        return np.union1d(relaxed.used, np.argsort(reduced, kind="stable")[:others])


class BestFirst(Generic[Part]):
    """The parts of a level that can hold an answer below a cutoff, the one of the least bound first.

    Where none is left, no answer is below the cutoff (eq. 131).
    """

    def __init__(self, cutoff: float) -> None:
        """Begin without any part.

        Args:
            cutoff: what an answer has to be below.
        """
        self.cutoff = cutoff
        self.branches: list[Part] = []

    @property
    def best(self) -> Part | None:
        """The part of the least bound; none if none is left."""
        return self.branches[0] if self.branches else None

    @property
    def bound(self) -> float:
        """What no answer is below, unless the cutoff is less."""
        return self.cutoff if self.best is None else min(self.cutoff, self.best.bound)

    def keep(self, part: Part) -> None:
        """Take in a part if it can hold an answer below the cutoff."""
        if part.bound < self.cutoff:
            insort(self.branches, part, key=self.rank)

    def lower(self, cutoff: float) -> None:
        """Look for answers below a cutoff that is no higher than the one before."""
        self.cutoff = cutoff
        self.branches = [part for part in self.branches if part.bound < cutoff]

    def rank(self, part: Part) -> tuple[float, ...]:
        """Return by what the parts are ordered."""
        return (part.bound,)


class Tree(BestFirst[Branch]):
    """The branches of a level by servers: served in one, left out in the other."""

    def __init__(
        self, root: Branch, pool: Pool, start: IntArray, cutoff: float, options: IntArray | None = None
    ) -> None:
        """Begin with the whole level.

        Args:
            root: the level.
            pool: the options; patterns that are found on the way are added.
            start: options to begin with.
            cutoff: what an answer has to be below.
            options: where they stand in the pool that they were taken from; none: it is that pool.
        """
        super().__init__(cutoff)
        self.pool, self.options = pool, options
        self.relaxation = Relaxation(root.program, pool, start)
        self.keep(root)

    @property
    def found(self) -> list[Branch]:
        """The branches, in the pool that their options were taken from."""
        if self.options is None:
            return self.branches
        return [branch.among(self.options) for branch in self.branches]

    def rank(self, part: Branch) -> tuple[float, ...]:
        """Put the deepest first of branches of the same bound."""
        return part.bound, -part.depth

    def grow(self, deadline: Deadline) -> None:
        """Divide the branch of the least bound, the deepest of equal ones, as long as it can be.

        Raises:
            SolverError: the solver failed.
        """
        while self.branches:
            division = self.division(self.branches[0])
            if division is None:
                if self.settle(self.branches[0]):
                    continue
                return
            found = [self._branch(program, deadline) for program in division]
            if None in found:
                return
            del self.branches[0]
            for branch in found:
                if branch is not None:
                    self.keep(branch)

    def settle(self, branch: Branch) -> bool:
        """Take over what a branch holds that cannot be divided; return whether it is done with."""
        del branch
        return False

    def division(self, branch: Branch) -> Division | None:
        """Return the branches by the server that is the furthest from whole; none: there is none."""
        left_out, program = left_out_of(branch, self.pool), branch.program
        distance = np.minimum(left_out, 1 - left_out)
        distance[program.to_be_served | program.left_out] = 0.0
        server = int(np.argmax(distance))
        if distance[server] <= WHOLE:
            return None
        return program.branch(server, served=False), program.branch(server, served=True)

    def _branch(self, program: Program, deadline: Deadline) -> Branch | None:
        """Return what a part of the best branch's answers comes to; none if the time did not suffice."""
        relaxed = self.relaxation.solve(program, deadline, self.cutoff)
        if relaxed is None or not relaxed.finished:
            return None
        before = self.branches[0]
        return Branch(program, relaxed, max(relaxed.bound, before.bound), before.depth + 1)


def over_of(branch: Branch, pool: Pool) -> tuple[FloatArray, FloatArray]:
    """Return by how much answers of a branch with an option are above its relaxation's bound at least.

    Returns:
        That for each option of the pool, infinity for those that it does not allow; and the least reduced
        cost of each server, infinity for those without options.
    """
    options, program = pool.options, branch.program
    allowed = program.allowed(options) & ~pool.gone
    if branch.options is not None:
        among = np.zeros(len(options), np.bool_)
        among[branch.options] = True
        allowed &= among
    reduced = np.where(allowed, reduced_costs(program, options, branch.relaxed.prices), np.inf)
    least = np.full(len(pool.problem.priority), np.inf)
    np.minimum.at(least, options.server, reduced)
    over = reduced - np.where(np.isfinite(least), least, 0.0)[options.server]
    return np.maximum(over, 0.0), least


def left_out_of(branch: Branch, pool: Pool) -> FloatArray:
    """Return the part of each server that a branch's relaxation leaves out, shape (S,)."""
    used = branch.relaxed.used
    nothing = ~pool.options.served[used]
    servers, parts = pool.options.server[used[nothing]], branch.relaxed.part[nothing]
    return np.bincount(servers, parts, len(branch.program.in_play)).astype(np.float64)
