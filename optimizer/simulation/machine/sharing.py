"""State machine of processor sharing, for the linear law of llm-inferno.

No request waits for an iteration to end. With n requests in the batch, a prompt of I tokens progresses by
1/(γ + δ·I·n) of itself per millisecond and an output by 1/(α + β·n) tokens (eq. 1, 2). The first token is
made when the prompt completes.
"""

import numpy as np

from optimizer.simulation.law import ProcessorSharingCoefficients
from optimizer.simulation.limits import Limits
from optimizer.simulation.machine.clients import (
    HELD_BACK,
    ON_TIME,
    has_place,
    next_arrival_ms,
    take_arrivals,
    think,
)
from optimizer.simulation.machine.compiling import compiled, entry
from optimizer.simulation.machine.heaps import push, remove_first
from optimizer.simulation.machine.queue import leave_queue
from optimizer.simulation.machine.state import EngineState

ROUNDING = 1e-12
"""Relative difference within which two end times count as equal."""


@entry
def run_shared(
    machine: EngineState, times: ProcessorSharingCoefficients, limits: Limits, until_ms: float
) -> None:
    """Run all events before `until_ms`."""
    state = machine.state[0]
    while True:
        admit_waiting(machine, limits)
        arrival_ms = next_arrival_ms(machine) if has_place(machine, limits) else np.inf
        progress_ms = next_progress_ms(machine, times)
        event_ms = min(arrival_ms, progress_ms)
        if event_ms >= until_ms or event_ms == np.inf:
            return
        ends = progress_ms <= arrival_ms
        pass_until(machine, times, event_ms, ends)
        take_arrivals(machine, limits, ON_TIME)
        if ends:
            finish_prompts(machine)
            while has_finished_answer(machine):
                think(machine, finish_answer(machine), state.now_ms)
            take_arrivals(machine, limits, HELD_BACK)


@compiled
def admit_waiting(machine: EngineState, limits: Limits) -> None:
    """Admit waiting requests to the free slots of the batch."""
    state = machine.state[0]
    while state.waiting > 0 and state.running < limits.max_batch:
        _admit(machine, leave_queue(machine))


@compiled
def next_progress_ms(machine: EngineState, times: ProcessorSharingCoefficients) -> float:
    """Return the time at which the next prompt or output completes [ms]; inf if the batch is empty."""
    state = machine.state[0]
    return np.inf if state.running == 0 else state.now_ms + _until_progress_ms(machine, times)


@compiled
def _admit(machine: EngineState, row: int) -> None:
    """Admit a request to the batch; a request without a prompt makes its first token immediately."""
    state = machine.state[0]
    if machine.rows[row].in_tokens > 0:
        machine.places[state.work_prompts].prompt = row
        machine.places[state.work_prompts].prompt_left = 1.0
        state.work_prompts += 1
    else:
        _begin_answer(machine, row)


@compiled
def _prompt_ms(machine: EngineState, times: ProcessorSharingCoefficients, place: int) -> float:
    """Return the time of an entire prompt if the current batch did not change [ms].

    Args:
        machine: state of the replica.
        times: latency model.
        place: batch slot of the request.
    """
    tokens = machine.rows[machine.places[place].prompt].in_tokens
    return times.prefill_base_ms + times.prefill_per_token_ms * tokens * machine.state[0].running


@compiled
def token_ms(machine: EngineState, times: ProcessorSharingCoefficients) -> float:
    """Return the time of an output token in the current batch [ms]."""
    return times.decode_base_ms + times.decode_per_request_ms * machine.state[0].running


@compiled
def _until_progress_ms(machine: EngineState, times: ProcessorSharingCoefficients) -> float:
    """Return the time until the next prompt or output completes, if the batch does not change [ms]."""
    state = machine.state[0]
    least_ms = np.inf
    if state.decodes > 0:
        least_ms = max(machine.answer_ends[0] - state.token_clock, 0.0) * token_ms(machine, times)
    for place in range(state.work_prompts):
        least_ms = min(least_ms, machine.places[place].prompt_left * _prompt_ms(machine, times, place))
    return least_ms


@compiled
def pass_until(
    machine: EngineState,
    times: ProcessorSharingCoefficients,
    until_ms: float,
    ends: bool,  # noqa: FBT001
) -> None:
    """Advance the clock and all requests to a time.

    Args:
        machine: state of the replica.
        times: latency model.
        until_ms: the time.
        ends: whether the next request completes then, even if it would be slightly later because of rounding.
    """
    state = machine.state[0]
    spent_ms = until_ms - state.now_ms
    state.now_ms = until_ms
    if state.running == 0:
        return
    state.busy_ms += spent_ms
    state.batch_ms += spent_ms * state.running
    ending_ms = _until_progress_ms(machine, times) * (1 + ROUNDING) if ends else -1.0
    for place in range(state.work_prompts):
        needed_ms = machine.places[place].prompt_left * _prompt_ms(machine, times, place)
        over = needed_ms <= ending_ms
        machine.places[place].prompt_left *= 0.0 if over else max(1 - spent_ms / needed_ms, 0.0)
    if state.decodes > 0:
        each_ms = token_ms(machine, times)
        left = machine.answer_ends[0] - state.token_clock
        over = left * each_ms <= ending_ms
        passed = state.token_clock + (0.0 if over else spent_ms / each_ms)
        state.token_clock = machine.answer_ends[0] if over else passed


@compiled
def finish_prompts(machine: EngineState) -> None:
    """Record the first tokens of completed prompts."""
    state = machine.state[0]
    kept = 0
    for place in range(state.work_prompts):
        row = machine.places[place].prompt
        if machine.places[place].prompt_left > 0:
            machine.places[kept].prompt = row
            machine.places[kept].prompt_left = machine.places[place].prompt_left
            kept += 1
        else:
            _begin_answer(machine, row)
    state.work_prompts = kept


@compiled
def _begin_answer(machine: EngineState, row: int) -> None:
    state = machine.state[0]
    machine.rows[row].first_ms = state.now_ms
    end = state.token_clock + machine.rows[row].out_tokens - 1
    push(machine.answer_ends, machine.answers, state.decodes, end, row)
    state.decodes += 1


@compiled
def has_finished_answer(machine: EngineState) -> bool:
    """Return whether at least one output is complete."""
    state = machine.state[0]
    return state.decodes > 0 and machine.answer_ends[0] <= state.token_clock


@compiled
def finish_answer(machine: EngineState) -> int:
    """Record the last token of a completed output, free its batch slot, and return its request."""
    state = machine.state[0]
    row = machine.answers[0]
    machine.rows[row].last_ms = state.now_ms
    state.running -= 1
    state.decodes -= 1
    remove_first(machine.answer_ends, machine.answers, state.decodes)
    return row
