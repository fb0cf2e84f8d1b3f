"""Servers that ordinary planned servers, their possible pools, can serve together in several ways.

Equation numbers refer to ``docs/math.md``.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, sorted_by_key
from optimizer.candidates import Candidates, CandidateTable, find_candidates
from optimizer.milp.model import COVER_SCALE, ModelRows
from optimizer.schema import Server
from optimizer.spec.system import System
from optimizer.tolerances import COVER
from optimizer.topologies.topology import Label, ModelColumns, ServerTopology, Variables

ENDLESS = np.inf


class Possible(Protocol):
    """The possible pools of one server, as indices of planned servers."""

    @property
    def whole(self) -> int:
        """Index of the server itself, which stands for replicas that serve everything."""

    @property
    def servers(self) -> tuple[int, ...]:
        """Indices of the server and all of its possible pools."""


P = TypeVar("P", bound=Possible)


@dataclass(frozen=True)
class PoolTopology(ServerTopology, Generic[P]):
    """All servers with load whose pools are not yet chosen, as a topology of solvers."""

    choices: tuple[P, ...]
    load_rps: FloatArray
    """Load of each server, shape (S,)."""
    served_by_rows: BoolArray
    """Mask of all possible pools and their servers, shape (S,)."""
    optional: BoolArray
    """Mask of the possible pools that are not the server itself, shape (S,)."""

    @classmethod
    def of_choices(cls, choices: Sequence[P], candidates: Candidates, servers: int) -> Self | None:
        """Create the topology of the possible pools of servers; None if there are no servers.

        Args:
            choices: the possible pools of each server.
            candidates: the candidates of the system.
            servers: number of servers S, including artificial ones.
        """
        if not choices:
            return None
        load_rps, (served_by_rows, optional) = np.zeros(servers), np.zeros((2, servers), np.bool_)
        load_rps[: len(candidates.arrays.servers.load_rps)] = candidates.arrays.servers.load_rps
        served_by_rows[[s for each in choices for s in each.servers]] = True
        optional[served_by_rows] = True
        optional[[each.whole for each in choices]] = False
        return cls(tuple(choices), load_rps, served_by_rows, optional)

    @abstractmethod
    def chosen(self, table: CandidateTable, replicas: IntArray) -> Iterator[tuple[P, Sequence[int]]]:
        """Yield each server with the planned servers of a solution that together serve it, or with none."""

    def carried(self, table: CandidateTable, replicas: IntArray) -> tuple[BoolArray, FloatArray]:
        """Return which planned servers carry their loads in a solution, and their costs [cents/h], (S,)."""
        count = len(self.load_rps)
        rate = np.bincount(table.server, replicas * table.max_rate_rps, count)
        cost = np.bincount(table.server, replicas * table.cost_per_replica, count)
        # Twice the tolerance of the rows, because the solver can use that tolerance, too.
        return rate >= self.load_rps * (1 - 2 * COVER), cost.astype(np.float64)

    def take(self, rows: IntArray | BoolArray, servers: BoolArray | None = None) -> Self:  # noqa: ARG002
        """Return the topology for some candidates; `servers`, if given, masks the servers to keep."""
        kept = (each for each in self.choices if servers is None or servers[list(each.servers)].any())
        return replace(self, choices=tuple(kept))

    def with_partners(self, chosen: BoolArray) -> BoolArray:
        """Return the mask `chosen` with every possible pool of each server set as the server itself."""
        partnered = chosen.copy()
        for each in self.choices:
            partnered[list(each.servers)] = chosen[each.whole]
        return partnered

    def groups(self) -> Iterator[Sequence[int]]:
        """Yield the indices of the possible pools of each server."""
        for each in self.choices:
            yield each.servers

    def without_idle(self, table: CandidateTable, replicas: IntArray, running: BoolArray) -> IntArray:  # noqa: ARG002
        """Return the solution with only the replicas of chosen pools."""
        result = replicas.copy()
        for each, way in self.chosen(table, replicas):
            result[np.isin(table.server, [s for s in each.servers if s not in way])] = 0
        return result

    def served(self, table: CandidateTable, replicas: IntArray, has: BoolArray) -> BoolArray:
        """Return the mask `has` of served servers; a server is served if its chosen pools serve it."""
        served = has.copy()
        for each, way in self.chosen(table, replicas):
            served[each.whole] = bool(way)
        return served

    def add_load(
        self, rows: ModelRows, table: CandidateTable, columns: ModelColumns, server: int, unused: int
    ) -> None:
        """Add the rows by which a possible pool carries its load, or has no replicas (eq. 286, 305).

        The variable `unused` is 1 if the pool is not used.
        """
        of_server = np.flatnonzero(table.server[columns.candidates] == server)
        candidates = columns.candidates[of_server]
        each = columns.replicas_each[of_server] * table.max_rate_rps[candidates]
        # Σ min(rate / load, 1) x + unused ≥ 1: coefficients above 1 would only weaken the relaxation.
        share = np.minimum(each / table.load_rps[candidates], 1.0)
        least = COVER_SCALE * (1 - COVER)
        rows.add_one(least, ENDLESS, (of_server, COVER_SCALE * share), ([unused], [COVER_SCALE]))
        # Σ x + most unused ≤ most: an unused pool has no replicas.
        most = float(columns.most[of_server].sum())
        rows.add_one(-ENDLESS, most, (of_server, np.ones(len(of_server))), ([unused], [most]))


def empty_or_used(
    table: CandidateTable,
    columns: ModelColumns,
    wholes: IntArray,
    one_of: IntArray,
    labels: Callable[[], Iterable[Label]],
) -> Variables:
    """Return the variables that are 1 if servers have no replicas of their own, or if columns are used.

    Args:
        table: the candidates.
        columns: the first variables of the model.
        wholes: the servers, shape (W,).
        one_of: the columns, shape (Z,).
        labels: function that returns the labels of the W + Z variables.
    """

    def point(replicas: IntArray) -> FloatArray:
        none = [not replicas[table.server == whole].any() for whole in wholes]
        return np.concatenate([none, replicas[columns.candidates[one_of]] > 0]).astype(np.float64)

    return Variables(
        upper=np.ones(len(wholes) + len(one_of)),
        point=point,
        labels=labels,
        value=np.append(columns.leaving_value[wholes], np.zeros(len(one_of))),
        changes=np.append(columns.on_leaving[wholes], np.zeros(len(one_of))),
    )


def candidates_of_all_pools(
    system: System, wholes: Mapping[str, Server], candidates: Candidates | None
) -> Candidates:
    """Return the candidates of all possible pools of servers.

    Args:
        system: the system with only the chosen pools.
        wholes: the servers whose pools are wanted, by name.
        candidates: candidates of the system, which may have those of all pools; None to size them.
    """
    sized = None if candidates is None else candidates.of_all_pools
    if sized is not None:
        return sized
    alone = replace(system, servers=sorted_by_key(wholes), kept=MappingProxyType({}))
    return find_candidates(alone.with_all_pools())
