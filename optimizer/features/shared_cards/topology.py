"""Constraints of shared cards: units of patterns must carry the load of servers on shared cards.

A pattern is a combination of replicas on one card, and a unit is one card with this pattern. Units are
replicas of an artificial server, whose index is the last plus 1. A candidate "on shared cards" of a server
costs nothing, but requires units that carry its load. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.candidates import Candidates, CandidateTable
from optimizer.candidates.table import Source
from optimizer.features.shared_cards.rows import card_rows
from optimizer.milp.model import COVER_SCALE, ModelRows
from optimizer.tolerances import COVER
from optimizer.topologies.topology import ModelColumns, Topology, Variables


@dataclass(frozen=True)
class CardTopology(Topology):
    """The topology of shared cards: the rates that one card of each pattern carries."""

    place: ClassVar[str] = "servers"
    name: ClassVar[str] = "shared cards"
    advice: ClassVar[str] = "give fewer servers sharedCard"
    extra_servers: ClassVar[int] = 1
    servers: IntArray
    """Indices of the servers that can share cards, shape (K,)."""
    load_rps: FloatArray
    """Loads of the servers that can share cards [requests/s], shape (K,)."""
    rates_rps: FloatArray
    """Rate of each server that one unit of each pattern carries [requests/s], shape (K, P)."""
    served_by_rows: BoolArray
    """Mask without any server, because candidates carry the load of servers on shared cards; shape (S,)."""
    optional: BoolArray

    @classmethod
    def added_tables(cls, candidates: Candidates) -> Sequence[CandidateTable]:
        """Return the tables of additional candidates: servers on shared cards, and a unit of each pattern."""
        return [] if candidates.shared is None else card_rows(candidates, candidates.shared)

    @classmethod
    def of(cls, candidates: Candidates, added: BoolArray, servers: int) -> "CardTopology | None":  # noqa: ARG003
        """Create the topology of a system's shared cards; None if no server can share a card."""
        shared, nobody = candidates.shared, frozen(np.zeros(servers, np.bool_))
        if shared is None:
            return None
        return cls(shared.servers, shared.load_rps, frozen(shared.rates_rps), nobody, nobody)

    def with_partners(self, chosen: BoolArray) -> BoolArray:
        """Return the mask `chosen` of servers with the artificial server of the units set."""
        return np.append(chosen[:-1], True)

    def groups(self) -> Iterator[Sequence[int]]:
        """Yield one group: the indices of the servers that can share cards, and of the artificial server."""
        yield *self.servers.tolist(), len(self.optional) - 1

    def differs(self, other: Topology) -> bool:
        """Return whether the patterns of another topology have different rates."""
        return not (isinstance(other, CardTopology) and np.array_equal(self.rates_rps, other.rates_rps))

    def shares(self, pattern: IntArray) -> FloatArray:
        """Return the share of each server's load, at most 1, that a unit of each row carries; shape (K, R).

        Args:
            pattern: index of each row's pattern, shape (R,); rows without a pattern carry nothing.
        """
        is_unit = pattern >= 0
        if not self.rates_rps.size:
            return np.zeros((len(self.servers), len(pattern)))
        rates = np.where(is_unit, self.rates_rps[:, np.where(is_unit, pattern, 0)], 0.0)
        return np.minimum(rates / self.load_rps[:, None], 1.0)

    def most_units(self, table: CandidateTable) -> FloatArray:
        """Return the maximum useful number of units of each pattern row, shape (C,); 0 for other rows."""
        shares = self.shares(table.pattern)
        needed = np.divide(1.0, shares, out=np.zeros_like(shares), where=shares > 0)
        most: FloatArray = np.ceil(needed * (1 - COVER)).max(axis=0, initial=0.0)
        return most

    def carried(self, table: CandidateTable, replicas: IntArray) -> BoolArray:
        """Return a mask of sharing servers whose load the units of a solution carry, shape (K,) (eq. 233)."""
        taken = np.flatnonzero((replicas > 0) & (table.pattern >= 0))
        rates = self.rates_rps[:, table.pattern[taken]] @ replicas[taken]
        return np.asarray(rates >= self.load_rps * (1 - 2 * COVER))

    def in_full(self, table: CandidateTable, replicas: IntArray, full: BoolArray) -> BoolArray:
        """Return the mask `full` of servers served in full; on shared cards, units must carry their load."""
        lacking = np.zeros(len(full), np.bool_)
        lacking[table.server[(replicas > 0) & (table.source == Source.on_cards)]] = True
        lacking[self.servers[self.carried(table, replicas)]] = False
        return full & ~lacking

    def block(self, table: CandidateTable, columns: ModelColumns) -> tuple[Variables, ModelRows]:
        """Return constraints that make units carry the loads of servers on shared cards (eq. 233)."""
        pattern, count = table.pattern[columns.candidates], len(self.servers)
        shares, rows = self.shares(pattern), ModelRows()
        place = np.full(len(self.optional), -1)
        place[self.servers] = np.arange(count)
        server, column = np.nonzero(shares)
        on_cards = np.flatnonzero(table.source[columns.candidates] == Source.on_cards)
        rows.add(
            np.full(count, -COVER_SCALE * COVER),
            np.full(count, np.inf),
            (server, column, COVER_SCALE * shares[server, column]),
            (
                place[table.server[columns.candidates[on_cards]]],
                on_cards,
                np.full(len(on_cards), -COVER_SCALE),
            ),
        )
        return Variables(np.zeros(0), lambda _: np.zeros(0), tuple), rows

    def without_unused(self, table: CandidateTable, replicas: IntArray) -> IntArray:
        """Return the solution without units whose pattern has no server that is on shared cards.

        Solvers can leave such units in a solution if they cost nothing.
        """
        on_cards = np.isin(self.servers, table.server[(replicas > 0) & (table.source == Source.on_cards)])
        carries = (self.rates_rps[on_cards] > 0).any(axis=0)
        is_unit = table.pattern >= 0
        unused = is_unit & ~np.append(carries, False)[np.where(is_unit, table.pattern, -1)]
        return np.where(unused, 0, replicas)


TOPOLOGY = CardTopology
