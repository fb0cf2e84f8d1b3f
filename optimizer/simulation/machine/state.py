"""State of the engine between two steps: one record of the replica, and one of each request.

Lists are linked through the requests, so a step moves no data. A request is in the list of waiting requests
or in the list of those that end with the same iteration. -1 ends a list.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.requests import Requests

NO_REQUEST = -1
NO_ITERATION = -1
"""End of a request that is not decoding, after it has lost its place."""
BLOCK = 64
"""Iterations that share one count of ends, so that the search for the next end can skip them."""

STATE = np.dtype(
    [
        ("now_ms", np.float64),
        ("iteration", np.int64),  # decode iterations so far, the clock of `end`
        ("next_end", np.int64),  # iteration in which the next request completes
        ("decodes", np.int64),  # decoding requests
        ("decode_tokens", np.int64),  # their tokens in the KV cache
        ("running", np.int64),  # requests in the batch: decodes and scheduled prompts
        ("waiting", np.int64),
        ("first_waiting", np.int64),
        ("partial", np.int64),  # request with a partially computed prompt
        ("partial_tokens", np.int64),  # tokens computed of it
        ("youngest", np.int64),  # the request admitted last
        ("next_row", np.int64),  # next request to send
        ("asleep", np.int64),  # users who are thinking
        ("work_prompts", np.int64),  # scheduled iteration: its prompts
        ("work_tokens", np.int64),  # their tokens
        ("work_attention", np.float64),  # their sum of x·(start + x/2)
        ("work_completed", np.int64),  # prompts that complete
        ("work_partial", np.int64),  # prompt that is partial afterwards
        ("work_partial_tokens", np.int64),  # its computed tokens afterwards
        ("work_ms", np.float64),  # live: time of the iteration in progress, 0 if there is none
        ("busy_ms", np.float64),
        ("batch_ms", np.float64),  # integral of the batch over time
        ("token_clock", np.float64),  # processor sharing: tokens of an output present from the start
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
        ("arrival_ms", np.float64),  # arrival at the client, or wake-up of its user
        ("in_tokens", np.int64),
        ("out_tokens", np.int64),
        ("think_ms", np.float64),  # thinking time of its user afterwards
        ("sent_ms", np.float64),  # NaN, like the next two, until it happens
        ("first_ms", np.float64),
        ("last_ms", np.float64),
        ("preempted", np.int64),  # number of preemptions
        ("made", np.int64),  # output tokens before the last preemption
        ("end", np.int64),  # iteration in which it completes
        ("level", np.int64),  # rank of its priority, 0 is the highest
        ("link", np.int64),  # next in the queue, or with the same end
        ("older", np.int64),  # running request admitted before it
        ("younger", np.int64),
    ],
    align=True,
)
"""Record of a request."""

PLACE = np.dtype(
    [
        ("prompt", np.int64),  # request with a scheduled or completing prompt
        ("prompt_left", np.float64),  # processor sharing: remaining share of the prompt
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
    """Heap of the wake-up times of users [ms], shape (users,); empty without users."""
    ends: IntArray
    """First request that ends with an iteration, by its number modulo the size, a power of two."""
    end_counts: IntArray
    """Number of ends in each block of iterations."""
    last_waiting: IntArray
    """Last waiting request of each priority, the highest first; shape (levels,)."""


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
    """Return an idle replica with free rows and a queue of several priorities."""
    none = np.zeros(rows, np.int64)
    machine = initial_state(Requests(none, none), limits)
    machine.state["next_row"] = rows
    return machine._replace(last_waiting=np.full(levels, NO_REQUEST, dtype=np.int64))


def with_more_rows(machine: EngineState, rows: int, limits: Limits) -> EngineState:
    """Return the state with more rows."""
    slots = _slots(limits, rows)
    machine.state["next_row"] = rows
    names = {"rows": rows, "places": slots, "answer_ends": slots, "answers": slots}
    return machine._replace(**{name: _longer(getattr(machine, name), size) for name, size in names.items()})


def with_longer_ends(machine: EngineState, out_tokens: int) -> EngineState:
    """Return the state for longer outputs; the decoding requests are the first in `answers`."""
    blocks = _blocks(out_tokens)
    ends, counts = np.full(blocks * BLOCK, NO_REQUEST, dtype=np.int64), np.zeros(blocks, dtype=np.int64)
    for row in machine.answers[: machine.state[0]["decodes"]]:
        slot = machine.rows[row]["end"] & (len(ends) - 1)
        machine.rows[row]["link"] = ends[slot]
        ends[slot] = row
        counts[slot // BLOCK] += 1
    return machine._replace(ends=ends, end_counts=counts)


def _slots(limits: Limits, rows: int) -> int:
    """Return the length of arrays with one item per batch slot."""
    return min(limits.max_batch, rows) + 1


def _blocks(out_tokens: int) -> int:
    """Return the number of blocks for outputs of a length, a power of two."""
    blocks = 1
    while blocks * BLOCK <= out_tokens:
        blocks *= 2
    return blocks


def _longer(values: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return an array with zeros at its end."""
    longer = np.zeros(size, values.dtype)
    longer[: len(values)] = values
    return longer
