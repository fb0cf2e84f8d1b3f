"""Unlimited plans: without capacities each server chooses for itself.

One candidate per server needs no solver; a mixture of candidates is a small problem for each server.
"""

import numpy as np

from optimizer.solvers.bounds import least_values
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.levels import CHANGES, VALUE, levels_of
from optimizer.solvers.milp import SessionFactory, solve_milp
from optimizer.solvers.patterns.alone import cheapest_alone
from optimizer.solvers.problem import Level, Problem, Solution, Status
from optimizer.solvers.seeds import ways_of_one_pool


def solve_separable(problem: Problem) -> Solution:
    """Give each server its candidate of least value, then fewest changes, then most room, then the first."""
    table = problem.table
    rows = np.flatnonzero(problem.full)
    keys = (-problem.room[rows], problem.changed[rows], problem.value[rows], table.server[rows])
    order = rows[np.lexsort(keys)]
    _, first = np.unique(table.server[order], return_index=True)
    chosen = order[first]
    replicas = np.zeros(len(table), np.int64)
    replicas[chosen] = table.num_replicas[chosen]
    return Solution(replicas, Status.optimal, "separable", levels_of(problem, replicas, proved=True))


def solve_separable_mixed(
    problem: Problem,
    session: SessionFactory,
    deadline: Deadline | None = None,
    *,
    by_patterns: bool = False,
) -> Solution:
    """Give each server its mixture of least value, then fewest changes, one server at a time.

    With patterns most servers need no solver: their patterns are searched, all at once.

    A server whose turn does not come before the deadline has the best of single pools and what runs now.

    Raises:
        SolverError: the solver failed.
    """
    deadline = deadline or Deadline.after(problem.options.time_limit_s)
    ways, replicas = ways_of_one_pool(problem).best(), np.zeros(len(problem.table), np.int64)
    replicas[ways.row] = ways.replicas
    servers, settled = np.unique(problem.table.server), 0
    if by_patterns and len(servers) and not deadline.passed:
        found = cheapest_alone(problem)
        theirs = found.settled[problem.table.server]
        replicas[theirs] = found.replicas[theirs]
        servers = servers[~found.settled[servers]]
    open_value = open_changes = 0.0
    status = Status.optimal
    for server in servers:
        if deadline.passed:
            break
        settled += 1
        alone = problem.of_servers(np.arange(len(problem.priority)) == server)
        mine = problem.table.server == server
        share = 1.0 if settled == len(servers) else 0.5
        solution = solve_milp(alone, session, deadline.share(share), replicas[mine])
        replicas[mine] = solution.replicas
        status = status if solution.status is Status.optimal else solution.status
        value, changes = solution.level(VALUE), solution.level(CHANGES)
        open_value += value.value - (value.bound or 0.0)
        open_changes += changes.value - (changes.bound or 0.0)
    if settled < len(servers):
        status = Status.feasible
        rest = ways.take(np.isin(ways.server, servers[settled:]))
        rows = np.flatnonzero(np.isin(problem.table.server, rest.server))
        least = least_values(problem, rows, all_served=True)[rest.server]
        open_value += float(np.maximum(rest.value - least, 0.0).sum())
        open_changes += float(rest.changed.sum())
    levels = [
        Level(
            level.name,
            level.value,
            level.value - {VALUE: open_value, CHANGES: open_changes}.get(level.name, 0.0),
        )
        for level in levels_of(problem, replicas, proved=True)
    ]
    return Solution(replicas, status, "separable", tuple(levels))
