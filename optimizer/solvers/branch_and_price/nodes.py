"""Branching on unserved servers: a tree of nodes, each with its own relaxation.

A relaxation can leave fractions of servers unserved, but no solution can. If a fractional server is served in
one child node and unserved in the other, a few nodes bring the bound close to the optimum. Equation numbers
refer to ``docs/math.md``.
"""

from bisect import insort
from dataclasses import dataclass

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.solvers.branch_and_price.generation import MasterSolution, RestrictedMaster
from optimizer.solvers.branch_and_price.master import MasterProblem
from optimizer.solvers.branch_and_price.pool import ColumnPool, reduced_costs
from optimizer.solvers.deadline import Deadline

INTEGRAL = 1e-6
"""Distance of an unserved fraction from 0 or 1 that counts as rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node of the branch-and-bound tree, and its relaxation."""

    master: MasterProblem
    relaxed: MasterSolution
    bound: float
    """Lower bound of the node's solutions: that of its relaxation or of its parent, whichever is larger."""
    depth: int = 0
    columns: IntArray | None = None
    """The only relevant columns of the pool, over which the relaxation was solved; None: all columns."""

    @classmethod
    def root(cls, master: MasterProblem, relaxed: MasterSolution) -> "Node":
        """Return the root node of a level."""
        return cls(master, relaxed, relaxed.bound)


class BranchTree:
    """The open nodes of a level, sorted by bound (eq. 131)."""

    def __init__(self, root: Node, pool: ColumnPool, cutoff: float) -> None:
        """Start the tree with its root node.

        Args:
            root: the level.
            pool: the columns; those that pricing finds are added.
            cutoff: only solutions below it are of use.
        """
        self.cutoff, self.pool = cutoff, pool
        self.nodes: list[Node] = []
        self.relaxation = RestrictedMaster(root.master, pool, root.relaxed.used, root.columns)
        self._keep(root)

    @property
    def bound(self) -> float:
        """Lower bound of the level: that of the best open node, at most the cutoff."""
        return min(self.cutoff, self.nodes[0].bound) if self.nodes else self.cutoff

    def grow(self, deadline: Deadline) -> None:
        """Branch on the node of least bound until no server in it is fractionally unserved.

        Among equal nodes, the deepest one is used.

        Raises:
            SolverError: the solver failed.
        """
        while self.nodes:
            best = self.nodes[0]
            server = _fractional_server(best, self.pool)
            if server is None:
                return
            children = [best.master.branch(server, served=served) for served in (False, True)]
            solved = [self.relaxation.solve(child, deadline, self.cutoff) for child in children]
            if not all(relaxed is not None and relaxed.finished for relaxed in solved):
                return
            del self.nodes[0]
            for child, relaxed in zip(children, solved, strict=True):
                if relaxed is not None:
                    bound = max(relaxed.bound, best.bound)
                    self._keep(Node(child, relaxed, bound, best.depth + 1, best.columns))

    def _keep(self, node: Node) -> None:
        if node.bound < self.cutoff:
            insort(self.nodes, node, key=lambda each: (each.bound, -each.depth))


def _fractional_server(node: Node, pool: ColumnPool) -> int | None:
    """Return the server whose unserved fraction is nearest to one half; None if no server is fractional."""
    part = unserved_fractions(node, pool)
    distance = np.minimum(part, 1 - part)
    distance[node.master.forced_served | node.master.forced_unserved] = 0.0
    server = int(np.argmax(distance))
    return None if distance[server] <= INTEGRAL else server


def reduced_cost_slack(node: Node, pool: ColumnPool) -> tuple[FloatArray, FloatArray]:
    """Return how far a solution that uses a column is at least above the node's bound.

    Returns:
        This increase for each column of the pool, inf for columns that the node does not allow; and the least
            reduced cost of each server, inf for servers without columns.
    """
    columns, master = pool.columns, node.master
    allowed = master.allowed(columns) & ~pool.excluded
    if node.columns is not None:
        among = np.zeros(len(columns), np.bool_)
        among[node.columns] = True
        allowed &= among
    reduced = np.where(allowed, reduced_costs(master, columns, node.relaxed.duals), np.inf)
    least = np.full(len(pool.problem.priority), np.inf)
    np.minimum.at(least, columns.server, reduced)
    slack = reduced - np.where(np.isfinite(least), least, 0.0)[columns.server]
    return np.maximum(slack, 0.0), least


def unserved_fractions(node: Node, pool: ColumnPool) -> FloatArray:
    """Return the unserved fraction of each server in the relaxation of a node, shape (S,)."""
    used = node.relaxed.used
    nothing = ~pool.columns.served[used]
    servers, parts = pool.columns.server[used[nothing]], node.relaxed.part[nothing]
    return np.bincount(servers, parts, len(node.master.active)).astype(np.float64)
