"""The planning problem as a mixed-integer model: one accelerator per server, or numbers of replicas.

A `Problem`, with or without capacities, becomes a `Formulation`: the model as arrays, and the meaning of its
variables. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Callable, Iterator

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.milp.model import COVER_SCALE, COVER_TOLERANCE
from optimizer.quantities import counted
from optimizer.solvers.formulation import Formulation
from optimizer.solvers.levels import served, unchanged, without_reserve
from optimizer.solvers.model_columns import fitting_candidates, keepable, mixed_columns, shared_units
from optimizer.solvers.problem import Problem
from optimizer.topologies.topology import Label, Values, Variables

BARE_SHARE = 0.5
"""Coefficient of a pool without reserve in its load row, if it lacks more than headroom."""


def formulate(problem: Problem) -> Formulation:
    """Formulate the problem, with numbers of replicas if plans are mixed or a topology requires them."""
    return _mixed(problem) if problem.is_mixed else _single(problem)


def _single(problem: Problem) -> Formulation:
    """Formulate the choice of at most one column per server (eq. 36-38)."""
    table, own, (units, most_units) = problem.table, fitting_candidates(problem), shared_units(problem)
    columns = np.concatenate([own, units])
    servers, row = np.unique(table.server[own], return_inverse=True)
    found = Formulation(
        problem=problem,
        columns=columns,
        most=np.concatenate([np.ones(len(own), np.int64), most_units]),
        replicas_each=table.num_replicas[columns],
        servers=servers,
        unreserved_columns=~table.reserved[columns],
        off_preferred=problem.off_preferred_total[columns],
    )
    changed = np.append(problem.changed[own], np.zeros(len(units)))
    x = _add_columns(found, problem.model_value[columns], changed)
    u = _add_unserved(found, problem.none_value[servers], problem.none_changed[servers])
    one = np.ones(len(servers))
    found.rows.add(one, one, (row, x[: len(own)], np.ones(len(own))), (np.arange(len(servers)), u, one))
    for rows in found.topology_blocks():
        found.rows.join(rows)
    found.add_limits(found.add_steps())
    return found


def _mixed(problem: Problem) -> Formulation:
    """Formulate the choice of a number of replicas for every column (eq. 39-48)."""
    columns, most, each = mixed_columns(problem)
    servers = _with_partners(problem, np.unique(problem.table.server[columns]))
    row = np.searchsorted(servers, problem.table.server[columns])
    counts = problem.counted[servers]
    found = Formulation(
        problem=problem,
        columns=columns,
        most=most,
        replicas_each=each,
        servers=servers,
        unreserved_columns=np.zeros(len(columns), np.bool_),
        off_preferred=problem.off_preferred_rpm[columns] * each,
        value_offset=float(problem.none_value[servers].sum()),
        changed_offset=float(counts.sum()),
    )
    _add_columns(found, (problem.replica_value[columns] - problem.discount[columns]) * each)
    leaves = problem.none_changed[servers] - counts
    for one in problem.topologies:  # they state whether other columns of their servers have replicas
        leaves[(one.joint_load & ~one.idle)[servers]] = 0.0
    _add_unserved(found, 0.0, leaves)
    here, now = problem.on_current[columns], problem.current_replicas[servers[row]]
    staying = np.flatnonzero(here & (problem.current_cost[servers[row]] > 0))
    keeping = np.flatnonzero(keepable(problem)[columns] & (now <= most * each))
    s, k = _add_states(found, row, staying, keeping)
    rows = found.topology_blocks()
    found.unreserved_servers = mine = servers[problem.reserve.wanted[servers]]
    found.reserving = found.add(
        Variables(
            np.ones(len(mine)),
            lambda replicas: without_reserve(problem, replicas)[mine],
            _labels("r", "is served without its reserve", mine),
        )
    )
    steps = found.add_steps()
    blocks = _Blocks(found, row)
    blocks.add_covering()
    blocks.add_replica_limits()
    blocks.add_exclusions()
    found.add_limits(steps)
    blocks.add_staying(staying, s)
    blocks.add_keeping(keeping, k)
    for own in rows:
        found.rows.join(own)
    return found


def _with_partners(problem: Problem, servers: IntArray) -> IntArray:
    """Return servers plus those that share a load with them, which can lack candidates."""
    found = servers
    for each in problem.topologies:
        joint = [group for group in each.groups() if each.joint_load[[*group]].all()]
        partners = [s for group in joint if np.isin(group, servers).any() for s in group]
        found = np.union1d(found, np.array(partners, np.int64))
    return found


def _add_columns(found: Formulation, value: FloatArray, changes: Values | float = 0.0) -> IntArray:
    return found.add(
        Variables(
            found.most.astype(np.float64),
            lambda replicas: replicas[found.columns] // found.replicas_each,
            lambda: _column_labels(found),
            value,
            changes,
        )
    )


def _column_labels(found: Formulation) -> Iterator[Label]:
    table, mixed = found.problem.table, found.problem.options.heterogeneous
    for c, each in zip(found.columns.tolist(), found.replicas_each.tolist(), strict=True):
        server, accelerator = int(table.server[c]), int(table.accelerator[c])
        label, meaning = f"x_{server}_{accelerator}", f"takes {counted(each, 'replica')}"
        marks = [topology.mark(c) for topology in found.problem.topologies]
        label += "".join(mark for mark, _ in marks)
        meaning = ("number of replicas" if mixed else meaning) + "".join(mark for _, mark in marks)
        yield label, meaning, server, accelerator


def _labels(letter: str, meaning: str, servers: IntArray) -> Callable[[], Iterator[Label]]:
    """Return a function that yields the labels of a variable for each of some servers."""
    return lambda: ((f"{letter}_{server}", meaning, server, -1) for server in servers.tolist())


def _add_unserved(found: Formulation, value: FloatArray | float, changes: Values) -> IntArray:
    problem, servers = found.problem, found.servers
    labels = _labels("u", "is unserved", servers)
    return found.add(
        Variables(np.ones(len(servers)), lambda x: ~served(problem, x)[servers], labels, value, changes)
    )


def _add_states(
    found: Formulation, row: IntArray, staying: IntArray, keeping: IntArray
) -> tuple[IntArray, IntArray]:
    """Add s (whether servers keep a pool where they run) and k (whether they keep their exact allocation)."""
    problem, columns = found.problem, found.columns
    stays, keeps = (found.servers[row[part]] for part in (staying, keeping))
    s = found.add(
        Variables(
            np.ones(len(stays)),
            lambda replicas: replicas[columns[staying]] > 0,
            _labels("s", "keeps a pool where it runs now", stays),
            value=-problem.leaving_value[stays],
        )
    )
    k = found.add(
        Variables(
            np.ones(len(keeps)),
            lambda replicas: unchanged(problem, replicas)[keeps] & (replicas[columns[keeping]] > 0),
            _labels("k", "keeps exactly what it has", keeps),
            changes=-1.0,
        )
    )
    return s, k


class _Blocks:
    """Rows of a mixed model."""

    def __init__(self, found: Formulation, row: IntArray) -> None:
        """Start without rows.

        Args:
            found: the model.
            row: index of each column's server, shape (n,).
        """
        self.found, self.problem, self.row = found, found.problem, row
        self.divisible = self.problem.divisible[found.columns]

    def _block_of(self, some: IntArray) -> tuple[IntArray, IntArray]:
        """Return a row number for each selected server (-1 for others), and the columns that have one."""
        block = np.full(len(self.found.servers), -1)
        block[some] = np.arange(len(some))
        return block, np.flatnonzero(block[self.row] >= 0)

    def add_covering(self) -> None:
        """Require served pools to carry the load (eq. 39), or without reserve only the load (eq. 145)."""
        problem, found, reserve, table = self.problem, self.found, self.problem.reserve, self.problem.table
        load = problem.grown_load_rps[found.servers]
        bare = np.where(reserve.one_pool, BARE_SHARE, 1 / (1 + reserve.headroom_share))[found.servers]
        loaded = np.flatnonzero((load > 0) & ~problem.joint_load[found.servers])
        block, mine = self._block_of(loaded)
        row, columns = self.row[mine], found.columns[mine]
        share = np.minimum(table.max_rate_rps[columns] / load[row], 1.0)
        sized = np.where(table.reserved[columns], 1.0, bare[row])
        wants = np.flatnonzero(reserve.wanted[found.servers])
        found.rows.add(
            np.full(len(loaded), COVER_SCALE * (1 - COVER_TOLERANCE)),
            np.full(len(loaded), np.inf),
            (block[row], mine, COVER_SCALE * np.where(self.divisible[mine], share, sized)),
            (np.arange(len(loaded)), found.unserved[loaded], np.full(len(loaded), COVER_SCALE)),
            (block[wants], found.reserving, COVER_SCALE * (1 - bare[wants])),
        )

    def add_replica_limits(self) -> None:
        """Limit the replicas of served servers; unserved ones have none (eq. 40, 41)."""
        problem, found, m = self.problem, self.found, len(self.found.servers)
        least = problem.min_replicas[found.servers].astype(np.float64)
        together = np.bincount(self.row, found.most * found.replicas_each, minlength=m)
        most = np.minimum(problem.max_replicas[found.servers].astype(np.float64), together)
        replicas = (self.row, np.arange(len(found.columns)), found.replicas_each.astype(np.float64))
        every, endless = np.arange(m), np.full(m, np.inf)
        found.rows.add(least, endless, replicas, (every, found.unserved, least))
        found.rows.add(-endless, most, replicas, (every, found.unserved, most))

    def add_exclusions(self) -> None:
        """Let an all-or-nothing column exclude all other columns of its server."""
        some = np.unique(self.row[~self.divisible])
        block, mine = self._block_of(some)
        row, divisible = block[self.row[mine]], self.divisible[mine]
        pools = np.bincount(row, np.where(divisible, self.found.most[mine], 0), minlength=len(some))
        most_of_pools = np.maximum(pools, 1.0)
        weight = np.where(divisible, 1.0, most_of_pools[row])
        self.found.rows.add(np.full(len(some), -np.inf), most_of_pools, (row, mine, weight))

    def add_staying(self, here: IntArray, s: IntArray) -> None:
        """Let s be 1 only if there is a replica of its column (eq. 43)."""
        every, one = np.arange(len(here)), np.ones(len(here))
        self.found.rows.add(np.full(len(here), -np.inf), 0 * one, (every, s, one), (every, here, -one))

    def add_keeping(self, exact: IntArray, k: IntArray) -> None:
        """Let k = 1 fix its server to exactly the current replicas (eq. 44-46)."""
        found, problem, count = self.found, self.problem, len(exact)
        every, one, endless = np.arange(count), np.ones(count), np.full(count, np.inf)
        most = found.most[exact].astype(np.float64)
        now = problem.current_replicas[found.column_servers[exact]] / found.replicas_each[exact]
        found.rows.add(0 * one, endless, (every, exact, one), (every, k, -now))
        found.rows.add(-endless, most, (every, exact, one), (every, k, most - now))
        others_of = self.row[:, None] == self.row[exact]
        others_of[exact, every] = False
        others, row = np.nonzero(others_of)
        total = np.bincount(row, found.most[others], minlength=count).astype(np.float64)
        found.rows.add(-endless, total, (row, others, np.ones(len(others))), (every, k, total))
