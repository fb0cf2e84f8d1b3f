"""Delays of tokens between engine and client: connection, tokenizer, pipeline, front end (eq. 100)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.law import Coefficients, IterationCoefficients
from optimizer.timing.engine import PAUSE_MS


def client_ms(rows: npt.NDArray[Any], times: Coefficients) -> FloatArray:
    """Return the delay of each request's tokens at the client [ms], shape (R,).

    Args:
        rows: completed requests as records of the engine.
        times: latency model; only the iteration model has client delays.
    """
    if not isinstance(times, IterationCoefficients):
        return np.zeros(len(rows))
    if not (times.pipeline_depth or times.front_end_lag or times.pause_offset_ms or times.idle_offset_ms):
        return np.full(len(rows), times.client_offset_ms)
    others = in_progress(rows["sent_ms"], rows["last_ms"])
    return delay_ms(times, others, _token_ms(rows), _pause_ms(rows["sent_ms"]))


def delay_ms(
    times: IterationCoefficients, others: IntArray, token_ms: FloatArray, pause_ms: FloatArray
) -> FloatArray:
    """Return the delay of each request's tokens at the client [ms] (eq. 100), shape (R,).

    Args:
        times: latency model.
        others: number of other requests in progress when the request is sent.
        token_ms: mean ITL of the request.
        pause_ms: time since the previous request was sent.
    """
    other = np.minimum(others, 1)
    lag_ms = times.client_offset_ms + (times.pipeline_depth * other + times.front_end_lag * others) * token_ms
    lag_ms += times.idle_offset_ms * (1 - other)
    return lag_ms - times.pause_offset_ms * other * np.expm1(-pause_ms / PAUSE_MS)


def _pause_ms(sent_ms: FloatArray) -> FloatArray:
    """Return the time between each request and the one sent before it [ms], shape (R,); NaN if not sent."""
    order = np.argsort(sent_ms, kind="stable")
    pause = np.empty(len(sent_ms))
    pause[order] = np.diff(sent_ms[order], prepend=-np.inf)
    return pause


def in_progress(sent_ms: FloatArray, last_ms: FloatArray) -> IntArray:
    """Return the number of other requests in progress when each request is sent, shape (R,).

    Requests that are sent at the same time count.
    """
    sent, ended = np.sort(sent_ms), np.sort(last_ms[~np.isnan(last_ms)])
    before = np.searchsorted(sent, sent_ms, side="right") - 1
    over = np.searchsorted(ended, sent_ms, side="right")
    return np.asarray(np.maximum(before - over, 0))


def _token_ms(rows: npt.NDArray[Any]) -> FloatArray:
    """Return the mean ITL of each output [ms], shape (R,); the overall mean for outputs without an ITL."""
    gaps = rows["out_tokens"] - 1
    spans = rows["last_ms"] - rows["first_ms"]
    known = (gaps > 0) & ~np.isnan(spans)
    mean_ms = float(spans[known].sum() / gaps[known].sum()) if known.any() else 0.0
    return np.where(known, spans / np.maximum(gaps, 1), mean_ms)
