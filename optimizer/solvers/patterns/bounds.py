"""A bound of a level from multipliers, by plain arithmetic rounded to the safe side.

For any prices of the shared rows, no answer is less than what servers choose at these prices, each for
itself, less what the rows' limits are worth. Equation numbers refer to ``docs/math.md``.
"""

import math
from dataclasses import dataclass

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.solvers.patterns.pool import priced
from optimizer.solvers.patterns.program import Program

ULP = 2.0**-52


def bound_of(program: Program, prices: FloatArray, least: FloatArray) -> float:
    """Return the bound that prices prove.

    Args:
        program: the level.
        prices: one for each shared row, not below zero.
        least: the least reduced cost of each server that chooses, over all options that it has; infinity
            where it has none, so that there is no answer.
    """
    if np.isposinf(least).any():
        return math.inf
    worth = np.multiply(prices, program.limits, out=np.zeros(len(prices)), where=prices > 0)
    return _rounded_down(least, worth, np.abs(least))


@dataclass(frozen=True, slots=True)
class Ranged:
    """Options by what they weigh and take, where shared rows have limits on both sides."""

    weight: FloatArray
    """Shape (P,)."""
    shared: FloatArray
    """What each takes of every shared row, shape (P, rows)."""
    place: IntArray
    """Place of each option's server among those that choose, shape (P,)."""
    servers: int
    """How many choose; where one has no option there is no answer, and bounds are infinite."""

    def bound(
        self, prices: FloatArray, lower: FloatArray, upper: FloatArray, scale: float = 1.0
    ) -> tuple[float, FloatArray]:
        """Return the bound that prices prove (eq. 135), and by how much each option is above it, shape (P,).

        Args:
            prices: one for each shared row: at most zero where only its upper limit counts, at least zero
                where only its lower one does; those of a limit that is none do not count.
            lower: shape (rows,).
            upper: shape (rows,).
            scale: of the weights; with 0 it is by how much a bound grows along the prices.
        """
        limits = np.where(prices > 0, lower, upper)
        prices = np.where(np.isfinite(limits), prices, 0.0)
        reduced = priced(scale * self.weight, self.shared, -prices)
        least = np.full(self.servers, np.inf)
        np.minimum.at(least, self.place, reduced)
        # Prices of both signs can cancel out: what counts for rounding is the size of what is added.
        size = np.zeros(self.servers)
        added = priced(np.abs(scale * self.weight), np.abs(self.shared), np.abs(prices))
        np.maximum.at(size, self.place, added)
        worth = -np.multiply(prices, limits, out=np.zeros(len(prices)), where=prices != 0)
        return _rounded_down(least, worth, size), reduced - least[self.place]


def _rounded_down(least: FloatArray, worth: FloatArray, size: FloatArray) -> float:
    """Return what servers choose less what limits are worth, less what rounding can have added to it.

    Args:
        least: the least reduced cost of each server, shape (S,).
        worth: what each row's limit is worth, shape (rows,).
        size: of what was added up to each reduced cost, shape (S,).
    """
    total = math.fsum([*least.tolist(), *(-worth).tolist()])
    # Each term is a sum of few products.
    terms = len(worth) + 8
    return total - terms * ULP * math.fsum([*size.tolist(), *np.abs(worth).tolist()])
