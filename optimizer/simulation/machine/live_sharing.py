"""Live replica of processor sharing: functions of the state machine, and the times of tokens (compiled).

A token that does not complete an output changes nothing in the batch, so it is only counted in `made`.
"""

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.law import ProcessorSharingCoefficients
from optimizer.simulation.limits import Limits
from optimizer.simulation.machine.clients import admit
from optimizer.simulation.machine.compiling import compiled, entry
from optimizer.simulation.machine.heaps import remove_at
from optimizer.simulation.machine.live_iterations import reset_row, schedule
from optimizer.simulation.machine.queue import drop_waiting
from optimizer.simulation.machine.sharing import (
    admit_waiting,
    finish_answer,
    finish_prompts,
    has_finished_answer,
    next_progress_ms,
    pass_until,
    token_ms,
)
from optimizer.simulation.machine.state import EngineState

TOKEN_ROUNDING = 1e-9
"""Fraction of a token within which two tokens count as simultaneous."""


@entry
def offer(
    machine: EngineState, times: ProcessorSharingCoefficients, limits: Limits, row: int, in_tokens: int,
    out_tokens: int, level: int, cached_tokens: int, shared_tokens: int, now_ms: float,
) -> bool:  # fmt: skip
    """Add a request that arrives now; return False if it is rejected."""
    reset_row(machine, row, in_tokens, out_tokens, level, cached_tokens, shared_tokens, now_ms)
    pass_until(machine, times, max(machine.state[0].now_ms, now_ms), False)  # noqa: FBT003
    return admit(machine, limits, row)


@entry
def begin_step(
    machine: EngineState, times: ProcessorSharingCoefficients, limits: Limits, scheduled_ms: FloatArray
) -> float:
    """Admit waiting requests, and return the time of the next token or completion [ms]; inf if there is none.

    Args:
        machine: state of the replica.
        times: latency model.
        limits: limits of the replica.
        scheduled_ms: for admitted requests with prompts, NaN is replaced by the current time.
    """
    admit_waiting(machine, limits)
    for i in range(machine.state[0].work_prompts):
        schedule(scheduled_ms, machine.places[i].prompt, machine.state[0].now_ms)
    return min(_next_token_ms(machine, times), next_progress_ms(machine, times))


@entry
def end_step(
    machine: EngineState, times: ProcessorSharingCoefficients, _limits: Limits, made: IntArray,
    ended: IntArray,
) -> tuple[int, int]:  # fmt: skip
    """Advance to the next token or completion.

    Args:
        machine: the replica.
        times: latency model.
        made: filled with the requests that made a token.
        ended: filled with those of them that completed.

    Returns:
        Number of requests in `made` and in `ended`.
    """
    count, progress_ms = 0, next_progress_ms(machine, times)
    if _next_token_ms(machine, times) <= progress_ms:
        tokens = _tokens_to_next(machine) + TOKEN_ROUNDING
        for i in range(machine.state[0].decodes):
            if _tokens_to(machine, i) <= tokens:
                made[count] = machine.answers[i]
                count += 1
        for i in range(count):
            machine.rows[made[i]].made += 1
        return count, 0
    pass_until(machine, times, progress_ms, True)  # noqa: FBT003
    finish_prompts(machine)
    while has_finished_answer(machine):
        made[count] = ended[count] = finish_answer(machine)
        count += 1
    return count, count


@entry
def withdraw(
    machine: EngineState, times: ProcessorSharingCoefficients, _limits: Limits, row: int, now_ms: float
) -> bool:
    """Remove a request at time `now_ms`; return True, because no iteration delays that."""
    state = machine.state[0]
    if drop_waiting(machine, row):
        return True
    pass_until(machine, times, max(state.now_ms, now_ms), False)  # noqa: FBT003
    state.running -= 1
    for i in range(state.decodes):
        if machine.answers[i] == row:
            state.decodes -= 1
            remove_at(machine.answer_ends, machine.answers, state.decodes, i)
            return True
    kept = 0
    for i in range(state.work_prompts):
        if machine.places[i].prompt != row:
            machine.places[kept].prompt = machine.places[i].prompt
            machine.places[kept].prompt_left = machine.places[i].prompt_left
            kept += 1
    state.work_prompts = kept
    return True


@compiled
def _tokens_to(machine: EngineState, i: int) -> float:
    """Return how far the token clock advances until the next token of output `i`; inf if that is its last."""
    row = machine.answers[i]
    left = machine.rows[row].out_tokens - 1 - machine.rows[row].made
    return np.inf if left <= 0 else machine.answer_ends[i] - left - machine.state[0].token_clock


@compiled
def _tokens_to_next(machine: EngineState) -> float:
    """Return how far the token clock advances until the next token that ends no output; inf if none."""
    least = np.inf
    for i in range(machine.state[0].decodes):
        least = min(least, _tokens_to(machine, i))
    return least


@compiled
def _next_token_ms(machine: EngineState, times: ProcessorSharingCoefficients) -> float:
    """Return the time of the next token that ends no output [ms]; inf if there is none."""
    return machine.state[0].now_ms + max(_tokens_to_next(machine), 0.0) * token_ms(machine, times)
