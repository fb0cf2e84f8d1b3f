"""The planning problem as a mixed-integer model: one accelerator per server, or numbers of replicas.

A `Problem`, with or without limits, becomes a `Formulation`: the model as arrays, and the meaning of its
variables. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Callable, Iterator

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates.table import Source
from optimizer.milp.model import COVER_SCALE, ModelRows
from optimizer.quantities import counted
from optimizer.solvers.formulation import Formulation
from optimizer.solvers.levels import served, unchanged, without_reserve
from optimizer.solvers.model_columns import current_allocations, mixed_columns, single_columns
from optimizer.solvers.problem import Problem
from optimizer.tolerances import COVER
from optimizer.topologies.topology import Label, Values, Variables


def formulate(problem: Problem) -> Formulation:
    """Return the model of a problem.

    It has numbers of replicas if plans are mixed or a topology requires it.
    """
    return _mixed(problem) if problem.is_mixed else _single(problem)


def _single(problem: Problem) -> Formulation:
    """Return the model that chooses at most one column per server (eq. 36-38)."""
    table, (columns, most, each) = problem.table, single_columns(problem)
    own = np.flatnonzero(table.source[columns] != Source.units)
    servers = _served_with(problem, np.unique(table.server[columns[own]]))
    single = Formulation(problem, columns, most, each, servers)
    single.unreserved = np.flatnonzero(~table.reserved[columns])
    single.unreserved_servers = single.column_servers[single.unreserved]
    changed = np.where(table.source[columns] != Source.units, problem.changed[columns], 0.0)
    _add_columns(single, problem.model_value[columns], changed)
    alone = ~problem.served_together[servers]
    u = _add_unserved(single, problem.none_value[servers] * alone, problem.is_running[servers] * alone)
    own = own[alone[single.row[own]]]
    one, block = np.ones(np.count_nonzero(alone)), np.cumsum(alone) - 1
    one_of = block[single.row[own]], own, np.ones(len(own))
    single.rows.add(one, one, one_of, (np.arange(len(one)), u[alone], one))
    for rows in single.topology_blocks():
        single.rows.join(rows)
    single.add_limits()
    return single


def _mixed(problem: Problem) -> Formulation:
    """Return the model that chooses a number of replicas for every column (eq. 39-48)."""
    columns, most, each = mixed_columns(problem)
    servers = _served_with(problem, np.unique(problem.table.server[columns]))
    mixed = Formulation(problem, columns, most, each, servers)
    counts = problem.counted[servers]
    mixed.value_offset, mixed.changed_offset = float(problem.none_value[servers].sum()), float(counts.sum())
    _add_columns(mixed, (problem.replica_value[columns] - problem.discount[columns]) * each)
    leaves = problem.is_running[servers] - counts
    leaves[problem.served_together[servers]] = 0.0
    _add_unserved(mixed, 0.0, leaves)
    blocks = [_staying(mixed), _keeping(mixed), *mixed.topology_blocks()]
    mixed.unreserved_servers = wanting = servers[problem.reserve.wanted[servers]]
    labels = _labels("r", "is served without its reserve", wanting)
    mixed.unreserved = mixed.add(
        Variables(np.ones(len(wanting)), lambda replicas: without_reserve(problem, replicas)[wanting], labels)
    )
    _add_covering(mixed)
    _add_reserves_of_one_pool(mixed)
    _add_replica_limits(mixed)
    _add_exclusions(mixed)
    mixed.add_limits()
    for rows in blocks:
        mixed.rows.join(rows)
    return mixed


def _served_with(problem: Problem, servers: IntArray) -> IntArray:
    """Return the given servers plus those that share a load with them, which can lack candidates."""
    joint = [g for each in problem.topologies for g in each.groups() if each.served_by_rows[[*g]].all()]
    partners = [s for group in joint if np.isin(group, servers).any() for s in group]
    return np.union1d(servers, np.array(partners, np.int64))


def _add_columns(formulation: Formulation, value: FloatArray, changes: Values | float = 0.0) -> None:
    formulation.add(
        Variables(
            formulation.most.astype(np.float64),
            lambda replicas: replicas[formulation.columns] // formulation.replicas_each,
            lambda: _column_labels(formulation),
            value,
            changes,
        )
    )


def _column_labels(formulation: Formulation) -> Iterator[Label]:
    table, mixed = formulation.problem.table, formulation.problem.options.heterogeneous
    for c, each in zip(formulation.columns.tolist(), formulation.replicas_each.tolist(), strict=True):
        server, accelerator = int(table.server[c]), int(table.accelerator[c])
        label, meaning = f"x_{server}_{accelerator}", f"takes {counted(each, 'replica')}"
        yield label, "number of replicas" if mixed else meaning, server, accelerator


def _labels(letter: str, meaning: str, servers: IntArray) -> Callable[[], Iterator[Label]]:
    """Return a function that yields the label of a variable for each of some servers.

    Args:
        letter: letter of the variable.
        meaning: meaning of the variable, for the legend.
    """
    return lambda: ((f"{letter}_{server}", meaning, server, -1) for server in servers.tolist())


def _add_unserved(formulation: Formulation, value: FloatArray | float, changes: Values) -> IntArray:
    problem, servers = formulation.problem, formulation.servers
    labels = _labels("u", "is unserved", servers)
    return formulation.add(
        Variables(np.ones(len(servers)), lambda x: ~served(problem, x)[servers], labels, value, changes)
    )


def _staying(formulation: Formulation) -> ModelRows:
    """Add the variables s, which are 1 if a server keeps a replica on a current accelerator (eq. 43).

    Returns:
        The rows that allow s = 1 only with such a replica.
    """
    problem, columns, servers = formulation.problem, formulation.columns, formulation.column_servers
    here = np.flatnonzero(problem.on_current[columns] & (problem.current_cost[servers] > 0))
    several = problem.current_pools[servers[here]] > 1
    own = np.where(several, servers[here], len(problem.priority) + np.arange(len(here)))
    _, first, of = np.unique(own, return_index=True, return_inverse=True)
    staying, every, one, rows = servers[here[first]], np.arange(len(first)), np.ones(len(first)), ModelRows()
    s = formulation.add(
        Variables(
            one,
            lambda replicas: np.isin(every, of[replicas[columns[here]] > 0]),
            _labels("s", "keeps a pool where it runs now", staying),
            -problem.leaving_value[staying],
        )
    )
    rows.add(-np.inf * one, 0 * one, (every, s, one), (of, here, -np.ones(len(here))))
    return rows


def _keeping(formulation: Formulation) -> ModelRows:
    """Add the variables k, where k = 1 fixes a server to exactly its current replicas (eq. 44-46)."""
    problem, columns, each, rows = (
        formulation.problem,
        formulation.columns,
        formulation.replicas_each,
        ModelRows(),
    )
    now = problem.current_count[columns]
    exact, of = current_allocations(problem, columns[now <= formulation.most * each])
    exact = np.searchsorted(columns, exact)
    _, first = np.unique(of, return_index=True)
    servers, every, one = formulation.column_servers[exact[first]], np.arange(len(exact)), np.ones(len(exact))
    k = formulation.add(
        Variables(
            np.ones(len(first)),
            lambda replicas: unchanged(problem, replicas)[servers] & (replicas[columns[exact[first]]] > 0),
            _labels("k", "keeps exactly what it has", servers),
            changes=-1.0,
        )
    )
    most, count = formulation.most[exact].astype(np.float64), (now / each)[exact]
    rows.add(0 * one, np.inf * one, (every, exact, one), (every, k[of], -count))
    rows.add(-np.inf * one, most, (every, exact, one), (every, k[of], most - count))
    others_of = formulation.row[:, None] == formulation.row[exact[first]]
    others_of[exact, of] = False
    others, row = np.nonzero(others_of)
    total = np.bincount(row, formulation.most[others], minlength=len(first)).astype(np.float64)
    endless = np.full(len(first), -np.inf)
    rows.add(endless, total, (row, others, np.ones(len(others))), (np.arange(len(first)), k, total))
    return rows


def _block_of(formulation: Formulation, some: IntArray) -> tuple[IntArray, IntArray]:
    """Return a row number for each selected server (-1 for others), and the columns of these servers."""
    block = np.full(len(formulation.servers), -1)
    block[some] = np.arange(len(some))
    return block, np.flatnonzero(block[formulation.row] >= 0)


def _add_covering(formulation: Formulation) -> None:
    """Require that the pools of served servers carry the load, with or without the reserve.

    Equation 39 includes the reserve, and equation 145 is without it.
    """
    problem, reserve, table = formulation.problem, formulation.problem.reserve, formulation.problem.table
    load = problem.grown_load_rps[formulation.servers]
    bare = 1 / problem.reserve.growth[formulation.servers]
    loaded = np.flatnonzero((load > 0) & ~problem.served_by_rows[formulation.servers])
    block, entries = _block_of(formulation, loaded)
    row, columns = formulation.row[entries], formulation.columns[entries]
    share = np.minimum(table.max_rate_rps[columns] / load[row], 1.0)
    sized = np.where(table.reserved[columns], 1.0, bare[row])
    wants = np.flatnonzero((reserve.wanted & ~reserve.one_pool)[formulation.servers])
    without = formulation.unreserved[~reserve.one_pool[formulation.unreserved_servers]]
    formulation.rows.add(
        np.full(len(loaded), COVER_SCALE * (1 - COVER)),
        np.full(len(loaded), np.inf),
        (block[row], entries, COVER_SCALE * np.where(problem.divisible[columns], share, sized)),
        (np.arange(len(loaded)), formulation.unserved[loaded], np.full(len(loaded), COVER_SCALE)),
        (block[wants], without, COVER_SCALE * (1 - bare[wants])),
    )


def _add_reserves_of_one_pool(formulation: Formulation) -> None:
    """Require a pool sized with the reserve, unless a server is unserved or without reserve (eq. 238)."""
    reserve, columns = formulation.problem.reserve, formulation.columns
    some = np.flatnonzero(reserve.one_pool[formulation.servers])
    block, entries = _block_of(formulation, some)
    entries = entries[formulation.problem.table.reserved[columns[entries]]]
    without = formulation.unreserved[reserve.one_pool[formulation.unreserved_servers]]
    every, one = np.arange(len(some)), np.ones(len(some))
    with_reserve = block[formulation.row[entries]], entries, np.ones(len(entries))
    unserved = every, formulation.unserved[some], one
    formulation.rows.add(one, np.full(len(some), np.inf), with_reserve, unserved, (every, without, one))


def _add_replica_limits(formulation: Formulation) -> None:
    """Limit the numbers of replicas of served servers; unserved servers have none (eq. 40, 41)."""
    problem, m = formulation.problem, len(formulation.servers)
    least = problem.min_replicas[formulation.servers].astype(np.float64)
    together = np.bincount(formulation.row, formulation.most * formulation.replicas_each, minlength=m)
    most = np.minimum(problem.max_replicas[formulation.servers].astype(np.float64), together)
    replicas = (
        formulation.row,
        np.arange(len(formulation.columns)),
        formulation.replicas_each.astype(np.float64),
    )
    every, endless = np.arange(m), np.full(m, np.inf)
    formulation.rows.add(least, endless, replicas, (every, formulation.unserved, least))
    formulation.rows.add(-endless, most, replicas, (every, formulation.unserved, most))


def _add_exclusions(formulation: Formulation) -> None:
    """Add rows so that an all-or-nothing column excludes all other columns of its server."""
    divisible = formulation.problem.divisible[formulation.columns]
    some = np.unique(formulation.row[~divisible])
    block, entries = _block_of(formulation, some)
    row, divisible = block[formulation.row[entries]], divisible[entries]
    pools = np.bincount(row, np.where(divisible, formulation.most[entries], 0), minlength=len(some))
    most_of_pools = np.maximum(pools, 1.0)
    weight = np.where(divisible, 1.0, most_of_pools[row])
    formulation.rows.add(np.full(len(some), -np.inf), most_of_pools, (row, entries, weight))
