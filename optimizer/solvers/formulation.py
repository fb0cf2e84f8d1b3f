"""The choice as a mixed-integer model, for plans of one accelerator per server and for mixed ones.

Takes a `Problem` with or without capacities, gives a `Formulation`: the model as arrays, and what its
variables mean. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, field

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.dominance import nondominated
from optimizer.solvers.goals import Goal
from optimizer.solvers.levels import served, unchanged, without_reserve
from optimizer.solvers.model import MilpModel
from optimizer.solvers.problem import Problem

COVER_SCALE = 1e3
"""Rows of load are in thousandths: the solver's absolute tolerance of 1e-6 is then 1e-9 of the load."""
BARE_SHARE = 0.5
"""What a pool as it was sized counts in the row of a load if it lacks more than headroom."""
COVER_TOLERANCE = 1e-9
"""Relative shortfall of rate that counts as rounding, as in the number of replicas of a candidate."""


@dataclass(frozen=True, slots=True)
class SharedRows:
    """Rows of the limits in a model; all shapes (K,)."""

    row: IntArray
    """Index of the row."""
    limit: IntArray
    """Index into the limits of the problem."""
    divisor: FloatArray
    """Amount of the limit that one unit of the row represents."""


@dataclass(frozen=True, slots=True)
class Formulation:
    """A model and the meaning of its variables: first the columns, then one u per server, then the rest."""

    model: MilpModel
    columns: IntArray
    """Row of the candidate table of each of the first n variables, shape (n,)."""
    replicas_each: IntArray
    """Replicas that one unit of such a variable stands for, shape (n,)."""
    column_servers: IntArray
    """Server of each column, shape (n,)."""
    servers: IntArray
    """Server of each of the next m variables, which are one where it is unserved; shape (m,)."""
    value: FloatArray
    """Objective of the value level [cents/h], by variable."""
    value_offset: float
    """Constant term of the value level."""
    changed: FloatArray
    """Objective of the changes level, by variable."""
    changed_offset: float
    staying: IntArray
    """Column of each of the next variables, which are one where a pool stays on the current accelerator."""
    keeping: IntArray
    """Column of each of the last variables, which are one where exactly the current replicas stay."""
    shared: SharedRows
    """The rows that keep to the limits."""
    unreserved_columns: BoolArray
    """Columns that serve their server without its reserve, shape (n,); none where a variable says so."""
    unreserved_servers: IntArray
    """Server of each of the next variables, which are one where it is served without its reserve."""
    steps: int
    """Number of the very last variables: how much of each later price step is used."""
    off_preferred: FloatArray
    """Load that each column carries off preferred accelerators [requests/min], shape (n,)."""

    @property
    def unserved(self) -> IntArray:
        """Indices of the variables u."""
        return np.arange(len(self.columns), len(self.columns) + len(self.servers))

    def on_servers(self, weight: FloatArray) -> FloatArray:
        """Return coefficients that give each u its server's weight (shape (S,)), by variable."""
        coefficients = np.zeros(len(self.value))
        coefficients[self.unserved] = weight[self.servers]
        return coefficients

    def on_goal(self, goal: Goal) -> FloatArray:
        """Return the coefficients of a goal, by variable."""
        coefficients, n = np.zeros(len(self.value)), len(self.columns)
        without = np.where(self.unreserved_columns, goal.on_unreserved[self.column_servers], 0.0)
        coefficients[:n] = without + goal.on_off_preferred * self.off_preferred
        count = len(self.unreserved_servers)
        place = len(coefficients) - self.steps - count + np.arange(count)
        coefficients[place] = goal.on_unreserved[self.unreserved_servers]
        return coefficients

    def point(self, problem: Problem, replicas: IntArray) -> FloatArray:
        """Return the point of the model that stands for an answer in the columns of the model."""
        taken = replicas[self.columns] // self.replicas_each
        left = ~served(problem, replicas)[self.servers]
        stays = taken[self.staying] > 0
        kept = unchanged(problem, replicas)[self.column_servers[self.keeping]]
        without = without_reserve(problem, replicas)[self.unreserved_servers]
        tiers = problem.tiers
        steps = tiers.steps(problem.limits.used(replicas))[tiers.later]
        return np.concatenate([taken, left, stays, kept, without, steps]).astype(np.float64)

    def replicas(self, x: FloatArray, rows: int) -> IntArray:
        """Return the replicas of each row of the candidate table at a point of the model."""
        replicas = np.zeros(rows, np.int64)
        n = len(self.columns)
        replicas[self.columns] = np.round(x[:n]).astype(np.int64) * self.replicas_each
        return replicas


@dataclass(slots=True)
class _Rows:
    """Rows of a model while they are collected."""

    count: int = 0
    row: list[IntArray] = field(default_factory=list)
    index: list[IntArray] = field(default_factory=list)
    coefficient: list[FloatArray] = field(default_factory=list)
    lower: list[FloatArray] = field(default_factory=list)
    upper: list[FloatArray] = field(default_factory=list)

    def add(
        self,
        lower: FloatArray,
        upper: FloatArray,
        *entries: tuple[IntArray, IntArray, FloatArray],
    ) -> None:
        """Add a block of rows; each entry is row within the block, variable and coefficient."""
        for row, index, coefficient in entries:
            self.row.append(row + self.count)
            self.index.append(index)
            self.coefficient.append(coefficient)
        self.lower.append(lower)
        self.upper.append(upper)
        self.count += len(lower)

    def model(self, variable_upper: FloatArray) -> MilpModel:
        """Return the model with these rows, over integer variables from zero."""
        row, index = np.concatenate(self.row), np.concatenate(self.index)
        order = np.lexsort((index, row))
        return MilpModel(
            lower=np.zeros(len(variable_upper)),
            upper=variable_upper,
            integer=np.ones(len(variable_upper), np.bool_),
            row_start=np.concatenate([[0], np.cumsum(np.bincount(row, minlength=self.count))]),
            row_index=index[order],
            row_value=np.concatenate(self.coefficient)[order],
            row_lower=np.concatenate(self.lower),
            row_upper=np.concatenate(self.upper),
        )


def formulate(problem: Problem) -> Formulation:
    """Write the choice as a model: mixed where the options say so."""
    return _mixed(problem) if problem.options.heterogeneous else _single(problem)


def _add_limits(
    rows: _Rows, problem: Problem, columns: IntArray, each: IntArray, first_step: int
) -> SharedRows:
    """Keep to the limits, in multiples of the common divisors of what columns use (eq. 37, 42).

    Args:
        rows: the model's rows so far.
        problem: what is chosen from.
        columns: the columns of the model.
        each: replicas that one of each column stands for.
        first_step: first of the variables of price steps.
    """
    limits, tiers = problem.limits.take(columns), problem.tiers
    limit, divisor, amount = limits.scaled(each, tiers.budget_row)
    place = np.full(len(limits), -1)
    place[limit] = np.arange(len(limit))
    amount[place[tiers.row][place[tiers.row] >= 0]] = tiers.size[tiers.first][place[tiers.row] >= 0]
    column, entry = np.nonzero(limits.use)
    row = place[limits.row[column, entry]]
    value = limits.use[column, entry] * each[column] / divisor[row]
    added = SharedRows(rows.count + np.arange(len(limit)), limit, divisor)
    entries = [(row, column, value)]
    for step_row, coefficient in tiers.step_entries():
        used = np.flatnonzero(place[step_row] >= 0)
        entries.append((place[step_row[used]], first_step + used, coefficient[used]))
    rows.add(np.full(len(limit), -np.inf), amount, *entries)
    return added


# --- one accelerator per server ------------------------------------------------------------------------


def _single(problem: Problem) -> Formulation:
    """Write the choice of at most one column per server (eq. 36-38)."""
    table = problem.table
    columns = fitting_candidates(problem)
    servers, row = np.unique(table.server[columns], return_inverse=True)
    n, m = len(columns), len(servers)
    every = np.arange(n)
    rows = _Rows()
    rows.add(
        np.ones(m), np.ones(m), (row, every, np.ones(n)), (np.arange(m), np.arange(n, n + m), np.ones(m))
    )
    shared = _add_limits(rows, problem, columns, table.num_replicas[columns], n + m)
    return Formulation(
        model=rows.model(np.concatenate([np.ones(n + m), problem.tiers.size[problem.tiers.later]])),
        columns=columns,
        replicas_each=table.num_replicas[columns],
        column_servers=table.server[columns],
        servers=servers,
        value=np.concatenate([problem.model_value[columns], problem.none_value[servers], problem.tiers.more]),
        value_offset=0.0,
        changed=np.concatenate(
            [problem.changed[columns], problem.none_changed[servers], np.zeros(len(problem.tiers.later))]
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


def fitting_candidates(problem: Problem) -> IntArray:
    """Return the nondominated candidates that fit by themselves."""
    columns = nondominated_candidates(problem)
    return columns[problem.limits.fits(problem.table.num_replicas)[columns]]


def nondominated_candidates(problem: Problem) -> IntArray:
    """Return the candidates that no other of their server dominates, in their order (section 12).

    Compared are candidates of one type that use the same limits. One dominates another if it is no worse in
    value, use and changes; of equal ones the smaller batch stays, then the first in order. What keeps the
    current allocation always stays, as only it has no changes.
    """
    use = problem.limits.use * problem.table.num_replicas[:, None]
    keys = np.column_stack(
        [problem.model_value, use, problem.changed, ~problem.table.reserved, problem.off_preferred_total]
    )
    return _nondominated(problem, np.flatnonzero(problem.full), keys)


def _nondominated(problem: Problem, rows: IntArray, keys: FloatArray) -> IntArray:
    """Return the rows that no other of their server and type dominates that uses the same limits.

    Args:
        problem: what is chosen from.
        rows: candidates.
        keys: the less the better, shape (C, K).
    """
    table, group = problem.table, problem.table.server
    for part in (table.kind, problem.limits.groups()):
        group = group * (int(part.max(initial=0)) + 1) + part
    rows = rows[np.argsort(table.max_batch[rows], kind="stable")]
    return np.sort(rows[nondominated(group[rows], keys[rows])])


# --- mixed plans ---------------------------------------------------------------------------------------


def _mixed(problem: Problem) -> Formulation:
    """Write the choice of a number of replicas for every column (eq. 39-48)."""
    table = problem.table
    columns, most, each = mixed_columns(problem)
    servers, row = np.unique(table.server[columns], return_inverse=True)
    n, m = len(columns), len(servers)
    tiers, reserving = problem.tiers, servers[problem.reserve.wanted[servers]]
    # s: the server keeps a pool where it runs now; k: it keeps exactly what it has.
    here = np.flatnonzero(problem.on_current[columns] & (problem.current_cost[servers[row]] > 0))
    exact = np.flatnonzero(
        keepable(problem)[columns] & (problem.current_replicas[servers[row]] <= most * each)
    )
    first = n + m + len(here) + len(exact)
    k = np.arange(n + m + len(here), first)
    rows = _Rows()
    _add_service(rows, problem, columns, most, each, servers, row, first)
    shared = _add_limits(rows, problem, columns, each, first + len(reserving))
    _add_staying(rows, here, n + m)
    _add_keeping(rows, problem, columns, most, each, row, exact, k)

    binary, steps = np.ones(first - n + len(reserving)), tiers.size[tiers.later]
    last = n + len(binary)
    count = last + len(steps)
    value = (problem.replica_value[columns] - problem.discount[columns]) * each
    return Formulation(
        model=rows.model(np.concatenate([most.astype(np.float64), binary, steps])),
        columns=columns,
        replicas_each=each,
        column_servers=table.server[columns],
        servers=servers,
        value=_filled(
            count, (0, value), (n + m, -problem.leaving_value[servers[row[here]]]), (last, tiers.more)
        ),
        value_offset=float(problem.none_value[servers].sum()),
        changed=_filled(
            count,
            (n, problem.none_changed[servers].astype(np.float64) - 1),
            (n + m + len(here), -np.ones(len(exact))),
        ),
        changed_offset=float(m),
        staying=here,
        keeping=exact,
        shared=shared,
        unreserved_columns=np.zeros(n, np.bool_),
        unreserved_servers=reserving,
        steps=len(tiers.later),
        off_preferred=problem.off_preferred_rpm[columns] * each,
    )


def _filled(count: int, *parts: tuple[int, FloatArray]) -> FloatArray:
    """Return coefficients by variable: some from a place on each, all others 0."""
    coefficients = np.zeros(count)
    for place, values in parts:
        coefficients[place : place + len(values)] = values
    return coefficients


def mixed_columns(problem: Problem) -> tuple[IntArray, IntArray, IntArray]:
    """Return the columns of a mixed plan, the most of each that can be of use, and the replicas of one.

    A column whose targets also hold at every lower load can be a pool of any number of replicas. One whose
    latencies step with the rate is indivisible: taken as it was sized, or not at all.
    """
    table = problem.table
    alone = np.ceil(problem.grown_load_rps[table.server] / table.max_rate_rps * (1 - COVER_TOLERANCE))
    most = np.maximum(np.minimum(alone, 2.0**31), problem.min_replicas[table.server])
    most = np.maximum(most, np.where(problem.on_current, problem.current_replicas[table.server], 0))
    most = np.minimum(most, problem.max_replicas[table.server])
    divisible = problem.divisible
    indivisible = ~divisible & problem.full
    most = np.minimum(most, problem.limits.most_replicas())
    indivisible &= problem.limits.fits(table.num_replicas)
    # Value and use of a replica, and the rate; the current accelerator's column always stays.
    rate = np.minimum(table.max_rate_rps, problem.grown_load_rps[table.server])
    keys = np.column_stack(
        [
            problem.replica_value - problem.discount,
            problem.limits.use,
            -rate,
            ~problem.on_current,
            problem.off_preferred_rpm,
        ]
    )
    pools = _nondominated(problem, np.flatnonzero(divisible & (most >= 1)), keys)
    columns = np.sort(np.concatenate([pools, np.flatnonzero(indivisible)]))
    each = np.where(divisible, 1, table.num_replicas)[columns]
    return columns, np.where(divisible, most, 1.0)[columns].astype(np.int64), each


def _add_service(
    rows: _Rows,
    problem: Problem,
    columns: IntArray,
    most: IntArray,
    each: IntArray,
    servers: IntArray,
    row: IntArray,
    first: int,
) -> None:
    """A served server's pools carry its rate and keep to its limits; an unserved one has none (eq. 39-41).

    A variable of one, from the first given on, lets a server do without its reserve (eq. 145).
    """
    n, m = len(columns), len(servers)
    every, u = np.arange(n), np.arange(n, n + m)
    pool = problem.divisible[columns]
    load, reserve = problem.grown_load_rps[servers], problem.reserve
    bare = np.where(reserve.one_pool, BARE_SHARE, 1 / (1 + reserve.headroom_share))[servers]
    loaded = np.flatnonzero(load > 0)
    block = np.full(m, -1)
    block[loaded] = np.arange(len(loaded))
    of_loaded = np.flatnonzero(block[row] >= 0)
    share = np.minimum(problem.table.max_rate_rps[columns[of_loaded]] / load[row[of_loaded]], 1.0)
    sized = np.where(problem.table.reserved[columns[of_loaded]], 1.0, bare[row[of_loaded]])
    wants = np.flatnonzero(reserve.wanted[servers])
    rows.add(
        np.full(len(loaded), COVER_SCALE * (1 - COVER_TOLERANCE)),
        np.full(len(loaded), np.inf),
        (block[row[of_loaded]], of_loaded, COVER_SCALE * np.where(pool[of_loaded], share, sized)),
        (np.arange(len(loaded)), u[loaded], np.full(len(loaded), COVER_SCALE)),
        (block[wants], first + np.arange(len(wants)), COVER_SCALE * (1 - bare[wants])),
    )
    least = problem.min_replicas[servers].astype(np.float64)
    together = np.bincount(row, most * each, minlength=m)
    limit = np.minimum(problem.max_replicas[servers].astype(np.float64), together)
    rows.add(least, np.full(m, np.inf), (row, every, each.astype(np.float64)), (np.arange(m), u, least))
    rows.add(np.full(m, -np.inf), limit, (row, every, each.astype(np.float64)), (np.arange(m), u, limit))

    # An indivisible column excludes every other column of its server.
    some = np.unique(row[~pool])
    block = np.full(m, -1)
    block[some] = np.arange(len(some))
    mine = np.flatnonzero(block[row] >= 0)
    pools = np.bincount(block[row[mine]], np.where(pool[mine], most[mine], 0), minlength=len(some))
    most_of_pools = np.maximum(pools, 1.0)
    weight = np.where(pool[mine], 1.0, most_of_pools[block[row[mine]]])
    rows.add(np.full(len(some), -np.inf), most_of_pools, (block[row[mine]], mine, weight))


def keepable(problem: Problem) -> BoolArray:
    """Return the columns whose server exactly what it runs on now would serve in full, shape (C,).

    Whether there are enough units is not checked.
    """
    table, server = problem.table, problem.table.server
    now = problem.current_replicas[server]
    carries = now * table.max_rate_rps >= problem.load_rps[server] * (1 - COVER_TOLERANCE)
    allowed = (now >= np.maximum(problem.min_replicas[server], 1)) & (now <= problem.max_replicas[server])
    as_sized = problem.divisible | (problem.full & (now == table.num_replicas))
    keeps: BoolArray = problem.on_current & carries & allowed & as_sized
    return keeps


def _add_staying(rows: _Rows, here: IntArray, first: int) -> None:
    """An s of one, from the first given on, needs a replica of its column (eq. 43)."""
    every, one = np.arange(len(here)), np.ones(len(here))
    rows.add(
        np.full(len(here), -np.inf), np.zeros(len(here)), (every, first + every, one), (every, here, -one)
    )


def _add_keeping(
    rows: _Rows,
    problem: Problem,
    columns: IntArray,
    most: IntArray,
    each: IntArray,
    row: IntArray,
    exact: IntArray,
    k: IntArray,
) -> None:
    """A k of one fixes its server to exactly the current replicas, and to no other pool (eq. 44-46)."""
    count = len(exact)
    here = np.arange(count)
    now = problem.current_replicas[problem.table.server[columns[exact]]] / each[exact]
    beyond = most[exact] - now
    rows.add(np.zeros(count), np.full(count, np.inf), (here, exact, np.ones(count)), (here, k, -now))
    rows.add(
        np.full(count, -np.inf),
        most[exact].astype(np.float64),
        (here, exact, np.ones(count)),
        (here, k, beyond),
    )
    block = np.full(int(row.max(initial=-1)) + 1, -1)
    block[row[exact]] = here
    others = np.flatnonzero(block[row] >= 0)
    others = others[~np.isin(others, exact)]
    total = np.bincount(block[row[others]], most[others], minlength=count).astype(np.float64)
    rows.add(
        np.full(count, -np.inf), total, (block[row[others]], others, np.ones(len(others))), (here, k, total)
    )


def served_in_full(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the servers that a solution serves in full, by plain arithmetic; shape (S,)."""
    count = len(problem.priority)
    rate = np.bincount(problem.table.server, replicas * problem.table.max_rate_rps, minlength=count)
    pools = np.bincount(problem.table.server, replicas, minlength=count)
    return (
        (rate >= problem.load_rps * (1 - 2 * COVER_TOLERANCE))
        & (pools >= problem.min_replicas)
        & ((pools > 0) | ~problem.to_serve)
    )
