"""State of the engine between two steps: one record of the replica, and one record of each request.

Lists link the records of requests, so a step moves no data. A request is in the list of waiting requests, or
in a list of requests that complete in the same iteration. -1 ends a list.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.requests import Requests

NO_REQUEST = -1
NO_ITERATION = -1
"""Value of `end` for a request that is not decoding because it was preempted."""
BLOCK = 64
"""Number of iterations that share one count of completions. The search for the next completion skips blocks
without any.
"""

STATE = np.dtype(
    [
        ("now_ms", np.float64),
        ("iteration", np.int64),  # decode iterations so far, the clock of `end`
        ("next_end", np.int64),  # iteration in which the next request completes
        ("decodes", np.int64),  # decoding requests
        ("decode_tokens", np.int64),  # tokens of decoding requests in the KV cache
        ("running", np.int64),  # requests in the batch: decodes and scheduled prompts
        ("waiting", np.int64),
        ("first_waiting", np.int64),
        ("partial", np.int64),  # request with a partially computed prompt
        ("partial_tokens", np.int64),  # computed tokens of that prompt
        ("youngest", np.int64),  # the request admitted last
        ("next_row", np.int64),  # next request to send
        ("asleep", np.int64),  # users who are thinking
        ("work_prompts", np.int64),  # prompts in the scheduled iteration
        ("work_tokens", np.int64),  # prompt tokens in the scheduled iteration
        ("work_held", np.int64),  # KV cache tokens that the scheduled iteration adds
        ("shared_tokens", np.int64),  # tokens of running requests that are stored once for all
        ("work_attention", np.float64),  # sum over its chunks of c·(start + c/2), for c tokens
        ("work_completed", np.int64),  # prompts that it completes
        ("work_partial", np.int64),  # prompt that is partial after it
        ("work_partial_tokens", np.int64),  # computed tokens of that prompt after it
        ("work_ms", np.float64),  # live replica: time of the iteration in progress, 0 if there is none
        ("busy_ms", np.float64),
        ("batch_ms", np.float64),  # integral of the batch over time
        ("token_clock", np.float64),  # processor sharing: tokens of an output that started at time 0
        ("iterations", np.int64),
        ("preemptions", np.int64),
        ("rejected", np.int64),
        ("stuck", np.int64),  # whether an iteration took no time
    ],
    align=True,
)
"""Record of the replica's state."""

ROW = np.dtype(
    [
        ("arrival_ms", np.float64),  # arrival at the client, or end of its user's thinking time
        ("in_tokens", np.int64),
        ("out_tokens", np.int64),
        ("cached", np.int64),  # prompt tokens in the prefix cache, which are not computed
        ("shared", np.int64),  # those of them that are stored once for all requests
        ("think_ms", np.float64),  # thinking time of its user after it completes
        ("sent_ms", np.float64),  # NaN until it happens, like the next two times
        ("first_ms", np.float64),
        ("last_ms", np.float64),
        ("preempted", np.int64),  # number of preemptions
        ("made", np.int64),  # output tokens before the last preemption
        ("end", np.int64),  # iteration in which it completes
        ("level", np.int64),  # rank of its priority, 0 is the highest
        ("link", np.int64),  # next request in the queue, or with the same `end`
        ("older", np.int64),  # running request admitted before it
        ("younger", np.int64),
    ],
    align=True,
)
"""Record of a request's data and state."""

PLACE = np.dtype(
    [
        ("prompt", np.int64),  # request with a scheduled or completing prompt
        ("prompt_left", np.float64),  # processor sharing: remaining share of the prompt
    ],
    align=True,
)
"""Record of the prompt progress in a batch slot."""


class EngineState(NamedTuple):
    """State of a replica and its clients."""

    state: npt.NDArray[Any]
    """One record of `STATE`."""
    rows: npt.NDArray[Any]
    """Requests as records of `ROW`, in send order; shape (R,)."""
    places: npt.NDArray[Any]
    """One record of `PLACE` for each batch slot."""
    answer_ends: FloatArray
    """Heap of the ends of outputs, measured by the token clock; only under processor sharing."""
    answers: IntArray
    wakes_ms: FloatArray
    """Heap of the times at which users send again [ms], shape (users,); empty without users."""
    ends: IntArray
    """First request that completes in an iteration, by the iteration's number modulo the size (a power of
    two).
    """
    end_counts: IntArray
    """Number of completions in each block of iterations."""
    last_waiting: IntArray
    """Last waiting request of each priority, highest priority first, shape (levels,)."""


def initial_state(requests: Requests, limits: Limits) -> EngineState:
    """Return the state of an idle replica before its first request arrives."""
    rows = np.zeros(len(requests), ROW)
    rows["in_tokens"], rows["out_tokens"] = requests.in_tokens, requests.out_tokens
    if requests.cached_tokens is not None:
        rows["cached"] = np.minimum(requests.cached_tokens, np.maximum(requests.in_tokens - 1, 0))
    if requests.shared_tokens is not None:
        rows["shared"] = np.minimum(requests.shared_tokens, rows["cached"])
    if requests.arrival_ms is not None:
        rows["arrival_ms"] = requests.arrival_ms
    if requests.think_ms is not None:
        rows["think_ms"] = requests.think_ms
    for name in ("sent_ms", "first_ms", "last_ms"):
        rows[name] = np.nan
    levels = 1
    if requests.priority is not None:
        ranks, rows["level"] = np.unique(requests.priority, return_inverse=True)
        levels = max(len(ranks), 1)
    state = np.zeros(1, STATE)
    for name in ("first_waiting", "partial", "youngest"):
        state[name] = NO_REQUEST
    state["next_end"] = UNLIMITED
    wakes_ms = np.empty(0) if requests.wakes_ms is None else requests.wakes_ms.copy()
    state["asleep"] = len(wakes_ms)
    batch = _slots(limits, len(rows))
    blocks = _blocks(int(requests.out_tokens.max(initial=1)))
    return EngineState(
        state=state,
        rows=rows,
        places=np.zeros(batch, PLACE),
        answer_ends=np.zeros(batch),
        answers=np.zeros(batch, np.int64),
        wakes_ms=wakes_ms,
        ends=np.full(blocks * BLOCK, NO_REQUEST, dtype=np.int64),
        end_counts=np.zeros(blocks, dtype=np.int64),
        last_waiting=np.full(levels, NO_REQUEST, dtype=np.int64),
    )


def empty_state(rows: int, limits: Limits, levels: int) -> EngineState:
    """Return the state of an idle replica with free records for `rows` requests and `levels` priorities."""
    none = np.zeros(rows, np.int64)
    machine = initial_state(Requests(none, none), limits)
    machine.state["next_row"] = rows
    return machine._replace(last_waiting=np.full(levels, NO_REQUEST, dtype=np.int64))


def with_more_rows(machine: EngineState, rows: int, limits: Limits) -> EngineState:
    """Return a copy of the state with records for `rows` requests."""
    slots = _slots(limits, rows)
    machine.state["next_row"] = rows
    names = {"rows": rows, "places": slots, "answer_ends": slots, "answers": slots}
    return machine._replace(
        **{name: lengthened(getattr(machine, name), size) for name, size in names.items()}
    )


def with_longer_ends(machine: EngineState, out_tokens: int) -> EngineState:
    """Return a copy of the state for outputs of up to `out_tokens` tokens.

    The decoding requests are the first entries of `answers`.
    """
    blocks = _blocks(out_tokens)
    ends, counts = np.full(blocks * BLOCK, NO_REQUEST, dtype=np.int64), np.zeros(blocks, dtype=np.int64)
    for row in machine.answers[: machine.state[0]["decodes"]]:
        slot = machine.rows[row]["end"] & (len(ends) - 1)
        machine.rows[row]["link"] = ends[slot]
        ends[slot] = row
        counts[slot // BLOCK] += 1
    return machine._replace(ends=ends, end_counts=counts)


def _slots(limits: Limits, rows: int) -> int:
    """Return the length of arrays with one entry per batch slot."""
    return min(limits.max_batch, rows) + 1


def _blocks(out_tokens: int) -> int:
    """Return a number of blocks, a power of two, that suffices for outputs of a length [tokens]."""
    blocks = 1
    while blocks * BLOCK <= out_tokens:
        blocks *= 2
    return blocks


def lengthened(values: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Extend an array with zeros to a size."""
    longer = np.zeros(size, values.dtype)
    longer[: len(values)] = values
    return longer
