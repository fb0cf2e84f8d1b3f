"""Search of a level for solutions with a new column, if a related problem bounds all other solutions.

A related problem with fewer columns contains every solution without a new column. Every other solution uses a
new column of some server. If that server is restricted to its new columns, the relaxation is far tighter (eq.
133).
"""

import numpy as np

from optimizer.arrays import BoolArray, IntArray
from optimizer.solvers.branch_and_price.columns import PatternColumns
from optimizer.solvers.branch_and_price.generation import generate_columns
from optimizer.solvers.branch_and_price.search import MAX_KNOWN, LevelSearch
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.related import RelatedSolution, differing

SHARE = 0.7
"""Fraction of a level's remaining time that the search for each server can use."""


def search_new_columns(
    search: LevelSearch, related: RelatedSolution, unchanged: float, deadline: Deadline
) -> None:
    """Search for a better solution that uses a new column, and bound the level by the result.

    Args:
        related: solution of a problem that has fewer columns.
        unchanged: lower bound of solutions without a new column; -inf if unproved.
        deadline: deadline of the level.

    Raises:
        SolverError: the solver failed.
    """
    less, problem = related.with_less, search.solver.problem
    if search.proved or deadline.passed or not search.feasible or unchanged < search.cutoff or not less:
        return
    servers = differing(problem, less)
    columns = search.columns_below_cutoff(MAX_KNOWN, of=servers)
    if columns is None:
        return
    server = search.pool.columns.server
    columns = search.nondominated_columns(columns[servers[server[columns]]])
    new = columns[_is_new(search, related, search.pool.columns.take(columns))]
    bound = unchanged
    for s in np.unique(server[new]).tolist():
        among = _bound_with(search, new[server[new] == s], deadline.share(SHARE))
        bound = min(bound, among)
    search.bound = max(search.bound, min(bound, search.value))


def _bound_with(search: LevelSearch, new: IntArray, deadline: Deadline) -> float:
    """Return a lower bound of the solutions that use one of the given columns of a server.

    A better solution that is found becomes the incumbent.
    """
    with search.pool.restricted_to(new):
        relaxed = generate_columns(search.master, search.pool, search.own, deadline)
        if relaxed is None:
            return -np.inf
        among = LevelSearch(search.solver, search.master, search.pool, relaxed)
        among.branch(deadline)
        among.solve_window(deadline, only_complete=False)
    search.take_over()
    return among.bound


def _is_new(search: LevelSearch, related: RelatedSolution, columns: PatternColumns) -> BoolArray:
    """Return a mask of the columns that the related problem lacks, shape (P,)."""
    problem, carried = search.solver.problem, related.carried_before(search.solver.problem)
    used, row = columns.candidate >= 0, search.pool.candidates.row[np.maximum(columns.candidate, 0)]
    before = (columns.count * np.where(used, carried[row], 0.0)).sum(axis=1)
    return np.asarray(columns.served & (before < problem.grown_load_rps[columns.server]), np.bool_)
