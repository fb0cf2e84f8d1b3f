"""Length distributions as points: rows of requests with fixed lengths.

A prefill time is not linear in the prompt length, and its percentiles depend on the lengths, so a row with a
coefficient of variation is divided into points. Arrays have shape (R, H).
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from optimizer.arrays import FloatArray, RowArrays
from optimizer.queueing.performance import Variability
from optimizer.queueing.shapes import ShapeRows, row_sum
from optimizer.timing.engine import EngineLaw

MIDDLE_BINS, TAIL_HALVINGS = 16, 8
"""Bins of equal share of a distribution, and the number of times that the last of these is halved."""
MAX_TO_MEAN = 16.0
"""Largest length of a lognormal distribution divided by its mean, as in the simulator."""


@dataclass(frozen=True, slots=True)
class LengthPoints(RowArrays):
    """Points of the loads of R replicas, shapes (R, H); missing points have the weight 0."""

    weight: FloatArray
    """Share of the requests of a replica at each point."""
    computed: FloatArray
    """X: prompt tokens to compute."""
    cached: FloatArray
    """C: prompt tokens in the prefix cache."""

    @classmethod
    def of(cls, rows: ShapeRows) -> "LengthPoints":
        """Return rows without variation of the computed tokens as points."""
        return cls(rows.weight, rows.computed, rows.cached)

    @property
    def pairs(self) -> FloatArray:
        """A: pairs of a computed token and an earlier one of its prompt."""
        return np.asarray(self.computed * (self.cached + self.computed / 2))

    def mean(self, values: FloatArray) -> FloatArray:
        """Return means over all requests of values of points, shapes (R, H) and (R,)."""
        return row_sum(self.weight * values)


def rows_of_law(law: EngineLaw, variability: Variability) -> ShapeRows:
    """Return the rows of loads: those of request shapes, or one row with the means of each latency model."""
    squares = variability.in_tokens_cv**2, variability.out_tokens_cv**2
    means = np.maximum(law.in_tokens, 1.0), law.out_tokens
    return variability.shapes or ShapeRows.of_means(*means, *squares)


def divided(rows: ShapeRows, bins: int = MIDDLE_BINS, halvings: int = TAIL_HALVINGS) -> ShapeRows:
    """Divide rows by their number of computed tokens into conditional means of bins (eq. 288).

    Rows stay as they are if no load varies.

    Args:
        rows: rows of loads; the number of computed tokens of a row is lognormal.
        bins: number of bins of equal share.
        halvings: number of times that the last bin is halved.
    """
    if not rows.computed_scv.any():
        return replace(rows, computed=np.maximum(rows.computed, 1.0))
    shares, edges = _bins(bins, halvings)
    deviation = np.sqrt(np.log1p(rows.computed_scv))[..., np.newaxis]
    ratio = _partial_means(edges, deviation) / shares
    ratio /= (shares * ratio).sum(axis=2)[..., np.newaxis]
    size = rows.weight.shape[0], -1

    def spread(values: npt.NDArray[Any], factor: FloatArray | float = 1.0) -> npt.NDArray[Any]:
        return np.asarray((values[..., np.newaxis] * np.broadcast_to(factor, ratio.shape)).reshape(size))

    every = {name: spread(getattr(rows, name)) for name in ("cached", "stored", "answer", "answer_scv")}
    return replace(
        rows,
        weight=spread(rows.weight, shares),
        computed=np.maximum(spread(rows.computed, ratio), 1.0),
        computed_scv=np.zeros_like(every["cached"]),
        shape=spread(rows.shape, 1.0).astype(np.int64),
        **every,
    )


@cache
def _bins(bins: int, halvings: int) -> tuple[FloatArray, FloatArray]:
    """Return the shares of the bins, and the standard normal quantiles between them."""
    from scipy.special import ndtri

    last = 1 / bins
    halves = last / 2.0 ** np.arange(1, halvings + 1)
    end = halves[-1:] if halvings else [last]
    shares = np.concatenate([np.full(bins - 1, last), halves, end])
    bounds = np.concatenate([[0.0], np.cumsum(shares[:-1]), [1.0]])
    return shares, ndtri(bounds)


def _partial_means(edges: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return E[X; bin] of a lognormal variable with mean 1 that is cut at `MAX_TO_MEAN`, by bin.

    Args:
        edges: standard normal quantiles between the bins.
        deviation: standard deviation of the logarithm, shape (R, H, 1).
    """
    from scipy.special import ndtr

    wide = np.maximum(deviation, 1e-9)
    cut = np.clip((np.log(MAX_TO_MEAN) + wide**2 / 2) / wide, edges[:-1], edges[1:])
    below = ndtr(cut - wide) - ndtr(edges[:-1] - wide)
    beyond = ndtr(edges[1:]) - ndtr(cut)
    return np.where(deviation > 0, below + MAX_TO_MEAN * beyond, np.diff(ndtr(edges)))
