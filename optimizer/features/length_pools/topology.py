"""Variables and constraints that choose the pools by length of a server as a path over its shapes.

Every possible pool is an ordinary server. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, grouped
from optimizer.candidates import Candidates, CandidateTable
from optimizer.features.length_pools.streams import LengthPool, Partition, shape_names, wholes_of
from optimizer.milp.model import ModelRows
from optimizer.spec.system import System
from optimizer.topologies.possible_pools import PoolTopology, empty_or_used
from optimizer.topologies.topology import Label, ModelColumns, Variables


@dataclass(frozen=True, slots=True)
class PossiblePools:
    """The possible pools of one server, as indices of planned servers; the server itself is one of them."""

    name: str
    whole: int
    """Index of the server, which stands for one pool with all shapes."""
    steps: int
    """Number of steps of its shapes."""
    intervals: tuple[tuple[int, int, int], ...]
    """Planned server, first and last step of each pool."""
    required: bool
    """Whether one pool with all shapes is not allowed."""

    @property
    def servers(self) -> tuple[int, ...]:
        """Indices of the planned servers."""
        return tuple(server for server, _, _ in self.intervals)

    def cheapest_path(self, cost: FloatArray) -> list[int]:
        """Return the pools of least total cost that serve all steps; empty if there are none.

        Args:
            cost: cost of each planned server, shape (S,); infinite for one that cannot be used.
        """
        # Shortest path over the steps by dynamic programming: best[k] serves the first k steps.
        best: list[tuple[float, list[int]]] = [(0.0, []), *[(np.inf, list[int]())] * self.steps]
        for server, first, last in sorted(self.intervals, key=lambda each: each[1]):
            total = best[first][0] + cost[server]
            if total < best[last + 1][0]:
                best[last + 1] = total, [*best[first][1], server]
        return best[-1][1]


@dataclass(frozen=True)
class LengthPoolTopology(PoolTopology[PossiblePools]):
    """All servers with load whose pools by length are not yet chosen, as a topology of solvers."""

    place: ClassVar[str] = "poolsByLength"
    name: ClassVar[str] = "pools by length"
    advice: ClassVar[str] = "list fewer accelerators for each server, or join shapes"
    shortage: ClassVar[str] = "too few cards for two pools by length, which it requires"

    @classmethod
    def coupled(cls, system: System) -> Collection[str]:
        """Return the servers that require several pools."""
        wholes = wholes_of(system.servers)
        return [name for name, one in wholes.items() if one.pools_by_length == "required"]

    @classmethod
    def of(cls, candidates: Candidates, added: BoolArray, servers: int) -> "LengthPoolTopology | None":  # noqa: ARG003
        """Create the topology of a system's possible pools; None if all pools are chosen."""
        pools = grouped(
            (pool.whole.name, (s, pool))
            for s, pool in enumerate(candidates.system.servers.values())
            if isinstance(pool, LengthPool) and pool.has_load
        )
        choices = tuple(
            _choice(name, of_server)
            for name, of_server in pools.items()
            if len(of_server) > 1 and any(pool.is_whole for _, pool in of_server)
        )
        return cls.of_choices(choices, candidates, servers)

    def chosen(self, table: CandidateTable, replicas: IntArray) -> Iterator[tuple[PossiblePools, list[int]]]:
        """Yield each server with the pools of a solution that together serve all its shapes, or with none."""
        serves, cost = self.carried(table, replicas)
        cost[~serves] = np.inf
        for each in self.choices:
            limited = cost.copy()
            limited[each.whole] = np.inf if each.required else limited[each.whole]
            yield each, each.cheapest_path(limited)

    def partitions(
        self, candidates: Candidates, table: CandidateTable, replicas: IntArray
    ) -> dict[str, Partition]:
        """Return the shapes of each pool of each server in a solution."""
        servers, names = candidates.system.servers, candidates.arrays.server_names
        return {
            each.name: tuple(shape_names(servers[names[s]]) for s in path or [each.whole])
            for each, path in self.chosen(table, replicas)
        }

    def block(self, table: CandidateTable, columns: ModelColumns) -> tuple[Variables, ModelRows]:
        """Return variables and constraints of the servers with columns (eq. 284-286).

        For each server a variable is 1 if it has no pool with all shapes. For other possible pools, this is
        the variable u. In plans with one accelerator per server, another variable for each column states
        whether it is used.
        """
        rows = ModelRows()
        choices = [each for each in self.choices if each.whole in columns.servers]
        server = table.server[columns.candidates]
        one_of = np.flatnonzero(self.served_by_rows[server]) if columns.is_single else np.zeros(0, np.int64)
        empty = {each.whole: columns.first + i for i, each in enumerate(choices)}
        for each in choices:
            unused = {s: empty.get(s, columns.unserved(s)) for s in each.servers}
            for s in each.servers:
                self.add_load(rows, table, columns, s, unused[s])
            _add_path(rows, each, unused, columns.unserved(each.whole))
            if each.required:
                rows.add_one(1.0, 1.0, ([unused[each.whole]], [1.0]))
        z = columns.first + len(choices) + np.arange(len(one_of))
        columns.add_single(rows, one_of, z, server)
        wholes = np.array([each.whole for each in choices], np.int64)
        return empty_or_used(table, columns, wholes, one_of, lambda: _labels(choices, one_of, server)), rows


def _choice(name: str, pools: Sequence[tuple[int, LengthPool]]) -> PossiblePools:
    whole, server = next((s, pool) for s, pool in pools if pool.is_whole)
    return PossiblePools(
        name=name,
        whole=whole,
        steps=server.last + 1,
        intervals=tuple((s, pool.first, pool.last) for s, pool in pools),
        required=server.pools_by_length == "required",
    )


def _add_path(rows: ModelRows, each: PossiblePools, unused: dict[int, int], unserved: int) -> None:
    """Add the rows by which the used pools form a path over all steps, or the server is unserved (eq. 285).

    The variables `unused` are 1 if a pool is not used.
    """
    for step in range(each.steps):
        # Flow balance at a step: used pools that start there equal those that end before it; one starts at
        # the first step, if the server is served.
        starts = [unused[s] for s, first, _ in each.intervals if first == step]
        ends = [unused[s] for s, _, last in each.intervals if last == step - 1]
        balance = float(len(starts) - len(ends) - (0 if step else 1))
        parts = [(starts, np.ones(len(starts))), (ends, -np.ones(len(ends)))]
        if not step:
            parts.append(([unserved], -np.ones(1)))
        rows.add_one(balance, balance, *parts)


def _labels(choices: Sequence[PossiblePools], one_of: IntArray, server: IntArray) -> Iterator[Label]:
    for r, each in enumerate(choices):
        yield f"w_{r}", f"{each.name} has no pool with all request shapes", each.whole, -1
    for column in one_of.tolist():
        yield f"z_{column}", "has its replicas on this accelerator", int(server[column]), -1


TOPOLOGY = LengthPoolTopology
