"""Estimates loads from measurements: arrivals, token lengths and their variation.

Completions are not arrivals: in overload they equal the capacity, so a plan for them would never grow.
Therefore arrivals are computed by conservation: each request has got its first token, is still waiting, or
was rejected.
"""

from dataclasses import dataclass, field

import numpy as np

from optimizer.arrays import FloatArray
from rest_server.loop.window import Buckets, Counts, Window, summed

MIN_LENGTHS = 30.0
"""Minimum number of requests from which token lengths are estimated."""
MAX_LENGTHS = 4000.0
"""Number of past requests beyond which older ones lose weight. A mean of lengths with a coefficient of
variation of 1 then has a standard error of 1.6 %.
"""
LENGTHS_SPAN_S = 1800.0
"""Time in which the weight of past lengths falls to 37 % [s]."""


def offered_rps(window: Window) -> float:
    """Return the arrival rate in a window [requests/s]."""
    return window.counts.arrivals / window.counts.span_s


def completions_rps(window: Window) -> float:
    """Return the rate of completed requests in a window [requests/s], for comparison only."""
    return window.counts.completed / window.counts.span_s


@dataclass(frozen=True, slots=True)
class LengthMemory:
    """Statistics on the token lengths of past requests; older requests have less weight."""

    seen_s: float = 0.0
    """Time of the last update [s since the epoch]."""
    counts: Counts = field(default_factory=Counts)

    def after(self, window: Window, now_s: float) -> "LengthMemory":
        """Return the statistics with that part of a window added that is newer than the last update."""
        counts = window.counts
        passed_s = min(max(0.0, now_s - self.seen_s), counts.span_s)
        new = counts.times(passed_s / counts.span_s)
        count = max(self.counts.prompts, self.counts.answers)
        weight = min(1.0, MAX_LENGTHS / count) if count else 1.0
        old = self.counts.times(weight * float(np.exp(-passed_s / LENGTHS_SPAN_S)))
        return LengthMemory(now_s, summed([old, new]))

    @property
    def in_tokens(self) -> float | None:
        """Mean prompt length [tokens]; None if unknown."""
        counts = self.counts
        return counts.prompt_tokens / counts.prompts if counts.prompts >= MIN_LENGTHS else None

    @property
    def out_tokens(self) -> float | None:
        """Mean output length [tokens]; None if unknown."""
        counts = self.counts
        return counts.answer_tokens / counts.answers if counts.answers >= MIN_LENGTHS else None

    @property
    def in_tokens_cv(self) -> float | None:
        """Coefficient of variation of the prompt length; None if unknown."""
        return None if self.in_tokens is None else variation(self.counts.prompt_buckets, self.in_tokens)

    @property
    def out_tokens_cv(self) -> float | None:
        """Coefficient of variation of the output length; None if unknown."""
        return None if self.out_tokens is None else variation(self.counts.answer_buckets, self.out_tokens)

    @property
    def prefix_share(self) -> float | None:
        """Fraction of the prompt tokens that the prefix cache contained; None if unknown."""
        counts = self.counts
        known = counts.prefix_queries > 0 and counts.prompts >= MIN_LENGTHS
        return counts.prefix_hits / counts.prefix_queries if known else None


CVS = np.concatenate([np.linspace(0.02, 2.0, 100), np.linspace(2.05, 5.0, 60)])
"""Coefficients of variation among which the most likely one is chosen."""


def lognormal_below(bounds: FloatArray, mean: float, cv: FloatArray) -> FloatArray:
    """Return the probability that a lognormal length is at most each bound, given its mean and CV."""
    from scipy.special import ndtr

    sigma = np.sqrt(np.log1p(cv**2))
    result: FloatArray = ndtr((np.log(np.maximum(bounds, 1e-9) / mean) + sigma**2 / 2) / sigma)
    return result


def variation(buckets: Buckets, mean: float) -> float | None:
    """Return the coefficient of variation of lengths in a histogram; None if there are too few values.

    It is the maximum of the likelihood of the counts over lognormal and gamma distributions with this mean,
    because second moments from the bounds of wide buckets would be far too large.

    Args:
        buckets: number of values by upper bound.
        mean: their mean, known from the sum and the number of values.
    """
    from scipy.special import gammainc

    bounds = np.array(sorted(buckets))
    counts = np.array([buckets[bound] for bound in sorted(buckets)])
    if counts.sum() < MIN_LENGTHS or mean <= 0:
        return None
    shape = CVS[:, None] ** -2.0
    lognormal = lognormal_below(bounds, mean, CVS[:, None])
    gamma = gammainc(shape, shape * np.minimum(bounds, 1e12) / mean)
    fits = [
        (counts * np.log(np.maximum(np.diff(below, axis=1, prepend=0.0), 1e-12))).sum(axis=1)
        for below in (lognormal, gamma)
    ]
    return float(CVS[int(np.argmax(np.maximum(*fits)))])
