"""Live replica of iterations: functions of the state machine, one iteration at a time (compiled).

An iteration is scheduled at its start, and its results are returned at its end. Requests that arrive in
between join the queue immediately. The decoding requests are the first `decodes` entries of `answers`.
"""

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import Limits
from optimizer.simulation.machine.clients import admit
from optimizer.simulation.machine.compiling import compiled, entry
from optimizer.simulation.machine.iterations import begin_iterations, end_iterations
from optimizer.simulation.machine.memory import evict
from optimizer.simulation.machine.queue import drop_waiting
from optimizer.simulation.machine.state import NO_ITERATION, NO_REQUEST, EngineState


@compiled
def reset_row(
    machine: EngineState, row: int, in_tokens: int, out_tokens: int, level: int, cached_tokens: int,
    shared_tokens: int, now_ms: float,
) -> None:  # fmt: skip
    """Reset the record at index `row` for a new request."""
    record = machine.rows[row]
    record.in_tokens, record.out_tokens, record.level = in_tokens, out_tokens, level
    record.cached = min(cached_tokens, max(in_tokens - 1, 0))
    record.shared = min(shared_tokens, record.cached)
    record.arrival_ms = record.sent_ms = now_ms
    record.first_ms = record.last_ms = np.nan
    record.made = record.preempted = 0


@entry
def offer(
    machine: EngineState, _times: IterationCoefficients, limits: Limits, row: int, in_tokens: int,
    out_tokens: int, level: int, cached_tokens: int, shared_tokens: int, now_ms: float,
) -> bool:  # fmt: skip
    """Add a request that arrives now; return False if it is rejected."""
    state = machine.state[0]
    reset_row(machine, row, in_tokens, out_tokens, level, cached_tokens, shared_tokens, now_ms)
    if state.running + state.waiting == 0:
        state.now_ms = max(state.now_ms, now_ms)
    return admit(machine, limits, row)


@entry
def begin_step(
    machine: EngineState, times: IterationCoefficients, limits: Limits, scheduled_ms: FloatArray
) -> float:
    """Start an iteration unless one is in progress, and return its end [ms]; inf if the replica is idle.

    Args:
        machine: state of the replica.
        times: latency model.
        limits: limits of the replica.
        scheduled_ms: for requests whose prompts it computes, NaN is replaced by the start of the iteration.
    """
    state = machine.state[0]
    if state.work_ms == 0:
        if state.running + state.waiting == 0:
            return np.inf
        decodes = state.decodes
        spent_ms, _ = begin_iterations(machine, times, limits, 1, np.inf)
        state.work_ms = spent_ms
        for i in range(state.work_completed):
            schedule(scheduled_ms, machine.places[i].prompt, state.now_ms)
        if state.work_partial != NO_REQUEST:
            schedule(scheduled_ms, state.work_partial, state.now_ms)
        _forget_evicted(machine, decodes)
    return state.now_ms + state.work_ms


@compiled
def schedule(scheduled_ms: FloatArray, row: int, now_ms: float) -> None:
    """Record the time at which a request first joins the batch [ms]."""
    if np.isnan(scheduled_ms[row]):
        scheduled_ms[row] = now_ms


@entry
def end_step(
    machine: EngineState, _times: IterationCoefficients, limits: Limits, made: IntArray, ended: IntArray
) -> tuple[int, int]:
    """End the iteration in progress.

    Args:
        machine: the replica.
        made: filled with the requests that made a token.
        ended: filled with those of them that completed.

    Returns:
        Number of requests in `made` and in `ended`.
    """
    state = machine.state[0]
    decodes, completed = state.decodes, state.work_completed
    paused = decodes if state.work_prompts > 0 and limits.prefill_first else 0
    spent_ms = state.work_ms
    state.work_ms = 0.0
    end_iterations(machine, limits, spent_ms, 1)
    count, over = 0, 0
    for i in range(decodes + completed):
        row = machine.answers[i] if i < decodes else machine.places[i - decodes].prompt
        if i >= paused:
            made[count] = row
            count += 1
        if np.isnan(machine.rows[row].last_ms):
            machine.answers[i - over] = row
        else:
            ended[over] = row
            over += 1
    return count, over


@entry
def withdraw(
    machine: EngineState, _times: IterationCoefficients, limits: Limits, row: int, _now_ms: float
) -> bool:
    """Remove a request; if the iteration in progress computes it, change nothing and return False."""
    state = machine.state[0]
    if drop_waiting(machine, row):
        return True
    if state.work_ms > 0:
        return False
    decodes = state.decodes
    evict(machine, limits, row)
    _forget_evicted(machine, decodes)
    return True


@compiled
def _forget_evicted(machine: EngineState, decodes: int) -> None:
    """Remove the requests that no longer decode from the first `decodes` entries of `answers`."""
    if machine.state[0].decodes == decodes:
        return
    kept = 0
    for i in range(decodes):
        if machine.rows[machine.answers[i]].end != NO_ITERATION:
            machine.answers[kept] = machine.answers[i]
            kept += 1
