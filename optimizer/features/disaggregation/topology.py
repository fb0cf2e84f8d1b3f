"""Variables and constraints that choose prefill and decode pools of a server, or replicas that do both.

Every possible pool is an ordinary server. Equation numbers refer to ``docs/math.md``.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from optimizer.arrays import BoolArray, IntArray, grouped
from optimizer.candidates import Candidates, CandidateTable
from optimizer.features.disaggregation.streams import (
    Choice,
    RolePool,
    bandwidths_gbps,
    can_disaggregate,
    wholes_with_roles,
)
from optimizer.milp.model import ModelRows
from optimizer.spec.system import System
from optimizer.topologies.possible_pools import ENDLESS, PoolTopology, empty_or_used
from optimizer.topologies.topology import Label, ModelColumns, Topology, Variables


@dataclass(frozen=True, slots=True)
class PossibleRoles:
    """The possible pools of one server, as indices of planned servers."""

    name: str
    whole: int
    """Index of the server, which stands for replicas that do both."""
    pairs: tuple[tuple[int, int], ...]
    """Prefill and decode pool of each share of the TTFT target."""
    choices: tuple[Choice, ...]
    """The choice that stands for each pair."""
    required: bool
    """Whether replicas that do both are not allowed."""
    links: BoolArray
    """Whether prefill replicas on an accelerator can send to decode replicas on another, shape (A, A)."""
    compares: bool
    """Whether a candidate with no more replicas and no higher cost is as good; not if power is limited, or if
    pools run now.
    """

    @property
    def pools(self) -> tuple[int, ...]:
        """Indices of all prefill and decode pools."""
        return tuple(server for pair in self.pairs for server in pair)

    @property
    def servers(self) -> tuple[int, ...]:
        """Indices of the planned servers."""
        return (self.whole, *self.pools)


@dataclass(frozen=True)
class RolePoolTopology(PoolTopology[PossibleRoles]):
    """All servers with load whose pools by role are not yet chosen, as a topology of solvers."""

    place: ClassVar[str] = "disaggregation"
    name: ClassVar[str] = "prefill and decode pools"
    advice: ClassVar[str] = "list fewer accelerators for each server"
    shortage: ClassVar[str] = "needs both pools, and none fit the cards, links and targets together"
    counts_replicas: ClassVar[bool] = False

    @property
    def as_sized(self) -> BoolArray:
        """Mask of the prefill and decode pools, of which each runs on one accelerator."""
        return self.optional

    @property
    def repeated(self) -> BoolArray:
        """Mask of the pools beyond the first share, which all have the current replicas of their role."""
        later = [s for each in self.choices for pair in each.pairs[1:] for s in pair]
        return np.isin(np.arange(len(self.optional)), later)

    @classmethod
    def coupled(cls, system: System) -> Collection[str]:
        """Return the servers that require prefill and decode pools."""
        wholes = wholes_with_roles(system.servers)
        return [name for name, one in wholes.items() if one.disaggregation == "required"]

    @classmethod
    def partnered(cls, system: System) -> Collection[str]:
        """Return the servers that require pools, and the pools of which each needs the other."""
        chosen = (name for name, one in system.servers.items() if isinstance(one, RolePool) and one.has_load)
        return [*cls.coupled(system), *chosen]

    @classmethod
    def of(  # type: ignore[override]
        cls,
        candidates: Candidates,
        added: BoolArray,  # noqa: ARG003
        servers: int,
    ) -> "RolePoolTopology | ChosenRoleTopology | None":
        """Create the topology of a system's possible pools, or of its chosen ones; None without pools."""
        planned = candidates.system.servers
        index = {name: s for s, (name, one) in enumerate(planned.items()) if can_disaggregate(one)}
        pools = grouped(
            (pool.whole.name, (s, pool))
            for s, pool in enumerate(candidates.system.servers.values())
            if isinstance(pool, RolePool) and pool.has_load
        )
        links = bandwidths_gbps(candidates.system.accelerators) > 0
        choices = tuple(
            _choice(candidates.system, index[name], mine, links)
            for name, mine in pools.items()
            if name in index
        )
        left = [s for name, s in index.items() if planned[name].disaggregation == "required"]
        if choices or not (pools or left):
            return cls.of_choices(choices, candidates, servers)
        pairs = tuple((first, second) for (first, _), (second, _) in map(_prefill_first, pools.values()))
        nobody = np.zeros(servers, np.bool_)
        return ChosenRoleTopology(pairs, links, nobody, nobody, tuple(left))

    def usable(self, table: CandidateTable) -> BoolArray:
        """Return a mask without the candidates whose pairs others of the server replace, shape (C,).

        These are on the same accelerators with no more replicas: of another share of the TTFT target, or
        replicas that do both.
        """
        kept = np.ones(len(table), np.bool_)
        for each in self.choices:
            if each.compares:
                _drop_replaced(each, table, kept)
        return kept

    def dominance_groups(self, table: CandidateTable) -> tuple[BoolArray, ...]:
        """Return keys by which candidates on different accelerators never dominate, if a link is missing."""
        return () if all(each.links.all() for each in self.choices) else _by_accelerator(table)

    def chosen(
        self, table: CandidateTable, replicas: IntArray
    ) -> Iterator[tuple[PossibleRoles, tuple[int, ...]]]:
        """Yield each server with the planned servers of a solution that together serve it, or with none."""
        serves, cost = self.carried(table, replicas)
        for each in self.choices:
            ways = [() if each.required else (each.whole,), *each.pairs]
            able = [
                way
                for way in ways
                if way and serves[list(way)].all() and _is_linked(each.links, table, replicas, way)
            ]
            yield each, min(able, key=lambda way: float(cost[list(way)].sum()), default=())

    def partitions(
        self, candidates: Candidates, table: CandidateTable, replicas: IntArray
    ) -> dict[str, Choice]:
        """Return the choice of each server in a solution."""
        del candidates
        return {
            each.name: each.choices[each.pairs.index((way[0], way[1]))] if len(way) > 1 else (("",),)
            for each, way in self.chosen(table, replicas)
        }

    def block(self, table: CandidateTable, columns: ModelColumns) -> tuple[Variables, ModelRows]:
        """Return variables and constraints of the servers with columns (eq. 303-306).

        For each server a variable is 1 if no replicas do both; for pools this is the variable u. A column of
        a pool, and of every server if each uses one accelerator, is used as sized or not at all.
        """
        rows = ModelRows()
        choices = [each for each in self.choices if each.whole in columns.servers]
        server, none = table.server[columns.candidates], np.zeros(0, np.int64)
        empty = {each.whole: columns.first + i for i, each in enumerate(choices)}
        for each in choices:
            unused = {s: empty.get(s, columns.unserved(s)) for s in each.servers}
            for s in each.servers if columns.is_single else each.pools:
                mine = np.flatnonzero(server == s)
                rows.add_one(1.0, 1.0, (mine, np.ones(len(mine))), ([unused[s]], [1.0]))
            if not columns.is_single:
                self.add_load(rows, table, columns, each.whole, empty[each.whole])
            _add_choice(rows, each, unused, columns.unserved(each.whole))
            for pair in each.pairs:
                _add_links(rows, each.links, table.accelerator[columns.candidates], server, pair)
        wholes = np.array([each.whole for each in choices], np.int64)
        return empty_or_used(table, columns, wholes, none, lambda: _labels(choices)), rows


@dataclass(frozen=True)
class ChosenRoleTopology(Topology):
    """Servers whose prefill and decode pools are chosen: both pools are served, or none."""

    pairs: tuple[tuple[int, int], ...]
    """Prefill and decode pool of each server."""
    links: BoolArray
    """Whether prefill replicas on an accelerator can send to decode replicas on another, shape (A, A)."""
    served_by_rows: BoolArray
    optional: BoolArray
    left: tuple[int, ...]
    """Servers that require pools, but have none."""
    place: ClassVar[str] = RolePoolTopology.place
    name: ClassVar[str] = RolePoolTopology.name
    advice: ClassVar[str] = RolePoolTopology.advice

    @classmethod
    def added_tables(cls, candidates: Candidates) -> Sequence[CandidateTable]:  # noqa: ARG003
        """Return no additional candidates."""
        return []

    @classmethod
    def of(cls, candidates: Candidates, added: BoolArray, servers: int) -> "ChosenRoleTopology | None":
        """Create the topology of a system; None if its pools are not yet chosen."""
        topology = RolePoolTopology.of(candidates, added, servers)
        return topology if isinstance(topology, cls) else None

    def take(self, rows: IntArray | BoolArray, servers: BoolArray | None = None) -> Self:  # noqa: ARG002
        """Return the topology with only the pairs of the servers in a mask, if given."""
        kept = (pair for pair in self.pairs if servers is None or servers[list(pair)].any())
        return replace(self, pairs=tuple(kept))

    def with_partners(self, chosen: BoolArray) -> BoolArray:
        """Return the mask `chosen` with both pools of a pair if it has one of them."""
        partnered = chosen.copy()
        for pair in self.pairs:
            partnered[list(pair)] = chosen[list(pair)].any()
        return partnered

    def groups(self) -> Iterator[Sequence[int]]:
        """Yield both pools of each server."""
        yield from self.pairs

    def usable(self, table: CandidateTable) -> BoolArray:
        """Return a mask without candidates of servers that require pools, shape (C,)."""
        return ~np.isin(table.server, self.left)

    @property
    def as_sized(self) -> BoolArray:
        """Mask of the pools, of which each runs on one accelerator."""
        return np.isin(np.arange(len(self.optional)), self.pairs)

    def dominance_groups(self, table: CandidateTable) -> tuple[BoolArray, ...]:
        """Return keys by which candidates on different accelerators never dominate, if a link is missing."""
        return () if self.links.all() else _by_accelerator(table)

    def served(self, table: CandidateTable, replicas: IntArray, has: BoolArray) -> BoolArray:
        """Return the mask `has` of served servers without pools whose partner is not served or not linked."""
        served = has.copy()
        for pair in self.pairs:
            served[list(pair)] = has[list(pair)].all() and _is_linked(self.links, table, replicas, pair)
        return served

    def in_full(self, table: CandidateTable, replicas: IntArray, full: BoolArray) -> BoolArray:
        """Return the mask `full` of servers served in full without pools whose partner is not."""
        return self.served(table, replicas, full)

    def without_idle(self, table: CandidateTable, replicas: IntArray, running: BoolArray) -> IntArray:  # noqa: ARG002
        """Return the solution without replicas of pools whose partner has none."""
        has = np.bincount(table.server, replicas, len(self.optional)) > 0
        return np.where(self.served(table, replicas, has)[table.server] | ~has[table.server], replicas, 0)

    def block(self, table: CandidateTable, columns: ModelColumns) -> tuple[Variables, ModelRows]:
        """Return the rows by which a pool is unserved if its partner is (eq. 304 to 306); no variables."""
        rows, server = ModelRows(), table.server[columns.candidates]
        for pair in self.pairs:
            unserved = {s: columns.unserved(s) for s in pair if s in columns.servers}
            for s in () if columns.is_single else unserved:
                mine = np.flatnonzero(server == s)
                rows.add_one(1.0, 1.0, (mine, np.ones(len(mine))), ([unserved[s]], [1.0]))
            if len(unserved) == len(pair):
                rows.add_one(0.0, 0.0, ([*unserved.values()], [1.0, -1.0]))
                _add_links(rows, self.links, table.accelerator[columns.candidates], server, pair)
            elif unserved:
                rows.add_one(1.0, 1.0, ([*unserved.values()], [1.0]))
        return Variables(np.zeros(0), lambda _: np.zeros(0), lambda: ()), rows


def _drop_replaced(each: PossibleRoles, table: CandidateTable, kept: BoolArray) -> None:
    """Remove from a mask the candidates of pools that others of the server replace (eq. 309)."""
    count = len(each.links)
    row, size = np.full((2, len(each.servers), count), -1), np.full((len(each.servers), 2, count), np.inf)
    for i, s in enumerate(each.servers):
        mine = np.flatnonzero(table.server == s)
        row[0, i, table.accelerator[mine]] = mine
        size[i][:, table.accelerator[mine]] = table.num_replicas[mine], table.cost_cents_per_h[mine]
    row, pairs = row[0], [(2 * i + 1, 2 * i + 2) for i in range(len(each.pairs))]

    def drop(pool: int, replaced: BoolArray) -> None:
        replaced &= row[pool] >= 0
        kept[row[pool][replaced]] = False
        size[pool][:, replaced] = np.inf

    for pool in range(1, len(size)):
        if not each.required:
            drop(pool, (size[0] <= size[pool]).all(axis=0))
    for one, other in itertools.permutations(pairs, 2):
        for pool, partner in ((0, 1), (1, 0)):
            if (size[other[partner]] <= size[one[partner]]).all():
                drop(one[pool], (size[other[pool]] <= size[one[pool]]).all(axis=0))
    for prefill, decode in pairs:
        for pool, partner in ((prefill, decode), (decode, prefill)):
            drop(pool, np.full(count, np.isinf(size[partner]).all()))


def _prefill_first(pair: Sequence[tuple[int, RolePool]]) -> list[tuple[int, RolePool]]:
    return sorted(pair, key=lambda item: item[1].role, reverse=True)


def _choice(
    system: System, whole: int, pools: Sequence[tuple[int, RolePool]], links: BoolArray
) -> PossibleRoles:
    of_share = grouped((pool.decode_share, (s, pool)) for s, pool in pools)
    pairs = [_prefill_first(pair) for pair in of_share.values()]
    server = pools[0][1].whole
    used = [server.accelerators is None or name in server.accelerators for name in system.accelerators]
    return PossibleRoles(
        name=server.name,
        whole=whole,
        pairs=tuple((first, second) for (first, _), (second, _) in pairs),
        choices=tuple((first.choice, second.choice) for (_, first), (_, second) in pairs),
        required=server.disaggregation == "required",
        links=links & used,
        compares=system.options.max_power_w is None and not any(pool.current.is_running for _, pool in pools),
    )


def _add_choice(rows: ModelRows, each: PossibleRoles, unused: dict[int, int], unserved: int) -> None:
    """Add the rows by which a server has one way to be served, or is unserved (eq. 303, 304).

    The variables `unused` are 1 if the server or a pool is not used.
    """
    first = [each.whole, *(prefill for prefill, _ in each.pairs)]
    used = ([unused[s] for s in first], -np.ones(len(first)))
    balance = 1.0 - len(first)
    rows.add_one(balance, balance, used, ([unserved], [1.0]))
    for prefill, decode in each.pairs:
        rows.add_one(0.0, 0.0, ([unused[prefill], unused[decode]], [1.0, -1.0]))
    if each.required:
        rows.add_one(1.0, 1.0, ([unused[each.whole]], [1.0]))


def _by_accelerator(table: CandidateTable) -> tuple[BoolArray, ...]:
    """Return keys by which candidates on different accelerators never dominate each other."""
    masks = [table.accelerator == a for a in np.unique(table.accelerator).tolist()]
    return (*masks, *(~mask for mask in masks))


def _is_linked(links: BoolArray, table: CandidateTable, replicas: IntArray, way: tuple[int, ...]) -> bool:
    """Return whether the prefill replicas of a solution can send to all of its decode replicas."""
    on = [table.accelerator[(table.server == server) & (replicas > 0)] for server in way]
    return len(way) < 2 or bool(links[np.ix_(*on)].all())


def _add_links(
    rows: ModelRows,
    links: BoolArray,
    accelerator: IntArray,
    server: IntArray,
    pair: tuple[int, int],
) -> None:
    """Add the rows by which a prefill pool can send to the decode pool (eq. 306)."""
    prefill, decode = (np.flatnonzero(server == s) for s in pair)
    for column in prefill.tolist():
        able = decode[links[accelerator[column], accelerator[decode]]]
        if len(able) < len(decode):
            rows.add_one(-ENDLESS, 0.0, ([column], [1.0]), (able, -np.ones(len(able))))


def _labels(choices: Sequence[PossibleRoles]) -> Iterator[Label]:
    for r, each in enumerate(choices):
        yield f"w_{r}", f"{each.name} has no replicas that do both", each.whole, -1


TOPOLOGY = RolePoolTopology
