"""Static batching: waiting requests start together, up to the maximum batch, one batch after the other."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.law import StaticCoefficients
from optimizer.simulation.machine.compiling import compiled, entry, inlined

STATICS = np.dtype(
    [
        ("head", np.int64),  # first waiting request in the queue
        ("tail", np.int64),  # end of the queue
        ("batch", np.int64),  # requests of the batch; they precede `head` in the queue, by length
        ("complete", np.int64),  # complete requests of the batch
        ("tokens", np.int64),  # tokens of each output in the batch
        ("batches", np.int64),
        ("now_ms", np.float64),
        ("end_ms", np.float64),  # end of the prompts or the decode step in progress, inf if there is none
        ("start_ms", np.float64),  # start of the batch
        ("busy_ms", np.float64),
        ("batch_ms", np.float64),  # integral of the batch over time
    ],
    align=True,
)
"""Record of a replica's state between two events."""


class StaticLine(NamedTuple):
    """A replica with static batching, and its requests."""

    states: npt.NDArray[Any]
    """One record of `STATICS`."""
    come_ms: FloatArray
    """Arrival times [ms], shape (R,)."""
    in_tokens: IntArray
    """Prompt lengths [tokens], shape (R,)."""
    out_tokens: IntArray
    """Output lengths [tokens], shape (R,)."""
    first_ms: FloatArray
    """Times of the first tokens [ms], shape (R,)."""
    last_ms: FloatArray
    """Times of the last tokens [ms], shape (R,)."""
    queue: IntArray
    """Requests of the batch, followed by the waiting requests."""


def empty_line(come_ms: FloatArray, in_tokens: IntArray, out_tokens: IntArray, queue: int) -> StaticLine:
    """Return an empty replica and its requests, whose times of tokens are NaN.

    Args:
        come_ms: arrival times [ms], shape (R,).
        in_tokens: prompt lengths [tokens], shape (R,).
        out_tokens: output lengths [tokens], at least one, shape (R,).
        queue: length of the array for the queue.
    """
    states = np.zeros(1, STATICS)
    states["end_ms"] = np.inf
    first_ms, last_ms = np.full((2, len(come_ms)), np.nan)
    return StaticLine(states, come_ms, in_tokens, out_tokens, first_ms, last_ms, np.zeros(queue, np.int64))


@entry
def run_static_batches(times: StaticCoefficients, max_batch: int, max_queue: int, line: StaticLine) -> None:
    """Run all requests, sorted by arrival; those beyond `max_queue` are rejected."""
    state, arrival, tail, count = line.states[0], 0, 0, len(line.come_ms)
    while tail > state.head or arrival < count:
        if tail == state.head:
            state.now_ms = max(state.now_ms, line.come_ms[arrival])
            line.queue[tail] = arrival
            tail, arrival = tail + 1, arrival + 1
        state.tail = tail
        _begin_batch(times, max_batch, line)
        _run_batch(times, line)
        head, now_ms = state.head, state.now_ms
        while arrival < count and line.come_ms[arrival] <= now_ms:
            if tail - head < max_queue:
                line.queue[tail] = arrival
                tail += 1
            arrival += 1


@entry
def offer_static(
    times: StaticCoefficients, max_batch: int, max_queue: int, line: StaticLine, row: int
) -> bool:
    """Add a request that arrives at its time in `come_ms`; return False if it is rejected."""
    state = line.states[0]
    is_idle = state.batch == 0 and state.tail == state.head
    if not is_idle and state.tail - state.head >= max_queue:
        return False
    line.queue[state.tail] = row
    state.tail += 1
    if is_idle:
        state.now_ms = max(state.now_ms, line.come_ms[row])
        _begin_batch(times, max_batch, line)
    return True


@entry
def begin_step(times: StaticCoefficients, max_batch: int, line: StaticLine) -> float:
    """Start a batch or a decode step unless one is in progress, and return its end [ms]; inf if idle."""
    state = line.states[0]
    if state.end_ms == np.inf and state.batch > 0:
        here = state.batch if times.padded else state.batch - state.complete
        spent_ms = step_ms(times, here)
        state.end_ms = state.now_ms + spent_ms
        state.batch_ms += here * spent_ms
    elif state.end_ms == np.inf and state.tail > state.head:
        _begin_batch(times, max_batch, line)
    return state.end_ms


@entry
def end_step(line: StaticLine) -> None:
    """End the prefill or decode step in progress, and record its tokens."""
    state = line.states[0]
    state.now_ms, state.end_ms = state.end_ms, np.inf
    batch = line.queue[state.head - state.batch : state.head]
    if state.tokens == 0:
        for row in batch:
            line.first_ms[row] = state.now_ms
    state.tokens += 1
    while state.complete < state.batch and line.out_tokens[batch[state.complete]] <= state.tokens:
        line.last_ms[batch[state.complete]] = state.now_ms
        state.complete += 1
    if state.complete == state.batch:
        state.busy_ms += state.now_ms - state.start_ms
        state.batch = state.complete = 0


@inlined
def _run_batch(times: StaticCoefficients, line: StaticLine) -> None:
    """Complete the batch whose prefill is in progress; all steps between two completions run at once."""
    state = line.states[0]
    count, now_ms, tokens, batch_ms = state.batch, state.end_ms, 1, 0.0
    batch = line.queue[state.head - count : state.head]
    for row in batch:
        line.first_ms[row] = now_ms
    for i in range(count):
        row = batch[i]
        here = count if times.padded else count - i
        spent_ms = (line.out_tokens[row] - tokens) * step_ms(times, here)
        now_ms, tokens = now_ms + spent_ms, line.out_tokens[row]
        batch_ms += here * spent_ms
        line.last_ms[row] = now_ms
    state.busy_ms += now_ms - state.start_ms
    state.batch_ms += batch_ms
    state.now_ms, state.end_ms, state.batch = now_ms, np.inf, 0


@inlined
def step_ms(times: StaticCoefficients, here: int) -> float:
    """Return the time of a decode step with `here` outputs [ms]."""
    return times.decode_base_ms + times.decode_per_request_ms * here


@inlined
def _begin_batch(times: StaticCoefficients, max_batch: int, line: StaticLine) -> None:
    """Start a batch of waiting requests, sorted by length, and compute their prompts."""
    state = line.states[0]
    count = min(state.tail - state.head, max_batch)
    batch = line.queue[state.head : state.head + count]
    prompts = _sort_batch(batch, line.in_tokens, line.out_tokens)
    prefill_ms = times.prefill_per_token_ms * prompts + (times.prefill_base_ms if prompts > 0 else 0.0)
    state.head += count
    state.batch, state.complete, state.tokens = count, 0, 0
    state.start_ms, state.end_ms = state.now_ms, state.now_ms + prefill_ms
    state.batch_ms += count * prefill_ms
    state.batches += 1


@compiled
def _sort_batch(batch: IntArray, in_tokens: IntArray, out_tokens: IntArray) -> int:
    """Sort the requests of a batch by output length, and return the total prompt length [tokens]."""
    prompts = 0
    for i in range(len(batch)):
        row, place = batch[i], i
        prompts += in_tokens[row]
        while place > 0 and out_tokens[batch[place - 1]] > out_tokens[row]:
            batch[place] = batch[place - 1]
            place -= 1
        batch[place] = row
    return prompts
