"""A level with servers that are wholly served or left out: a tree of relaxations, each priced as the first.

A relaxation may leave out parts of servers, which no answer can. With a server that it divides served in one
branch and left out in the other, few branches bring the bound close to the best answer. Equation numbers
refer to ``docs/math.md``.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.patterns.pool import Pool
from optimizer.solvers.patterns.program import Program
from optimizer.solvers.patterns.relaxation import Relaxation, Relaxed

WHOLE = 1e-6
"""Part of a server that counts as none of it, or as all."""


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """A level with some servers served and some left out, and what its relaxation says."""

    program: Program
    relaxed: Relaxed
    bound: float
    """What its answers measure at least: as its relaxation says, or that of a branch before it."""

    @property
    def divided(self) -> int | None:
        """The server that is the furthest from being served or left out as a whole; none: all are whole."""
        part = self.relaxed.left_out
        distance = np.minimum(part, 1 - part)
        server = int(np.argmax(distance))
        return server if distance[server] > WHOLE else None


def branches_of(root: Branch, pool: Pool, start: IntArray, cutoff: float, deadline: Deadline) -> list[Branch]:
    """Return the branches that can hold an answer below a cutoff, the one of the least bound first (eq. 131).

    That branch is divided, until it leaves no server out in part or the time ends. Where none is returned, no
    answer is below the cutoff.

    Args:
        root: the level.
        pool: the options; patterns that are found on the way are added.
        start: options to begin with.
        cutoff: what an answer has to be below.
        deadline: when to stop.

    Raises:
        SolverError: the solver failed.
    """
    return _Tree(root, pool, start, cutoff, deadline).grown()


class _Tree:
    """The branches of a level, and the relaxations that they share."""

    def __init__(self, root: Branch, pool: Pool, start: IntArray, cutoff: float, deadline: Deadline) -> None:
        self.cutoff, self.deadline = cutoff, deadline
        self.relaxation = Relaxation(root.program, pool, start)
        self.branches = [root] if root.bound < cutoff else []

    def grown(self) -> list[Branch]:
        """Divide the branch of the least bound as long as there is a server to divide it by."""
        while self.branches:
            best = self.branches[0]
            server = best.divided
            if server is None:
                break
            parts = [self._part(best, server, served=served) for served in (False, True)]
            found = [part for part in parts if part is not None]
            if len(found) < len(parts):
                break
            kept = [part for part in found if part.bound < self.cutoff]
            self.branches = sorted([*self.branches[1:], *kept], key=lambda branch: branch.bound)
        return self.branches

    def _part(self, branch: Branch, server: int, *, served: bool) -> Branch | None:
        """Return a branch with a server or without; none if the time did not suffice."""
        program = branch.program.branch(server, served=served)
        relaxed = self.relaxation.solve(program, self.deadline, self.cutoff)
        if relaxed is None or not relaxed.finished:
            return None
        return Branch(program, relaxed, max(relaxed.bound, branch.bound))
