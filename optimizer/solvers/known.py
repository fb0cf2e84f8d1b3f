"""What is known of a problem from the answer to another that differs in one thing.

Questions about a plan are solved one after the other; the plan's own answer is where they begin, and where a
question only takes something away its bounds hold as well. Nothing here asks a solver.
"""

from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.formulation import served_in_full
from optimizer.solvers.greedy import greedy_replicas
from optimizer.solvers.levels import VALUE, served
from optimizer.solvers.problem import Level, Problem, ServiceLevel, units_used


@dataclass(frozen=True, slots=True)
class Known:
    """The answer to another problem with the same servers and loads."""

    replicas: IntArray
    """In the candidates of the problem at hand, where it need not fit; shape (C,)."""
    left_out: BoolArray
    """Servers that it does not serve, shape (S,)."""
    levels: tuple[Level, ...]
    """What it reached, with bounds."""
    restricts: bool = False
    """Whether every answer of the problem at hand is one of the other, so that its bounds hold."""
    by_replicas: bool = False
    """Whether many patterns are left to numbers of replicas, which prove problems like the one at hand."""
    with_less: Problem | None = None
    """The other problem, if the one at hand differs in that some candidates of it carry more."""

    def left_of(self, weight: FloatArray) -> float:
        """Return the sum of a weight of servers, shape (S,), that the answer does not serve."""
        return float(weight[self.left_out].sum())

    def least_of(self, level: ServiceLevel) -> float:
        """Return what no answer of the other problem is below at a level, in its steps; 0 without a proof."""
        proved = any(each.name == level.name and each.is_proved(0.0) for each in self.levels)
        return self.left_of(level.weight) if proved else 0.0

    def bound_of(self, level: ServiceLevel) -> float:
        """Return the bound of a level of the other problem, in its steps; minus infinity without a proof."""
        bound = next(each.bound for each in self.levels if each.name == level.name)
        return -np.inf if bound is None else level.steps_of(bound, self.left_out)

    @property
    def least_value(self) -> float:
        """What the value of no answer of the other problem is below that is as good at the levels before."""
        bound = next(level.bound for level in self.levels if level.name == VALUE)
        return -np.inf if bound is None else bound

    def carried_before(self, problem: Problem) -> FloatArray:
        """Return what a replica of each candidate carries in the other problem [requests/s], shape (C,).

        Minus infinity where that does not have the candidate, or not with any number of replicas.
        """
        carried = np.full(len(problem.table), -np.inf)
        if self.with_less is None:
            return carried
        less, now = self.with_less.table, problem.table
        accelerators = 1 + max(int(table.accelerator.max(initial=0)) for table in (less, now))
        then = {
            pair: rate
            for pair, rate, divisible in zip(
                (less.server * accelerators + less.accelerator).tolist(),
                less.max_rate_rps.tolist(),
                less.meets_targets_below_max_rate.tolist(),
                strict=True,
            )
            if divisible
        }
        pairs = (now.server * accelerators + now.accelerator).tolist()
        return np.array([then.get(pair, -np.inf) for pair in pairs])


def differing(problem: Problem, other: Problem) -> BoolArray:
    """Return the servers whose candidates are not the same in two problems, shape (S,)."""
    differs = np.zeros(len(problem.priority), np.bool_)
    for s in range(len(differs)):
        mine = [_of_server(each, s) for each in (problem, other)]
        differs[s] = mine[0].shape != mine[1].shape or not (mine[0] == mine[1]).all()
    return differs


def _of_server(problem: Problem, server: int) -> FloatArray:
    """Return what is chosen from for a server, a row for each candidate."""
    table, rows = problem.table, np.flatnonzero(problem.table.server == server)
    columns = (
        table.accelerator,
        table.num_replicas,
        table.max_rate_rps,
        table.meets_targets_below_max_rate,
        problem.full,
    )
    return np.stack([column[rows].astype(np.float64) for column in columns])


def repaired(problem: Problem, replicas: IntArray) -> IntArray:
    """Return an answer within the units that exist: servers that do not fit are given others, greedily.

    A server that lacks some of its pools, because a question takes their accelerator away, is one of these.
    Of a type of which too many units are taken servers give way from the lowest priority up, those that take
    the fewest units first among equals.
    """
    table = problem.table
    short = served(problem, replicas) & ~served_in_full(problem, replicas)
    fitting = np.where(short[table.server], 0, replicas)
    if problem.capacity is None:
        return fitting
    over = units_used(problem, fitting, len(problem.capacity)) - problem.capacity
    units = fitting * table.units_per_replica
    for kind in np.flatnonzero(over > 0).tolist():
        rows = np.flatnonzero((units > 0) & (table.kind == kind))
        for row in rows[np.lexsort((units[rows], -problem.priority[table.server[rows]]))].tolist():
            if over[kind] <= 0:
                break
            over[kind] -= units[row]
            fitting[table.server == table.server[row]] = 0
    left = problem.capacity - units_used(problem, fitting, len(problem.capacity))
    others = ~served(problem, fitting)
    rest = replace(problem.of_servers(others), capacity=left)
    fitting[others[table.server]] = greedy_replicas(rest)
    return fitting
