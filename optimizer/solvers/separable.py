"""Unlimited plans: without capacities each server chooses for itself."""

import numpy as np

from optimizer.solvers.bounds import least_values
from optimizer.solvers.branch_and_price.unlimited import cheapest_patterns
from optimizer.solvers.compact import SessionFactory, solve_milp
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.levels import CHANGES, VALUE, levels_of
from optimizer.solvers.problem import Level, Problem, Solution, Status
from optimizer.solvers.warm_starts import Ways, ways_of_one_pool


def solve_separable(problem: Problem) -> Solution:
    """Give each server its candidate of least value, then fewest changes, then most room, then the first."""
    table = problem.table
    rows = np.flatnonzero(problem.full)
    goals = ~table.reserved[rows], problem.off_preferred_total[rows]
    keys = (-problem.room[rows], problem.changed[rows], problem.value[rows], *goals[::-1], table.server[rows])
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

    With patterns most servers need no solver: their patterns are enumerated, all at once.

    A server whose turn does not come before the deadline has the best of single pools and what runs now.

    Raises:
        SolverError: the solver failed.
    """
    deadline = deadline or Deadline.after(problem.options.time_limit_s)
    ways, replicas = ways_of_one_pool(problem).best(), np.zeros(len(problem.table), np.int64)
    replicas[ways.row] = ways.replicas
    servers = np.unique(problem.table.server)
    if by_patterns and not problem.goals and len(servers) and not deadline.passed:
        found = cheapest_patterns(problem)
        theirs = found.settled[problem.table.server]
        replicas[theirs] = found.replicas[theirs]
        servers = servers[~found.settled[servers]]
    unproved = dict.fromkeys([*(goal.name for goal in problem.goals), VALUE, CHANGES], 0.0)
    status = Status.optimal
    for place, server in enumerate(servers.tolist()):
        if deadline.passed:
            status = Status.feasible
            rest = ways.take(np.isin(ways.server, servers[place:]))
            unproved[VALUE] += _unproved_value(problem, rest)
            unproved[CHANGES] += float(rest.changed.sum())
            break
        mine = problem.table.server == server
        alone = problem.of_servers(np.arange(len(problem.priority)) == server)
        share = 1.0 if server == servers[-1] else 0.5
        solution = solve_milp(alone, session, deadline.share(share), replicas[mine])
        replicas[mine] = solution.replicas
        status = status if solution.status is Status.optimal else solution.status
        for name in unproved:
            level = solution.level(name)
            unproved[name] += level.value - (level.bound or 0.0)
    levels = [
        Level(level.name, level.value, level.value - unproved.get(level.name, 0.0))
        for level in levels_of(problem, replicas, proved=True)
    ]
    return Solution(replicas, status, "separable", tuple(levels))


def _unproved_value(problem: Problem, ways: Ways) -> float:
    """Return by how much the value of servers may be above what any answer has of them [cents/h]."""
    rows = np.flatnonzero(np.isin(problem.table.server, ways.server))
    least = least_values(problem, rows, all_served=True)[ways.server]
    return float(np.maximum(ways.value - least, 0.0).sum())
