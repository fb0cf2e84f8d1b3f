"""The choice as arrays.

Takes `Candidates`, gives a `Problem`: candidates, and for each server its load, its priority and what it
runs on now. Solvers take a `Problem` and return a `Solution`; they know no names. Equation numbers refer to
``docs/math.md``.
"""

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.candidates import Candidates, CandidateTable
from optimizer.candidates.arrays import ALL_MEMBERS, MemberArrays, ReserveArrays
from optimizer.candidates.card_rows import card_rows
from optimizer.candidates.queue_parts import QueueParts
from optimizer.candidates.table import NO_PATTERN
from optimizer.documents import MAX_COUNT
from optimizer.solvers.card_columns import CardColumns, with_server_behind
from optimizer.solvers.goals import Goal, goals_of
from optimizer.solvers.limit_rows import LimitRows, limit_rows, needs_power
from optimizer.solvers.routing import Routing, with_undivided
from optimizer.solvers.service_levels import ServiceLevel, service_levels
from optimizer.solvers.tiers import Tiers, tiers_of
from optimizer.spec.schema import OptimizerOptions
from optimizer.units import SECONDS_PER_MINUTE

GAP_FREE_COLUMNS = 2000
"""Models of up to this many columns are solved to optimality by default; larger ones to `DEFAULT_GAP`."""
DEFAULT_GAP = 1e-4


@dataclass(frozen=True)
class Problem:
    """A planning problem; see the fields for shapes.

    Derived values are computed on first use.
    """

    table: CandidateTable
    """The candidates, C rows; with those that a limit on replicas keeps from serving a server alone."""
    full: BoolArray
    """Whether a candidate's number of replicas serves its server in full, shape (C,)."""
    to_serve: BoolArray
    """Whether a server is unserved without an allocation: it has load, or a least number of replicas."""
    load_rps: FloatArray
    """Shape (S,)."""
    priority: IntArray
    """Shape (S,)."""
    min_replicas: IntArray
    """Shape (S,)."""
    max_replicas: IntArray
    """Shape (S,)."""
    current_accelerator: IntArray
    """Accelerator of each server's current allocation, -1 for none; shape (S,)."""
    current_replicas: IntArray
    """Shape (S,)."""
    current_cost: FloatArray
    """[cents/h], shape (S,)."""
    none_changed: BoolArray
    """Whether leaving a server without an allocation is a change, as it runs now; shape (S,)."""
    limits: LimitRows
    """Limits shared by all servers; without rows the servers are independent."""
    options: OptimizerOptions
    reserve: ReserveArrays
    """Required reserves of servers, shapes (S,)."""
    tiers: Tiers
    """Prices of accelerators that depend on how many are used."""
    preference: bool
    """Whether a server prefers some accelerators."""
    members: MemberArrays
    """Members of the servers: themselves, or the servers of a shared queue."""
    is_queue: BoolArray
    """Whether a server is a shared queue, which has one pool; shape (S,)."""
    queue_parts: QueueParts | None = None
    """Partial service of shared queues; None if there is no queue, or none can be served in part."""
    routing: Routing | None = None
    """Routes with load; None if there are none."""
    excluded: frozenset[int] = frozenset()
    """Servers that get nothing, although they need replicas."""
    cards: CardColumns | None = None
    """Rates on shared cards; their units are those of a server behind the last. None without shared cards."""

    @cached_property
    def on_current(self) -> BoolArray:
        """Whether a candidate is on the accelerator that its server runs on now, shape (C,)."""
        return frozen(np.equal(self.current_accelerator[self.table.server], self.table.accelerator))

    @property
    def is_mixed(self) -> bool:
        """Whether plans are numbers of replicas: they are mixed, or routes divide requests."""
        return self.options.heterogeneous or self.routing is not None

    @cached_property
    def routed(self) -> BoolArray:
        """Whether the load of a server is what a route sends to it, shape (S,)."""
        return (
            frozen(np.zeros(len(self.priority), np.bool_)) if self.routing is None else self.routing.servers
        )

    @property
    def router_off(self) -> BoolArray:
        """Whether a candidate is for a router that is off, shape (C,)."""
        return np.zeros(len(self.table), np.bool_) if self.routing is None else self.routing.undivided

    @property
    def apart(self) -> tuple[BoolArray, ...]:
        """Keys by which candidates with and without a router never dominate each other, shapes (C,)."""
        return () if self.routing is None else (self.routing.undivided, ~self.routing.undivided)

    @cached_property
    def replica_value(self) -> FloatArray:
        """Transition value of one replica of each candidate [cents/h], shape (C,)."""
        cost = self.table.cost_per_replica
        return frozen(cost + self.options.transition_penalty * np.where(self.on_current, 0.0, cost))

    @cached_property
    def leaving_value(self) -> FloatArray:
        """Transition value of giving up a server's current accelerator [cents/h], shape (S,)."""
        return frozen(self.options.transition_penalty * self.current_cost)

    def transition_value(
        self,
        server: IntArray,
        cost: FloatArray,
        elsewhere: FloatArray,
        stays: BoolArray,
        unchanged: BoolArray,
    ) -> FloatArray:
        """Return the transition value of servers [cents/h] (eq. 31-33); all shapes (N,).

        A single-accelerator plan counts what is unchanged as 0, whatever cost was stated for it.

        Args:
            server: the servers.
            cost: what their replicas cost [cents/h].
            elsewhere: the part of it that is not on the accelerator that they run on now.
            stays: whether they keep a replica where they run now.
            unchanged: whether they keep exactly what they have, or their lack of it.
        """
        old = self.current_cost[server]
        value = cost - old + self.options.transition_penalty * (elsewhere + np.where(stays, 0.0, old))
        return value if self.is_mixed else np.where(unchanged, 0.0, value)

    @cached_property
    def value(self) -> FloatArray:
        """Transition value of each candidate with all its replicas [cents/h], shape (C,)."""
        cost, here = self.table.cost_cents_per_h, self.on_current
        elsewhere = np.where(here, 0.0, cost)
        return frozen(self.transition_value(self.table.server, cost, elsewhere, here, ~self.changed))

    @cached_property
    def changed(self) -> BoolArray:
        """Whether a candidate with all its replicas differs from what its server runs on now; shape (C,)."""
        same: BoolArray = self.current_replicas[self.table.server] == self.table.num_replicas
        return frozen(~(self.on_current & same))

    @cached_property
    def room(self) -> FloatArray:
        """Capacity to spare of each candidate with all its replicas, over the load; shape (C,) (eq. 89)."""
        load = self.table.load_rps
        most = self.table.num_replicas * self.table.max_rate_rps
        return frozen(np.divide(most, load, out=np.ones(len(load)), where=load > 0) - 1)

    @cached_property
    def none_value(self) -> FloatArray:
        """Transition value of leaving each server without an allocation [cents/h], shape (S,)."""
        every, none = np.arange(len(self.priority)), np.zeros(len(self.priority))
        return frozen(self.transition_value(every, none, none, none > 0, ~self.none_changed))

    @cached_property
    def divisible(self) -> BoolArray:
        """Whether any number of replicas of a candidate can be a pool beside others, shape (C,)."""
        one_pool = self.reserve.one_pool | self.is_queue
        if self.routing is not None and not self.options.heterogeneous:
            one_pool = one_pool | ~self.routed
        one_pool = one_pool[self.table.server] & (self.table.pattern < 0)  # patterns have any number of units
        return frozen(self.table.meets_targets_below_max_rate & ~one_pool)

    @cached_property
    def without_sharing(self) -> "Problem":
        """The problem in which no candidate on shared cards serves anything."""
        return replace(self, full=frozen(self.full & (self.table.pattern == NO_PATTERN)))

    @cached_property
    def grown_load_rps(self) -> FloatArray:
        """Load of each server with its headroom, shape (S,)."""
        return frozen(self.load_rps * (1 + self.reserve.headroom_share))

    @cached_property
    def off_preferred_rpm(self) -> FloatArray:
        """Load of one replica of each candidate off the preferred accelerators [requests/min] (eq. 144)."""
        carried = np.minimum(self.table.max_rate_rps, self.table.load_rps)
        return frozen(np.where(self.table.preferred, 0.0, carried * SECONDS_PER_MINUTE))

    @cached_property
    def off_preferred_total(self) -> FloatArray:
        """The same of all replicas of each candidate."""
        return frozen(self.off_preferred_rpm * self.table.num_replicas)

    @cached_property
    def repeats(self) -> BoolArray:
        """Whether a candidate is of the same pair as the one before it, with other replicas; shape (C,)."""
        pair = np.column_stack(
            [self.table.server, self.table.accelerator, self.table.members, self.table.pattern]
        )
        return frozen(np.append(False, (pair[1:] == pair[:-1]).all(axis=1))[: len(pair)])

    @cached_property
    def goals(self) -> tuple[Goal, ...]:
        """The levels between service and value, in their order."""
        return goals_of(self.priority, self.load_rps, self.reserve.wanted, preference=self.preference)

    @cached_property
    def service(self) -> tuple[ServiceLevel, ...]:
        """The levels of service, in their order (eq. 34, 35)."""
        return service_levels(self.members, self.table, self.to_serve, self.min_replicas)

    @cached_property
    def leaves_members(self) -> bool:
        """Whether some candidates serve only a part of the members of their server."""
        return bool((self.table.members != ALL_MEMBERS).any())

    @property
    def is_compact_only(self) -> bool:
        """Whether only the compact model takes it: a column of branch and price serves one server in full."""
        return self.leaves_members or self.cards is not None or self.routing is not None

    @cached_property
    def unserved_parts(self) -> tuple[FloatArray, ...]:
        """Members that candidates leave unserved, by level of service; shapes (C,)."""
        return tuple(level.on_columns for level in self.service if level.on_columns is not None)

    def with_partners(self, chosen: BoolArray) -> BoolArray:
        """Return chosen servers, shape (S,), with what serves them besides their own candidates.

        This is the small server of a route if its large one is chosen, and the units of shared cards.
        """
        if self.cards is not None:
            chosen = chosen.copy()
            chosen[-1] = True
        return chosen if self.routing is None else self.routing.together(chosen)

    def of_servers(self, chosen: BoolArray) -> "Problem":
        """Return the problem with only the candidates of the chosen servers, and only these to be served."""
        rows = np.flatnonzero(chosen[self.table.server])
        return replace(
            self,
            table=self.table.take(rows),
            full=self.full[rows],
            limits=self.limits.take(rows),
            to_serve=self.to_serve & chosen,
            current_accelerator=np.where(chosen, self.current_accelerator, -1),
            current_replicas=np.where(chosen, self.current_replicas, 0),
            current_cost=np.where(chosen, self.current_cost, 0.0),
            none_changed=self.none_changed & chosen,
            routing=None if self.routing is None else self.routing.of_servers(rows, chosen),
        )

    def serving_all_members(self) -> "Problem":
        """Return the problem with only the candidates that serve all members of their server."""
        rows = np.flatnonzero(self.table.members == ALL_MEMBERS)
        every = np.ones(len(self.priority), np.bool_)
        return replace(
            self,
            table=self.table.take(rows),
            full=self.full[rows],
            limits=self.limits.take(rows),
            routing=None if self.routing is None else self.routing.of_servers(rows, every),
        )

    def with_amounts(self, amount: FloatArray) -> "Problem":
        """Return the problem with other amounts of what is limited, shape (R,)."""
        return replace(self, limits=self.limits.with_amounts(amount))

    def with_rows(self, chosen: BoolArray) -> "Problem":
        """Return the problem with some of the limited items, shape (R,), with those of tiers among them."""
        place = np.cumsum(chosen) - 1
        budget = self.tiers.budget_row
        kept = int(place[budget]) if budget >= 0 and chosen[budget] else -1
        tiers = replace(self.tiers, row=place[self.tiers.row], budget_row=kept)
        return replace(self, limits=self.limits.only(chosen), tiers=tiers)

    def left_by(self, replicas: IntArray) -> FloatArray:
        """Return the remaining amount of each limited item under a solution, shape (R,)."""
        used = self.limits.used(replicas)
        left: FloatArray = self.limits.amount - used
        if self.tiers.budget_row >= 0:
            left[self.tiers.budget_row] -= self.tiers.beyond_first(used)
        return left

    def after(self, replicas: IntArray) -> "Problem":
        """Return the problem with what an answer leaves of limits and tiers."""
        found = self.with_amounts(self.left_by(replicas))
        return replace(found, tiers=self.tiers.after(self.limits.used(replicas)))

    @cached_property
    def discount(self) -> FloatArray:
        """Discount of one replica of each candidate from the list price in the first steps, shape (C,)."""
        if not len(self.tiers.row):
            return np.zeros(len(self.table))
        return frozen((self.limits.use * self.tiers.discount(len(self.limits))[self.limits.row]).sum(axis=1))

    @cached_property
    def model_value(self) -> FloatArray:
        """Transition value of each candidate with all replicas in the first steps [cents/h], shape (C,)."""
        return frozen(self.value - self.discount * self.table.num_replicas)

    @cached_property
    def at_list_price(self) -> "Problem":
        """The problem in which a budget has to do at list prices: whatever keeps that keeps it with tiers."""
        row = self.tiers.budget_row
        if row < 0 or not self.discount.any():
            return self
        limits = self.limits.with_more_use(row, self.discount)
        return replace(self, limits=limits, tiers=replace(self.tiers, budget_row=-1))

    def from_nothing(self) -> "Problem":
        """Return the problem as if nothing ran yet, so that the plan of least value is that of least cost."""
        nothing = np.zeros(len(self.priority), np.int64)
        return replace(
            self,
            current_accelerator=nothing - 1,
            current_replicas=nothing,
            current_cost=nothing.astype(np.float64),
            none_changed=nothing > 0,
        )


def build_problem(candidates: Candidates, excluded: Collection[str] = ()) -> Problem:
    """Turn candidates into a problem.

    Args:
        candidates: the candidates of a system.
        excluded: servers that get nothing, although they need replicas; they count as unserved.
    """
    servers, arrays = candidates.arrays.servers, candidates.arrays
    options = candidates.system.options
    shared = candidates.shared
    table, undivided = with_undivided(candidates, _all_rows(candidates))
    left_out = frozenset(s for s, name in enumerate(arrays.server_names) if name in excluded)
    if left_out:
        kept = ~np.isin(table.server, list(left_out))
        table, undivided = table.take(kept), undivided[kept]
    accelerators = len(arrays.accelerator_names) + 2  # behind them stand what is rented, and shared cards
    routing = Routing.of(candidates, undivided)
    to_serve = (servers.load_rps > 0) | (servers.min_replicas > 0)
    if routing is not None:
        routing = routing if shared is None else routing.with_server_behind()
        usable = table.meets_targets_below_max_rate | ~routing.servers[table.server]
        table, routing = table.take(usable), replace(routing, undivided=undivided[usable])
        to_serve = to_serve & ~routing.small()[: len(to_serve)]
    limits = limit_rows(candidates, table)
    over = candidates.over_limit.server * accelerators + candidates.over_limit.accelerator
    problem = Problem(
        table=table,
        full=frozen(~np.isin(table.server * accelerators + table.accelerator, over)),
        to_serve=frozen(to_serve),
        load_rps=servers.load_rps,
        priority=servers.priority,
        min_replicas=servers.min_replicas,
        max_replicas=servers.max_replicas,
        current_accelerator=servers.current_accelerator,
        current_replicas=servers.current_replicas,
        current_cost=servers.current_cost,
        none_changed=servers.running,
        limits=limits,
        options=options,
        reserve=servers.reserve,
        tiers=tiers_of(candidates.system.accelerators, [item.key for item in limits.items]),
        preference=bool(servers.preference.any()),
        members=servers.members if routing is None else routing.counted(servers.members),
        is_queue=servers.is_queue,
        queue_parts=QueueParts(candidates)
        if servers.is_queue.any() and not needs_power(candidates.system) and not servers.reserve.surges.any()
        else None,
        routing=routing,
        excluded=left_out,
    )
    return problem if shared is None else with_cards(problem, CardColumns.of(shared))


def _all_rows(candidates: Candidates) -> CandidateTable:
    """Return the candidates of all sorts, those on shared cards last."""
    tables = [candidates.table, candidates.over_limit, candidates.with_reserve, candidates.external]
    shared = candidates.shared
    return CandidateTable.joined([*tables, *([] if shared is None else card_rows(candidates, shared))])


def with_cards(problem: Problem, cards: CardColumns) -> Problem:
    """Return a problem with a server behind the last, whose replicas are shared cards."""
    per_server = (
        *("to_serve", "load_rps", "priority", "min_replicas", "current_replicas", "current_cost"),
        *("none_changed", "is_queue"),
    )
    changes = {name: with_server_behind(getattr(problem, name), 0) for name in per_server}
    changes |= {
        "current_accelerator": with_server_behind(problem.current_accelerator, -1),
        "max_replicas": with_server_behind(problem.max_replicas, MAX_COUNT),
        "priority": with_server_behind(problem.priority, int(problem.priority.max(initial=1))),
        "reserve": ReserveArrays(
            *(with_server_behind(getattr(problem.reserve, field.name), 0) for field in fields(ReserveArrays))
        ),
    }
    return replace(problem, cards=cards, **changes)


def gap_target(options: OptimizerOptions, columns: int) -> float:
    """Return the relative gap at which the solver can stop, for a number of columns."""
    if options.gap is not None:
        return options.gap
    return 0.0 if columns <= GAP_FREE_COLUMNS else DEFAULT_GAP
