"""Shared cards: the rates that units of each pattern carry of each server.

The units are replicas of a server behind the last; a candidate "on shared cards" of a server costs nothing
and needs units that carry its load. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.candidates import Candidates, CandidateTable
from optimizer.candidates.card_rows import card_rows
from optimizer.candidates.table import ON_SHARED_CARDS
from optimizer.milp.model import COVER_SCALE, COVER_TOLERANCE
from optimizer.milp.rows import ModelRows
from optimizer.topologies.topology import ModelColumns, Topology, Variables


@dataclass(frozen=True)
class CardUnits(Topology):
    """Rates of servers on shared cards."""

    place: ClassVar[str] = "servers"
    name: ClassVar[str] = "shared cards"
    advice: ClassVar[str] = "give fewer servers sharedCard"
    extra_servers: ClassVar[int] = 1
    servers: IntArray
    """Shape (K,)."""
    load_rps: FloatArray
    """Shape (K,)."""
    rates_rps: FloatArray
    """Rate that one unit of each pattern carries of each server, shape (K, P)."""
    joint_load: BoolArray
    """No server: those on shared cards are so by a candidate."""
    idle: BoolArray

    @classmethod
    def rows(cls, candidates: Candidates) -> Sequence[CandidateTable]:
        """Return servers on shared cards, and a unit of each pattern."""
        return [] if candidates.shared is None else card_rows(candidates, candidates.shared)

    @classmethod
    def of(cls, candidates: Candidates, added: BoolArray, servers: int) -> "CardUnits | None":  # noqa: ARG003
        """Return the rates of patterns; None if no server may share a card."""
        shared, nobody = candidates.shared, frozen(np.zeros(servers, np.bool_))
        if shared is None:
            return None
        return cls(shared.servers, shared.load_rps, frozen(shared.rates_rps), nobody, nobody)

    def together(self, chosen: BoolArray) -> BoolArray:
        """Return chosen servers with the one that holds the units."""
        return np.append(chosen[:-1], True)

    def groups(self) -> Iterator[Sequence[int]]:
        """Yield the servers that can share cards, with the one that holds the units."""
        yield *self.servers.tolist(), len(self.idle) - 1

    def differs(self, other: Topology) -> bool:
        """Return whether the rates of the patterns are others."""
        return not (isinstance(other, CardUnits) and np.array_equal(self.rates_rps, other.rates_rps))

    def shares(self, pattern: IntArray) -> FloatArray:
        """Return the part of each server's load that a unit of each row carries, at most 1; shape (K, R).

        Args:
            pattern: pattern of each row; 0 is returned for those without.
        """
        is_unit = pattern >= 0
        if not self.rates_rps.size:
            return np.zeros((len(self.servers), len(pattern)))
        rates = np.where(is_unit, self.rates_rps[:, np.where(is_unit, pattern, 0)], 0.0)
        return np.minimum(rates / self.load_rps[:, None], 1.0)

    def most_units(self, table: CandidateTable) -> FloatArray:
        """Return the units of each row above which more carry nothing, shape (C,); 0 for other rows."""
        shares = self.shares(table.pattern)
        needed = np.divide(1.0, shares, out=np.zeros_like(shares), where=shares > 0)
        most: FloatArray = np.ceil(needed * (1 - COVER_TOLERANCE)).max(axis=0, initial=0.0)
        return most

    def carried(self, table: CandidateTable, replicas: IntArray) -> BoolArray:
        """Return whether the units of an answer carry the load of each server, shape (K,) (eq. 233)."""
        taken = np.flatnonzero((replicas > 0) & (table.pattern >= 0))
        rates = self.rates_rps[:, table.pattern[taken]] @ replicas[taken]
        return np.asarray(rates >= self.load_rps * (1 - 2 * COVER_TOLERANCE))

    def in_full(self, table: CandidateTable, replicas: IntArray, full: BoolArray) -> BoolArray:
        """Return the servers in full, without those on shared cards whose units do not carry them."""
        lacking = np.zeros(len(full), np.bool_)
        lacking[table.server[(replicas > 0) & (table.pattern == ON_SHARED_CARDS)]] = True
        lacking[self.servers[self.carried(table, replicas)]] = False
        return full & ~lacking

    def block(self, table: CandidateTable, columns: ModelColumns) -> tuple[Variables, ModelRows]:
        """Return rows by which units carry the loads of servers on shared cards (eq. 233)."""
        pattern, count = table.pattern[columns.rows], len(self.servers)
        shares, rows = self.shares(pattern), ModelRows()
        place = np.full(len(self.idle), -1)
        place[self.servers] = np.arange(count)
        server, column = np.nonzero(shares)
        on_cards = np.flatnonzero(pattern == ON_SHARED_CARDS)
        rows.add(
            np.full(count, -COVER_SCALE * COVER_TOLERANCE),
            np.full(count, np.inf),
            (server, column, COVER_SCALE * shares[server, column]),
            (place[table.server[columns.rows[on_cards]]], on_cards, np.full(len(on_cards), -COVER_SCALE)),
        )
        return Variables(np.zeros(0), lambda _: np.zeros(0), tuple), rows

    def tidied(self, table: CandidateTable, replicas: IntArray) -> IntArray:
        """Return an answer without the units of patterns that carry no server on shared cards.

        A solver may leave such units in an answer if they cost nothing.
        """
        on_cards = np.isin(self.servers, table.server[(replicas > 0) & (table.pattern == ON_SHARED_CARDS)])
        carries = (self.rates_rps[on_cards] > 0).any(axis=0)
        is_unit = table.pattern >= 0
        idle = is_unit & ~np.append(carries, False)[np.where(is_unit, table.pattern, -1)]
        return np.where(idle, 0, replicas)
