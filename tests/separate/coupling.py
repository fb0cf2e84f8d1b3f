"""Rows that keep separate servers on different accelerator types.

The variable z_st states whether server s runs on type t: the columns x of s on t satisfy Σx <= M·z_st, and
separate servers s and u satisfy z_st + z_ut <= 1.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.candidates import Candidates, CandidateTable
from optimizer.features.separate.fields import apart_from
from optimizer.milp.model import ModelRows
from optimizer.spec.system import System
from optimizer.topologies.topology import Label, ModelColumns, Topology, Variables


def _pairs(system: System) -> list[tuple[str, str]]:
    found = ((name, apart_from(server)) for name, server in system.servers.items())
    return [(name, other) for name, other in found if other is not None]


@dataclass(frozen=True)
class Separation(Topology):
    """Pairs of separate servers of a problem."""

    place: ClassVar[str] = "servers"
    name: ClassVar[str] = "separate servers"
    advice: ClassVar[str] = "separate fewer servers"
    shortage: ClassVar[str] = "there are cards for it, but not of types without a server apart from it"
    pairs: tuple[tuple[int, int], ...]
    type_of: IntArray
    """Type of each accelerator as a number, -1 for rentals and shared cards."""
    served_by_rows: BoolArray
    idle: BoolArray

    @classmethod
    def coupled(cls, system: System) -> Collection[str]:
        """Return the separate servers, which the field of one of them names."""
        return {name for pair in _pairs(system) for name in pair}

    @classmethod
    def rows(cls, candidates: Candidates) -> Sequence[CandidateTable]:  # noqa: ARG003
        """Return no candidates: there are no further replicas."""
        return []

    @classmethod
    def of(cls, candidates: Candidates, added: BoolArray, servers: int) -> "Separation | None":  # noqa: ARG003
        """Return the pairs; None if there are none."""
        names = {name: s for s, name in enumerate(candidates.arrays.server_names)}
        pairs = tuple((names[a], names[b]) for a, b in _pairs(candidates.system))
        types = [item.type for item in candidates.system.accelerators.values()]
        number = np.append(np.unique(types, return_inverse=True)[1], [-1, -1])
        nobody = frozen(np.zeros(servers, np.bool_))
        return cls(pairs, frozen(number), nobody, nobody) if pairs else None

    def take(self, rows: IntArray | BoolArray, servers: BoolArray | None = None) -> "Separation":  # noqa: ARG002
        """Return the pairs, only of the given servers."""
        return replace(self, pairs=tuple(p for p in self.pairs if servers is None or servers[[*p]].all()))

    def groups(self) -> Iterator[Sequence[int]]:
        """Yield the pairs, which must be solved together."""
        yield from self.pairs

    def dominance_groups(self, table: CandidateTable) -> tuple[BoolArray, ...]:
        """Return keys by which candidates on different types never dominate each other."""
        masks = [self.type_of[table.accelerator] == t for t in np.unique(self.type_of).tolist()]
        return (*masks, *(~mask for mask in masks))

    def in_full(self, table: CandidateTable, replicas: IntArray, full: BoolArray) -> BoolArray:
        """Return a mask of servers served in full, of a pair on a common type only one."""
        found = full.copy()
        for one, other in self.pairs:
            common = self._types(table, replicas, one) & self._types(table, replicas, other)
            found[other] &= not common
        return found

    def _types(self, table: CandidateTable, replicas: IntArray, server: int) -> set[int]:
        rows = np.flatnonzero((table.server == server) & (replicas > 0))
        return set(self.type_of[table.accelerator[rows]].tolist())

    def block(self, table: CandidateTable, columns: ModelColumns) -> tuple[Variables, ModelRows]:
        """Return a variable for each separate server and type, and the rows."""
        server, type_of = table.server[columns.rows], self.type_of[table.accelerator[columns.rows]]
        mine = sorted({s for pair in self.pairs for s in pair})
        keys = [(s, t) for s in mine for t in np.unique(type_of[server == s]).tolist()]
        z, rows = {key: columns.first + place for place, key in enumerate(keys)}, ModelRows()
        for (s, t), variable in z.items():
            x = np.flatnonzero((server == s) & (type_of == t))
            most = float(columns.most[x].sum())
            rows.add_one(-np.inf, 0.0, (x, np.ones(len(x))), ([variable], [-most]))
        for one, other in self.pairs:
            for t in (t for s, t in keys if s == one and (other, t) in z):
                rows.add_one(-np.inf, 1.0, ([z[one, t], z[other, t]], [1.0, 1.0]))

        def point(replicas: IntArray) -> FloatArray:
            return np.array([float(t in self._types(table, replicas, s)) for s, t in keys])

        def labels() -> Iterator[Label]:
            for s, t in keys:
                yield f"on_{s}_{t}", f"runs on type {t}", s, -1

        return Variables(np.ones(len(keys)), point, labels), rows


COUPLING = Separation
