"""Distributions of request lengths: a mean number of tokens and their variability."""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from optimizer.arrays import IntArray

MAX_TO_MEAN_RATIO = 16
"""Maximum of lognormal lengths divided by their mean; one request in ten thousand exceeds it at a CV of 1."""


class LengthDistribution(StrEnum):
    """Type of a length distribution."""

    FIXED = "fixed"
    UNIFORM = "uniform"
    LOGNORMAL = "lognormal"


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of prompt or output lengths in integer tokens, with a lower bound."""

    distribution: LengthDistribution
    mean: float
    """Mean [tokens]; a fixed length that is not an integer is drawn from the two adjacent integers."""
    variation: float = 0.0
    """Spread. Uniform: half-width divided by the mean, 0 … 1. Lognormal: coefficient of variation."""
    least: int = 0
    """Lower bound [tokens]."""

    @classmethod
    def with_cv(cls, mean: float, cv: float, least: int = 0) -> "Lengths":
        """Return a fixed length if the coefficient of variation is 0, else a lognormal distribution."""
        return cls(LengthDistribution.LOGNORMAL if cv > 0 else LengthDistribution.FIXED, mean, cv, least)

    def draw(self, count: int, rng: np.random.Generator) -> IntArray:
        """Draw `count` random lengths [tokens], shape (count,)."""
        if self.distribution is LengthDistribution.UNIFORM:
            low = math.ceil(self.mean * (1 - self.variation))
            high = max(math.floor(self.mean * (1 + self.variation)), low)
            drawn = rng.integers(low, high, count, endpoint=True)
        elif self.distribution is LengthDistribution.LOGNORMAL and self.mean > 0:
            variance = math.log1p(self.variation * self.variation)
            lengths = rng.lognormal(math.log(self.mean) - variance / 2, math.sqrt(variance), count)
            drawn = np.rint(np.minimum(lengths, MAX_TO_MEAN_RATIO * self.mean)).astype(np.int64)
        else:
            whole, part = divmod(self.mean, 1)
            drawn = np.full(count, int(whole), dtype=np.int64)
            if part > 0:
                drawn += rng.random(count) < part
        return np.maximum(drawn, self.least)
