"""Errors of predictions relative to measurements."""

from collections.abc import Sequence

import numpy as np

from optimizer.fitting.replay import RunMetrics
from optimizer.fitting.runs import BenchmarkRun
from optimizer.schema.provenance import FitErrors

ERROR_DIGITS = 4
"""Significant digits of errors and condition numbers in documents."""


def errors_of(runs: Sequence[BenchmarkRun], figures: Sequence[RunMetrics]) -> FitErrors:
    """Return the errors of TTFT and ITL: Σ|predicted − measured| / Σ measured, and median relative error."""
    ttft, itl = (_errors(runs, figures, name) for name in ("ttft_ms", "itl_ms"))
    return FitErrors(
        ttft=ttft[0], ttft_median=ttft[1], itl=itl[0], itl_median=itl[1], runs=max(ttft[2], itl[2])
    )


def relative_error(run: BenchmarkRun, figures: RunMetrics, name: str) -> float | None:
    """Return the relative error of a predicted metric: predicted over measured, minus 1; None if unknown."""
    measured, predicted = getattr(run.measured, name), getattr(figures, name)
    if measured is None or not np.isfinite(predicted):
        return None
    return float(predicted / measured - 1)


def _errors(
    runs: Sequence[BenchmarkRun], figures: Sequence[RunMetrics], name: str
) -> tuple[float, float, int]:
    pairs = [
        (getattr(found, name), getattr(run.measured, name))
        for run, found in zip(runs, figures, strict=True)
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
