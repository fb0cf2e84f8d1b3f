"""Errors of predictions relative to measurements."""

from collections.abc import Sequence

import numpy as np

from optimizer.fitting.replay import RunMetrics
from optimizer.fitting.runs import BenchmarkRun
from optimizer.schema.provenance import FitErrors

ReplayedRun = tuple[BenchmarkRun, RunMetrics]
"""A run and its predicted metrics."""
ERROR_DIGITS = 4
"""Significant digits of errors and condition numbers in documents."""


def errors_of(runs: Sequence[ReplayedRun]) -> FitErrors:
    """Return the errors of TTFT and ITL: Σ|predicted − measured| / Σ measured, and median relative error."""
    ttft, itl = (errors_in(runs, name) for name in ("ttft_ms", "itl_ms"))
    return FitErrors(
        ttft=ttft[0], ttft_median=ttft[1], itl=itl[0], itl_median=itl[1], runs=max(ttft[2], itl[2])
    )


def errors_in(runs: Sequence[ReplayedRun], name: str) -> tuple[float, float, int]:
    """Return the relative error of a metric over all runs, its median, and the number of runs compared."""
    pairs = [
        (getattr(found, name), getattr(run.measured, name))
        for run, found in runs
        if getattr(run.measured, name) is not None and np.isfinite(getattr(found, name))
    ]
    if not pairs:
        return 0.0, 0.0, 0
    predicted, measured = np.array(pairs).T
    off = np.abs(predicted - measured)
    total, middle = off.sum() / measured.sum(), np.median(off / measured)
    return rounded(total, ERROR_DIGITS), rounded(middle, ERROR_DIGITS), len(pairs)


def rounded(value: float, digits: int = 6) -> float:
    """Round a value to significant digits, as in documents."""
    return float(f"{value:.{digits}g}")
