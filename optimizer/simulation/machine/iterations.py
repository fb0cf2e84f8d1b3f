"""State machine of iterations: schedules an iteration, advances the clock, and records its tokens.

While only decodes are in progress, only their context lengths change from one iteration to the next. So all
iterations up to the next event run in one step, whose time is an arithmetic series. A live replica uses the
same functions, one iteration at a time.
"""

import numpy as np

from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.limits import UNLIMITED, Limits
from optimizer.simulation.machine.clients import (
    HELD_BACK,
    ON_TIME,
    has_place,
    next_arrival_ms,
    take_arrivals,
    think,
)
from optimizer.simulation.machine.compiling import compiled, entry, inlined
from optimizer.simulation.machine.decodes import begin_answer, end_answer, find_next_end
from optimizer.simulation.machine.memory import iterations_that_fit, leave_batch, preempt_until_fits
from optimizer.simulation.machine.scheduler import gather_prompts
from optimizer.simulation.machine.state import NO_REQUEST, EngineState
from optimizer.simulation.machine.times import iteration_ms, iterations_ms, iterations_until


@entry
def run_iterations(
    machine: EngineState, times: IterationCoefficients, limits: Limits, until_ms: float
) -> None:
    """Run all iterations that start before `until_ms`; the last can end after it."""
    state = machine.state[0]
    while state.stuck == 0:
        if state.running + state.waiting == 0:
            arrival_ms = next_arrival_ms(machine)
            if arrival_ms >= until_ms or arrival_ms == np.inf:
                return
            state.now_ms = max(state.now_ms, arrival_ms)
            take_arrivals(machine, limits, ON_TIME)
            continue
        if state.now_ms >= until_ms:
            return
        spent_ms, count = begin_iterations(machine, times, limits, UNLIMITED, until_ms)
        if count > 0:
            end_iterations(machine, limits, spent_ms, count)


@inlined
def begin_iterations(
    machine: EngineState, times: IterationCoefficients, limits: Limits, most: int, until_ms: float
) -> tuple[float, int]:
    """Schedule one iteration with prompts, or up to `most` iterations of decodes up to the next event.

    Returns:
        Total time [ms] and number of the iterations; if no request can progress, 0, and the state is marked
            as stuck.
    """
    state = machine.state[0]
    gather_prompts(machine, limits)
    if state.work_prompts > 0:
        decodes = 0 if limits.prefill_first else state.decodes
        context = 0 if limits.prefill_first else state.decode_tokens + state.decodes
        return iteration_ms(
            times, decodes, context, state.work_prompts, state.work_tokens, state.work_attention
        ), 1
    preempted = preempt_until_fits(machine, limits)
    first_ms = iteration_ms(times, state.decodes, state.decode_tokens + state.decodes, 0, 0, 0.0)
    if state.decodes == 0 or not first_ms > 0:
        state.stuck = 1
        return 0.0, 0
    growth_ms = times.kv_read_per_token_ms * state.decodes
    count = 1
    if not preempted:
        count = min(state.next_end - state.iteration, iterations_that_fit(machine, limits), most)
        event_ms = min(until_ms, _next_event_ms(machine, limits))
        if iterations_ms(first_ms, growth_ms, count) > event_ms - state.now_ms:
            count = iterations_until(event_ms - state.now_ms, first_ms, growth_ms)
    return iterations_ms(first_ms, growth_ms, count), count


@inlined
def end_iterations(machine: EngineState, limits: Limits, spent_ms: float, count: int) -> None:
    """End the scheduled iterations: advance the clock by `spent_ms`, and record their tokens."""
    state = machine.state[0]
    prompts = state.work_prompts > 0
    _pass_time(machine, limits, spent_ms, count, 0 if prompts and limits.prefill_first else count)
    if prompts:
        _finish_prompts(machine, limits)
    take_arrivals(machine, limits, HELD_BACK)


@inlined
def _finish_prompts(machine: EngineState, limits: Limits) -> None:
    """Record the next token of each request whose prompt is complete."""
    state = machine.state[0]
    state.partial, state.partial_tokens = state.work_partial, state.work_partial_tokens
    for i in range(state.work_completed):
        row = machine.places[i].prompt
        left = machine.rows[row].out_tokens - machine.rows[row].made - 1
        if machine.rows[row].made == 0:
            machine.rows[row].first_ms = state.now_ms
        if left == 0:
            _end(machine, limits, row)
        else:
            begin_answer(machine, row, left)


@compiled
def _next_event_ms(machine: EngineState, limits: Limits) -> float:
    """Return the time of the next arrival that could join the batch [ms]; other arrivals are not events."""
    state = machine.state[0]
    # The first request in the queue might not fit in the KV cache, but one of higher priority might fit.
    overtakes = len(machine.last_waiting) > 1
    joins = (state.waiting == 0 or overtakes) and state.partial == NO_REQUEST
    joins = joins and state.running < limits.max_batch
    return next_arrival_ms(machine) if joins and has_place(machine, limits) else np.inf


@compiled
def _pass_time(
    machine: EngineState, limits: Limits, spent_ms: float, iterations: int, tokens_each: int
) -> None:
    """Advance the clock, add tokens to every output, and end the completed outputs."""
    state = machine.state[0]
    if not spent_ms > 0:
        state.stuck = 1
    state.now_ms += spent_ms
    state.busy_ms += spent_ms
    state.batch_ms += spent_ms * state.running
    state.iterations += iterations
    state.iteration += tokens_each
    state.decode_tokens += tokens_each * state.decodes
    take_arrivals(machine, limits, ON_TIME)  # batch slots that end now are still occupied
    if state.iteration == state.next_end and tokens_each > 0:
        row = end_answer(machine)
        while row != NO_REQUEST:
            _end(machine, limits, row)
            row = end_answer(machine)
        find_next_end(machine)


@compiled
def _end(machine: EngineState, limits: Limits, row: int) -> None:
    """Record the last token of a request, and free its batch slot."""
    state = machine.state[0]
    machine.rows[row].last_ms = state.now_ms
    leave_batch(machine, limits, row)
    think(machine, row, state.now_ms)
