"""Finds the distribution of request lengths that all runs of a report share."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from optimizer.fitting.checks import MAX_TOKENS
from optimizer.fitting.record import RunRecord, TokenStats
from optimizer.fitting.runs import TokenCounts

UNIFORM_WITHIN = 0.12
"""Maximum relative difference from a uniform distribution's standard deviation at which lengths count as
uniform.
"""


def with_shared_lengths(runs: Sequence[RunRecord]) -> Iterator[RunRecord]:
    """Yield the runs of a report with the length distribution that the client draws from in all of them."""
    prompts, answers = ([getattr(run, name) for run in runs] for name in ("prompt", "output"))
    counts = [run.completed or 0.0 for run in runs]
    drawn = _shared(prompts, counts), _shared(answers, counts)
    for run in runs:
        yield replace(run, drawn=(drawn[0], drawn[1])) if drawn[0] and drawn[1] else run


def _shared(lengths: Sequence[TokenStats], counts: Sequence[float]) -> TokenCounts | None:
    """Return the common distribution of lengths, uniform if that fits; None if no request was completed."""
    known = [
        (one, count)
        for one, count in zip(lengths, counts, strict=True)
        if 0 < count < MAX_TOKENS and 0 < (one.mean or 0) < MAX_TOKENS
    ]
    if not known:
        return None
    weights = np.array([count for _, count in known])
    means = np.array([one.mean for one, _ in known])
    mean = float(np.average(means, weights=weights))
    spread = np.array([one.deviation or 0.0 for one, _ in known]) ** 2 + (means - mean) ** 2
    deviation = math.sqrt(float(np.average(spread, weights=weights)))
    ends = [(one.least, one.most) for one, _ in known if one.least is not None and one.most is not None]
    if ends:
        least, most = min(low for low, _ in ends), max(high for _, high in ends)
        half = (most - least) / 2
        # Requests with long outputs complete less often in time, so the range is more reliable than their
        # mean.
        if half > 0 and abs(deviation * math.sqrt(3) / half - 1) < UNIFORM_WITHIN:
            return TokenCounts.of((least + most) / 2, half / math.sqrt(3))
    return TokenCounts.of(mean, deviation)
