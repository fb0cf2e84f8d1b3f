"""Static batching: waiting requests start together up to the maximum batch, one batch after the other."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.law import StaticCoefficients
from optimizer.simulation.limits import UNLIMITED
from optimizer.simulation.machine.compiling import entry, inlined

STATICS = np.dtype(
    [
        ("head", np.int64),  # first waiting request in the queue
        ("tail", np.int64),  # end of the queue
        ("batch", np.int64),  # requests of the batch; they precede `head` in the queue, by length
        ("complete", np.int64),  # those of them that are complete
        ("tokens", np.int64),  # tokens of each output in the batch
        ("steps", np.int64),  # decode steps in progress
        ("batches", np.int64),
        ("now_ms", np.float64),
        ("end_ms", np.float64),  # end of the prompts or the decode steps in progress, inf if there are none
        ("start_ms", np.float64),  # start of the batch
        ("busy_ms", np.float64),
        ("batch_ms", np.float64),  # integral of the batch over time
    ],
    align=True,
)
"""State of a replica between two events."""


def empty_batch() -> npt.NDArray[Any]:
    """Return the state of an empty replica."""
    state = np.zeros(1, STATICS)
    state["end_ms"] = np.inf
    return state


def run_statics(
    times: StaticCoefficients, max_batch: int, max_queue: int, come_ms: FloatArray, in_tokens: IntArray,
    out_tokens: IntArray, first_ms: FloatArray, last_ms: FloatArray,
) -> tuple[float, float, int]:  # fmt: skip
    """Run all requests, given by ascending arrival; fill the times of their first and last tokens.

    Args:
        times: latency model.
        max_batch: maximum batch.
        max_queue: maximum requests waiting; further ones are rejected, with NaN.
        come_ms: arrivals, shape (R,).
        in_tokens: prompt lengths.
        out_tokens: output lengths, at least one token.
        first_ms: filled.
        last_ms: filled.

    Returns:
        Busy time, ∫ batch dt, and number of batches.
    """
    first_ms[:] = last_ms[:] = np.nan
    count = len(come_ms)
    line = StaticLine(
        empty_batch(), come_ms, in_tokens, out_tokens, first_ms, last_ms, np.empty(count, np.int64)
    )
    advance_statics(times, max_batch, max_queue, line, 0, count, UNLIMITED, np.inf)
    state = line.states[0]
    return float(state["busy_ms"]), float(state["batch_ms"]), int(state["batches"])


class StaticLine(NamedTuple):
    """A replica with static batching and its requests."""

    states: npt.NDArray[Any]
    """One record of `STATICS`."""
    come_ms: FloatArray
    """Arrivals, shape (R,)."""
    in_tokens: IntArray
    """Prompt lengths."""
    out_tokens: IntArray
    """Output lengths."""
    first_ms: FloatArray
    """Times of the first tokens."""
    last_ms: FloatArray
    """Times of the last tokens."""
    queue: IntArray
    """Requests of the batch, then those that wait."""


@entry
def advance_statics(
    times: StaticCoefficients, max_batch: int, max_queue: int, line: StaticLine, arrival: int, count: int,
    most: int, until_ms: float,
) -> None:  # fmt: skip
    """Run up to a time, that time included.

    Args:
        times: latency model.
        max_batch: maximum batch.
        max_queue: maximum requests waiting.
        line: the replica; changed.
        arrival: first request that arrives in this run.
        count: end of these requests.
        most: maximum decode steps in one; with 1, the run also ends with each.
        until_ms: end of the run, not before the last arrival.
    """
    state = line.states[0]
    while True:
        if state.batch == 0:
            if state.head == state.tail:
                if arrival >= count:
                    return
                state.now_ms = max(state.now_ms, line.come_ms[arrival])
                line.queue[state.tail] = arrival
                state.tail, arrival = state.tail + 1, arrival + 1
            _begin_batch(times, max_batch, line)
        elif state.end_ms == np.inf:
            _begin_steps(times, line, most)
        while arrival < count and line.come_ms[arrival] <= state.end_ms:
            if state.tail - state.head < max_queue:
                line.queue[state.tail] = arrival
                state.tail += 1
            arrival += 1
        if state.end_ms > until_ms:
            return
        _end_steps(line)
        if most == 1:
            return


@inlined
def _begin_batch(times: StaticCoefficients, max_batch: int, line: StaticLine) -> None:
    """Take waiting requests, in the order of their lengths, and compute their prompts."""
    state = line.states[0]
    count = min(state.tail - state.head, max_batch)
    batch = line.queue[state.head : state.head + count]
    prompts = 0
    for i in range(count):
        row, place = batch[i], i
        prompts += line.in_tokens[row]
        while place > 0 and line.out_tokens[batch[place - 1]] > line.out_tokens[row]:
            batch[place] = batch[place - 1]
            place -= 1
        batch[place] = row
    prefill_ms = times.prefill_per_token_ms * prompts + (times.prefill_base_ms if prompts > 0 else 0.0)
    state.head += count
    state.batch, state.complete, state.tokens, state.steps = count, 0, 0, 0
    state.start_ms, state.end_ms = state.now_ms, state.now_ms + prefill_ms
    state.batch_ms += count * prefill_ms
    state.batches += 1


@inlined
def _begin_steps(times: StaticCoefficients, line: StaticLine, most: int) -> None:
    """Begin the decode steps up to the next complete output, at most so many."""
    state = line.states[0]
    row = line.queue[state.head - state.batch + state.complete]
    here = state.batch if times.padded else state.batch - state.complete
    state.steps = min(line.out_tokens[row] - state.tokens, most)
    spent_ms = state.steps * (times.decode_base_ms + times.decode_per_request_ms * here)
    state.end_ms = state.now_ms + spent_ms
    state.batch_ms += here * spent_ms


@inlined
def _end_steps(line: StaticLine) -> None:
    """End the prompts or the decode steps in progress, and record their tokens."""
    state = line.states[0]
    state.now_ms, state.end_ms = state.end_ms, np.inf
    batch = line.queue[state.head - state.batch : state.head]
    if state.tokens == 0:
        state.steps = 1
        for row in batch:
            line.first_ms[row] = state.now_ms
    state.tokens += state.steps
    while state.complete < state.batch and line.out_tokens[batch[state.complete]] <= state.tokens:
        line.last_ms[batch[state.complete]] = state.now_ms
        state.complete += 1
    if state.complete == state.batch:
        state.busy_ms += state.now_ms - state.start_ms
        state.batch = state.complete = 0
