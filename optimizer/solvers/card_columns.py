"""Shared cards in a model: the rates that units of each pattern carry of each server.

Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.candidates import CandidateTable
from optimizer.candidates.card_patterns import SharedCards
from optimizer.candidates.table import ON_SHARED_CARDS
from optimizer.milp.model import COVER_TOLERANCE


@dataclass(frozen=True, slots=True)
class CardColumns:
    """Rates of servers on shared cards."""

    servers: IntArray
    """Shape (K,)."""
    load_rps: FloatArray
    """Shape (K,)."""
    rates_rps: FloatArray
    """Rate that one unit of each pattern carries of each server, shape (K, P)."""

    @classmethod
    def of(cls, shared: SharedCards) -> "CardColumns":
        """Return the rates of patterns."""
        return cls(shared.servers, shared.load_rps, frozen(shared.rates_rps))

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

    def most_units(self, pattern: IntArray) -> FloatArray:
        """Return the units of each row above which more carry nothing, shape (R,); 0 for other rows."""
        shares = self.shares(pattern)
        needed = np.divide(1.0, shares, out=np.zeros_like(shares), where=shares > 0)
        most: FloatArray = np.ceil(needed * (1 - COVER_TOLERANCE)).max(axis=0, initial=0.0)
        return most

    def carried(self, table: CandidateTable, replicas: IntArray) -> BoolArray:
        """Return whether the units of an answer carry the load of each server, shape (K,) (eq. 233)."""
        taken = np.flatnonzero((replicas > 0) & (table.pattern >= 0))
        rates = self.rates_rps[:, table.pattern[taken]] @ replicas[taken]
        return np.asarray(rates >= self.load_rps * (1 - 2 * COVER_TOLERANCE))

    def lacks(self, table: CandidateTable, replicas: IntArray, servers: int) -> BoolArray:
        """Return the servers that an answer puts on shared cards that do not carry them, shape (S,)."""
        lacking = np.zeros(servers, np.bool_)
        taken = table.server[(replicas > 0) & (table.pattern == ON_SHARED_CARDS)]
        lacking[taken] = True
        lacking[self.servers[self.carried(table, replicas)]] = False
        return lacking

    def without_idle_units(self, table: CandidateTable, replicas: IntArray) -> IntArray:
        """Return an answer without the units of patterns that carry no server on shared cards.

        A solver may leave such units in an answer if they cost nothing.
        """
        on_cards = np.isin(self.servers, table.server[(replicas > 0) & (table.pattern == ON_SHARED_CARDS)])
        carries = (self.rates_rps[on_cards] > 0).any(axis=0)
        is_unit = table.pattern >= 0
        idle = is_unit & ~np.append(carries, False)[np.where(is_unit, table.pattern, -1)]
        return np.where(idle, 0, replicas)


def with_server_behind(values: Any, last: float) -> Any:
    """Return values by server, shape (S,), with that of a server behind the last."""
    return frozen(np.append(values, np.array(last, values.dtype)))
