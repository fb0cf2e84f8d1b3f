"""Twins: units of an artificial server, which stand in other places than the replicas that they mirror.

A mirrored server with x_p replicas and y_p twins in place p needs Σy >= Σx, and Σy - y_p >= x_p for each
place. By Hall's theorem every replica then has a twin of its own elsewhere.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.candidates import Candidates, CandidateTable
from optimizer.candidates.table import Source
from optimizer.features.mirrored.fields import is_mirrored
from optimizer.milp.model import ModelRows
from optimizer.spec.system import System
from optimizer.topologies.topology import ModelColumns, Topology, Variables


@dataclass(frozen=True)
class Mirrors(Topology):
    """Mirrored servers of a problem."""

    place: ClassVar[str] = "servers"
    name: ClassVar[str] = "mirrored servers"
    advice: ClassVar[str] = "mirror fewer servers"
    extra_servers: ClassVar[int] = 1
    role: ClassVar[str] = "twin"
    shortage: ClassVar[str] = "there are cards for its replicas, but not for their twins in other places"
    owner: IntArray
    """Mirrored server of each unit, shape (T,)."""
    most: IntArray
    """Largest useful number of twins, shape (T,)."""
    place_of: IntArray
    """Place of each accelerator as a number, shape (A,)."""
    served_by_rows: BoolArray
    optional: BoolArray

    @classmethod
    def coupled(cls, system: System) -> Collection[str]:
        """Return the mirrored servers."""
        return [name for name, server in system.servers.items() if is_mirrored(server)]

    @classmethod
    def _mine(cls, candidates: Candidates) -> CandidateTable:
        names = cls.coupled(candidates.system)
        mine = [s for s, name in enumerate(candidates.arrays.server_names) if name in names]
        return candidates.table.take(np.isin(candidates.table.server, mine))

    @classmethod
    def added_tables(cls, candidates: Candidates) -> Sequence[CandidateTable]:
        """Return a unit for each candidate of a mirrored server."""
        mine = cls._mine(candidates)
        ones = np.ones(len(mine), np.int64)
        if not len(mine):
            return []
        changes: dict[str, Any] = {
            "server": ones * len(candidates.arrays.server_names),
            "num_replicas": ones,
            "max_rate_rps": ones * 1.0,
            "load_rps": ones * 0.0,
            "utilization": ones * 0.0,
            "loss": ones * 0.0,
            "meets_targets_below_max_rate": ones > 0,
            "source": ones * Source.units,
            "pattern": np.arange(len(mine)),
        }
        return [replace(mine, **{name: frozen(values) for name, values in changes.items()})]

    @classmethod
    def of(cls, candidates: Candidates, added: BoolArray, servers: int) -> "Mirrors | None":  # noqa: ARG003
        """Return the mirrored servers; None if none has a candidate."""
        mine, nobody = cls._mine(candidates), frozen(np.zeros(servers, np.bool_))
        if not len(mine):
            return None
        places = [str(item.place) for item in candidates.system.accelerators.values()]
        number = np.unique(places, return_inverse=True)[1]
        most = np.zeros(servers, np.int64)
        np.maximum.at(most, mine.server, mine.num_replicas)
        return cls(mine.server, most[mine.server], number, nobody, nobody)

    def owners(self, table: CandidateTable) -> IntArray:
        """Return the server that has a unit as a twin; -1 for other rows, shape (C,)."""
        return np.where(table.pattern >= 0, self.owner[np.maximum(table.pattern, 0)], -1)

    def most_units(self, table: CandidateTable) -> FloatArray:
        """Return the number of twins that can be needed, shape (C,)."""
        return np.where(table.pattern >= 0, self.most[np.maximum(table.pattern, 0)], 0).astype(np.float64)

    def with_partners(self, chosen: BoolArray) -> BoolArray:
        """Return the chosen servers, plus the artificial server of the twins."""
        return np.append(chosen[:-1], True)

    def groups(self) -> Iterator[Sequence[int]]:
        """Yield the mirrored servers together with the artificial server of the twins."""
        yield *np.unique(self.owner).tolist(), len(self.optional) - 1

    def in_full(self, table: CandidateTable, replicas: IntArray, full: BoolArray) -> BoolArray:
        """Return a mask of servers served in full; mirrored ones only with twins for all replicas."""
        found = full.copy()
        for server in np.unique(self.owner).tolist():
            counts = np.where(table.source == Source.coupled, replicas, 0)
            here = self._by_place(table, np.where(table.server == server, counts, 0))
            there = self._by_place(table, np.where(self.owners(table) == server, replicas, 0))
            found[server] &= (here <= there.sum() - there).all() and here.sum() <= there.sum()
        return found

    def _by_place(self, table: CandidateTable, counts: IntArray) -> FloatArray:
        own = np.flatnonzero(counts)
        places = self.place_of[table.accelerator[own]]
        return np.bincount(places, counts[own], self.place_of.max() + 1).astype(np.float64)

    def block(self, table: CandidateTable, columns: ModelColumns) -> tuple[Variables, ModelRows]:
        """Return rows that require a twin elsewhere for every replica."""
        rows, endless = ModelRows(), np.full(1, np.inf)
        source, owners = table.source[columns.candidates], self.owners(table)[columns.candidates]
        place, server = self.place_of[table.accelerator[columns.candidates]], table.server[columns.candidates]
        for owner in np.unique(self.owner).tolist():
            mine = np.flatnonzero((source == Source.coupled) & (server == owner))
            twins = np.flatnonzero(owners == owner)
            for here in [None, *np.unique(place[mine]).tolist()]:
                x = mine if here is None else mine[place[mine] == here]
                y = twins if here is None else twins[place[twins] != here]
                need = 0 * x, x, -columns.replicas_each[x].astype(np.float64)
                rows.add(np.zeros(1), endless, need, (0 * y, y, np.ones(len(y))))
        return Variables(np.zeros(0), lambda _: np.zeros(0), tuple), rows


TOPOLOGY = Mirrors
