"""State of the engine between two steps: one record of the replica, and one of each request.

Lists are linked through the requests, so a step moves no data: a request is linked either to those that wait
or to those that end with the same iteration. -1 ends a list.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.requests import Requests

NO_REQUEST = -1
BLOCK = 64
"""Iterations that share one count of ends, so that the search for the next end can skip them."""

STATE = np.dtype(
    [
        ("now_ms", np.float64),
        ("iteration", np.int64),  # decode iterations so far: the clock of the ends
        ("next_end", np.int64),  # the iteration with which the next request ends
        ("decodes", np.int64),  # requests that are being answered
        ("decode_tokens", np.int64),  # their tokens in the KV cache
        ("running", np.int64),  # requests in the batch: decodes and those with prompts in the works
        ("waiting", np.int64),
        ("first_waiting", np.int64),
        ("last_waiting", np.int64),
        ("partial", np.int64),  # the request whose prompt is computed in part
        ("partial_tokens", np.int64),  # how much of it
        ("youngest", np.int64),  # the request admitted last
        ("next_row", np.int64),  # the request that is sent next
        ("asleep", np.int64),  # users who think
        ("work_prompts", np.int64),  # of the iteration that is put together: its prompts,
        ("work_tokens", np.int64),  # their tokens in it,
        ("work_attention", np.float64),  # the sum of x·(start + x/2) over them,
        ("work_completed", np.int64),  # how many of them are computed with it,
        ("work_partial", np.int64),  # and which of them in part,
        ("work_partial_tokens", np.int64),  # with how many tokens then
        ("busy_ms", np.float64),
        ("batch_ms", np.float64),  # integral of the batch over time
        (
            "token_clock",
            np.float64,
        ),  # tokens of an answer that has been there from the start, where all progress
        ("iterations", np.int64),
        ("preemptions", np.int64),
        ("rejected", np.int64),
        ("stuck", np.int64),  # whether an iteration took no time
    ],
    align=True,
)
"""Record of the replica."""

ROW = np.dtype(
    [
        ("arrival_ms", np.float64),  # when its client wants to send it; with users: when its user woke
        ("in_tokens", np.int64),
        ("out_tokens", np.int64),
        ("think_ms", np.float64),  # how long its user thinks after it
        ("sent_ms", np.float64),  # NaN, like the next two, until it happens
        ("first_ms", np.float64),
        ("last_ms", np.float64),
        ("preempted", np.int64),  # how often it lost its place
        ("made", np.int64),  # tokens of the answer before it last lost its place
        ("end", np.int64),  # iteration with which it ends
        ("link", np.int64),  # next of those that wait, or of those that end with the same iteration
        ("older", np.int64),  # the one admitted before it that still runs
        ("younger", np.int64),
    ],
    align=True,
)
"""Record of a request."""

PLACE = np.dtype(
    [
        ("prompt", np.int64),  # the request whose prompt is in the works, or is computed with this iteration
        ("prompt_left", np.float64),  # where all progress at once: what is left of the prompt, 1 … 0
    ],
    align=True,
)
"""Record of a batch slot."""


class EngineState(NamedTuple):
    """A replica and its clients."""

    state: npt.NDArray[Any]
    """One record of `STATE`."""
    rows: npt.NDArray[Any]
    """Requests as records of `ROW`, in send order; shape (R,)."""
    places: npt.NDArray[Any]
    """Records of `PLACE`, one per batch slot."""
    answer_ends: FloatArray
    """Under processor sharing: heap of the ends of outputs by the token clock."""
    answers: IntArray
    wakes_ms: FloatArray
    """Heap of the wake-up times of users, shape (users,); empty without users."""
    ends: IntArray
    """First request that ends with an iteration, by its number modulo the size, a power of two."""
    end_counts: IntArray
    """Number of ends in each block of iterations."""


def initial_state(requests: Requests, limits: Limits) -> EngineState:
    """Return an idle replica with all requests still to arrive."""
    rows = np.zeros(len(requests), ROW)
    rows["in_tokens"], rows["out_tokens"] = requests.in_tokens, requests.out_tokens
    if requests.arrival_ms is not None:
        rows["arrival_ms"] = requests.arrival_ms
    if requests.think_ms is not None:
        rows["think_ms"] = requests.think_ms
    for name in ("sent_ms", "first_ms", "last_ms"):
        rows[name] = np.nan
    state = np.zeros(1, STATE)
    for name in ("first_waiting", "last_waiting", "partial", "youngest"):
        state[name] = NO_REQUEST
    state["next_end"] = UNLIMITED
    wakes_ms = np.empty(0) if requests.wakes_ms is None else requests.wakes_ms.copy()
    state["asleep"] = len(wakes_ms)
    batch = min(limits.max_batch, len(rows)) + 1
    blocks = 1
    while blocks * BLOCK <= int(requests.out_tokens.max(initial=1)):
        blocks *= 2
    return EngineState(
        state=state,
        rows=rows,
        places=np.zeros(batch, PLACE),
        answer_ends=np.zeros(batch),
        answers=np.zeros(batch, np.int64),
        wakes_ms=wakes_ms,
        ends=np.full(blocks * BLOCK, NO_REQUEST, dtype=np.int64),
        end_counts=np.zeros(blocks, dtype=np.int64),
    )
