"""The choice as a mixed-integer model; here of plans of one accelerator per server.

Takes a `Problem` with or without capacities, gives a `Formulation`: the model as arrays, and what its
variables mean. Equation numbers refer to ``docs/math.md``.
"""

import numpy as np

from optimizer.solvers.formulation import Formulation
from optimizer.solvers.mixed_model import mixed_model
from optimizer.solvers.model_columns import card_units, fitting_candidates
from optimizer.solvers.model_rows import ModelRows, add_cards, add_limits
from optimizer.solvers.problem import Problem


def formulate(problem: Problem) -> Formulation:
    """Write the choice as a model: of numbers of replicas for mixed plans and routes."""
    return mixed_model(problem) if problem.is_mixed else _single(problem)


def _single(problem: Problem) -> Formulation:
    """Write the choice of at most one column per server (eq. 36-38)."""
    table = problem.table
    own, (units, most_units) = fitting_candidates(problem), card_units(problem)
    columns = np.concatenate([own, units])
    servers, row = np.unique(table.server[own], return_inverse=True)
    n, m = len(columns), len(servers)
    rows = ModelRows()
    rows.add(
        np.ones(m),
        np.ones(m),
        (row, np.arange(len(own)), np.ones(len(own))),
        (np.arange(m), np.arange(n, n + m), np.ones(m)),
    )
    add_cards(rows, problem, columns)
    shared = add_limits(rows, problem, columns, table.num_replicas[columns], n + m)
    return Formulation(
        model=rows.model(
            np.concatenate(
                [np.ones(len(own)), most_units, np.ones(m), problem.tiers.size[problem.tiers.later]]
            )
        ),
        columns=columns,
        replicas_each=table.num_replicas[columns],
        column_servers=table.server[columns],
        servers=servers,
        value=np.concatenate([problem.model_value[columns], problem.none_value[servers], problem.tiers.more]),
        value_offset=0.0,
        changed=np.concatenate(
            [
                problem.changed[own],
                np.zeros(len(units)),
                problem.none_changed[servers],
                np.zeros(len(problem.tiers.later)),
            ]
        ).astype(np.float64),
        changed_offset=0.0,
        staying=np.zeros(0, np.int64),
        keeping=np.zeros(0, np.int64),
        shared=shared,
        unreserved_columns=~table.reserved[columns],
        unreserved_servers=np.zeros(0, np.int64),
        steps=len(problem.tiers.later),
        off_preferred=problem.off_preferred_total[columns],
    )
