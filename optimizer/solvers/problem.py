"""The planning problem as arrays.

`Candidates` become a `Problem`, with the load, priority and current allocation of each server. Solvers turn a
`Problem` into a `Solution` and use no names. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.candidates import Candidates, CandidateTable
from optimizer.candidates.arrays import ALL_MEMBERS, MemberArrays, ReserveArrays
from optimizer.candidates.table import Source
from optimizer.documents import MAX_COUNT
from optimizer.schema import OptimizerOptions
from optimizer.solvers.limit_rows import LimitRows
from optimizer.solvers.objectives import LevelObjective, later_objectives, service_objectives
from optimizer.solvers.problem_prices import ProblemPrices, priced_limits
from optimizer.spec.system import System
from optimizer.topologies.table import TOPOLOGIES
from optimizer.topologies.topology import Topology
from optimizer.units import SECONDS_PER_MINUTE

SomeTopology = TypeVar("SomeTopology", bound=Topology)
Array = Any
"""Array of any type with one entry per server, shape (S,)."""
_OF_SERVERS = ("load_rps", "min_replicas", "current_pools", "current_cost", "is_queue")
"""Arrays of a system's servers that a problem also has, with 0 for the extra servers of topologies."""
GAP_FREE_COLUMNS = 2000
"""Maximum number of columns for which the default gap is 0; larger models use `DEFAULT_GAP`."""
DEFAULT_GAP = 1e-4


@dataclass(frozen=True)
class Problem:
    """A planning problem with S servers, C candidates and R limited items.

    Derived values are computed on first use.
    """

    table: CandidateTable
    """The C candidates, including those that a limit on replicas prevents from serving a server alone."""
    full: BoolArray
    """Whether the replicas of each candidate serve its server in full, shape (C,)."""
    to_serve: BoolArray
    """Whether each server counts as unserved without an allocation, shape (S,): it has load or a minimum of
    replicas.
    """
    load_rps: FloatArray
    """Load of each server [requests/s], shape (S,)."""
    priority: IntArray
    """Priority of each server, shape (S,)."""
    min_replicas: IntArray
    """Minimum replicas of each server, shape (S,)."""
    max_replicas: IntArray
    """Maximum replicas of each server, shape (S,)."""
    current_replicas: IntArray
    """Number of replicas of each server's current pools, by accelerator, then for rentals and for shared
    cards; -1 where it has no pool. Shape (S, A + 2).
    """
    current_pools: IntArray
    """Number of each server's current pools, shape (S,)."""
    current_cost: FloatArray
    """Cost of each server's current allocation [cents/h], shape (S,)."""
    is_running: BoolArray
    """Whether each server runs now, so that removing its allocation is a change, shape (S,)."""
    limits: LimitRows
    """Limits that all servers share; without rows, the servers are independent."""
    options: OptimizerOptions
    reserve: ReserveArrays
    """Reserves that servers require, shapes (S,)."""
    prices: ProblemPrices
    """Prices of what all servers use together, such as price tiers."""
    preference: bool
    """Whether any server prefers some accelerators."""
    members: MemberArrays
    """Members of each server: the server itself, or the servers of a shared queue."""
    is_queue: BoolArray
    """Whether each server is a shared queue, which has one pool, shape (S,)."""
    excluded: frozenset[int] = frozenset()
    """Servers that must get no replicas although they need some."""
    topologies: tuple[Topology, ...] = ()
    """Structures that serve several servers together, such as routes and shared cards; their extra servers
    follow those of the system.
    """

    @cached_property
    def on_current(self) -> BoolArray:
        """Mask of the candidates on a current accelerator of their server, shape (C,)."""
        return frozen(self.current_replicas[self.table.server, self.table.accelerator] >= 0)

    @cached_property
    def current_count(self) -> IntArray:
        """Replicas that each candidate's server runs on the candidate's accelerator now, shape (C,)."""
        return frozen(np.maximum(self.current_replicas[self.table.server, self.table.accelerator], 0))

    @property
    def is_mixed(self) -> bool:
        """Whether solutions are numbers of replicas: for mixed plans, or if a topology requires it."""
        return self.options.heterogeneous or any(each.counts_replicas for each in self.topologies)

    def topology(self, wanted: type[SomeTopology]) -> SomeTopology | None:
        """Return the topology of a class; None if the problem has none of it."""
        return next((each for each in self.topologies if isinstance(each, wanted)), None)

    @cached_property
    def served_by_rows(self) -> BoolArray:
        """Mask of the servers whose load the rows of a topology carry, shape (S,)."""
        return self._any(each.served_by_rows for each in self.topologies)

    @cached_property
    def only_in_full(self) -> BoolArray:
        """Mask of the servers that topologies serve in full or not at all, shape (S,)."""
        return self._any(each.served_by_rows | each.as_sized for each in self.topologies)

    @cached_property
    def served_together(self) -> BoolArray:
        """Mask of the servers that topologies serve by their own replicas or others', shape (S,)."""
        return self._any(each.served_by_rows & ~each.optional for each in self.topologies)

    def _any(self, masks: Iterable[BoolArray]) -> BoolArray:
        """Return a mask of the servers that are in any of some masks, shapes (S,)."""
        return frozen(np.logical_or.reduce([np.zeros(len(self.priority), np.bool_), *masks]))

    @cached_property
    def counted(self) -> FloatArray:
        """1 for servers that count in the number of changes, 0 for topologies' extra servers, shape (S,)."""
        extra = sum(each.extra_servers for each in self.topologies)
        return frozen((np.arange(len(self.priority)) < len(self.priority) - extra).astype(np.float64))

    @property
    def dominance_groups(self) -> tuple[BoolArray, ...]:
        """Keys by which candidates of topologies never dominate each other, shapes (C,)."""
        return tuple(key for each in self.topologies for key in each.dominance_groups(self.table))

    @cached_property
    def replica_value(self) -> FloatArray:
        """Transition cost of one replica of each candidate [cents/h], shape (C,)."""
        cost = self.table.cost_per_replica
        return frozen(cost + self.options.transition_penalty * np.where(self.on_current, 0.0, cost))

    @cached_property
    def leaving_value(self) -> FloatArray:
        """Transition cost of leaving all current accelerators of each server [cents/h], shape (S,)."""
        return frozen(self.options.transition_penalty * self.current_cost)

    def transition_value(
        self,
        server: IntArray,
        cost: FloatArray,
        elsewhere: FloatArray,
        stays: BoolArray,
        unchanged: BoolArray,
    ) -> FloatArray:
        """Return the transition cost of servers [cents/h] (eq. 31-33); all shapes (N,).

        In a single-accelerator plan, the cost of unchanged servers is 0, whatever cost they state. On shared
        cards it is the cost of the cards.

        Args:
            cost: cost of the replicas of each server [cents/h].
            elsewhere: part of `cost` that is not on current accelerators of the server [cents/h].
            stays: whether the server keeps a replica on a current accelerator.
            unchanged: whether the server keeps exactly its current allocation on own cards, or remains
                without one.
        """
        old = self.current_cost[server]
        value = cost - old + self.options.transition_penalty * (elsewhere + np.where(stays, 0.0, old))
        return value if self.is_mixed else np.where(unchanged, 0.0, value)

    @cached_property
    def value(self) -> FloatArray:
        """Transition cost of each candidate with all its replicas [cents/h], shape (C,)."""
        cost, here = self.table.cost_cents_per_h, self.on_current
        elsewhere = np.where(here, 0.0, cost)
        same = ~self.changed & self.table.alone
        return frozen(self.transition_value(self.table.server, cost, elsewhere, here, same))

    @cached_property
    def changed(self) -> BoolArray:
        """Mask of the candidates that, with all replicas, differ from the current allocation, shape (C,)."""
        same: BoolArray = self.current_count == self.table.num_replicas
        return frozen(~(self.on_current & same & (self.current_pools[self.table.server] == 1)))

    @cached_property
    def spare_share(self) -> FloatArray:
        """Spare capacity of each candidate with all its replicas, as a share of the load (eq. 89).

        The shape is (C,).
        """
        load = self.table.load_rps
        most = self.table.num_replicas * self.table.max_rate_rps
        return frozen(np.divide(most, load, out=np.ones(len(load)), where=load > 0) - 1)

    @cached_property
    def none_value(self) -> FloatArray:
        """Transition cost of leaving each server without an allocation [cents/h], shape (S,)."""
        every, none = np.arange(len(self.priority)), np.zeros(len(self.priority))
        return frozen(self.transition_value(every, none, none, none > 0, ~self.is_running))

    @cached_property
    def _repeated(self) -> BoolArray:
        """Mask of the servers whose current replicas another server has, too, shape (S,)."""
        return self._any(each.repeated for each in self.topologies)

    @property
    def repeated_value(self) -> float:
        """Transition cost that every solution counts for replicas of a repeated server [cents/h] (eq. 310).

        At most one of the servers with the same current replicas is used, and the others leave them.
        """
        return float(self.none_value[self._repeated].sum())

    @property
    def repeated_changes(self) -> int:
        """Number of changes that every solution counts for repeated servers."""
        return int(self.is_running[self._repeated].sum())

    @cached_property
    def divisible(self) -> BoolArray:
        """Mask of the candidates that can be a pool of any size, next to other pools, shape (C,)."""
        one_pool = self.reserve.surges | self.is_queue
        if self.is_mixed and not self.options.heterogeneous:
            counted = [each.served_by_rows for each in self.topologies if each.counts_replicas]
            one_pool = one_pool | ~np.logical_or.reduce(counted)
        for each in self.topologies:
            one_pool = one_pool | each.as_sized
        as_sized = one_pool[self.table.server]
        as_sized |= self.reserve.one_pool[self.table.server] & self.table.reserved
        # Patterns on shared cards can have any number of units.
        as_sized &= self.table.source != Source.units
        return frozen(self.table.meets_targets_below_max_rate & ~as_sized)

    @cached_property
    def grown_load_rps(self) -> FloatArray:
        """Load of each server times the growth that its reserve requires [requests/s], shape (S,)."""
        return frozen(self.load_rps * self.reserve.growth)

    @cached_property
    def off_preferred_rpm(self) -> FloatArray:
        """Load that a replica of each candidate carries off preferred accelerators (eq. 144).

        The unit is requests/min.
        """
        carried = np.minimum(self.table.max_rate_rps, self.table.load_rps)
        return frozen(np.where(self.table.preferred, 0.0, carried * SECONDS_PER_MINUTE))

    @cached_property
    def off_preferred_total(self) -> FloatArray:
        """Load that all replicas of each candidate carry off preferred accelerators [requests/min]."""
        return frozen(self.off_preferred_rpm * self.table.num_replicas)

    @property
    def keys(self) -> list[tuple[int, ...]]:
        """Identity of each candidate, also in problems that differ by a change of the system."""
        table = self.table
        of = (table.server, table.accelerator, table.members, table.source, table.pattern, table.reserved)
        return list(zip(*(each.tolist() for each in of), strict=True))

    @cached_property
    def repeats(self) -> BoolArray:
        """Mask of the candidates that differ from the previous one only in their replicas, shape (C,)."""
        pair = np.column_stack(
            [
                self.table.server,
                self.table.accelerator,
                self.table.members,
                self.table.source,
                self.table.pattern,
            ]
        )
        return frozen(np.append(False, (pair[1:] == pair[:-1]).all(axis=1))[: len(pair)])

    @cached_property
    def objectives(self) -> tuple[LevelObjective, ...]:
        """All lexicographic levels, in order."""
        wanted = self.reserve.wanted
        return (
            *service_objectives(self.members, self.table, self.to_serve, self.min_replicas, self.priority),
            *later_objectives(self.priority, self.load_rps, wanted, preference=self.preference),
        )

    @cached_property
    def leaves_members(self) -> bool:
        """Whether any candidate serves only some queue members of its server."""
        return bool((self.table.members != ALL_MEMBERS).any())

    @property
    def is_limited(self) -> bool:
        """Whether servers share a limit or a cost, so that they are not independent."""
        return bool(np.isfinite(self.limits.amount).any() or self.prices)

    @property
    def serves_jointly(self) -> bool:
        """Whether some candidates serve only members of a queue, or several servers at once.

        Prices and blocks are defined only if every candidate serves one server in full.
        """
        return self.leaves_members or bool(self.topologies)

    @cached_property
    def unserved_parts(self) -> tuple[FloatArray, ...]:
        """Queue members that each candidate leaves unserved, by service level, shapes (C,)."""
        return tuple(level.on_columns for level in self.objectives if level.on_columns is not None)

    def by_server(self, amount: FloatArray | IntArray | BoolArray) -> FloatArray:
        """Sum an amount of each candidate, shape (C,), by server, shape (S,)."""
        return np.bincount(self.table.server, amount, len(self.priority)).astype(np.float64, copy=False)

    def has_some_of(self, rows: IntArray | BoolArray) -> BoolArray:
        """Return a mask of the servers of the given candidates, shape (S,)."""
        return np.isin(np.arange(len(self.priority)), self.table.server[rows])

    def with_partners(self, chosen: BoolArray) -> BoolArray:
        """Return the chosen servers plus the servers that topologies couple to them, shape (S,)."""
        for each in self.topologies:
            chosen = each.with_partners(chosen)
        return chosen

    def without_idle(self, replicas: IntArray) -> IntArray:
        """Return a solution without replicas that serve no requests, except current ones, shape (C,)."""
        for each in self.topologies:
            replicas = each.without_idle(self.table, replicas, self.on_current)
        return replicas

    def take(self, rows: IntArray, chosen: BoolArray | None = None) -> "Problem":
        """Return the problem with only the given candidates and, if given, only the chosen servers."""
        return replace(
            self,
            table=self.table.take(rows),
            full=self.full[rows],
            limits=self.limits.take(rows),
            topologies=tuple(each.take(rows, chosen) for each in self.topologies),
        )

    def of_servers(self, chosen: BoolArray) -> "Problem":
        """Return the problem in which only the chosen servers are to be served and have candidates."""
        some = self.take(np.flatnonzero(chosen[self.table.server]), chosen)
        return replace(some.from_nothing(~chosen), to_serve=self.to_serve & chosen)

    @cached_property
    def without_reserves(self) -> "Problem":
        """The problem in which no server requires a reserve; its candidates are `load_rows`."""
        wanted = self.reserve.wanted
        if not wanted.any():
            return self
        some = self.take(self.load_rows)
        table = replace(some.table, reserved=frozen(np.ones(len(some.table), np.bool_)))
        return replace(some, table=table, reserve=self.reserve.given_up())

    @cached_property
    def load_rows(self) -> IntArray:
        """Candidates that are sized for the load without a reserve."""
        with_reserve = self.repeats & self.reserve.wanted[self.table.server]
        return frozen(np.flatnonzero(~with_reserve))

    def serving_all_members(self) -> "Problem":
        """Return the problem with only the candidates that serve all queue members of their server."""
        return self.take(np.flatnonzero(self.table.members == ALL_MEMBERS))

    def with_amounts(self, amount: FloatArray) -> "Problem":
        """Return the problem with other amounts of the limited items, shape (R,)."""
        return replace(self, limits=replace(self.limits, amount=amount))

    def left_by(self, replicas: IntArray) -> FloatArray:
        """Return the amount of each limited item that a solution leaves unused, shape (R,)."""
        used = self.limits.used(replicas)
        left: FloatArray = self.limits.amount - used
        if self.prices.budget_row >= 0:
            left[self.prices.budget_row] -= self.prices.of_variables(used)
        return left

    def after(self, replicas: IntArray) -> "Problem":
        """Return the problem with the amounts that a solution leaves, and prices after its use.

        The variables of prices count all use, so the budget still includes their cost for this solution.
        """
        used = self.limits.used(replicas)
        result = self.with_amounts(self.limits.amount - used)
        return replace(result, prices=self.prices.after(used))

    @cached_property
    def discount(self) -> FloatArray:
        """Discount of one replica of each candidate from list price, at first prices [cents/h], (C,)."""
        discount = self.prices.discount(len(self.limits))
        return frozen((self.limits.use * discount[self.limits.row]).sum(axis=1))

    @cached_property
    def model_value(self) -> FloatArray:
        """Transition cost of each candidate with all replicas, at first prices [cents/h], shape (C,)."""
        return frozen(self.value - self.discount * self.table.num_replicas)

    @cached_property
    def ranking_value(self) -> FloatArray:
        """Transition cost of each candidate with all replicas, and their usual cost at prices that all share.

        The unit is cents/h; the shape is (C,). Heuristics rank by it.
        """
        if not self.prices:
            return self.value
        usual = self.prices.usual_of(self.limits.of_all_rows)
        return frozen(self.value + usual * self.table.num_replicas)

    @cached_property
    def at_list_price(self) -> "Problem":
        """The problem whose budget counts the largest cost of each replica.

        Its solutions also satisfy the true budget.
        """
        row = self.prices.budget_row
        if row < 0:
            return self
        more = self.prices.most_of(self.limits.of_all_rows)
        if not more.any():
            return self
        limits = self.limits.with_more_use(row, more)
        left = limits.amount - np.where(np.arange(len(limits)) == row, self.prices.paid_before, 0.0)
        prices = replace(self.prices, budget_row=-1)
        return replace(self, limits=replace(limits, amount=left), prices=prices)

    def from_nothing(self, servers: BoolArray | bool = True) -> "Problem":  # noqa: FBT001, FBT002
        """Return the problem in which some servers have no current allocation.

        The transition cost of these servers is their cost. `servers` is a mask, shape (S,), or True for all
        servers.
        """
        return replace(
            self,
            current_replicas=np.where(np.reshape(servers, (-1, 1)), -1, self.current_replicas),
            current_pools=np.where(servers, 0, self.current_pools),
            current_cost=np.where(servers, 0.0, self.current_cost),
            is_running=self.is_running & np.logical_not(servers),
        )


def topologies_of(system: System) -> list[type[Topology]]:
    """Return the topologies that the features of a system need, in the order of the table of topologies."""
    return [topology for feature, topology in TOPOLOGIES.items() if feature in system.features]


def build_problem(candidates: Candidates, excluded: Collection[str] = ()) -> Problem:
    """Build the planning problem of the candidates of a system.

    Args:
        excluded: names of servers that must get no replicas although they need some; they count as unserved.
    """
    servers, system = candidates.arrays.servers, candidates.system
    names = candidates.arrays.server_names
    used = topologies_of(system)
    extra = sum(topology.extra_servers for topology in used if topology.added_tables(candidates))
    table, topologies = _rows_and_topologies(candidates, used, excluded, len(names) + extra)
    limits, prices = priced_limits(candidates, table)
    accelerators = len(candidates.arrays.accelerator_names) + 2  # with rentals and shared cards
    over = candidates.over_limit.server * accelerators + candidates.over_limit.accelerator
    optional = np.logical_or.reduce(
        [np.zeros(len(names) + extra, np.bool_), *(each.optional for each in topologies)]
    )
    to_serve, members = (servers.load_rps > 0) | (servers.min_replicas > 0), servers.members

    def by_server(values: Array, last: float = 0) -> Array:
        return frozen(np.append(values, np.full(extra, last, values.dtype)))

    reserve = [by_server(getattr(servers.reserve, each.name)) for each in fields(ReserveArrays)]
    return Problem(
        table=table,
        full=frozen(~np.isin(table.server * accelerators + table.accelerator, over)),
        to_serve=frozen(by_server(to_serve) & ~optional),
        **{name: by_server(getattr(servers, name)) for name in _OF_SERVERS},
        priority=by_server(servers.priority, int(servers.priority.max(initial=1))),
        max_replicas=by_server(servers.max_replicas, MAX_COUNT),
        current_replicas=_current_replicas(candidates, extra),
        is_running=by_server(servers.running),
        limits=limits,
        options=system.options,
        reserve=ReserveArrays(*reserve),
        prices=prices,
        preference=bool(servers.preference.any()),
        members=replace(members, load_rps=np.where(optional[members.server], 0.0, members.load_rps)),
        topologies=topologies,
        excluded=frozenset(s for s, name in enumerate(names) if name in excluded),
    )


def _current_replicas(candidates: Candidates, extra: int) -> IntArray:
    """Return the current number of replicas by server and accelerator; -1 where there is no pool.

    The cards that are shared now belong to extra servers.
    """
    current_replicas = np.pad(
        candidates.arrays.servers.current_replicas, ((0, extra), (0, 0)), constant_values=-1
    )
    place_of = {name: a for a, name in enumerate(candidates.arrays.accelerator_names)}
    for server in candidates.system.servers.values() if extra else ():
        shared = [pool.accelerator for pool in server.current.pools if pool.mode == "shared"]
        current_replicas[
            len(current_replicas) - extra :, [place_of[name] for name in shared if name in place_of]
        ] = 0
    return frozen(current_replicas)


def _rows_and_topologies(
    candidates: Candidates, used: Sequence[type[Topology]], excluded: Collection[str], servers: int
) -> tuple[CandidateTable, tuple[Topology, ...]]:
    """Return the table of all candidates, and the topologies.

    Among equal candidates, those of topologies are last.
    """
    tables = candidates.own_tables
    source = [0] * len(tables)
    for place, topology in enumerate(used, 1):
        added = topology.added_tables(candidates)
        tables += added
        source += [place] * len(added)
    of = np.repeat(source, [len(each) for each in tables])[CandidateTable.joined_order(tables)]
    table = CandidateTable.joined(tables)
    names = {name for topology in used for name in topology.coupled(candidates.system)}
    coupled = [s for s, name in enumerate(candidates.arrays.server_names) if name in names]
    if coupled:
        needs_rows = np.isin(table.server, coupled) & (table.source == Source.replicas)
        table = replace(table, source=frozen(np.where(needs_rows, Source.coupled, table.source)))
    rows = [topology.of(candidates, of == place, servers) for place, topology in enumerate(used, 1)]
    topologies = [each for each in rows if each is not None]
    left_out = [s for s, name in enumerate(candidates.arrays.server_names) if name in excluded]
    kept = ~np.isin(table.server, left_out)
    for each in topologies:
        kept &= each.usable(table)
    if kept.all():
        return table, tuple(topologies)
    return table.take(kept), tuple(each.take(kept) for each in topologies)


def gap_target(options: OptimizerOptions, columns: int) -> float:
    """Return the relative gap at which the solver can stop, for a model with a number of columns."""
    if options.gap is not None:
        return options.gap
    return 0.0 if columns <= GAP_FREE_COLUMNS else DEFAULT_GAP
